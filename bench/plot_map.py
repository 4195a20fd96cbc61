# SPDX-License-Identifier: Apache-2.0
"""The map of docs/decide.md as a picture: an SVG of V/H by tokens, in the style of `flce bench`.

It draws what bench/report_map.py hands to it, and knows neither files nor methods.
"""

from html import escape

LEFT, TOP, WIDE, HIGH, GAP = 100, 110, 150, 54, 4
LEGEND_WIDE = 165
STYLE = (
    "text{fill:#24292f}.small{fill:#57606a;font-size:11px}.page{fill:#ffffff}.cell{stroke:#d8dee4}"
    ".yes{fill:#9ecae8}.memory{fill:#f6c99a}.time{fill:#e6c3da}.no{fill:#d8dee4}.none{fill:none}"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.page{fill:#0d1117}"
    ".cell{stroke:#30363d}.yes{fill:#1f4e79}.memory{fill:#7a4a12}.time{fill:#6b3a5c}"
    ".no{fill:#30363d}}"
)
LEGEND = (
    ("yes", "less memory, no slower"),
    ("memory", "less memory, slower"),
    ("time", "faster, no less memory"),
    ("no", "neither"),
)


def text(x, y, words, attributes=""):
    return f'<text x="{x}" y="{y}" {attributes}>{escape(words)}</text>'


def kind_of(cell):
    """The class of a cell's colour: the first word of its verdict."""
    first = cell.partition(":")[0].partition(" ")[0]
    return first if first in {name for name, _ in LEGEND} else "none"


def box(x, y, cell):
    yield f'<rect x="{x}" y="{y}" width="{WIDE - GAP}" height="{HIGH - GAP}" ' + (
        f'class="cell {kind_of(cell)}"/>'
    )
    middle = x + (WIDE - GAP) / 2
    verdict, colon, ratios = cell.partition(": ")
    time, comma, peak = ratios.partition(", ")
    if comma:
        yield text(middle, y + 22, f"time {time}", 'text-anchor="middle"')
        yield text(middle, y + 40, f"peak {peak}", 'text-anchor="middle" class="small"')
    else:
        words = ratios.replace("`", "") if colon else verdict
        yield text(middle, y + 30, words, 'text-anchor="middle" class="small"')


def svg(title, subtitle, ratios, counts, cells):
    """cells: one list for each of `ratios`, with a cell's text for each of `counts`."""
    width = LEFT + LEGEND_WIDE * 4 + 40
    height = TOP + HIGH * len(ratios) + 70
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="12">',
        f"<style>{STYLE}</style>",
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" class="page"/>',
        text(LEFT, 28, title, 'font-size="16" font-weight="bold"'),
        text(LEFT, 48, subtitle),
        text(LEFT - 12, TOP - 12, "V/H", 'text-anchor="end"'),
    ]
    for i, count in enumerate(counts):
        middle = LEFT + WIDE * i + (WIDE - GAP) / 2
        lines.append(text(middle, TOP - 12, f"{count} tokens", 'text-anchor="middle"'))
    for i, (ratio, row) in enumerate(zip(ratios, cells)):
        y = TOP + HIGH * i
        lines.append(text(LEFT - 12, y + 30, str(ratio), 'text-anchor="end"'))
        for j, cell in enumerate(row):
            lines += box(LEFT + WIDE * j, y, cell)
    y = TOP + HIGH * len(ratios) + 24
    for i, (name, words) in enumerate(LEGEND):
        x = LEFT + LEGEND_WIDE * i
        lines.append(f'<rect x="{x}" y="{y}" width="12" height="12" class="cell {name}"/>')
        lines.append(text(x + 17, y + 10, words, 'class="small"'))
    return "\n".join([*lines, "</svg>", ""])
