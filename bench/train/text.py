# SPDX-License-Identifier: Apache-2.0
"""A real text as token ids of a large vocabulary, made without any download.

The tokenizer is a ranking. The text is cut into pieces: a word or a run of marks, each with the
space before it, or a run of white space. Ids 0 to 255 are bytes; the other ids are the most
frequent pieces and pairs of neighbours, by count, then alphabetically. The text is read from left
to right: a pair where it has an id, else a piece, else its bytes. The same text gives the same ids
everywhere, and the ids give the text back.
"""

from __future__ import annotations

import hashlib
import itertools
import platform
import re
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BYTES = 256
PIECE = re.compile(r" ?\w+| ?[^\w\s]+|\s+")
SKIPPED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "idlelib", "__pycache__"}


class Text(NamedTuple):
    """A text, and a name that says which."""

    name: str
    content: str


def standard_library() -> Iterator[str]:
    """The documentation that comes with this Python, then its sources, by name."""
    from pydoc_data import topics

    yield from (text for _, text in sorted(topics.topics.items()))
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if not SKIPPED_FOLDERS & set(path.relative_to(root).parts):
            yield path.read_text(encoding="utf-8", errors="replace")


def load(path: Path | None, most_characters: int) -> Text:
    """The file's text, or the standard library's, cut to `most_characters`."""
    if path is None:
        source, content = f"Python {platform.python_version()}'s library", ""
        parts = []
        for part in standard_library():
            parts.append(part)
            most_characters -= len(part) + 1
            if most_characters <= 0:
                break
        content = "\n".join(parts)
    else:
        source, content = path.name, path.read_text(encoding="utf-8")[:most_characters]
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return Text(f"{source} ({len(content)} characters; sha256 {digest})", content)


def vocabulary(pieces: list[str], size: int) -> dict[str, int]:
    """Ids of pieces and pairs; at most size - 256 of them. Pairs that occur once have none."""
    counts = Counter(pieces)
    pairs = Counter(map("".join, itertools.pairwise(pieces)))
    counts.update({pair: count for pair, count in pairs.items() if count > 1})
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {piece: BYTES + rank for rank, (piece, _) in enumerate(ranked[: size - BYTES])}


def encode(pieces: list[str], ids: dict[str, int]) -> list[int]:
    tokens: list[int] = []
    position = 0
    while position < len(pieces):
        piece = pieces[position]
        pair = ids.get(piece + pieces[position + 1]) if position + 1 < len(pieces) else None
        if pair is not None:
            tokens.append(pair)
            position += 2
            continue
        known = ids.get(piece)
        tokens.extend(piece.encode() if known is None else [known])
        position += 1
    return tokens


def tokens_of(text: str, vocab: int) -> list[int]:
    if vocab < BYTES:
        raise ValueError(f"vocab is {vocab}; bytes alone take {BYTES}")
    pieces = PIECE.findall(text)
    return encode(pieces, vocabulary(pieces, vocab))
