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


class _WithOptions(nn.Module):
    """Keeps keywords of `linear_cross_entropy`. Class weights go where the module goes; they are no
    buffer, for one that is in no state dict would be left without values by `to_empty`."""

    options: dict[str, Any]

    def _apply(self, fn: Any, recurse: bool = True) -> _WithOptions:
        super()._apply(fn, recurse)
        weight = self.options.get("weight")
        if isinstance(weight, Tensor):
            self.options["weight"] = _moved(weight, fn)
        return self


def _moved(weight: Tensor, fn: Any) -> Tensor:
    """To the device that fn moves to, and to a dtype that goes with the one that it makes."""
    example = fn(weight.new_empty(0))
    if example.dtype != weight.dtype:
        weight = weight.to(torch.float64 if example.dtype == torch.float64 else torch.float32)
    return weight if example.is_meta else weight.to(example.device)


def _as_text(module: _WithOptions) -> list[str]:
    return [
        f"{name}={f'(of {value.numel()})' if isinstance(value, Tensor) else repr(value)}"
        for name, value in module.options.items()
    ]


class LinearCrossEntropyLoss(_WithOptions):
    """`linear_cross_entropy` with its keywords kept; owns no parameter.

    >>> loss = LinearCrossEntropyLoss(label_smoothing=0.1)(hidden, lm_head.weight, target)
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = dict(_checked(options))

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
        return ", ".join(_as_text(self))


_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def _refuse_attachments(linear: nn.Linear) -> None:
    """What would be left behind: a weight that is made from others before each call, hooks."""
    for name in ("weight", "bias"):
        if name not in linear._parameters and getattr(linear, name) is not None:
            raise TypeError(
                f"linear.{name} is made from other parameters before each call (by pruning, "
                "spectral_norm or the like), which a new module would not do: apply that to the "
                "FusedLinearHead"
            )
    hooks = [name for name in _HOOKS if getattr(linear, name)]
    if hooks:
        raise TypeError(
            f"linear has hooks ({', '.join(hooks)}), which would not be called any more: remove "
            "them, and register them on the FusedLinearHead"
        )


class FusedLinearHead(_WithOptions, nn.Linear):
    """An nn.Linear whose forward makes the loss when it is given a target.

    Takes over the parameters of `linear` (the same objects: tied weights stay tied, and names in a
    state dict stay what they were). Put it in the place of the head, and let FSDP, ZeRO or DDP wrap
    it like any module.

    A linear with hooks, or whose weight is made from other parameters, is refused. The options of a
    FusedLinearHead are taken over too.

    >>> model.lm_head = FusedLinearHead(model.lm_head)
    >>> loss = model.lm_head(hidden, target)
    """

    def __init__(self, linear: nn.Linear, **options: Any) -> None:
        if type(linear) not in (nn.Linear, FusedLinearHead):
            raise TypeError(
                f"linear is a {type(linear).__name__}; it must be a plain nn.Linear (an adapter or "
                "a quantized layer computes more than its weight says: merge it first)"
            )
        _refuse_attachments(linear)
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = linear.weight
        self.register_parameter("bias", linear.bias)  # also where it is None
        self.training = linear.training
        before = linear.options if isinstance(linear, FusedLinearHead) else {}
        self.options = {**before, **_checked(options)}

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
        return ", ".join([super().extra_repr(), *_as_text(self)])
