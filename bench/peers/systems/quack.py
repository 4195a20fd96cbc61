# SPDX-License-Identifier: Apache-2.0
"""QuACK's chunked operation, in CuTe DSL."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .base import Peer, Result


class Quack(Peer):
    name = "quack"
    get = "pip install quack-kernels, or --peer quack=FOLDER of its sources"
    note = "chunks of 4096 tokens, its default, or half where that is H, which it refuses"
    distribution = "quack-kernels"
    default_chunk = 4096

    def load(self) -> None:
        self.add_source()
        from quack.linear_cross_entropy import chunked_linear_cross_entropy

        self.function = chunked_linear_cross_entropy

    def chunk(self, hidden: Tensor, weight: Tensor) -> int:
        # Version 0.6.5 tells rows from columns by their number alone.
        rows = min(len(hidden), self.default_chunk)
        return rows if rows != hidden.shape[1] else rows // 2

    def loss(self, hidden: Tensor, weight: Tensor, target: Tensor, **options: Any) -> Result:
        # It pads rows below its default itself; a chunk that 128 does not divide is slower there.
        rows = self.chunk(hidden, weight)
        chunk = self.default_chunk if rows == len(hidden) else rows
        return Result(self.function(hidden, weight, target, chunk_size=chunk, **options))


ALL = (Quack,)
