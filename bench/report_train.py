# SPDX-License-Identifier: Apache-2.0
"""Tables and the plot of training end to end, from bench/results/<card>/train.csv and
train_loss.csv, which bench/train/train.py writes. bench/report.py puts them into docs/measured.md.
"""

import glob
import os
from xml.sax.saxutils import escape

from tables import gigabytes, read_rows, table

WAYS = ("eager", "compile", "flce", "flce-compile")
SETUP = ("layers", "hidden", "heads", "vocab", "sequence", "dtype")
COLUMNS = (
    "device",
    "torch",
    "version",
    "text",
    "date",
    "what",
    "way",
    "batch",
    "steps",
    "step_ms",
    "min_ms",
    "max_ms",
    "head_ms",
    "peak_bytes",
    "total_bytes",
    "parameter_bytes",
    *SETUP,
)
LOSS_COLUMNS = ("way", "batch", "step", "loss", *SETUP)
MISSING = "not measured yet"
SHOWN_LOSSES = 5

COLORS = (
    ("eager", "#d55e00", ""),
    ("compile", "#009e73", "8 5"),
    ("flce", "#0072b2", "3 4"),
    ("flce-compile", "#cc79a7", "1 6"),
)
LEFT, RIGHT, TOP, BOTTOM = 90, 760, 70, 430


def read(folder, name, columns):
    """The rows of the first row's setup: figures of another one do not stand beside them."""
    path = os.path.join(folder, name)
    rows = read_rows(path, columns) if os.path.exists(path) else []
    return [row for row in rows if all(row[key] == rows[0][key] for key in SETUP)]


def curves_of(rows):
    """Way -> its losses, step by step."""
    found = {}
    for row in sorted(rows, key=lambda row: int(row["step"])):
        found.setdefault(row["way"], []).append(float(row["loss"]))
    return {way: found[way] for way in WAYS if way in found}


def rows_by_way(rows, what):
    return {row["way"]: row for row in rows if row["what"] == what}


def way_table(rows, what, header, cells_of):
    """One line a way: `cells_of(row, row of eager code or None)` stands behind its name."""
    by_way = rows_by_way(rows, what)
    lines = []
    for way in WAYS:
        cells = [MISSING] + [""] * (len(header) - 1)
        if way in by_way:
            cells = cells_of(by_way[way], by_way.get("eager"))
        lines.append([f"`{way}`", *cells])
    return table(["", *header], lines)


def steps_cells(row, first):
    step, head = float(row["step_ms"]), float(row["head_ms"])
    per_second = int(row["batch"]) * int(row["sequence"]) / step * 1e3
    return [
        f"{step:.1f} ({float(row['min_ms']):.1f}–{float(row['max_ms']):.1f})",
        f"{step / float(first['step_ms']):.3f}" if first else "-",
        f"{per_second:.0f}",
        f"{head:.1f}",
        f"{100 * head / step:.0f} %",
        gigabytes(row["peak_bytes"]),
    ]


def steps_table(rows):
    return way_table(
        rows,
        "steps",
        [
            "a step, ms (min–max)",
            "of eager",
            "tokens a second",
            "head and loss, ms",
            "of the step",
            "peak",
        ],
        steps_cells,
    )


def largest_cells(row, first):
    batch = int(row["batch"])
    times = f"{batch / int(first['batch']):.1f}" if first and int(first["batch"]) else "-"
    return [
        batch,
        batch * int(row["sequence"]),
        times,
        f"{gigabytes(row['peak_bytes'])} of {gigabytes(row['total_bytes'])}",
    ]


def largest_table(rows):
    return way_table(rows, "largest", ["sequences", "tokens", "of eager", "peak"], largest_cells)


def shares(rows):
    """The sentence that says what share of a step the head is."""
    by_way = rows_by_way(rows, "steps")
    parts = []
    for before, after in (("eager", "flce"), ("compile", "flce-compile")):
        if before in by_way and after in by_way:
            share = [
                100 * float(by_way[way]["head_ms"]) / float(by_way[way]["step_ms"])
                for way in (before, after)
            ]
            parts.append(
                f"{share[0]:.0f} % of a step before (`{before}`), {share[1]:.0f} % after "
                f"(`{after}`)"
            )
    return "The head and its loss are " + "; ".join(parts) + "." if parts else ""


def losses_table(curves):
    """Losses at a few steps, and the largest difference from eager code's curve."""
    if not curves:
        return f"Losses: {MISSING}."
    length = min(map(len, curves.values()))
    picked = sorted({max(1, round(length * n / (SHOWN_LOSSES - 1))) for n in range(SHOWN_LOSSES)})
    lines = []
    for way, losses in curves.items():
        apart = "-"
        if "eager" in curves and way != "eager":
            apart = f"{max(abs(a - b) for a, b in zip(losses, curves['eager'])):.4f}"
        lines.append([f"`{way}`"] + [f"{losses[step - 1]:.4f}" for step in picked] + [apart])
    return table([""] + [f"step {step}" for step in picked] + ["most from eager's"], lines)


def setup_text(row):
    tokens = int(row["batch"]) * int(row["sequence"])
    return (
        f"{row['layers']} layers, H={row['hidden']}, {row['heads']} heads, V={row['vocab']}, "
        f"{float(row['parameter_bytes']) / 1e9:.2f} GB of {row['dtype']} parameters; "
        f"{row['batch']} sequences of {row['sequence']} are {tokens} tokens a step"
    )


def section(folder):
    """Text for docs/measured.md; empty where there is no such file."""
    rows = read(folder, "train.csv", COLUMNS)
    curves = curves_of(read(folder, "train_loss.csv", LOSS_COLUMNS))
    steps = [row for row in rows if row["what"] == "steps"]
    if not rows:
        return ""
    days = ", ".join(sorted({row["date"] for row in rows}))
    versions = ", ".join(sorted({row["version"] for row in rows}))
    torches = ", ".join(sorted({row["torch"] for row in rows}))
    parts = [
        f"### {rows[0]['device']}: a step of training",
        f"{days}; PyTorch {torches}, flce {versions}. "
        f"{setup_text(steps[0]) + '. ' if steps else ''}Text: {rows[0]['text']}.",
        steps_table(rows),
        shares(rows),
        "The most sequences that fit:\n\n" + largest_table(rows),
        losses_table(curves),
    ]
    if curves:
        card = os.path.basename(os.path.normpath(folder))
        parts.append(f"![loss curves](../bench/results/{card}/train_loss.svg)")
    return "\n\n".join(part for part in parts if part)


def nice_step(span, most):
    """The smallest of 1, 2, 5 times a power of ten of which at most `most` cover the span."""
    step = 10.0**-6
    while True:
        for factor in (1, 2, 5):
            if span / (factor * step) <= most:
                return factor * step
        step *= 10


class Axes:
    """Where a step and a loss lie on the page."""

    def __init__(self, curves):
        values = [loss for losses in curves.values() for loss in losses]
        self.length = max(map(len, curves.values()))
        self.unit = nice_step(max(max(values) - min(values), 1e-6), 8)
        self.low = int(min(values) / self.unit) * self.unit
        self.high = (int(max(values) / self.unit) + 1) * self.unit

    def x(self, step):
        return LEFT + (RIGHT - LEFT) * (step - 1) / max(1, self.length - 1)

    def y(self, loss):
        return BOTTOM - (BOTTOM - TOP) * (loss - self.low) / (self.high - self.low)

    def lines(self):
        num_lines = round((self.high - self.low) / self.unit)
        for line in range(num_lines + 1):
            loss = self.low + line * self.unit
            y = self.y(loss)
            yield (
                f'<line x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}" '
                f'class="{"grid" if line else "axis"}"/>'
            )
            yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{loss:.4g}</text>'
        gap = max(1, int(nice_step(self.length, 10)))
        for step in sorted({1, *range(gap, self.length + 1, gap)}):
            x = self.x(step)
            yield f'<line x1="{x:.1f}" y1="{BOTTOM}" x2="{x:.1f}" y2="{BOTTOM + 5}" class="axis"/>'
            yield f'<text x="{x:.1f}" y="{BOTTOM + 20}" text-anchor="middle">{step}</text>'


def plot(curves, subtitle):
    """Loss over steps, a line a way; dashes let lines that coincide be seen."""
    axes = Axes(curves)
    title = "Loss of each step of training, by way"
    dark = (
        "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.page{fill:#0d1117}"
        ".grid{stroke:#30363d}.axis{stroke:#9198a1}}"
    )
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 500" width="900" '
        'height="500" font-family="sans-serif" font-size="12">',
        "<style>text{fill:#24292f}.page{fill:#ffffff}.grid{stroke:#d8dee4}"
        ".axis{stroke:#57606a}" + dark + "</style>",
        f"<title>{title}</title>",
        '<rect width="900" height="500" class="page"/>',
        f'<text x="{LEFT}" y="28" font-size="16" font-weight="bold">{title}</text>',
        f'<text x="{LEFT}" y="48">{escape(subtitle)}</text>',
        *axes.lines(),
        f'<text x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 45}" text-anchor="middle">step</text>',
    ]
    for line, (way, color, dash) in enumerate(COLORS):
        if way not in curves:
            continue
        points = " ".join(
            f"{axes.x(step):.1f},{axes.y(loss):.1f}" for step, loss in enumerate(curves[way], 1)
        )
        style = f'stroke="{color}" stroke-width="2" stroke-dasharray="{dash or "none"}"'
        y = TOP + 20 * line
        parts += [
            f'<polyline fill="none" {style} points="{points}"/>',
            f'<line x1="{RIGHT + 12}" y1="{y}" x2="{RIGHT + 42}" y2="{y}" {style}/>',
            f'<text x="{RIGHT + 48}" y="{y + 4}">{way}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def folders(root):
    return sorted(glob.glob(os.path.join(root, "bench", "results", "*", "")))


def plots(root):
    """Path -> text of each plot."""
    found = {}
    for folder in folders(root):
        rows = read(folder, "train_loss.csv", LOSS_COLUMNS)
        if rows:
            first = rows[0]
            subtitle = (
                f"{first['layers']} layers, H={first['hidden']}, V={first['vocab']}, "
                f"{first['batch']} sequences of {first['sequence']} tokens a step"
            )
            found[os.path.join(folder, "train_loss.svg")] = plot(curves_of(rows), subtitle)
    return found


def generated(root):
    text = "\n\n".join(filter(None, map(section, folders(root))))
    return text or f"Step times, memory and loss curves: {MISSING}; `./dev bench train` makes them."
