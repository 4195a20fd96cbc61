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
    keywords = {"z_loss": "z_loss_weight"}

    def load(self) -> None:
        self.add_source()
        from quack.linear_cross_entropy import chunked_linear_cross_entropy

        self.function = chunked_linear_cross_entropy

    def chunk(self, hidden: Tensor, weight: Tensor) -> int:
        # Version 0.6.5 tells rows from columns by their number alone.
        rows = min(len(hidden), 4096)
        return rows if rows != hidden.shape[1] else rows // 2

    def loss(self, hidden: Tensor, weight: Tensor, target: Tensor, **options: Any) -> Result:
        given = self.translated(options)
        given["chunk_size"] = self.chunk(hidden, weight)
        return Result(self.function(hidden, weight, target, **given))


ALL = (Quack,)
