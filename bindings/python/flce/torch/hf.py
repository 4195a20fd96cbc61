# SPDX-License-Identifier: Apache-2.0
"""Hugging Face causal language models whose loss never holds the logits.

`patch(model)` leaves the model's forward as it is, with every argument, output and auxiliary loss.
While it runs with labels, the head hands back `DeferredLogits`; what the model does to them
(logit scales, soft-cap, upcast, shift of the labels) is taken from the model's own code, not from
a list of architectures, and the loss is computed where the model asks for it.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from torch import Tensor, nn

from .. import Plan, _abi
from .. import plan as flce_plan
from ._call import DTYPES
from ._deferred import DeferredLogits
from ._head import LossHead, adopt, adopt_head, restore

LOGITS_CHOICES = ("auto", "always", "never", "on_demand")
# Of linear_cross_entropy, what a model leaves open.
LOSS_OPTIONS = ("method", "chunk", "budget", "z_loss", "label_smoothing", "weight")

_DTYPE_NAMES = {number: name for name, number in _abi.DTYPES.items()}


def patch(model: nn.Module, *, logits: str = "auto", **options: Any) -> nn.Module:
    """Makes `model`, in place, compute its loss by the fused operation; returns it.

    Args:
        model: a Hugging Face causal language model (`*ForCausalLM`), or a peft model around one.
            Its head is a `torch.nn.Linear`, one with LoRA, or one of peft's modules to save;
            anything else raises `TypeError`.
        logits: what `outputs.logits` is where a loss was computed. "auto": None in training, the
            logits in evaluation (`model.eval()`); "always" and "never": in both; "on_demand": an
            object that computes them, with their graph, when it is first used as a tensor. Where
            they are None, outputs asked for as a tuple lack them.
        options: `method`, `chunk`, `budget`, `z_loss`, `label_smoothing`, `weight` (of classes),
            as of `linear_cross_entropy`.

    The loss is computed when `labels` or `shift_labels` are given. `shift_labels` are used as they
    are and win over `labels`, which are shifted by one; `num_items_in_batch` divides the sum.
    Without labels (generation, reinforcement learning) the model does what it always did.
    Parameters, their names, ties, hooks, the state dict and the signature of `forward` stay.
    Forward hooks of the head see the loss where it would have seen logits. Calling `patch` again
    replaces the options.
    """
    if logits not in LOGITS_CHOICES:
        raise ValueError(f"logits={logits!r}; it is one of {', '.join(map(repr, LOGITS_CHOICES))}")
    for name in options:
        if name not in LOSS_OPTIONS:
            raise TypeError(
                f"flce.torch.patch does not take {name}=: reductions, scales, soft-caps, biases and"
                f" targets come from the model; what it takes is logits, {', '.join(LOSS_OPTIONS)}"
            )
    inner = _causal_model(model)
    adopt_head(_head_of(inner))
    adopt(inner, _PatchedModel)
    inner._flce_settings = {
        "logits": logits,
        "options": options,
        "labels_position": _labels_position(type(inner)),
    }
    return model


def unpatch(model: nn.Module) -> nn.Module:
    """Undoes `patch`, exactly; returns the model. A model that is not patched raises ValueError."""
    inner = _causal_model(model)
    if not _is_patched(inner):
        raise ValueError(f"the {type(inner).__name__} is not patched")
    del inner._flce_settings
    inner.__dict__.pop("_flce_call", None)
    restore(inner)
    for module in inner.modules():
        if isinstance(module, LossHead):
            module.__dict__.pop("_flce_defer", None)
            if restore(module) and "_old_forward" in module.__dict__:
                module._old_forward = type(module).forward.__get__(module)
    return model


def _is_patched(model: nn.Module) -> bool:
    return "_flce_settings" in _causal_model(model).__dict__


def plan_for(
    model: nn.Module,
    tokens: int,
    budget: int | str | None = None,
    *,
    method: str = "auto",
    chunk: int | None = None,
) -> Plan:
    """The plan (`flce.plan`) of one training step's loss over this model's head.

    tokens: of a step on one device. budget: most extra bytes, a number or a text such as "2GiB".
    Sizes, dtype and device are those of the head's weight; gradients that frozen parameters do not
    need are left out. LoRA on the head takes a copy of the head and its gradient besides.
    """
    inner = _causal_model(model)
    head = _head_of(inner)
    linear = getattr(head, "base_layer", head)
    weight, bias = linear.weight, linear.bias
    of_head = {id(p) for p in head.parameters()}
    trunk = (p for p in inner.parameters() if id(p) not in of_head)
    config = getattr(inner, "config", None)
    return flce_plan(
        tokens=tokens,
        hidden=linear.in_features,
        vocab=linear.out_features,
        dtype=_DTYPE_NAMES[DTYPES[weight.dtype]],
        device=weight.device.type,
        method=method,
        chunk=chunk,
        budget=budget,
        bias=bias is not None,
        grad_hidden=any(p.requires_grad for p in trunk),
        grad_weight=any(p.requires_grad for p in head.parameters() if p is not bias),
        softcap=getattr(config, "final_logit_softcapping", None) or 0.0,
    )


# --- finding things -------------------------------------------------------------------------------


def _causal_model(model: Any) -> Any:
    if not isinstance(model, nn.Module):
        raise TypeError(f"a Hugging Face model is wanted, not {type(model).__name__}")
    # peft's models hold the one they adapt.
    base = getattr(model, "get_base_model", None)
    inner = base() if callable(base) else model
    if not hasattr(inner, "get_output_embeddings"):
        raise TypeError(
            f"{type(inner).__name__} has no get_output_embeddings(): flce.torch.patch takes Hugging"
            " Face causal language models, before DistributedDataParallel or another wrapper is put"
            " around them; FusedLinearHead and linear_cross_entropy serve models of your own"
        )
    return inner


def _head_of(model: Any) -> Any:
    head = model.get_output_embeddings()
    if head is None:
        raise TypeError(
            f"{type(model).__name__} has no language modelling head; load it with "
            "AutoModelForCausalLM"
        )
    return head


def _causal_lm_loss() -> Any:
    """transformers' own loss of causal language models; None where it has no such function."""
    try:
        from transformers.loss.loss_utils import ForCausalLMLoss
    except ImportError:
        return None
    return ForCausalLMLoss


# --- the patched model ----------------------------------------------------------------------------


class _PatchedModel(nn.Module):
    """Mixed into the model's class by `patch`."""

    _flce_base: Any  # of the derived class: the model's own one
    # What a call with labels is doing; None outside of one.
    _flce_call: dict[str, Any] | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        settings = self.__dict__.get("_flce_settings")
        if settings is None:
            return super().forward(*args, **kwargs)
        args, kwargs, has_labels = _with_labels(settings["labels_position"], args, kwargs)
        if not has_labels:
            return super().forward(*args, **kwargs)
        head = adopt_head(_head_of(self))
        call = {"shift_labels": kwargs.get("shift_labels"), "deferred": False}

        def defer(input: Tensor) -> DeferredLogits:
            call["deferred"] = True
            return DeferredLogits(head, input, head.out_features, settings["options"])

        self._flce_call, head._flce_defer = call, defer
        try:
            output = super().forward(*args, **kwargs)
        finally:
            self._flce_call = head._flce_defer = None
        if not call["deferred"]:
            raise RuntimeError(
                f"{type(self).__name__} computed a loss without calling its head, so the logits "
                "were not left out; flce.torch.unpatch(model) gives the model's own loss back"
            )
        return _finish(output, _kept_logits(settings["logits"], self.training))

    @property
    def loss_function(self) -> Any:
        original = type(self)._flce_base.loss_function.fget(self)
        if self._flce_call is None:
            return original
        return functools.partial(_model_loss, original, self._flce_call["shift_labels"])

    @loss_function.setter
    def loss_function(self, value: Any) -> None:
        type(self)._flce_base.loss_function.fset(self, value)


def _labels_position(cls: Any) -> int | None:
    names = list(inspect.signature(cls.forward).parameters)
    return names.index("labels") - 1 if "labels" in names else None


def _with_labels(
    position: int | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
    """With `labels` where only `shift_labels` were given, so that the model computes a loss."""
    if position is not None and len(args) > position:
        labels = args[position]
    else:
        labels = kwargs.get("labels")
    if labels is not None:
        return args, kwargs, True
    shifted = kwargs.get("shift_labels")
    if shifted is None:
        return args, kwargs, False
    if position is not None and len(args) > position:
        args = (*args[:position], shifted, *args[position + 1 :])
    else:
        kwargs = {**kwargs, "labels": shifted}
    return args, kwargs, True


def _kept_logits(choice: str, training: bool) -> str:
    if choice == "auto":
        return "never" if training else "always"
    return choice


def _finish(output: Any, kept: str) -> Any:
    """The model's output with its logits as asked for."""

    def final(value: Any) -> Any:
        if not isinstance(value, DeferredLogits):
            return value
        if kept == "always":
            return value.materialize()
        return value.release() if kept == "on_demand" else None

    if isinstance(output, dict):
        finished = {name: final(value) for name, value in output.items()}
        return type(output)(**finished) if type(output) is not dict else finished
    if isinstance(output, tuple):
        return tuple(
            final(value)
            for value in output
            if kept != "never" or not isinstance(value, DeferredLogits)
        )
    return output


def _model_loss(
    original: Any, given_shift_labels: Tensor | None, *args: Any, **kwargs: Any
) -> Tensor:
    """The model's loss function; transformers' own one with its divisor inside the operation."""
    logits = kwargs["logits"] if "logits" in kwargs else args[0]
    if not isinstance(logits, DeferredLogits):
        return original(*args, **kwargs)
    if given_shift_labels is not None:
        # Not every model hands them on to its loss, and shifting them again would be wrong.
        kwargs["shift_labels"] = given_shift_labels
    if original is _causal_lm_loss():
        return _causal_loss(*args, **kwargs)
    return original(*args, **kwargs)


def _causal_loss(
    logits: DeferredLogits,
    labels: Tensor,
    vocab_size: int,
    num_items_in_batch: Tensor | int | None = None,
    ignore_index: int = -100,
    shift_labels: Tensor | None = None,
    **kwargs: Any,
) -> Tensor:
    """What transformers' ForCausalLMLoss computes; like it, takes and leaves other arguments."""
    del kwargs
    if shift_labels is None:
        shift_labels = nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    target = shift_labels.reshape(-1).to(logits.device)
    return logits.view(-1, vocab_size).cross_entropy(
        target, ignore_index=ignore_index, normalizer=num_items_in_batch
    )
