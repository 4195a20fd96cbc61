# SPDX-License-Identifier: Apache-2.0
"""Cut Cross-Entropy, as it comes and in its exact setting."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .base import Peer, Result


class Cce(Peer):
    name = "cce"
    get = (
        "pip install the repository apple/ml-cross-entropy (cut-cross-entropy), or "
        "--peer cce=FOLDER of its sources"
    )
    note = "leaves small gradients out (filter_eps)"
    distribution = "cut-cross-entropy"
    implementation = "cce"

    def load(self) -> None:
        self.add_source()
        from cut_cross_entropy import linear_cross_entropy
        from cut_cross_entropy.utils import compute_z_loss

        self.function, self.z_loss = linear_cross_entropy, compute_z_loss

    def loss(self, hidden: Tensor, weight: Tensor, target: Tensor, **options: Any) -> Result:
        if options.pop("vocab_parallel", False):
            from cut_cross_entropy import VocabParallelOptions

            options["vocab_parallel_options"] = VocabParallelOptions.from_vocab(len(weight))
        options["impl"] = self.implementation
        scale = options.pop("z_loss", 0.0)
        if scale:  # as its README adds it
            loss, lse = self.function(hidden, weight, target, return_lse=True, **options)
            chosen = {k: v for k, v in options.items() if k in ("ignore_index", "reduction")}
            return Result(loss + scale * self.z_loss(lse, target, **chosen), lse)
        found = self.function(hidden, weight, target, **options)
        return Result(*found) if isinstance(found, tuple) else Result(found)


class CceExact(Cce):
    name = "cce-exact"
    get = Cce.get.replace("--peer cce=", "--peer cce-exact=")
    note = "impl='cce_exact'"
    implementation = "cce_exact"


ALL = (Cce, CceExact)
