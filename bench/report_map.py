# SPDX-License-Identifier: Apache-2.0
"""The map of docs/decide.md, V/H by tokens: does fusing pay there?

Rows come from bench/results/<card>/map.csv and bench/results/cpu-map/<processor>.csv, which
`./dev bench cuda --map` and `./dev bench cpu --map` write; beside them stand the shapes that other
files of a card hold. bench/report_decide.py puts the text into the page.
"""

import glob
import os
from typing import NamedTuple

import cuda_rows
import plot_map
from report_figures import NOT_YET
from tables import gigabytes, read_rows, table

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


def cells(rows, counts, device, against):
    """The text of each cell: a list for each of RATIOS."""
    found, most_time = pairs(rows), MOST_TIME[device]
    return [
        [cell(found.get((tokens, ratio), {}), against, most_time) for tokens in counts]
        for ratio in RATIOS
    ]


def map_table(counts, lines):
    header = ["V/H", *(f"{tokens} tokens" for tokens in counts)]
    return table(header, [[ratio, *line] for ratio, line in zip(RATIOS, lines)])


class Map(NamedTuple):
    """One machine's map."""

    path: str  # of the picture, below the root; it stands beside the rows
    name: str
    about: str
    rows: list
    counts: tuple
    device: str

    def cells(self, against="naive-eager"):
        return cells(self.rows, self.counts, self.device, against)

    def section(self):
        flat = [value for line in self.cells() for value in line]
        measured = [value for value in flat if value != NOT_YET]
        paying = [value for value in measured if value.startswith("yes")]
        parts = [
            self.about,
            f"Measured: {len(measured)} of {len(flat)} cells; against eager code it pays in "
            f"{len(paying)}. Time and peak of `fused` over those of `naive-eager`:",
            map_table(self.counts, self.cells()),
        ]
        if measured:
            parts += [
                f"![does fusing pay, {self.name}](../{self.path})",
                "Over those of `naive`, which holds the logits once, in place:",
                map_table(self.counts, self.cells("naive")),
            ]
        return parts

    def picture(self):
        about = self.about.partition(";")[0].replace("`", "")
        title = "Does fusing pay? Time and peak memory of fused over naive-eager"
        return plot_map.svg(title, f"{self.name}; {about}", RATIOS, self.counts, self.cells())


def days(rows):
    return ", ".join(sorted({row["date"][:10] for row in rows}))


def card_map(root, folder, name):
    path = os.path.join(folder, "map.csv")
    rows = cuda_rows.load(path) if os.path.exists(path) else []
    about = "`./dev bench cuda --map` has not been run on this card yet."
    if rows:
        hidden = rows[0]["shape"].split("x")[1]
        about = f"H={hidden} in {rows[0]['dtype']}, {days(rows)}; medians of interleaved rounds."
    picture = os.path.relpath(os.path.join(folder, "map.svg"), root)
    return Map(picture, name, about, rows, CARD_TOKENS, "cuda")


def cpu_maps(root):
    for path in sorted(glob.glob(os.path.join(root, "bench", "results", "cpu-map", "*.csv"))):
        rows = load_cpu(path)
        if rows:
            first, stem = rows[0], os.path.splitext(path)[0]
            about = (
                f"H={first['hidden']} in {first['dtype']} by the kernels of {first['isa']}, "
                f"{days(rows)}; medians of interleaved rounds on a machine that others use too."
            )
            name = f"{first['cpu_model']} ({os.path.basename(stem)}), {first['threads']} threads"
            picture = os.path.relpath(stem + ".svg", root)
            yield Map(picture, name, about, rows, CPU_TOKENS, "cpu")


def point(methods):
    """A line of the table of other shapes."""
    fused = methods["fused"]
    tokens, ratio = cell_of(fused)
    line = [
        f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}",
        tokens,
        cuda_rows.shape_text(fused),
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
