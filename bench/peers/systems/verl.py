# SPDX-License-Identifier: Apache-2.0
"""verl's kernel: log-probabilities and entropies per token, for reinforcement learning."""

from __future__ import annotations

import sys
import types
from typing import Any

from torch import Tensor

from .base import Peer, Result, scalar_reduction


class Verl(Peer):
    name = "verl"
    get = "pip install verl, or --peer verl=FOLDER of its sources"
    note = "gives the entropy too; the loss is the mean of its log-probabilities"
    distribution = "verl"

    def load(self) -> None:
        self.add_source()
        if self.source is not None:
            # The packages' own __init__ imports a trainer; the kernel needs none of it.
            for name in ("verl", "verl.utils", "verl.utils.kernel"):
                package = types.ModuleType(name)
                package.__path__ = [str(self.source.joinpath(*name.split(".")))]
                sys.modules[name] = package
        from verl.utils.kernel import kernels  # noqa: F401  (the function imports it when called)
        from verl.utils.kernel.linear_cross_entropy import linear_cross_entropy

        self.function = linear_cross_entropy

    def outputs(self, hidden: Tensor, weight: Tensor, target: Tensor) -> Result:
        return self.loss(hidden, weight, target, reduction="none")

    def loss(self, hidden: Tensor, weight: Tensor, target: Tensor, **options: Any) -> Result:
        reduction = options.pop("reduction", "mean")
        temperature, group = options.pop("temperature", 1.0), None
        if options.pop("vocab_parallel", False):
            from torch import distributed

            group = distributed.group.WORLD
        # An autograd function's apply: what it takes, it takes by place.
        by_place = (hidden, weight, target, temperature, "none", group)
        logprob, entropy = self.function(*by_place, **options)
        return Result(scalar_reduction(-logprob, reduction), None, logprob, entropy)


ALL = (Verl,)
