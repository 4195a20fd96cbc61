#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables from bench/results, between markers in the pages that PAGES names: docs/measured.md (the
CPU's, the cards' and training's), docs/decide.md, docs/peers.md, README.md and README.ko.md; and
the pictures beside them.

usage: report.py [--root DIR]             writes the tables into the pages
       report.py [--root DIR] --check     exit code 1 if they are not up to date
       report.py --print FILE.csv         one file's tables on standard output
       report.py --print-peers DIR        those of peers.csv and features.csv in a folder

A marked part begins with a line '<!-- generated: cpu ... -->' ('cuda ...' for cards, whose tables
report_cuda.py makes, 'train ...' report_train.py; report_decide.py, report_peers.py and
report_readme.py name theirs) and ends with '<!-- end generated -->'.
"""

import argparse
import glob
import math
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import report_cuda  # noqa: E402
import report_decide  # noqa: E402
import report_peers  # noqa: E402
import report_readme  # noqa: E402
import report_train  # noqa: E402
import results  # noqa: E402
from tables import replace_file, table  # noqa: E402

OURS = "flce-fused"
SHARE_TARGET = 0.85  # of the peak of the path in use
SERIES = (("scale_n", "tokens", "N"), ("scale_v", "vocab", "V"), ("scale_h", "hidden", "H"))


def is_unfused(system):
    return system == "openblas" or system.startswith("onednn")


def shape(row):
    return f"{row['tokens']}×{row['hidden']}×{row['vocab']}"


def group_of(row):
    """Rows that stand beside each other: the same work on the same path and threads."""
    return (
        int(row["tokens"]) * int(row["hidden"]) * int(row["vocab"]),
        shape(row),
        row["dtype"],
        row["isa"],
        int(row["threads"]),
    )


def groups(rows):
    found = {}
    for row in rows:
        found.setdefault(group_of(row), []).append(row)
    return [found[key] for key in sorted(found, key=lambda k: (k[0], k[1], k[2] != "f32", *k[3:]))]


def ms(text):
    value = float(text)
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def megabytes(text):
    return f"{float(text) / 1e6:.1f} MB" if text else "-"


def slope(sizes, times):
    """Of log time over log size, by least squares."""
    xs = [math.log(size) for size in sizes]
    ys = [math.log(time) for time in times]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys)) / sum((a - x) ** 2 for a in xs)


def headline_table(rows):
    lines = []
    for group in groups(rows):
        group.sort(key=lambda row: (row["system"] != OURS, float(row["ratio_to_ours"])))
        for row in group:
            lines.append(
                [
                    shape(row),
                    row["dtype"],
                    row["system"],
                    row["kernel"],
                    row["threads"],
                    row["chunk"],
                    f"{ms(row['median_ms'])} ({ms(row['min_ms'])}–{ms(row['max_ms'])})",
                    row["rounds"],
                    f"{float(row['gflops']):.1f}",
                    f"{100 * float(row['share_of_peak']):.0f} %",
                    f"{float(row['ratio_to_ours']):.3f}",
                    megabytes(row["extra_bytes"]),
                ]
            )
    return table(
        [
            "N×H×V",
            "dtype",
            "system",
            "kernel",
            "threads",
            "chunk",
            "median ms (min–max)",
            "rounds",
            "GFLOP/s",
            "of the peak",
            "time / ours",
            "extra memory",
        ],
        lines,
    )


def judged(rows):
    """For each group ours, the rivals that are its yardsticks, and the other systems."""
    for group in groups(rows):
        ours = next((row for row in group if row["system"] == OURS), None)
        if ours is None:
            continue
        rivals = [row for row in group if is_unfused(row["system"])]
        limited = [row for row in rivals if row["system"].startswith("onednn-")]
        free = [row for row in rivals if row not in limited]
        best = sorted(free, key=lambda row: float(row["ratio_to_ours"]))[:1]
        yield ours, best + limited, [row for row in group if row not in rivals and row is not ours]


def verdict_table(rows):
    """The best unfused code, and apart from it oneDNN held to one instruction set."""
    lines = []
    for ours, rivals, _ in judged(rows):
        start = [
            shape(ours),
            ours["dtype"],
            ours["isa"],
            ours["threads"],
            f"{100 * float(ours['share_of_peak']):.0f} %",
        ]
        for row in rivals:
            lines.append(
                [
                    *start,
                    row["system"],
                    f"{1 / float(row['ratio_to_ours']):.3f}",
                    f"{megabytes(ours['extra_bytes'])} / {megabytes(row['extra_bytes'])}",
                ]
            )
        if not rivals:
            lines.append([*start, "none here", "-", megabytes(ours["extra_bytes"])])
    return table(
        [
            "N×H×V",
            "dtype",
            "path",
            "threads",
            "share of the peak",
            "best unfused",
            "ours / best unfused",
            "extra memory, ours / theirs",
        ],
        lines,
    )


def losses(rows):
    """Where we lose, as sentences."""
    found = []
    for ours, rivals, others in judged(rows):
        where = f"{shape(ours)} {ours['dtype']} on {ours['isa']}, {ours['threads']} threads"
        share = float(ours["share_of_peak"])
        if share < SHARE_TARGET:
            found.append(
                f"{where}: {100 * share:.0f} % of the peak, short of {100 * SHARE_TARGET:.0f} %."
            )
        for row in rivals + others:
            ratio = float(row["ratio_to_ours"])
            if ratio < 1.0:
                found.append(f"{where}: `{row['system']}` takes {ratio:.3f} of our time.")
            if row["extra_bytes"] and float(row["extra_bytes"]) < float(ours["extra_bytes"]):
                found.append(
                    f"{where}: `{row['system']}` needs {megabytes(row['extra_bytes'])} of "
                    f"extra memory, we {megabytes(ours['extra_bytes'])}."
                )
    return found


def scaling_lines(rows, series, column, letter):
    found = {}
    for row in rows:
        if row["series"] == series:
            found.setdefault((row["system"], row["dtype"], row["isa"], row["threads"]), []).append(
                row
            )
    for (system, dtype, isa, threads), points in sorted(found.items()):
        points.sort(key=lambda row: int(row[column]))
        sizes = [int(row[column]) for row in points]
        times = [float(row["median_ms"]) for row in points]
        fixed = ", ".join(
            f"{name}={points[0][other]}" for _, other, name in SERIES if other != column
        )
        yield [
            letter,
            system,
            dtype,
            isa,
            threads,
            fixed,
            ", ".join(f"{size}: {ms(time)}" for size, time in zip(sizes, times)),
            f"{slope(sizes, times):.3f}" if len(points) > 1 else "-",
            f"{slope(sizes[1:], times[1:]):.3f}" if len(points) > 2 else "-",
        ]


def scaling_table(rows):
    lines = [
        line
        for name, column, letter in SERIES
        for line in scaling_lines(rows, name, column, letter)
    ]
    return lines and table(
        [
            "grows",
            "system",
            "dtype",
            "path",
            "threads",
            "fixed",
            "size: ms",
            "slope",
            "slope above the smallest",
        ],
        lines,
    )


def threads_table(rows):
    found = {}
    for row in rows:
        if row["series"] == "threads":
            found.setdefault((shape(row), row["system"], row["dtype"], row["isa"]), []).append(row)
    lines = []
    for key, points in sorted(found.items()):
        points.sort(key=lambda row: int(row["threads"]))
        first = points[0]
        for row in points:
            speed_up = float(first["median_ms"]) / float(row["median_ms"])
            lines.append(
                [
                    *key,
                    row["threads"],
                    ms(row["median_ms"]),
                    f"{float(row['gflops']):.1f}",
                    f"{100 * float(row['share_of_peak']):.0f} %",
                    f"{speed_up:.2f}",
                ]
            )
    return lines and table(
        [
            "N×H×V",
            "system",
            "dtype",
            "path",
            "threads",
            "median ms",
            "GFLOP/s",
            "of the peak",
            "speed-up",
        ],
        lines,
    )


def listed(rows, column):
    return ", ".join(sorted({row[column] for row in rows if row[column]}))


def machine_section(rows):
    headline = [row for row in rows if row["series"] == "headline"]
    torch = [row for row in rows if row["series"] == "torch"]
    parts = [
        f"### {listed(rows, 'cpu_model')}",
        f"{listed(rows, 'date')}; {listed(rows, 'system_version')}; "
        f"{listed(rows, 'compiler')}. Medians of interleaved rounds in one process; the peak "
        "is that of the multiply-adds of the path in use, measured in the same rounds; extra "
        "memory of a rival is what its loop allocates, not its library's own buffers.",
    ]
    if headline:
        parts += [verdict_table(headline), headline_table(headline)]
    if torch:
        parts += [
            "PyTorch's ways, with ours in the same process (extra memory: growth of the "
            "resident set's peak):",
            headline_table(torch),
        ]
    if headline or torch:
        lost = losses(headline) + losses(torch)
        parts.append(
            "Where we lose:\n\n" + "\n".join(f"* {text}" for text in lost)
            if lost
            else "Where we lose: nowhere in this table."
        )
    for text in (scaling_table(rows), threads_table(rows)):
        if text:
            parts.append(text)
    return "\n\n".join(parts)


def generated(root):
    paths = sorted(glob.glob(os.path.join(root, "bench", "results", "cpu", "*.csv")))
    sections = [machine_section(rows) for rows in map(results.load, paths) if rows]
    return "\n\n".join(sections) or "No results yet; `./dev bench cpu` makes them."


def marked(word):
    return re.compile(rf"(<!-- generated: {word}[^\n]*-->\n).*?(<!-- end generated -->)", re.S)


PAGES = (
    (
        "docs/measured.md",
        (("cpu", generated), ("cuda", report_cuda.generated), ("train", report_train.generated)),
    ),
    ("docs/decide.md", report_decide.PARTS),
    ("docs/peers.md", (("peers", report_peers.generated),)),
    ("README.md", report_readme.parts("en")),
    ("README.ko.md", report_readme.parts("ko")),
)


def update(root, check):
    """None, or what is wrong."""
    faults = [update_page(root, page, parts, check) for page, parts in PAGES]
    pictures = {
        **report_decide.pictures(root),
        **report_peers.plots(root),
        **report_readme.pictures(root),
        **report_train.plots(root),
    }
    faults += [
        update_file(os.path.join(root, path), text, check) for path, text in pictures.items()
    ]
    return "\n".join(filter(None, faults)) or None


def update_page(root, page, parts, check):
    path = os.path.join(root, page)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    new = text
    for word, make in parts:
        part = f"\n{make(root)}\n\n"
        new, count = marked(word).subn(lambda match, part=part: match[1] + part + match[2], new)
        if count != 1:
            return f"{path}: {count} parts marked '<!-- generated: {word} ... -->', 1 expected"
    return update_file(path, new, check)


def update_file(path, new, check):
    text = ""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
    if check and new != text:
        return f"{path}: not what bench/results gives; run bench/report.py"
    if new != text:
        replace_file(path, new)
    return None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--root", default=os.path.dirname(here))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--print", metavar="FILE", dest="file")
    parser.add_argument("--print-peers", metavar="DIR", dest="peers")
    args = parser.parse_args()
    if args.peers:
        sys.exit(print(report_peers.folder_section(args.peers) or f"{args.peers}: no rows"))
    if args.file:
        rows = results.load(args.file)
        sys.exit(print(machine_section(rows)) if rows else f"{args.file}: no rows")
    sys.exit(update(args.root, args.check))


if __name__ == "__main__":
    main()
