# SPDX-License-Identifier: Apache-2.0
"""The fused linear cross-entropy by the names and arguments of Liger Kernel.

    from flce.torch.liger import LigerFusedLinearCrossEntropyLoss

in place of `from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss`. Where the
meaning differs, or is not offered, the argument is refused by name. docs/pytorch.md has the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .functional import LinearCrossEntropyOutput, linear_cross_entropy, linear_logprob


@dataclass
class CrossEntropyOutput:
    """What is returned when more than the loss is asked for; the rest is None."""

    loss: Tensor
    z_loss: Tensor | None = None
    token_accuracy: Tensor | None = None
    predicted_tokens: Tensor | None = None


def liger_fused_linear_cross_entropy(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    ce_weight: Tensor | None = None,
    ignore_index: int = -100,
    lse_square_scale: float = 0.0,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    softcap: float | None = None,
    return_z_loss: bool = False,
    accum_dtype: torch.dtype | None = None,
    use_token_scaling: bool = False,
    return_token_accuracy: bool = False,
    return_predicted_tokens: bool = False,
) -> Tensor | CrossEntropyOutput:
    """Cross-entropy of input (N, H) @ weight (V, H)ᵀ + bias (V) and target (N).

    ce_weight: (V), class weights. lse_square_scale: the z-loss's factor; with ce_weight and "mean"
    it takes a second pass, for its divisor is the number of tokens. use_token_scaling: each token's
    loss times its own probability, which is taken as a constant. accum_dtype: None or float32; sums
    are in float32 either way (float64 for float64). return_token_accuracy: the share of valid
    tokens whose largest logit is the target's; with reduction="none" 1 or 0 for each token.
    return_predicted_tokens: the class of each token's largest logit, -1 at ignored tokens.
    Returns the loss, or a `CrossEntropyOutput` when one of the return_ arguments is set.
    """
    _check_offered(softcap, accum_dtype)
    per_token = reduction == "none"
    asked = _Asked(target, ignore_index, per_token, return_token_accuracy, return_predicted_tokens)
    token_weight = None
    if use_token_scaling:
        token_weight = _target_probability(input, weight, target, bias, ignore_index, softcap)
    result = _loss(
        input,
        weight,
        target,
        linear_bias=bias,
        weight=ce_weight,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        softcap=softcap,
        z_loss=lse_square_scale,
        token_weight=token_weight,
        return_z_loss=return_z_loss,
        **asked.options(),
    )
    return asked.of(result)


def _loss(
    *tensors: Tensor,
    weight: Tensor | None,
    reduction: str,
    z_loss: float,
    label_smoothing: float,
    return_accuracy: bool,
    return_argmax: bool,
    return_z_loss: bool = False,
    **options: Any,
) -> Tensor | LinearCrossEntropyOutput:
    """linear_cross_entropy, but that the mean of the z-loss is Liger's: over the number of tokens,
    also where class weights give the rest another divisor. That takes a second pass."""
    is_divided_by_weights = reduction == "mean" and options.get("normalizer") is None
    if weight is None or z_loss == 0.0 or not is_divided_by_weights:
        return linear_cross_entropy(
            *tensors,
            weight=weight,
            reduction=reduction,
            z_loss=z_loss,
            label_smoothing=label_smoothing,
            return_accuracy=return_accuracy,
            return_argmax=return_argmax,
            return_z_loss=return_z_loss,
            **options,
        )
    rest: Any = linear_cross_entropy(
        *tensors,
        weight=weight,
        label_smoothing=label_smoothing,
        return_accuracy=True,
        return_argmax=return_argmax,
        **options,
    )
    # Where classes have no weight, nothing but the z-loss is left.
    part = linear_cross_entropy(
        *tensors,
        weight=torch.zeros_like(weight),
        reduction="sum",
        z_loss=z_loss,
        **{**options, "normalizer": rest.num_valid},
    )
    if not (return_accuracy or return_argmax or return_z_loss):
        return rest.loss + part
    return LinearCrossEntropyOutput(
        rest.loss + part,
        accuracy=rest.accuracy if return_accuracy else None,
        z_loss=part.detach() if return_z_loss else None,
        argmax=rest.argmax,
    )


def _check_offered(softcap: float | None, accum_dtype: torch.dtype | None) -> None:
    if accum_dtype not in (None, torch.float32):
        raise ValueError(
            f"accum_dtype={accum_dtype}: sums are in float32 here, whatever the inputs are; give "
            "None or torch.float32"
        )
    if softcap is not None and not softcap > 0.0:
        raise ValueError(f"softcap={softcap}: it is larger than 0, or None for no cap")


class _Asked(NamedTuple):
    """Which results beside the loss, and of which tokens: (valid) targets, shifted."""

    target: Tensor
    ignore_index: int
    per_token: bool
    accuracy: bool
    predicted: bool

    def options(self) -> dict[str, Any]:
        return {
            "return_accuracy": self.accuracy and not self.per_token,
            "return_argmax": self.predicted or (self.accuracy and self.per_token),
        }

    def of(self, result: Tensor | LinearCrossEntropyOutput) -> Tensor | CrossEntropyOutput:
        if isinstance(result, Tensor):
            return result
        output = CrossEntropyOutput(result.loss, result.z_loss, result.accuracy)
        if result.argmax is not None:
            valid = self.target != self.ignore_index
            if self.accuracy and self.per_token:
                output.token_accuracy = ((result.argmax == self.target) & valid).float()
            if self.predicted:
                output.predicted_tokens = torch.where(valid, result.argmax, -1)
        return output


def _target_probability(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    ignore_index: int,
    softcap: float | None,
) -> Tensor:
    with torch.no_grad():
        logprob, _ = linear_logprob(
            input, weight, target, bias=bias, softcap=softcap, ignore_index=ignore_index
        )
    return logprob.exp()


class LigerFusedLinearCrossEntropyLoss(nn.Module):
    """`liger_fused_linear_cross_entropy` as a module; forward(lin_weight, _input, target, bias)."""

    def __init__(
        self,
        ce_weight: Tensor | None = None,
        ignore_index: int = -100,
        lse_square_scale: float = 0.0,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
        softcap: float | None = None,
        return_z_loss: bool = False,
        accum_dtype: torch.dtype | None = None,
        use_token_scaling: bool = False,
        return_token_accuracy: bool = False,
        return_predicted_tokens: bool = False,
    ) -> None:
        super().__init__()
        self.ce_weight = ce_weight
        self.ignore_index = ignore_index
        self.lse_square_scale = lse_square_scale
        self.label_smoothing = label_smoothing
        self.reduction = reduction
        self.softcap = softcap
        self.return_z_loss = return_z_loss
        self.accum_dtype = accum_dtype
        self.use_token_scaling = use_token_scaling
        self.return_token_accuracy = return_token_accuracy
        self.return_predicted_tokens = return_predicted_tokens

    def forward(
        self, lin_weight: Tensor, _input: Tensor, target: Tensor, bias: Tensor | None = None
    ) -> Tensor | CrossEntropyOutput:
        return liger_fused_linear_cross_entropy(
            _input,
            lin_weight,
            target,
            bias,
            ce_weight=self.ce_weight,
            ignore_index=self.ignore_index,
            lse_square_scale=self.lse_square_scale,
            label_smoothing=self.label_smoothing,
            reduction=self.reduction,
            softcap=self.softcap,
            return_z_loss=self.return_z_loss,
            accum_dtype=self.accum_dtype,
            use_token_scaling=self.use_token_scaling,
            return_token_accuracy=self.return_token_accuracy,
            return_predicted_tokens=self.return_predicted_tokens,
        )


# The options of the functional form that the function below does not set itself.
_CAUSAL_LM_OPTIONS = ("ce_weight", "lse_square_scale", "label_smoothing", "accum_dtype")


def LigerForCausalLMLoss(  # noqa: N802 (Liger's name)
    hidden_states: Tensor,
    lm_head_weight: Tensor,
    labels: Tensor | None,
    hidden_size: int,
    num_items_in_batch: int | Tensor | None = None,
    ignore_index: int = -100,
    shift_labels: Tensor | None = None,
    final_logit_softcapping: float | None = None,
    return_token_accuracy: bool = False,
    return_predicted_tokens: bool = False,
    **kwargs: Any,
) -> Tensor | CrossEntropyOutput:
    """The loss of a causal language model: hidden_states (B, S, H), labels (B, S).

    labels are shifted by one here, shift_labels are used as they are and win. With
    num_items_in_batch the sum is divided by it. Of the functional form's other arguments it takes
    ce_weight, lse_square_scale, label_smoothing and accum_dtype; any other is refused, also those
    that Liger drops without a word.
    """
    for name in kwargs:
        if name not in _CAUSAL_LM_OPTIONS:
            raise TypeError(
                f"LigerForCausalLMLoss does not take {name}= here; it takes "
                f"{', '.join(_CAUSAL_LM_OPTIONS)} beside its named arguments"
            )
    if hidden_states.shape[-1] != hidden_size:
        raise ValueError(
            f"hidden_size={hidden_size}, but hidden_states has the shape "
            f"{tuple(hidden_states.shape)}"
        )
    _check_offered(final_logit_softcapping, kwargs.get("accum_dtype"))
    target = labels if shift_labels is None else shift_labels
    if target is None:
        raise ValueError("labels and shift_labels are both None; one of them is needed")
    target = target.to(hidden_states.device)
    shift = 1 if shift_labels is None else 0
    shifted = F.pad(target, (0, shift), value=ignore_index)[..., shift:]
    asked = _Asked(shifted, ignore_index, False, return_token_accuracy, return_predicted_tokens)
    result = _loss(
        hidden_states.reshape(*target.shape, hidden_size),  # sequences are those of the labels
        lm_head_weight,
        target,
        weight=kwargs.get("ce_weight"),
        reduction="mean",
        ignore_index=ignore_index,
        label_smoothing=kwargs.get("label_smoothing", 0.0),
        softcap=final_logit_softcapping,
        z_loss=kwargs.get("lse_square_scale", 0.0),
        normalizer=num_items_in_batch,
        shift=shift,
        **asked.options(),
    )
    output = asked.of(result)
    if not isinstance(output, Tensor) and output.predicted_tokens is not None:
        output.predicted_tokens = (
            output.predicted_tokens.flatten()
        )  # as Liger's, which flattens all
    return output
