# SPDX-License-Identifier: Apache-2.0
"""Tables of other systems beside ours, from bench/results/<card>/peers.csv and features.csv, which
`python bench/peers` writes, and the plot peers.svg. bench/report.py puts them into docs/peers.md.

Of rows of one system, shape and kind of data the last counts; one with a version counts before one
that says that the system is missing.
"""

from __future__ import annotations

import glob
import os

import report_peers_plot
from tables import gigabytes, read_rows, table

Row = dict  # of texts
COLUMNS = (
    "device", "date", "shape", "dtype", "system", "chunk", "median_ms", "floor_ms", "ratio",
    "beyond_inputs_bytes", "err_loss", "err_grad_hidden", "err_grad_weight", "data", "min_ms",
    "max_ms", "first_call_ms", "system_version", "torch", "note", "refused",
)  # fmt: skip
FEATURES = (
    "device", "date", "system", "system_version", "torch", "dtype", "feature", "supported",
    "answer",
)  # fmt: skip
HEADER = (
    "system", "chunk", "median ms (min–max)", "floor ms", "of the floor",
    "beyond the inputs", "first call ms", "loss", "grad_hidden", "grad_weight", "peaked: loss",
    "grad_hidden", "grad_weight", "",
)  # fmt: skip
ERRORS = ("err_loss", "err_grad_hidden", "err_grad_weight")
NOT_YET = "No figures of a card are here yet; `./dev bench peers` makes them."


def cell(text: str) -> str:
    """Words of a system as they may stand in a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def ms(text: str) -> str:
    if not text:
        return "-"
    value = float(text)
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def errors(row: Row | None) -> list[str]:
    return [f"{float(row[name]):.1e}" if row and row[name] else "-" for name in ERRORS]


def newest(rows: list[Row], *key: str) -> list[Row]:
    found: dict[tuple[str, ...], Row] = {}
    for row in rows:
        name = tuple(row[column] for column in key)
        found.pop(name, None)
        found[name] = row
    return list(found.values())


def size(shape: str) -> int:
    tokens, hidden, vocab = map(int, shape.split("x"))
    return tokens * hidden * vocab


def spread(row: Row) -> str:
    return f"{ms(row['median_ms'])} ({ms(row['min_ms'])}–{ms(row['max_ms'])})"


def line(row: Row, peaked: Row | None) -> list[str]:
    start = [f"`{row['system']}`", row["chunk"] or "-", spread(row), ms(row["floor_ms"])]
    ratio = f"{float(row['ratio']):.3f}" if row["ratio"] else "-"
    memory = gigabytes(row["beyond_inputs_bytes"])
    times = [ratio, memory, ms(row["first_call_ms"])]
    return [*start, *times, *errors(row), *errors(peaked), cell(row["note"])]


def shape_table(rows: list[Row]) -> str:
    """Systems of one shape and dtype, the fastest first, the refusals last."""
    peaked = {row["system"]: row for row in rows if row["data"] == "peaked"}
    random = [row for row in rows if row["data"] == "random"]
    random.sort(key=lambda row: float(row["median_ms"] or "inf"))
    done = [row for row in random if not row["refused"]]
    lines = [line(row, peaked.get(row["system"])) for row in done]
    said = [f"* `{row['system']}`: {row['refused']}" for row in random if row["refused"]]
    for row in done:
        other = peaked.get(row["system"])
        if other and other["refused"]:
            said.append(f"* `{row['system']}`, peaked data: {other['refused']}")
    parts = [table(HEADER, lines) if lines else "", "Refused:" if said else "", "\n".join(said)]
    return "\n\n".join(part for part in parts if part)


def listed(rows: list[Row]) -> str:
    """What the systems are, of which version, and which are missing."""
    lines = []
    for row in newest(rows, "system"):
        own = [r["system_version"] for r in rows if r["system"] == row["system"]]
        versions = ", ".join(sorted(set(filter(None, own))))
        lines.append(
            [f"`{row['system']}`", versions or "-", "" if versions else cell(row["refused"])]
        )
    return table(["system", "version", ""], lines)


def split(path: str) -> tuple[list[Row], list[Row]]:
    """Rows of measurements, the newest of each, and rows of systems that were never there."""
    rows = read_rows(path, COLUMNS)
    timed = newest([row for row in rows if row["shape"]], "system", "shape", "dtype", "data")
    there = {row["system"] for row in timed}
    return timed, [row for row in rows if not row["shape"] and row["system"] not in there]


def groups(timed: list[Row]) -> list[tuple[str, list[Row]]]:
    """A title and its rows for each dtype and shape, small shapes first."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in timed:
        found.setdefault((row["dtype"], row["shape"]), []).append(row)
    order = sorted(found, key=lambda pair: (pair[0], size(pair[1]), pair[1]))
    return [(f"{shape.replace('x', '×')} {dtype}", found[dtype, shape]) for dtype, shape in order]


def plot(timed: list[Row]) -> str:
    """Empty where nothing has a time beside a floor."""
    with_ratio = [row for row in timed if row["ratio"] and row["data"] == "random"]
    panels = [report_peers_plot.Panel(title, rows) for title, rows in groups(with_ratio)]
    return report_peers_plot.svg(panels) if panels else ""


def times_section(path: str) -> str:
    timed, missing = split(path)
    rows = timed + missing
    if not rows:
        return ""
    days = ", ".join(sorted({row["date"][:10] for row in rows}))
    torches = ", ".join(sorted({row["torch"] for row in rows if row["torch"]}))
    parts = [f"### {rows[0]['device']}", f"{days}; torch {torches}.", listed(rows)]
    if plot(timed):
        card = os.path.basename(os.path.dirname(path))
        parts.append(f"![time and memory of each system](../bench/results/{card}/peers.svg)")
    for title, group in groups(timed):
        parts += [f"#### {title}", shape_table(group)]
    return "\n\n".join(parts)


def features_section(path: str) -> str:
    rows = newest(read_rows(path, FEATURES), "system", "feature")
    if not rows:
        return ""
    columns = list(dict.fromkeys(row["system"] for row in rows))
    answers = {(row["feature"], row["system"]): row["supported"] for row in rows}
    lines = [
        [cell(feature)] + [answers.get((feature, name), "-") for name in columns]
        for feature in dict.fromkeys(row["feature"] for row in rows)
    ]
    # A line is as wide as the list of systems: names stand in a line of their own, by number.
    names = "; ".join(f"{number} `{name}`" for number, name in enumerate(columns, 1))
    return (
        "#### Who supports what\n\nEach option tried on each system, beside float64; what a "
        f"`no` says is in `features.csv`. {names}.\n\n"
        + table(["option"] + [str(number) for number in range(1, len(columns) + 1)], lines)
    )


def folder_section(folder: str) -> str:
    folder = os.path.normpath(folder)
    parts = [
        make(os.path.join(folder, name))
        for name, make in (("peers.csv", times_section), ("features.csv", features_section))
        if os.path.exists(os.path.join(folder, name))
    ]
    return "\n\n".join(part for part in parts if part)


def folders(root: str) -> list[str]:
    return sorted(glob.glob(os.path.join(root, "bench", "results", "*", "")))


def plots(root: str) -> dict[str, str]:
    """Path of each plot -> what stands in it."""
    found = {}
    for folder in folders(root):
        path = os.path.join(folder, "peers.csv")
        if os.path.exists(path) and (text := plot(split(path)[0])):
            found[os.path.join(folder, "peers.svg")] = text
    return found


def generated(root: str) -> str:
    return "\n\n".join(filter(None, map(folder_section, folders(root)))) or NOT_YET
