# SPDX-License-Identifier: Apache-2.0
"""The picture, the tables and the sentences with figures of README.md and README.ko.md, the same
in two languages (readme_words.py).

They show a few rows of bench/results; bench/report.py puts them between the pages' markers.
"""

from __future__ import annotations

import os

import report_peers
import report_train
import results
from cuda_rows import find
from readme_words import WORDS
from report_peers_plot import Column, Panel, svg
from tables import gigabytes, table

Row = dict  # of texts
CARD = os.path.join("bench", "results", "h200")
PICTURE = os.path.join(CARD, "readme.svg")
SHAPES = ("16384x4096x128256", "4096x4096x128256", "8192x2304x256000")  # the first in the picture
DTYPE = "bf16"
OURS, OURS_SMALL = "flce-fused", "flce-recompute"
ERRORS = ("loss", "grad_hidden", "grad_weight")
COLUMNS = (
    Column("time, ms (dashed: three bare products)", 300, "median_ms", digits=1),
    Column("peak memory, GB", 590, "peak_bytes", 1e9),
)

# (file, N, H, V, dtype, rival; None: the best of them)
CPU_ROWS = (
    ("amd-epyc-family-25-model-1", 2048, 1024, 32000, "f32", None),
    ("amd-epyc-family-25-model-1", 2048, 2048, 128256, "f32", None),
    ("intel-xeon-family-6-model-207", 2048, 1024, 32000, "f32", None),
    ("intel-xeon-family-6-model-207", 2048, 1024, 32000, "bf16", "onednn-avx512_core_bf16"),
    ("intel-xeon-family-6-model-207", 2048, 1024, 32000, "bf16", "onednn"),
)


def by_shape(root: str) -> dict[str, dict[str, Row]]:
    """Shape -> system -> its row, the fastest first; only shapes at which ours was timed."""
    path = os.path.join(root, CARD, "peers.csv")
    timed = report_peers.split(path)[0] if os.path.exists(path) else []
    timed = [row for row in timed if row["dtype"] == DTYPE and row["data"] == "random"]
    timed = [row for row in timed if row["median_ms"] and row["peak_bytes"]]
    timed.sort(key=lambda row: float(row["median_ms"]))
    found = {shape: [row for row in timed if row["shape"] == shape] for shape in SHAPES}
    systems = {shape: {row["system"]: row for row in rows} for shape, rows in found.items()}
    return {shape: rows for shape, rows in systems.items() if OURS in rows}


def sizes(shape: str) -> str:
    return shape.replace("x", "×")


def cost(row: Row | None) -> str:
    return f"{report_peers.ms(row['median_ms'])} ms, {gigabytes(row['peak_bytes'])}" if row else "-"


def card_part(root: str, language: str) -> str:
    words, shapes = WORDS[language], by_shape(root)
    if not shapes:
        return words["none"]
    first = next(iter(shapes))
    ours = shapes[first][OURS]
    setup = words["setup"].format(
        shape=sizes(first), device=ours["device"], dtype=DTYPE, torch=ours["torch"],
        date=ours["date"][:10],
    )  # fmt: skip
    floors = [f"{report_peers.ms(rows[OURS]['floor_ms'])} ms" for rows in shapes.values()]
    lines = [[words["bare"], *floors] + ["-"] * len(ERRORS)]
    for system in dict.fromkeys(system for rows in shapes.values() for system in rows):
        costs = [cost(rows.get(system)) for rows in shapes.values()]
        lines.append([f"`{system}`", *costs, *report_peers.errors(shapes[first].get(system))])
    header = [words["system"], *map(sizes, shapes), *(words[name] for name in ERRORS)]
    return setup + "\n\n" + table(header, lines)


def is_faster(row: Row, than: Row) -> bool:
    return float(row["median_ms"]) < float(than["median_ms"])


def is_smaller(row: Row, than: Row) -> bool:
    return float(row["peak_bytes"]) < float(than["peak_bytes"])


def lost_line(words: dict, shape: str, rows: dict[str, Row]) -> str:
    ours, small = rows[OURS], rows.get(OURS_SMALL)
    others = [row for name, row in rows.items() if not name.startswith("flce-")]

    def names(found: list[Row]) -> str:
        return ", ".join(f"`{row['system']}`" for row in found) or words["nobody"]

    beats = [row for row in others if small and is_faster(row, small) and is_smaller(row, small)]
    return words["lost"].format(
        shape=sizes(shape), floor=report_peers.ms(ours["floor_ms"]),
        ours=report_peers.ms(ours["median_ms"]), peak=gigabytes(ours["peak_bytes"]),
        faster=names([row for row in others if is_faster(row, ours)]),
        smaller=names([row for row in others if is_smaller(row, ours)]), beats=names(beats),
    )  # fmt: skip


def train_line(words: dict, root: str) -> str:
    """Empty where a way was not measured."""
    rows = report_train.read(os.path.join(root, CARD), "train.csv", report_train.COLUMNS)
    steps, largest = (report_train.rows_by_way(rows, what) for what in ("steps", "largest"))
    if not all(way in found for found in (steps, largest) for way in ("eager", "flce")):
        return ""
    ours, eager = steps["flce"], steps["eager"]
    return words["train"].format(
        **{name: ours[name] for name in ("layers", "hidden", "vocab", "batch", "sequence")},
        ours=report_peers.ms(ours["step_ms"]), eager=report_peers.ms(eager["step_ms"]),
        our_peak=gigabytes(ours["peak_bytes"]), eager_peak=gigabytes(eager["peak_bytes"]),
        our_most=largest["flce"]["batch"], most=largest["eager"]["batch"],
    )  # fmt: skip


def lost_part(root: str, language: str) -> str:
    words = WORDS[language]
    lines = [lost_line(words, shape, rows) for shape, rows in by_shape(root).items()]
    parts = ["\n".join(lines), train_line(words, root)]
    return "\n\n".join(part for part in parts if part) or words["none"]


def pictures(root: str) -> dict[str, str]:
    """Path of the picture -> what stands in it; none where nothing was timed."""
    for shape, rows in by_shape(root).items():
        ours = rows[OURS]
        title = f"Loss and both gradients, N×H×V = {sizes(shape)}, {DTYPE}, {ours['device']}"
        panel = Panel(title, list(rows.values()), float(ours["floor_ms"]))
        return {PICTURE: svg([panel], COLUMNS)}
    return {}


def seconds(text: str) -> str:
    value = float(text) / 1e3
    return f"{value:.1f} s" if value >= 10 else f"{value:.2f} s"


def is_rival(row: Row, rival: str | None) -> bool:
    if rival:
        return row["system"] == rival
    return row["system"] in ("openblas", "onednn")


def cpu_line(root: str, words: dict, number: int) -> list[str] | None:
    name, tokens, hidden, vocab, dtype, rival = CPU_ROWS[number]
    rows = results.load(os.path.join(root, "bench", "results", "cpu", name + ".csv"))
    asked = {
        "series": "headline",
        "tokens": tokens,
        "hidden": hidden,
        "vocab": vocab,
        "dtype": dtype,
    }
    here = [row for row in rows if all(row[key] == str(value) for key, value in asked.items())]
    ours = find(here, system=OURS)
    rivals = [row for row in here if is_rival(row, rival)]
    if ours is None or not rivals:
        return None
    best = min(rivals, key=lambda row: float(row["ratio_to_ours"]))
    extra = [float(row["extra_bytes"]) / 1e6 for row in (ours, best)]
    return [
        f"{tokens}×{hidden}×{vocab}",
        words["processors"][number],
        seconds(best["ours_ms"]),
        f"{float(best['ratio_to_ours']):.2f}",
        f"{extra[0]:.0f} / {extra[1]:.0f} MB",
    ]


def cpu_part(root: str, language: str) -> str:
    words = WORDS[language]
    lines = [cpu_line(root, words, number) for number in range(len(CPU_ROWS))]
    return table(words["cpu"], [line for line in lines if line])


def parts(language: str) -> tuple:
    return (
        ("readme-card", lambda root: card_part(root, language)),
        ("readme-lost", lambda root: lost_part(root, language)),
        ("readme-cpu", lambda root: cpu_part(root, language)),
    )
