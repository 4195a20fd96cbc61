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

# What the planner judged in a card's files, as scripts/dev/bench_cuda.sh asks it: by sizes alone it
# knows the head only, by --preset the model.
HEAD, STEP = "by the head alone", "of the whole step"
JUDGED = {"small": STEP, "headline": HEAD, "limits": STEP}
# As kPaysShare of src/plan/advice.cpp.
PAYS_SHARE = 0.10


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


def point(methods, judged):
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
    says = {"yes": "it pays", "no": "it does not pay"}.get(fused.get("pays"), "it depends")
    return [*line, f"{says}, {judged}"]


HEADS = [
    "V/H",
    "tokens",
    "N×H×V",
    "chunk and route",
    "against eager code",
    "peaks",
    "against `naive`",
    "peaks",
    "the planner's verdict",
]


def points(files, plans):
    """The shapes of other files: real heads, of which few are in the grid."""
    lines, fused = [], []
    for name, judged in JUDGED.items():
        rows = [row for row in files[name] if row["data"] == "random" and row["dtype"] == "bf16"]
        found = pairs(rows)
        for key in sorted(found):
            if "fused" in found[key]:
                lines.append(point(found[key], judged))
                fused.append((found[key]["fused"], judged))
    if not lines:
        return ""
    parts = [
        "Heads of real models, bf16:",
        table(HEADS, lines),
        two_questions(fused, plans),
        *other_chunks([row for row, _ in fused], plans, files["sweep"]),
    ]
    return "\n\n".join(part for part in parts if part)


def planned(plans, row, method="fused"):
    """The planner's own row of a shape, by its model and without further options; or None."""
    sizes = dict(zip(("tokens", "hidden", "vocab"), row["shape"].split("x")))
    rows = (one for one in plans.rows if one["method"] == method and one["dtype"] == row["dtype"])
    return next((one for one in rows if sizes.items() <= one.items()), None)


def saved_share(plans, row):
    """What fused saves of the model's whole step with naive; None where the planner has no step."""
    fused, naive = planned(plans, row), planned(plans, row, "naive")
    if not fused or not naive or not fused["step_bytes"] or not naive["step_bytes"]:
        return None
    return 1 - int(fused["step_bytes"]) / int(naive["step_bytes"])


def listed(values):
    """4096; 4096 and 16384; 4096, 8192 and 16384"""
    *first, last = map(str, values)
    return f"{', '.join(first)} and {last}" if first else last


def by_question(rows, judged):
    """Where it pays and where not, by one of the questions; empty where that was not put."""
    asked = [row for row, by in rows if by == judged]
    counts = {
        says: [cuda_rows.tokens(row) for row in asked if row.get("pays") == says]
        for says in ("yes", "no")
    }
    words = {"yes": "it pays with", "no": "it does not pay with"}
    said = [f"{words[says]} {listed(found)} tokens" for says, found in counts.items() if found]
    return said and f"{judged} {' and '.join(said)}"


def two_questions(fused, plans):
    """Why verdicts on one head differ: the planner was asked about the head, or about a step."""
    if {judged for _, judged in fused} != {HEAD, STEP}:
        return ""
    text = (
        f"The planner's verdicts answer two questions. With *{HEAD}* sizes were all that it was "
        f"told; with *{STEP}* it was told the model, and weighs what is saved against weights, "
        "gradients, optimizer and activations too."
    )
    heads = {}
    for row, judged in fused:
        heads.setdefault(row["shape"].partition("x")[2], []).append((row, judged))
    for head, rows in heads.items():
        said = [by_question(rows, judged) for judged in (HEAD, STEP)]
        if not all(said) or len({row.get("pays") for row, _ in rows}) == 1:
            continue
        text += (
            f" So the verdict on H×V = {head.replace('x', '×')} turns where the question "
            f"or the tokens change: {'; '.join(said)}."
        )
        shares = [(cuda_rows.tokens(row), saved_share(plans, row)) for row, _ in rows]
        known = [f"{share:.1%} with {tokens}" for tokens, share in shares if share is not None]
        if known:
            text += (
                f" Of that model's whole step, whatever was asked, `fused` saves {listed(known)} "
                f"tokens; {PAYS_SHARE:.0%} would pay."
            )
    return text.replace("%", " %")


def other_chunks(rows, plans, sweep):
    """Rows that were measured with another chunk than the planner's own."""
    for row in rows:
        own = planned(plans, row)
        if own is None or str(row["chunk"]) == own["chunk"]:
            continue
        text = (
            f"{cuda_rows.shape_text(row)} ran with chunks of {row['chunk']} tokens, "
            f"which route `{row['route']}` computes; the planner's own choice is {own['chunk']}, "
            f"by `{own['route']}`."
        )
        both = [
            next((one for one in sweep if str(one["chunk"]) == str(chunk)), None)
            for chunk in (row["chunk"], own["chunk"])
        ]
        times = [one and one["median_ms"] for one in both]
        routes = [one and one["route"] for one in both]
        if all(times) and routes == [row["route"], own["route"]]:
            text += (
                f" Where both were measured, at {cuda_rows.shape_text(both[0])}, the former took "
                f"{times[0] / times[1]:.2f} of the latter's time."
            )
        yield text
