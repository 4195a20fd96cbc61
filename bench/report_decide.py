# SPDX-License-Identifier: Apache-2.0
"""The generated parts of docs/decide.md: curves, chunk rule, map, out of memory, published figures.

What is measured comes from bench/results/<card>, the planner's list from bench/results/plan; the
map is report_map.py's and the figures are report_figures.py's. bench/report.py puts the text
between the page's markers.
"""

import cuda_rows
import report_cuda
import report_map
from cuda_rows import by_chunks, find, ms
from report_figures import Plans, cards, figures, measured_plateau, saved
from tables import gigabytes, table

NONE = "No figures of a card are here yet; `./dev bench cuda` makes them."
RULE_HEADER = [
    "N×H×V",
    "ceil(V/H)",
    "chunk of the rule",
    "its time",
    "its peak",
    "our chunk",
    "its time",
    "its peak",
    "rule / ours, time",
]


def course(line):
    """One chunk, most chunks, the lowest, and what chunks gain; `naive` knows one."""
    first, last = line[0], line[-1]
    if first is last:
        return [gigabytes(first["peak_bytes"]), "-", "-", "-"]
    lowest = min(line, key=lambda row: row["peak_bytes"])
    return [
        gigabytes(first["peak_bytes"]),
        f"{gigabytes(last['peak_bytes'])} ({last['num_chunks']})",
        f"{gigabytes(lowest['peak_bytes'])} ({lowest['num_chunks']})",
        saved(first["peak_bytes"], lowest["peak_bytes"]),
    ]


def curves(root):
    """Why the curves differ: peak memory against the number of chunks, and the plot."""
    parts = []
    for card in cards(root):
        rows = card.files["memory"]
        methods = [
            name
            for name in ("naive-eager", "naive", "chunked-eager", "chunked", "fused")
            if by_chunks(rows, name)
        ]
        if not methods:
            continue
        lines = [[f"`{name}`", *course(by_chunks(rows, name))] for name in methods]
        parts += [
            f"Peak memory of the loss step on the {card.name}, {cuda_rows.shape_text(rows[0])} "
            f"{rows[0]['dtype']}:",
            table(["method", "in one chunk", "in most chunks", "lowest", "gained"], lines),
            plot(card, "memory_vs_chunks.svg", "peak memory against the number of chunks"),
        ]
        if by_chunks(rows, "chunked-eager"):
            parts.append(
                f"Beside inputs and gradients `chunked-eager` holds {measured_plateau(card)}: the "
                "logits of all tokens in bf16."
            )
    return "\n\n".join(part for part in parts if part) or NONE


def plot(card, name, text):
    return report_cuda.plot(card.folder, name, text)


def rule_line(row, vocab_over_hidden):
    """chunk, chunks, C·V over N·H"""
    tokens = cuda_rows.tokens(row)
    return [row["chunk"], row["num_chunks"], f"{row['chunk'] * vocab_over_hidden / tokens:.2f}"]


def ruled(plans):
    """ceil(V/H) and the rule's chunk of the published cases, by the planner."""
    found = {}
    for row in plans.rows:
        shape = f"{row['tokens']}×{row['hidden']}×{row['vocab']}"
        found[shape] = [shape, row["inc"], row["liger_chunk"]]
    header = ["N×H×V", "ceil(V/H)", "chunk of the rule"]
    return found and table(header, [found[shape] for shape in found])


def chunks(root):
    """What ceil(V/H) makes of the chunk, and what smaller chunks cost."""
    parts = [ruled(Plans(root))]
    for card in cards(root):
        rows = sorted(
            (row for row in card.files["sweep"] if row["median_ms"] is not None),
            key=lambda row: row["chunk"],
        )
        if rows:
            parts += price(card, rows)
        lines = [beside_ours(*pair) for pair in of_the_rule(card.files["headline"])]
        if lines:
            parts += [f"Beside our chunk, on the {card.name}:", table(RULE_HEADER, lines)]
    return "\n\n".join(part for part in parts if part) or NONE


def price(card, rows):
    _, hidden, vocab = map(int, rows[0]["shape"].split("x"))
    best = min(row["median_ms"] for row in rows)
    rule = next_pow2(-(-cuda_rows.tokens(rows[0]) // -(-vocab // hidden)))
    lines = [
        [
            *rule_line(row, vocab / hidden),
            ms(row["median_ms"]),
            f"{row['median_ms'] / best:.2f}",
            gigabytes(row["peak_bytes"]),
            "the rule" if row["chunk"] == rule else "",
        ]
        for row in rows
    ]
    header = ["chunk", "chunks", "C·V / (N·H)", "median ms", "of the fastest", "peak", ""]
    return [
        f"`fused` on the {card.name}, {cuda_rows.shape_text(rows[0])} {rows[0]['dtype']}:",
        table(header, lines),
        plot(card, "time_vs_chunk.svg", "time of the loss step against the chunk"),
    ]


def next_pow2(value):
    return 1 << max(value - 1, 0).bit_length()


def of_the_rule(rows):
    """Pairs of rows: fused with the chunk of the rule, and with ours."""
    timed = [row for row in rows if row["data"] == "random" and row["median_ms"] is not None]
    for row in timed:
        own = find(timed, shape=row["shape"], dtype=row["dtype"], method="fused")
        if row["method"] == "fused-liger" and own:
            yield row, own


def beside_ours(ruled, own):
    _, hidden, vocab = map(int, ruled["shape"].split("x"))
    line = [cuda_rows.shape_text(ruled), -(-vocab // hidden)]
    for row in (ruled, own):
        line += [row["chunk"], f"{ms(row['median_ms'])} ms", gigabytes(row["peak_bytes"])]
    return [*line, f"{ruled['median_ms'] / own['median_ms']:.2f}"]


def the_map(root):
    parts = []
    for card in cards(root):
        found = report_map.card_map(root, card.folder, card.name)
        parts += [f"### {card.name}", *found.section(), report_map.points(card.files, Plans(root))]
    for found in report_map.cpu_maps(root):
        parts += [f"### {found.name}", *found.section()]
    return "\n\n".join(part for part in parts if part) or NONE


def pictures(root):
    """Path below the root and text of each picture that bench/report.py writes."""
    found = [report_map.card_map(root, card.folder, card.name) for card in cards(root)]
    return {one.path: one.picture() for one in [*found, *report_map.cpu_maps(root)] if one.rows}


def memory(root):
    """Out of memory: the planner's list, and how many tokens then fit."""
    parts = []
    steps = Plans(root).checklist()
    if steps:
        parts.append("\n".join(f"{row['step']}. {row['text']}" for row in steps))
    for card in cards(root):
        lines = []
        for row in card.files["limits"]:
            fits = row["median_ms"] is not None
            lines.append(
                [
                    cuda_rows.shape_text(row),
                    f"`{row['method']}`",
                    gigabytes(row["predicted_peak_bytes"]),
                    f"{ms(row['median_ms'])} ms" if fits else "does not fit",
                ]
            )
        if lines:
            parts += [
                f"Long batches on the {card.name}, bf16:",
                table(["N×H×V", "method", "peak", "time"], lines),
            ]
    return "\n\n".join(parts) or NONE


PARTS = (
    ("decide-curves", curves),
    ("decide-chunk", chunks),
    ("decide-map", the_map),
    ("decide-memory", memory),
    ("decide-figures", figures),
)
