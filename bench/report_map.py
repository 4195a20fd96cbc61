# SPDX-License-Identifier: Apache-2.0
"""The map of docs/decide.md, V/H by tokens: does fusing pay there?

Rows come from bench/results/<card>/map.csv and bench/results/cpu-map/<processor>.csv, which
`./dev bench cuda --map` and `./dev bench cpu --map` write; beside them stand the shapes that other
files of a card hold. bench/report_decide.py puts the text into the page.
"""

import glob
import os

import report_cuda
from report_cuda import gigabytes
from report_figures import NOT_YET
from tables import read_rows, table

# As in scripts/dev/bench_cuda.sh.
RATIOS = (4, 8, 16, 32, 64, 111)
CARD_TOKENS = (512, 2048, 8192, 32768)
CPU_TOKENS = (512, 2048)
CPU_COLUMNS = (
    "tokens",
    "hidden",
    "vocab",
    "dtype",
    "method",
    "median_ms",
    "peak_bytes",
    "cpu_model",
    "isa",
    "threads",
    "date",
)

# What counts as paying: no more than this share of the time, and no more than that of the peak.
# Times of a CPU that others use too differ by 5 % from run to run.
MOST_TIME = {"cuda": 1.02, "cpu": 1.05}
MOST_PEAK = 0.90


def cell_of(row):
    """(tokens, vocab over hidden) of a card's row."""
    tokens, hidden, vocab = map(int, row["shape"].split("x"))
    return tokens, vocab / hidden


def load_cpu(path):
    """A CPU's rows with the names of a card's."""
    rows = []
    for row in read_rows(path, CPU_COLUMNS):
        row["shape"] = f"{row['tokens']}x{row['hidden']}x{row['vocab']}"
        for name in ("median_ms", "peak_bytes"):
            row[name] = float(row[name]) if row[name] else None
        rows.append(row)
    return rows


def pairs(rows):
    """{(tokens, V/H): {method: row}}, of rows with a time or a refusal."""
    found = {}
    for row in rows:
        if row["median_ms"] is not None or row.get("refused"):
            found.setdefault(cell_of(row), {})[row["method"]] = row
    return found


def shares(fused, other):
    """Time and peak of fused over those of another method; None where one was not measured."""
    if not fused or not other or fused["median_ms"] is None or other["median_ms"] is None:
        return None
    return fused["median_ms"] / other["median_ms"], fused["peak_bytes"] / other["peak_bytes"]


def verdict(time, peak, most_time):
    if peak <= MOST_PEAK:
        return "yes" if time <= most_time else "memory only"
    return "time only" if time < 1 / most_time else "no"


def cell(methods, against, most_time):
    fused, other = methods.get("fused"), methods.get(against)
    both = shares(fused, other)
    if both:
        return f"{verdict(*both, most_time)}: {both[0]:.2f}, {both[1]:.2f}"
    if fused and fused["median_ms"] is not None and other and other.get("refused"):
        return f"yes: `{against}` does not fit"
    return NOT_YET


def grid(rows, counts, device):
    """The map against eager code and, once something was measured, against naive."""
    found, most_time = pairs(rows), MOST_TIME[device]

    def cells(against):
        return [
            [cell(found.get((tokens, ratio), {}), against, most_time) for tokens in counts]
            for ratio in RATIOS
        ]

    def text(lines):
        header = ["V/H", *(f"{tokens} tokens" for tokens in counts)]
        return table(header, [[ratio, *line] for ratio, line in zip(RATIOS, lines)])

    eager = cells("naive-eager")
    flat = [value for line in eager for value in line]
    measured = [value for value in flat if value != NOT_YET]
    paying = [value for value in measured if value.startswith("yes")]
    parts = [
        f"Measured: {len(measured)} of {len(flat)} cells; against eager code it pays in "
        f"{len(paying)}. Time and peak of `fused` over those of `naive-eager`:",
        text(eager),
    ]
    if measured:
        parts += [
            "Over those of `naive`, which holds the logits once, in place:",
            text(cells("naive")),
        ]
    return parts


def card_grid(folder):
    path = os.path.join(folder, "map.csv")
    rows = report_cuda.load(path) if os.path.exists(path) else []
    if not rows:
        start = "`./dev bench cuda --map` has not been run on this card yet."
    else:
        hidden = rows[0]["shape"].split("x")[1]
        days = sorted({row["date"][:10] for row in rows})
        start = (
            f"H={hidden} in {rows[0]['dtype']}, {', '.join(days)}; medians of interleaved rounds."
        )
    return [start, *grid(rows, CARD_TOKENS, "cuda")]


def point(methods):
    """A line of the table of other shapes."""
    fused = methods["fused"]
    tokens, ratio = cell_of(fused)
    line = [
        f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}",
        tokens,
        report_cuda.shape_text(fused),
    ]
    line.append(f"{fused['chunk']}, {fused['route']}")
    for against in ("naive-eager", "naive"):
        other = methods.get(against)
        peak = gigabytes(other["peak_bytes"]) if other else "-"
        line += [
            cell(methods, against, MOST_TIME["cuda"]),
            f"{gigabytes(fused['peak_bytes'])} / {peak}",
        ]
    return [*line, {"yes": "it pays", "no": "it does not pay"}.get(fused.get("pays"), "it depends")]


def points(files):
    """The shapes of other files: real heads, of which few are in the grid."""
    lines = []
    for name in ("small", "headline", "limits"):
        rows = [row for row in files[name] if row["data"] == "random" and row["dtype"] == "bf16"]
        found = pairs(rows)
        lines += [point(found[key]) for key in sorted(found) if "fused" in found[key]]
    return lines and (
        "Heads of real models, bf16:\n\n"
        + table(
            [
                "V/H",
                "tokens",
                "N×H×V",
                "chunk and route",
                "against eager code",
                "peaks",
                "against `naive`",
                "peaks",
                "the planner's verdict",
            ],
            lines,
        )
    )


def cpu_sections(root):
    parts = []
    for path in sorted(glob.glob(os.path.join(root, "bench", "results", "cpu-map", "*.csv"))):
        rows = load_cpu(path)
        if not rows:
            continue
        first = rows[0]
        family = os.path.splitext(os.path.basename(path))[0]
        days = sorted({row["date"][:10] for row in rows})
        parts += [
            f"### {first['cpu_model']} ({family}), {first['threads']} threads",
            f"H={first['hidden']} in {first['dtype']} by the kernels of {first['isa']}, "
            f"{', '.join(days)}; medians of interleaved rounds on a machine that others use too.",
            *grid(rows, CPU_TOKENS, "cpu"),
        ]
    return parts
