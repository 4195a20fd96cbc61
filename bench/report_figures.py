# SPDX-License-Identifier: Apache-2.0
"""The table of published figures in docs/decide.md: published, planner, measured.

Measured sides come from bench/results/<card>, the planner's from bench/results/plan, the published
ones from bench/published.py. bench/report_decide.py puts the table into its page.
"""

import glob
import os

import cuda_rows
import published
from cuda_rows import by_chunks, find
from tables import read_rows, table

GIB = 2**30
PLAN_COLUMNS = (
    "case",
    "dtype",
    "tokens",
    "hidden",
    "vocab",
    "hidden_bytes",
    "logits_bytes",
    "inc",
    "liger_chunk",
    "method",
    "route",
    "chunk",
    "peak_bytes",
    "step_bytes",
)
NOT_YET = "not measured yet"
ONLY = "published only"


class Plans:
    """What the planner says of the published cases."""

    def __init__(self, root):
        self.folder = os.path.join(root, "bench", "results", "plan")
        path = os.path.join(self.folder, "published.csv")
        self.rows = read_rows(path, PLAN_COLUMNS) if os.path.exists(path) else []

    def get(self, case, column, method="fused"):
        """A number; LookupError where there is none."""
        row = find(self.rows, case=case, method=method)
        if row is None or not row[column]:
            raise LookupError(f"no plan of {case}, {method}")
        return int(row[column])

    def checklist(self):
        path = os.path.join(self.folder, "checklist.csv")
        return read_rows(path, ("step", "text")) if os.path.exists(path) else []


class Card:
    """What was measured on one card."""

    def __init__(self, folder):
        self.folder = folder
        self.files = cuda_rows.load_folder(folder)
        path = os.path.join(folder, "map.csv")
        mapped = cuda_rows.load(path) if os.path.exists(path) else []
        self.rows = [row for rows in (*self.files.values(), mapped) for row in rows]
        self.name = self.rows[-1]["device"] if self.rows else ""

    def get(self, file, shape, method, column):
        """A number; LookupError where there is none."""
        row = find(self.files[file], shape=shape, method=method, dtype="bf16", data="random")
        if row is None or row[column] is None:
            raise LookupError(f"no {column} of {shape}, {method}")
        return row[column]

    def kept(self):
        """What chunked-eager keeps whatever the chunk: the line through its two smallest chunks."""
        line = by_chunks(self.files["memory"], "chunked-eager")
        if len(line) < 2 or line[-1]["chunk"] == line[-2]["chunk"]:
            raise LookupError("no two chunks of chunked-eager")
        (c1, b1), (c2, b2) = ((row["chunk"], row["extra_bytes"]) for row in line[-2:])
        return b2 - c2 * (b1 - b2) / (c1 - c2)


def cards(root):
    folders = sorted(glob.glob(os.path.join(root, "bench", "results", "*", "")))
    return [card for card in map(Card, folders) if card.rows]


def gb(value, digits=2):
    return f"{value / 1e9:.{digits}f} GB"


def gib(value):
    return f"{value / GIB:.2f} GiB"


def saved(before, after):
    return f"{100 * (1 - after / before):.1f} %"


# The planner's side of each published figure, by its key.
def planned_peak(plans):
    liger = plans.get("llama_16384_liger", "peak_bytes")
    chunk = plans.get("llama_16384_liger", "chunk")
    own = plans.get("llama_16384", "peak_bytes")
    return f"{gb(liger)} with the rule's chunk of {chunk}, {gb(own)} with ours"


def planned_saving(plans):
    eager = plans.get("llama_16384", "peak_bytes", "naive-eager")
    liger = plans.get("llama_16384_liger", "peak_bytes")
    return f"{saved(eager, liger)}, {saved(eager, plans.get('llama_16384', 'peak_bytes'))}"


def planned_step(plans):
    eager = plans.get("llama_step", "step_bytes", "naive-eager")
    fused = plans.get("llama_step", "step_bytes")
    return f"{saved(eager, fused)} of a step of {gb(eager)}, by the loss alone; 8 shards"


PLANNED = {
    "hidden": lambda plans: gb(plans.get("qwen", "hidden_bytes")),
    "logits": lambda plans: gb(plans.get("qwen", "logits_bytes")),
    "long": lambda plans: gb(plans.get("qwen_128k", "logits_bytes")),
    "bf16": lambda plans: gb(plans.get("llama_65536", "logits_bytes"), 1),
    "f32": lambda plans: gb(plans.get("llama_65536_f32", "logits_bytes"), 1),
    "gib": lambda plans: gib(plans.get("llama_81920", "logits_bytes")),
    "before": lambda plans: gb(plans.get("llama_16384", "peak_bytes", "naive-eager")),
    "after": planned_peak,
    "saving": planned_saving,
    "plateau": lambda plans: (
        f"{gb(plans.get('qwen', 'logits_bytes'))}, which are "
        f"{gib(plans.get('qwen', 'logits_bytes'))}, and one chunk"
    ),
    "range": lambda plans: (
        f"{planned_step(plans).split(' of ')[0]} of a whole step, "
        f"{planned_saving(plans).split(', ')[-1]} of the loss step"
    ),
    "training": planned_step,
}


# The measured side.
def measured_peak(card):
    liger = card.get("headline", published.SHAPE, "fused-liger", "peak_bytes")
    chunk = card.get("headline", published.SHAPE, "fused-liger", "chunk")
    own = card.get("headline", published.SHAPE, "fused", "peak_bytes")
    return f"{gb(liger)} with the rule's chunk of {chunk}, {gb(own)} with ours"


def measured_saving(card):
    eager = card.get("headline", published.SHAPE, "naive-eager", "peak_bytes")
    after = [
        card.get("headline", published.SHAPE, name, "peak_bytes")
        for name in ("fused-liger", "fused")
    ]
    return ", ".join(saved(eager, value) for value in after)


def measured_plateau(card):
    last = by_chunks(card.files["memory"], "chunked-eager")[-1:]
    kept = card.kept()
    most = f"{gb(last[0]['extra_bytes'])} with {last[0]['num_chunks']} chunks"
    return f"{most}, towards {gb(kept)} ({gib(kept)}) for smaller ones"


def measured_range(card):
    own = measured_saving(card).split(", ")[-1]
    path = os.path.join(card.folder, "torch.csv")
    rows = read_rows(path, ("what", "tokens", "peak_bytes")) if os.path.exists(path) else []
    parts = [f"{own} of the loss step"]
    for fused in (row for row in rows if row["what"] == "flce"):
        eager = find(rows, what="eager", tokens=fused["tokens"])
        if eager:
            share = saved(int(eager["peak_bytes"]), int(fused["peak_bytes"]))
            parts.append(f"{share} through PyTorch with {fused['tokens']} tokens")
    return ", ".join(parts)


def in_place(shape, unit):
    """naive's logits are f32, in place: all that it has beside inputs and gradients."""

    def text(card):
        return (
            f"{unit(card.get('limits', shape, 'naive', 'extra_bytes'))} as f32, in place (`naive`)"
        )

    return text


MEASURED = {
    "logits": lambda card: f"{gb(card.kept())}, what the graph of all chunks keeps",
    "long": in_place("131072x4096x151936", gb),
    "bf16": lambda card: (
        f"{gb(card.get('limits', '65536x4096x128256', 'naive-eager', 'extra_bytes') / 8)}, "
        "an eighth of what eager code holds"
    ),
    "f32": in_place("65536x4096x128256", gb),
    "gib": in_place("81920x4096x128256", gib),
    "before": lambda card: gb(card.get("headline", published.SHAPE, "naive-eager", "peak_bytes")),
    "after": measured_peak,
    "saving": measured_saving,
    "plateau": measured_plateau,
    "range": measured_range,
}


def side(functions, key, source, missing):
    if key not in functions:
        return missing.get(key, ONLY)
    try:
        return functions[key](source)
    except LookupError:
        return NOT_YET


def figures(root):
    """The one table: published, planner, measured."""
    plans, found = Plans(root), cards(root)
    lines = []
    for figure in published.FIGURES:
        line = [figure.what, figure.published, figure.source]
        line.append(side(PLANNED, figure.key, plans, {"throughput": "-", "post_training": "-"}))
        for card in found:
            line.append(side(MEASURED, figure.key, card, {"hidden": "-"}))
        lines.append(line)
    header = ["", "published", "source", "planner", *(f"measured, {card.name}" for card in found)]
    return table(header, lines) + "\n\n" + published.LINKS
