# SPDX-License-Identifier: Apache-2.0
"""What every system looks like to the benchmark.

A new one is a subclass with a name, how to get it, `load` and `loss`; systems/__init__.py lists it,
or `--adapter FILE.py` names a file with some. An option that `keywords` does not translate goes to
the system under our name for it, so that the system itself, not this file, says that it has none.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import sys
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from torch import Tensor


class Result(NamedTuple):
    loss: Tensor
    lse: Tensor | None = None
    logprob: Tensor | None = None
    entropy: Tensor | None = None


class Peer:
    name: ClassVar[str]
    get: ClassVar[str]  # how to get what it needs
    note: ClassVar[str] = ""  # stands beside its row in the tables
    distribution: ClassVar[str] = ""  # whose version is the system's
    devices: ClassVar[tuple[str, ...]] = ("cuda",)
    keywords: ClassVar[dict[str, str]] = {}  # our word for an option -> the system's
    # What the system itself must be told before a second backward pass, or for torch.compile.
    graph_options: ClassVar[dict[str, Any]] = {}
    source: Path | None = None  # of --peer name=PATH

    def load(self) -> None:
        """Imports what it needs; ImportError where that is missing."""

    def loss(self, hidden: Tensor, weight: Tensor, target: Tensor, **options: Any) -> Result:
        raise NotImplementedError

    def outputs(self, hidden: Tensor, weight: Tensor, target: Tensor) -> Result:
        """Per token: a loss per token is the log-probability with the other sign."""
        loss = self.loss(hidden, weight, target, reduction="none").loss
        return Result(loss, None, -loss)

    def step(
        self, hidden: Tensor, weight: Tensor, target: Tensor, upstream: Tensor | None = None,
        **options: Any,
    ) -> Result:  # fmt: skip
        """Forward and backward: gradients are added to `.grad` of what requires one."""
        result = self.loss(hidden, weight, target, **options)
        result.loss.backward(upstream)
        return result

    def chunk(self, hidden: Tensor, weight: Tensor) -> int:
        """Tokens at a time; 0 where the system does not say."""
        return 0

    def version(self) -> str:
        if self.source is not None:
            return f"source {self.source.name} ({digest(self.source)})"
        name = self.distribution or "torch"
        return f"{name} {importlib.metadata.version(name)}"

    def translated(self, options: dict[str, Any]) -> dict[str, Any]:
        return {self.keywords.get(name, name): value for name, value in options.items()}

    def add_source(self) -> None:
        """Puts the folder of --peer, and its `src`, before what is installed."""
        if self.source is not None:
            for folder in (self.source, self.source / "src"):
                if folder.is_dir():
                    sys.path.insert(0, str(folder))


def digest(source: Path) -> str:
    """Of the Python files: results of other sources are other rows."""
    files = sorted(source.rglob("*.py")) if source.is_dir() else [source]
    found = hashlib.sha256()
    for path in files:
        found.update(str(path.relative_to(source)).encode() + path.read_bytes())
    return found.hexdigest()[:8]


def published_chunk(hidden: Tensor, weight: Tensor) -> int:
    """The rule of Liger and of torch: the logits of a chunk take as much as the hidden states."""
    tokens = len(hidden)
    parts = -(-len(weight) // hidden.shape[1])
    return min(tokens, 1 << (max(1, -(-tokens // parts)) - 1).bit_length())


def scalar_reduction(losses: Tensor, reduction: str) -> Tensor:
    """For systems that give one value per token."""
    if reduction == "none":
        return losses
    return losses.mean() if reduction == "mean" else losses.sum()
