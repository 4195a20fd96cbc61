#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of a card from the files that `./dev bench cuda` writes: bench/results/<card>/*.csv.

usage: report_cuda.py DIR      the tables of one folder on standard output

bench/report.py puts them into docs/measured.md. `flce bench --device cuda` writes the columns
(tools/flce/bench_cuda_report.cpp). Of rows of the same key the last counts.
"""

import glob
import os
import sys

import published
import report_torch
from cuda_rows import (
    FILES,
    by_chunks,
    error,
    find,
    hard_ratio,
    is_timed,
    load_folder,
    ms,
    number,
    shape_text,
)
from tables import gigabytes, table

# What we aim at: time over that of the three usual products; extra memory of fused.
RATIO_TARGETS = {"fused": 0.96, "recompute": 1.35, "forward": 0.36}
EXTRA_TARGETS = {"4096x4096x128256": 1.2e9, "16384x4096x128256": 2.2e9, "8192x2304x256000": 3.4e9}
ERROR_RULE = 1.05  # times the unfused computation's error, and one rounding of the output
ROUNDINGS = {"bf16": 2.0**-9, "f16": 2.0**-12, "f32": 2.0**-25, "tf32": 2.0**-25}


def times_table(rows):
    lines = []
    for row in rows:
        if row["data"] != "random" or row["peak_bytes"] is None:
            continue
        spread = f" ({ms(row['min_ms'])}–{ms(row['max_ms'])})" if is_timed(row) else ""
        lines.append(
            [
                shape_text(row),
                row["dtype"],
                row["method"],
                row["chunk"],
                ms(row["median_ms"]) + spread,
                number(row["ratio"]),
                number(hard_ratio(row)),
                gigabytes(row["extra_bytes"]),
                gigabytes(row["peak_bytes"]),
                error(row["err_loss"]),
                error(row["err_grad_hidden"]),
                error(row["err_grad_weight"]),
            ]
        )
    return lines and table(
        [
            "N×H×V",
            "dtype",
            "method",
            "chunk",
            "median ms (min–max)",
            "of the usual floor",
            "of the hard floor",
            "extra memory",
            "peak",
            "loss",
            "grad_hidden",
            "grad_weight",
        ],
        lines,
    )


def floors_table(rows):
    found = {}
    for row in rows:
        if is_timed(row) and row["floor_ms"]:
            found[(shape_text(row), row["dtype"])] = row
    lines = []
    for (shape, dtype), row in found.items():
        n, h, v = map(int, row["shape"].split("x"))
        lines.append(
            [
                shape,
                dtype,
                ms(row["floor_ms"]),
                ms(row["hard_floor_ms"]),
                f"{6 * n * h * v / row['floor_ms'] / 1e9:.0f}",
                number(row["watts"], "{:.0f}"),
                number(row["sm_mhz"], "{:.0f}"),
            ]
        )
    return lines and table(
        [
            "N×H×V",
            "dtype",
            "usual floor ms",
            "hard floor ms",
            "TFLOP/s of the usual one",
            "W",
            "SM MHz",
        ],
        lines,
    )


def errors_table(rows):
    lines = [
        [
            shape_text(row),
            row["dtype"],
            row["data"],
            row["method"],
            error(row["err_loss"]),
            error(row["err_grad_hidden"]),
            error(row["err_grad_weight"]),
        ]
        for row in rows
        if row["data"] != "random" and row["err_loss"] is not None
    ]
    return lines and table(
        ["N×H×V", "dtype", "data", "method", "loss", "grad_hidden", "grad_weight"], lines
    )


def published_section(rows):
    """The published saving beside ours, on the same problem."""
    here = [
        row
        for row in rows
        if row["shape"] == published.SHAPE
        and row["dtype"] == "bf16"
        and row["data"] == "random"
        and row["peak_bytes"] is not None
    ]
    eager = find(here, method="naive-eager")
    if eager is None:
        return ""
    computed = 100 * (1 - published.AFTER / published.BEFORE)
    lines = [
        [
            "published",
            f"{published.BEFORE} GB",
            f"{published.AFTER} GB",
            f"{published.SAVING} % as published; the two figures give {computed:.0f} %",
        ]
    ]
    for method in ("fused-liger", "fused", "recompute"):
        row = find(here, method=method)
        if row is not None:
            saved = 100 * (1 - row["peak_bytes"] / eager["peak_bytes"])
            lines.append(
                [
                    f"{method}, chunk {row['chunk']}",
                    gigabytes(eager["peak_bytes"]),
                    gigabytes(row["peak_bytes"]),
                    f"{saved:.1f} %",
                ]
            )
    return (
        "Peak memory of the loss step, inputs and gradients included, "
        f"{published.SHAPE.replace('x', '×')} bf16, eager code (`naive-eager`) against fused:"
        "\n\n" + table(["", "eager", "fused", "saved"], lines)
    )


def sweep_section(rows):
    rows = sorted((row for row in rows if is_timed(row)), key=lambda row: row["chunk"])
    if not rows:
        return ""
    lines = [
        [
            row["chunk"],
            row["num_chunks"],
            ms(row["median_ms"]),
            number(row["ratio"]),
            gigabytes(row["extra_bytes"]),
        ]
        for row in rows
    ]
    best = min(rows, key=lambda row: row["median_ms"])
    near = next(row for row in rows if row["median_ms"] <= 1.02 * best["median_ms"])
    return (
        f"What a small chunk costs: `{rows[0]['method']}`, {shape_text(rows[0])} "
        f"{rows[0]['dtype']}. The fastest is {best['chunk']}; {near['chunk']} is the smallest "
        "within 2 % of it.\n\n"
        + table(["chunk", "chunks", "median ms", "of the usual floor", "extra memory"], lines)
    )


def plateau_section(rows):
    methods = [name for name in ("chunked", "chunked-eager", "fused") if by_chunks(rows, name)]
    if not methods:
        return ""
    counts = sorted({row["num_chunks"] for name in methods for row in by_chunks(rows, name)})
    lines = []
    for count in counts:
        cells = [find(by_chunks(rows, name), num_chunks=count) for name in methods]
        lines.append([count] + [gigabytes(row and row["peak_bytes"]) for row in cells])
    text = f"Peak memory against the number of chunks, {shape_text(rows[0])} {rows[0]['dtype']}"
    for name in ("naive", "naive-eager"):
        row = find(rows, method=name)
        if row is not None:
            text += f"; `{name}` {gigabytes(row['peak_bytes'])}"
    text += ".\n\n" + table(["chunks"] + [f"`{name}`" for name in methods], lines)
    for name in methods:
        line = by_chunks(rows, name)
        if len(line) > 1:
            text += (
                f"\n\n`{name}`: {gigabytes(line[0]['peak_bytes'])} with one chunk, "
                f"{gigabytes(line[-1]['peak_bytes'])} with {line[-1]['num_chunks']}"
                + (
                    "; the logits of all chunks are kept, and no smaller chunk lowers that plateau."
                    if name != "fused"
                    else "; nothing of a chunk is kept."
                )
            )
    return text


def limits_section(rows):
    lines = []
    for row in rows:
        fits = row["peak_bytes"] is not None
        predicted = row["predicted_peak_bytes"]
        lines.append(
            [
                shape_text(row),
                row["method"],
                row["chunk"] if fits else "-",
                gigabytes(predicted),
                gigabytes(row["peak_bytes"]),
                ms(row["median_ms"]),
                row.get("refused") or "fits",
            ]
        )
    return lines and (
        "Long batches, bf16:\n\n"
        + table(
            ["N×H×V", "method", "chunk", "planned peak", "measured peak", "median ms", ""], lines
        )
    )


def small_section(rows):
    text = times_table(rows)
    if not text:
        return ""
    verdict = {"yes": "it pays", "no": "it does not pay"}.get(rows[0].get("pays"), "it depends")
    text = (
        f"A small vocabulary, {shape_text(rows[0])} (GPT-2). The planner's verdict on fusing: "
        f"**{verdict}**.\n\n" + text
    )
    naive, fused = find(rows, method="naive"), find(rows, method="fused")
    if naive and fused and is_timed(naive) and is_timed(fused):
        text += (
            f"\n\n`fused` takes {fused['median_ms'] / naive['median_ms']:.3f} of the time of "
            f"`naive` here, and {gigabytes(fused['extra_bytes'], 3)} beside "
            f"{gigabytes(naive['extra_bytes'], 3)}."
        )
    return text


def time_losses(row, naive):
    where = f"{shape_text(row)} {row['dtype']} `{row['method']}`"
    target = RATIO_TARGETS.get(row["method"])
    if row["dtype"] == "bf16" and target and row["ratio"] and row["ratio"] > target:
        yield f"{where}: {row['ratio']:.3f} of the usual floor, target {target}."
    is_beside = row["method"] == "fused" and naive and is_timed(naive) and is_timed(row)
    if is_beside and row["median_ms"] > naive["median_ms"]:
        share = row["median_ms"] / naive["median_ms"]
        yield f"{where}: {share:.3f} of the time of `naive`."
    limit = EXTRA_TARGETS.get(row["shape"])
    extra = row["extra_bytes"]
    if row["method"] == "fused" and row["dtype"] == "bf16" and limit and extra and extra > limit:
        yield f"{where}: {gigabytes(extra)} of extra memory, target {gigabytes(limit, 1)}."


def error_losses(row, naive):
    for name in ("err_loss", "err_grad_hidden", "err_grad_weight"):
        if naive is None or row[name] is None or naive[name] is None:
            continue
        rounding = ROUNDINGS[row["dtype"]] if name != "err_loss" else ROUNDINGS["f32"]
        if row[name] > ERROR_RULE * naive[name] + rounding:
            yield (
                f"{shape_text(row)} {row['dtype']} `{row['method']}`, {row['data']} data: "
                f"{name} {error(row[name])}, `naive` {error(naive[name])}."
            )


def losses(rows):
    """Where we lose, as sentences. Eager variants and the published rule are no aims of ours."""
    found = []
    for row in rows:
        if row["method"] in ("naive", "naive-eager", "chunked-eager", "fused-liger"):
            continue
        naive = find(rows, shape=row["shape"], dtype=row["dtype"], data=row["data"], method="naive")
        if row["data"] == "random":
            found += time_losses(row, naive)
        found += error_losses(row, naive)
    return found


def prediction_text(rows):
    measured = [row for row in rows if row["extra_bytes"] is not None]
    other = [
        row
        for row in measured
        if row["extra_bytes"] != row["predicted_bytes"]
        or row["peak_bytes"] != row["predicted_peak_bytes"]
    ]
    if not measured:
        return ""
    if not other:
        return (
            f"In all {len(measured)} measurements of memory the plan's bytes and the card's "
            "are the same number."
        )
    return "The plan and the card disagree:\n\n" + "\n".join(
        f"* {shape_text(row)} {row['dtype']} `{row['method']}` chunk {row['chunk']}: extra "
        f"{row['predicted_bytes']:.0f} planned, {row['extra_bytes']:.0f} used; peak "
        f"{row['predicted_peak_bytes']:.0f} planned, {row['peak_bytes']:.0f} allocated."
        for row in other
    )


def plot(folder, name, text):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return ""
    card = os.path.basename(os.path.normpath(folder))
    return f"![{text}](../bench/results/{card}/{name})"


def card_section(folder):
    files = load_folder(folder)
    rows = [row for name in FILES for row in files[name]]
    if not rows:
        return ""
    main = files["headline"] + files["f32"]
    days = sorted({row["date"][:10] for row in rows})
    versions = sorted({row.get("version") or "?" for row in rows})
    lost = losses(main)
    parts = [
        f"### {rows[-1]['device']}",
        f"{', '.join(days)}; flce {', '.join(versions)}; `./dev bench cuda`. Medians of "
        "interleaved rounds on a warm card; the usual floor is the three matrix products alone as "
        "common code calls them, the hard floor their fastest candidates, both in the same rounds. "
        "Extra memory is workspace and what is saved; the peak counts inputs and gradients too. "
        "Errors are relative, against float64 on the card; `naive` is the unfused computation with "
        "f32 logits, `forward` the loss alone, `fused-liger` the chunk of the published rule.",
        times_table(main),
        floors_table(main),
        prediction_text(rows),
        "Where we lose:\n\n" + "\n".join(f"* {text}" for text in lost)
        if lost
        else "Where we lose: nowhere in this table."
        if main
        else "",
        errors_table(main) and "On peaked and on confident data:\n\n" + errors_table(main),
        published_section(files["headline"]),
        plateau_section(files["memory"]),
        plot(folder, "memory_vs_chunks.svg", "peak memory against chunks"),
        sweep_section(files["sweep"]),
        plot(folder, "time_vs_chunk.svg", "time against the chunk"),
        limits_section(files["limits"]),
        small_section(files["small"]),
        report_torch.section(folder),
    ]
    return "\n\n".join(part for part in parts if part)


def generated(root):
    folders = sorted(glob.glob(os.path.join(root, "bench", "results", "*", "")))
    sections = [
        card_section(folder)
        for folder in folders
        if os.path.basename(os.path.normpath(folder)) != "cpu"
    ]
    return (
        "\n\n".join(filter(None, sections))
        or "No figures of a card are here yet; `./dev bench cuda` makes them."
    )


def main():
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        sys.exit(__doc__)
    print(card_section(sys.argv[1]) or f"{sys.argv[1]}: no rows")


if __name__ == "__main__":
    main()
