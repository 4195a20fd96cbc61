# SPDX-License-Identifier: Apache-2.0
"""Pictures of other systems beside ours, as SVG: a panel for each shape, the fastest system on top,
with a bar for each column; the first column is time, and a dashed line stands at the floor.

report_peers.py and report_readme.py hand it rows of peers.csv that have a time.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import NamedTuple

Row = dict  # of texts
LINE, HEAD, FOOT = 18, 48, 24  # heights: a system, the words over a panel, the gap under it
NAME_END, BAR, WIDTH = 290, 210, 880  # places and lengths along a line
STYLE = (
    "text{font:12px sans-serif;fill:#222}.e{text-anchor:end}.h{font-weight:bold}"
    ".p{fill:#fff}.o{fill:#0072b2}.t{fill:#b0b0b0}.f{stroke:#d55e00;stroke-dasharray:4 3}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.p{fill:#0d1117}.o{fill:#56b4e9}"
    ".t{fill:#777}}"
)


class Column(NamedTuple):
    title: str
    left: int  # where its bars begin
    name: str  # of the column of peers.csv
    unit: float = 1.0
    digits: int = 2

    def value(self, row: Row) -> float | None:
        return float(row[self.name]) / self.unit if row[self.name] else None


class Panel(NamedTuple):
    title: str
    rows: Sequence[Row]
    floor: float = 1.0  # in the first column's unit


BESIDE_FLOOR = (
    Column("time over the floor", 300, "ratio"),
    Column("GB beyond the inputs", 590, "beyond_inputs_bytes", 1e9),
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


def panel(what: Panel, columns: Sequence[Column], top: float) -> list[str]:
    time = columns[0]
    rows = sorted(what.rows, key=lambda row: time.value(row) or 0)
    longest = {column: max(column.value(row) or 0 for row in rows) or 1 for column in columns}
    longest[time] = max(longest[time], what.floor)
    lines = [words(10, top + 16, what.title, "h")]
    lines += [words(column.left, top + 38, column.title) for column in columns]
    for number, row in enumerate(rows):
        y = top + HEAD + LINE * number
        kind = "o" if row["system"].startswith("flce-") else "t"
        lines.append(words(NAME_END, y + LINE - 5, row["system"], "e"))
        for column in columns:
            value = column.value(row)
            if value is not None:
                text = f"{value:.{column.digits}f}"
                lines += bar(column.left, y, value / longest[column], text, kind)
    floor, end = time.left + BAR * what.floor / longest[time], top + HEAD + LINE * len(rows)
    lines.append(f'<path d="M{floor:.1f} {top + HEAD:g}V{end:g}" class="f"/>')
    return lines


def svg(panels: Sequence[Panel], columns: Sequence[Column] = BESIDE_FLOOR) -> str:
    """Of at least one panel with at least one row each. It brings its own page, so that its words
    can be read on a light one and on a dark one."""
    lines, top = [], 0
    for what in panels:
        lines += panel(what, columns, top)
        top += HEAD + LINE * len(what.rows) + FOOT
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img">'
        f"<title>time and memory of each system</title><style>{STYLE}</style>"
        f'<rect width="{WIDTH}" height="{top}" class="p"/>'
    )
    return "\n".join([head, *lines, "</svg>"]) + "\n"
