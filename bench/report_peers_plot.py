# SPDX-License-Identifier: Apache-2.0
"""The picture of other systems beside ours, as SVG: a panel for each shape, the fastest system on
top, with bars of its time over the floor and of its memory beyond the inputs.

report_peers.py hands it rows of peers.csv that have both a system and a ratio.
"""

from __future__ import annotations

import html

Row = dict  # of texts
LINE, HEAD, FOOT = 18, 48, 24  # heights: a system, the words over a panel, the gap under it
NAME_END, TIME, MEMORY, BAR, WIDTH = 290, 300, 590, 210, 880  # places and lengths along a line
STYLE = (
    "text{font:12px sans-serif;fill:#222}.e{text-anchor:end}.h{font-weight:bold}"
    ".o{fill:#0072b2}.t{fill:#b0b0b0}.f{stroke:#d55e00;stroke-dasharray:4 3}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.o{fill:#56b4e9}.t{fill:#777}}"
)


def words(x: float, y: float, text: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{named}>{html.escape(text)}</text>'


def bar(x: float, y: float, share: float, text: str, kind: str) -> list[str]:
    """A bar of a share of the longest one, and its number behind it."""
    length = max(1.0, BAR * share)
    return [
        f'<rect x="{x:g}" y="{y + 3:g}" width="{length:.1f}" height="{LINE - 6}" class="{kind}"/>',
        words(round(x + length + 5, 1), y + LINE - 5, text),
    ]


def panel(title: str, rows: list[Row], top: float) -> list[str]:
    rows = sorted(rows, key=lambda row: float(row["ratio"]))
    longest = max(1.0, *(float(row["ratio"]) for row in rows))
    most = max(1.0, *(float(row["beyond_inputs_bytes"] or 0) for row in rows))
    lines = [
        words(10, top + 16, title, "h"),
        words(TIME, top + 38, "time over the floor"),
        words(MEMORY, top + 38, "GB beyond the inputs"),
    ]
    for number, row in enumerate(rows):
        y = top + HEAD + LINE * number
        kind = "o" if row["system"].startswith("flce-") else "t"
        ratio = float(row["ratio"])
        lines.append(words(NAME_END, y + LINE - 5, row["system"], "e"))
        lines += bar(TIME, y, ratio / longest, f"{ratio:.2f}", kind)
        if row["beyond_inputs_bytes"]:
            size = float(row["beyond_inputs_bytes"])
            lines += bar(MEMORY, y, size / most, f"{size / 1e9:.2f}", kind)
    floor, end = TIME + BAR / longest, top + HEAD + LINE * len(rows)
    lines.append(f'<path d="M{floor:.1f} {top + HEAD:g}V{end:g}" class="f"/>')
    return lines


def svg(panels: list[tuple[str, list[Row]]]) -> str:
    """Of titles and their rows; at least one panel with at least one row each."""
    lines, top = [], 0
    for title, rows in panels:
        lines += panel(title, rows, top)
        top += HEAD + LINE * len(rows) + FOOT
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img">'
        f"<title>time and memory of each system</title><style>{STYLE}</style>"
    )
    return "\n".join([head, *lines, "</svg>"]) + "\n"
