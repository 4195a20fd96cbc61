# SPDX-License-Identifier: Apache-2.0
"""Modules: the loss without a weight, and a head that owns one.

Wrappers that shard parameters (FSDP2, ZeRO-3) gather them in hooks of the module that owns them;
`FusedLinearHead` is that module, so the operation sees the whole weight.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .functional import LinearCrossEntropyOutput, linear_cross_entropy

_KEYWORDS = {
    name
    for name, parameter in inspect.signature(linear_cross_entropy).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY
} - {"linear_bias"}


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(options.keys() - _KEYWORDS)
    if unknown:
        raise TypeError(
            f"unknown options {', '.join(unknown)}; known: {', '.join(sorted(_KEYWORDS))}"
        )
    return options


class LinearCrossEntropyLoss(nn.Module):
    """`linear_cross_entropy` with its keywords kept; owns no parameter.

    >>> loss = LinearCrossEntropyLoss(label_smoothing=0.1)(hidden, lm_head.weight, target)
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = _checked(options)

    def forward(
        self,
        input: Tensor,
        linear_weight: Tensor,
        target: Tensor,
        linear_bias: Tensor | None = None,
    ) -> Tensor | LinearCrossEntropyOutput:
        """input (..., H), linear_weight (V, H), target (...): as `linear_cross_entropy`."""
        return linear_cross_entropy(
            input, linear_weight, target, linear_bias=linear_bias, **self.options
        )

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


class FusedLinearHead(nn.Linear):
    """An nn.Linear whose forward makes the loss when it is given a target.

    Takes over the parameters of `linear` (the same objects: tied weights stay tied, and names in a
    state dict stay what they were). Put it in the place of the head, and let FSDP, ZeRO or DDP wrap
    it like any module.

    >>> model.lm_head = FusedLinearHead(model.lm_head)
    >>> loss = model.lm_head(hidden, target)
    """

    def __init__(self, linear: nn.Linear, **options: Any) -> None:
        if type(linear) not in (nn.Linear, FusedLinearHead):
            raise TypeError(
                f"linear is a {type(linear).__name__}; it must be a plain nn.Linear (an adapter or "
                "a quantized layer computes more than its weight says: merge it first)"
            )
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.training = linear.training
        self.options = _checked(options)

    def forward(  # type: ignore[override]
        self, hidden: Tensor, target: Tensor | None = None, **options: Any
    ) -> Tensor | LinearCrossEntropyOutput:
        """hidden (..., H), target (...): the loss; without a target logits (..., V).

        `options` are keywords of `linear_cross_entropy` that take precedence over those of the
        constructor. Logits are the loss's own: with its scale, bias, softcap and temperature.
        """
        if target is None:
            if options:
                raise TypeError(f"{', '.join(options)} given without a target; logits take none")
            return self._logits(hidden)
        return linear_cross_entropy(
            hidden,
            self.weight,
            target,
            linear_bias=self.bias,
            **{**self.options, **_checked(options)},
        )

    def _logits(self, hidden: Tensor) -> Tensor:
        scale, softcap = self.options.get("scale", 1.0), self.options.get("softcap")
        temperature = self.options.get("temperature", 1.0)
        if isinstance(temperature, Tensor):
            raise TypeError("logits without a target take one temperature, not one per token")
        if scale == 1.0:
            logits = F.linear(hidden, self.weight, self.bias)
        else:
            logits = F.linear(hidden, self.weight) * scale
            logits = logits if self.bias is None else logits + self.bias
        if softcap:
            logits = softcap * torch.tanh(logits / softcap)
        return logits if temperature == 1.0 else logits / temperature

    def extra_repr(self) -> str:
        own = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return super().extra_repr() + own
