#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that README.ko.md says what README.md says, as far as that can be seen without reading.

usage: check_translation.py ROOT

Block by block both have the same headings, paragraphs, code and tables in the same order; code is
equal but for its comments; in a paragraph, a comment and a cell stand the same numbers, the same
words in backticks and the same links; a cell that is not in Korean is equal. Words are free.
A fault names the line of the translation to mend, and the line of the original.
"""

import collections
import os
import re
import sys
from itertools import zip_longest
from typing import NamedTuple

PAIRS = (("README.md", "README.ko.md"),)

FENCE = re.compile(r"^(`{3,}|~{3,})\s*(\w*)")
HEADING = re.compile(r"^(#{1,6})\s")
CODE_SPAN = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
COMMENTS = {"bash": re.compile(r"(?:^|\s)#\s.*$"), "python": re.compile(r"(?:^|\s)#\s.*$"),
            "cpp": re.compile(r"(?:^|\s)//\s.*$")}  # fmt: skip
CELL_END = re.compile(r"(?<!\\)\|")
HANGUL = re.compile("[\uac00-\ud7a3]")


class Block(NamedTuple):
    kind: str  # "heading 2", "code bash", "table", "marker", "paragraph"
    line: int  # of the first
    lines: list


def kind_of(line):
    heading = HEADING.match(line)
    if heading:
        return f"heading {len(heading[1])}"
    if line.startswith("|"):
        return "table"
    return "marker" if line.startswith("<!--") else "paragraph"


def blocks(text):
    found, fence = [], None
    for number, line in enumerate(text.split("\n"), 1):
        match = FENCE.match(line)
        if fence:
            if match and match[1].startswith(fence) and not match[2]:
                fence = None
            else:
                found[-1].lines.append(line)
        elif match:
            fence = match[1]
            found.append(Block(f"code {match[2]}".strip(), number + 1, []))
        elif not line.strip():
            found.append(Block("gap", number, []))
        else:
            kind = kind_of(line)
            goes_on = kind in ("table", "paragraph") and found and found[-1].kind == kind
            if not goes_on:
                found.append(Block(kind, number, []))
            found[-1].lines.append(line)
    return [block for block in found if block.kind != "gap"]


class Pair(NamedTuple):
    original: str
    translation: str

    def fault(self, line, original_line, text):
        return f"{self.translation}:{line}: {text} ({self.original}:{original_line})"

    def links(self, text):
        """Link targets; an anchor of the page itself follows its headings' language."""
        own = {self.original, self.translation}
        targets = [target for target in LINK.findall(text) if target not in own]
        return ["#" if target.startswith("#") else target for target in targets]

    def difference(self, original, translated):
        """What a passage lacks or has too much, as words; None where it is the same."""
        for what, pick in (
            ("words in backticks", CODE_SPAN.findall),
            ("links", self.links),
            ("numbers", lambda text: NUMBER.findall(LINK.sub("]", CODE_SPAN.sub("", text)))),
        ):
            want, have = (collections.Counter(pick(text)) for text in (original, translated))
            lacks, extra = list((want - have).elements()), list((have - want).elements())
            parts = [f"lacks {', '.join(lacks)}"] if lacks else []
            parts += [f"has {', '.join(extra)} too much"] if extra else []
            if parts:
                return f"{what}: {'; '.join(parts)}"
        return None


def cells(row):
    return [cell.strip() for cell in CELL_END.split(row.strip().strip("|"))]


def table_faults(pair, original, translated):
    if len(original.lines) != len(translated.lines):
        text = f"the table has {len(translated.lines)} lines, the original {len(original.lines)}"
        yield pair.fault(translated.line, original.line, text)
    for i, (want, have) in enumerate(zip(original.lines, translated.lines)):
        here = translated.line + i, original.line + i
        want, have = cells(want), cells(have)
        if len(want) != len(have):
            yield pair.fault(*here, f"the row has {len(have)} cells, the original {len(want)}")
            continue
        for column, (a, b) in enumerate(zip(want, have), 1):
            fault = pair.difference(a, b)
            if not fault and i != 1 and a != b and not HANGUL.search(b):  # line 1 is the rule
                fault = f"'{b}' instead of '{a}'"
            if fault:
                yield pair.fault(*here, f"column {column}: {fault}")


def split_comment(line, comment):
    """Command and comment of a line of code."""
    match = comment.search(line) if comment else None
    return (line[: match.start()].rstrip(), match[0]) if match else (line.rstrip(), "")


def code_faults(pair, original, translated):
    comment = COMMENTS.get(original.kind.partition(" ")[2])
    if len(original.lines) != len(translated.lines):
        text = f"the code has {len(translated.lines)} lines, the original {len(original.lines)}"
        yield pair.fault(translated.line, original.line, text)
    for i, (want, have) in enumerate(zip(original.lines, translated.lines)):
        here = translated.line + i, original.line + i
        (want, said), (have, translated_comment) = (
            split_comment(line, comment) for line in (want, have)
        )
        if want != have:
            yield pair.fault(*here, f"the code is\n  {have}\ninstead of\n  {want}\n")
        fault = pair.difference(said, translated_comment)
        if fault:
            yield pair.fault(*here, f"the comment: {fault}")


def block_faults(pair, original, translated):
    if original.kind == "table":
        yield from table_faults(pair, original, translated)
    elif original.kind.startswith("code"):
        yield from code_faults(pair, original, translated)
    elif original.kind == "marker":
        if original.lines != translated.lines:
            yield pair.fault(translated.line, original.line, "another marker than the original")
    else:
        fault = pair.difference("\n".join(original.lines), "\n".join(translated.lines))
        if fault:
            yield pair.fault(translated.line, original.line, fault)


def page_faults(pair, original, translated):
    """Stops at the first block of another kind: what follows would be held against wrong ones."""
    original, translated = blocks(original), blocks(translated)
    for want, have in zip_longest(original, translated):
        if want is None:
            yield f"{pair.translation}:{have.line}: a {have.kind} that the original does not have"
            return
        if have is None:
            end = translated[-1].line if translated else 1
            yield pair.fault(end, want.line, f"after this the original's {want.kind} is missing")
            return
        if want.kind != have.kind:
            yield pair.fault(
                have.line, want.line, f"a {have.kind}, where the original has a {want.kind}"
            )
            return
        yield from block_faults(pair, want, have)


def check(root):
    faults = []
    for original, translation in PAIRS:
        texts = []
        for page in (original, translation):
            with open(os.path.join(root, page), encoding="utf-8") as file:
                texts.append(file.read())
        faults += page_faults(Pair(original, translation), *texts)
    return faults


def main():
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        sys.exit(__doc__)
    faults = check(sys.argv[1])
    print("\n".join(faults) or "translations: the same code, tables, numbers and links")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
