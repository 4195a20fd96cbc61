# SPDX-License-Identifier: Apache-2.0
"""The head of a language model as a module that can run the fused loss in its own forward.

A module is changed by giving it a class derived from its own one: parameters, hooks, state dict
and name stay, copies and pickles work, and taking the class back restores it exactly.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .functional import linear_cross_entropy


class HeadLoss:
    """What the head is called with in place of a request for logits."""

    def __init__(
        self, target: Tensor, options: dict[str, Any], scale: float, softcap: float | None
    ) -> None:
        self.target = target
        self.options = options
        self.scale = scale
        self.softcap = softcap

    def run(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        # The models scale what the head gives, bias and all; the operation adds the bias after.
        if bias is not None and self.scale != 1.0:
            bias = bias * self.scale
        result = linear_cross_entropy(
            hidden,
            weight,
            self.target,
            linear_bias=bias,
            scale=self.scale,
            softcap=self.softcap,
            **self.options,
        )
        return result if isinstance(result, Tensor) else result.loss


class LossHead(nn.Module):
    """Mixed into a head module's class by `adopt_head`."""

    # Called in place of computing logits while the model's forward runs; see hf.py.
    _flce_defer: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._flce_defer is not None and "flce_loss" not in kwargs:
            return self._flce_defer(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def forward(self, *args: Any, flce_loss: HeadLoss | None = None, **kwargs: Any) -> Any:
        if flce_loss is None:
            return super().forward(*args, **kwargs)
        inner = _active_module(self)
        if inner is not self:
            return evaluate_loss(adopt_head(inner), args[0], flce_loss)
        return flce_loss.run(*operands(self, args[0]))


def evaluate_loss(head: nn.Module, hidden: Tensor, request: HeadLoss) -> Tensor:
    """Calls the head module, hooks and all, for a loss."""
    return head(hidden, flce_loss=request)


# --- classes --------------------------------------------------------------------------------------


@functools.cache
def derived_class(base: Any, mixin: Any) -> Any:
    """A subclass of both that looks like `base`: by name, module and signature of forward."""
    namespace: dict[str, Any] = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__reduce_ex__": _reduce,
        "_flce_base": base,
        "_flce_mixin": mixin,
    }
    mixed: Any = types.new_class(base.__name__, (mixin, base), {}, lambda ns: ns.update(namespace))
    if mixin is not LossHead:

        @functools.wraps(base.forward)
        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            return mixin.forward(self, *args, **kwargs)

        mixed.forward = forward
    return mixed


def _reduce(self: Any, protocol: int) -> Any:
    # The class exists in this process only: a copy is made from what it was derived of.
    del protocol
    cls = type(self)
    return _restore, (cls._flce_base, cls._flce_mixin), self.__dict__


def _restore(base: Any, mixin: Any) -> Any:
    cls = derived_class(base, mixin)
    return cls.__new__(cls)


def adopt(module: Any, mixin: type) -> Any:
    """Gives the module, once, a class with `mixin` in it."""
    if not isinstance(module, mixin):
        base: Any = type(module)
        module.__class__ = derived_class(base, mixin)
    return module


def restore(module: Any) -> bool:
    """Takes the class that `adopt` gave away again; False if another one was put on top of it."""
    cls = type(module)
    if "_flce_base" not in cls.__dict__:
        return False
    module.__class__ = cls._flce_base
    return True


def adopt_head(head: Any) -> Any:
    """Refuses, by name, a head whose loss is not that of one matrix."""
    if not isinstance(head, LossHead):
        if not _is_plain_linear(head) and _active_module(head) is head and not _is_lora(head):
            raise TypeError(_unknown_head(head))
        adopt(head, LossHead)
        # A loader that moves offloaded weights kept the forward that it found.
        if "_old_forward" in head.__dict__:
            head._old_forward = types.MethodType(type(head).forward, head)
    return head


# --- parameters -----------------------------------------------------------------------------------


def _unknown_head(head: nn.Module) -> str:
    return (
        f"the model's head is a {type(head).__name__}; flce.torch works with torch.nn.Linear, with "
        "LoRA of peft on one, and with peft's modules_to_save: another head has no single weight "
        "to compute the loss with. Leave the head out of the adapter's or quantizer's targets"
    )


def _is_plain_linear(head: nn.Module) -> bool:
    if not isinstance(head, nn.Linear):
        return False
    # Past the classes that this package and sharding put on top.
    for cls in type(head).__mro__:
        if "forward" in cls.__dict__ and cls is not LossHead:
            return cls is nn.Linear
    return False


def _peft_class(module: str, name: str) -> Any:
    """A class of peft, without importing it for those who do not use it."""
    return getattr(sys.modules.get(module), name, None)


def _is_lora(head: nn.Module) -> bool:
    lora = _peft_class("peft.tuners.lora.layer", "Linear")
    return lora is not None and isinstance(head, lora)


def _active_module(head: Any) -> Any:
    """The module that a wrapper of modules to save would call; else `head`."""
    wrapper = _peft_class("peft.utils.other", "ModulesToSaveWrapper")
    if wrapper is None or not isinstance(head, wrapper):
        return head
    if head.disable_adapters or not head.active_adapters:
        return head.original_module
    return head.modules_to_save[head.active_adapters[0]]


def operands(head: Any, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """(hidden, weight, bias) whose F.linear is what the head computes of `hidden`, with a graph."""
    if _is_lora(head):
        return _lora_operands(head, hidden)
    if not _is_plain_linear(head):
        raise TypeError(_unknown_head(head))
    return hidden, _gathered(head), head.bias


def _gathered(head: Any) -> Tensor:
    weight = head.weight
    if weight.shape != (head.out_features, head.in_features):
        raise RuntimeError(
            f"the head's weight has the shape {tuple(weight.shape)} instead of "
            f"({head.out_features}, {head.in_features}): a sharded optimizer has not gathered it. "
            "Its hooks must run for the module whose parameter it is: patch the model before it is "
            "wrapped, and leave the head out of LoRA"
        )
    return weight


def _lora_operands(head: Any, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """x W^T + s (x A^T) B^T = [x, s x A^T] [W, B]^T: one product, and no sum W + s B A, in which a
    16-bit weight would swallow what the adapter has learnt."""
    base = head.get_base_layer()
    if not _is_plain_linear(base):
        raise TypeError(_unknown_head(base))
    weight, bias = _gathered(base), base.bias
    if head.disable_adapters and head.merged:
        head.unmerge()
    parts, columns = [hidden], [weight]
    if not (head.disable_adapters or head.merged):
        for adapter in head.active_adapters:
            if adapter not in head.lora_A:
                continue
            _check_lora(head, adapter)
            a, b, scale = head.lora_A[adapter], head.lora_B[adapter], head.scaling[adapter]
            inner = a(head.lora_dropout[adapter](hidden.to(a.weight.dtype))) * scale
            parts.append(inner.to(hidden.dtype))
            columns.append(b.weight.to(weight.dtype))
            if b.bias is not None:
                more = b.bias * scale
                bias = more.to(weight.dtype) if bias is None else bias + more.to(bias.dtype)
    if len(parts) == 1:
        return hidden, weight, bias
    return torch.cat(parts, dim=-1), torch.cat(columns, dim=-1), bias


def _check_lora(head: Any, adapter: str) -> None:
    if adapter in getattr(head, "lora_variant", {}):
        raise ValueError(
            f"the adapter '{adapter}' of the head is a variant of LoRA (DoRA or another), which is "
            "not a product of two matrices; use plain LoRA for the head, or leave it out of "
            "target_modules"
        )
