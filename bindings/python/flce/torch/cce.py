# SPDX-License-Identifier: Apache-2.0
"""The fused linear cross-entropy by the names and arguments of Apple's cut-cross-entropy.

    from flce.torch.cce import linear_cross_entropy

in place of `from cut_cross_entropy import linear_cross_entropy`. Gradients are exact here: the
arguments that permit leaving small entries out change nothing about that, and a threshold that is
given as a number is refused. docs/pytorch.md has the table.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import functional
from ._arguments import Head, under_autocast

# Each promises sums at least as exact as the one before; all of them are kept here.
_IMPLEMENTATIONS = (
    "cce",
    "cce_kahan_full_c",
    "cce_kahan_full_e",
    "cce_kahan_full_c_full_e",
    "cce_kahan_full",
    "cce_exact",
)


def linear_cross_entropy(
    e: Tensor,
    c: Tensor,
    targets: Tensor,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    softcap: float | None = None,
    reduction: str = "mean",
    shift: bool | int = 0,
    return_lse: bool = False,
    filter_eps: float | str | None = "auto",
    accum_e_fp32: bool = False,
    accum_c_fp32: bool = False,
    filter_e_grad: bool = True,
    filter_c_grad: bool = True,
    impl: Any = "cce",
    vocab_parallel_options: Any = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Cross-entropy of e (..., T, D) @ c (V, D)ᵀ + bias (V) and targets (..., T).

    shift: token t predicts targets[..., t + shift]; True is 1. With reduction="none" the loss then
    has T - shift entries, and so has the log-sum-exp that return_lse adds, in float32 and with a
    gradient; both are 0 at ignored tokens. accum_e_fp32 and accum_c_fp32: always so here.
    filter_eps: "auto" or None, filter_e_grad and filter_c_grad: either way no entry is left out.
    impl: a name of cut-cross-entropy's exact or approximate kernels, or its enum's member.
    """
    _check_offered(filter_eps, impl, vocab_parallel_options)
    del accum_e_fp32, accum_c_fp32, filter_e_grad, filter_c_grad
    length = targets.shape[-1] if targets.ndim else 0
    shift = int(shift)
    if shift != 0 and not 0 <= shift < length:
        raise ValueError(
            f"shift={shift}: it is in [0, {length}) for {tuple(targets.shape)} targets"
        )
    if return_lse:
        loss, lse = _with_lse(e, c, targets, bias, ignore_index, softcap, reduction, shift)
    else:
        result = functional.linear_cross_entropy(
            e,
            c,
            targets,
            linear_bias=bias,
            reduction=reduction,
            ignore_index=ignore_index,
            softcap=softcap,
            shift=shift,
        )
        loss = result if isinstance(result, Tensor) else result.loss
    if reduction == "none" and shift != 0:
        loss = loss[..., : length - shift]
    if not return_lse:
        return loss
    return loss, lse[..., : length - shift] if shift != 0 else lse


def _check_offered(filter_eps: Any, impl: Any, vocab_parallel_options: Any) -> None:
    if filter_eps is not None and filter_eps != "auto":
        raise ValueError(
            f"filter_eps={filter_eps!r}: gradients are exact here, no entry is left out below a "
            "threshold; give 'auto' or None"
        )
    name = getattr(impl, "name", impl)
    if not isinstance(name, str) or name.lower() not in _IMPLEMENTATIONS:
        raise ValueError(
            f"impl={impl!r} is not offered; one of {', '.join(_IMPLEMENTATIONS)} is, and each of "
            "them means the same exact computation here"
        )
    if vocab_parallel_options is not None:
        raise ValueError(
            "vocab_parallel_options: a head that is split over ranks is not offered; give the "
            "whole c and None"
        )


def _with_lse(
    e: Tensor,
    c: Tensor,
    targets: Tensor,
    bias: Tensor | None,
    ignore_index: int,
    softcap: float | None,
    reduction: str,
    shift: int,
) -> tuple[Tensor, Tensor]:
    """(loss, log-sum-exp per token), both with gradients: log p = u_y - lse gives lse."""
    if reduction not in ("none", "sum", "mean"):
        raise ValueError(f"reduction={reduction!r}; it is 'none', 'sum' or 'mean'")
    head = under_autocast(Head(e, c, targets, bias))
    logprob, _ = functional.linear_logprob(
        *head[:3], bias=head.bias, softcap=softcap, ignore_index=ignore_index, shift=shift
    )
    shifted = F.pad(targets, (0, shift), value=ignore_index)[..., shift:] if shift else targets
    valid = shifted != ignore_index
    classes = torch.where(valid, shifted, 0)
    # One row of c per token: nothing of size N x V is made. What an ignored token holds stays out.
    # In the loss's dtype, so that products are not rounded to 16 bits, nor the sum of the gradients
    # that a frequent class gets from its tokens.
    wide = logprob.dtype
    rows = torch.where(valid[..., None], head.input, 0.0).to(wide)
    logit = (rows * F.embedding(classes, head.weight.to(wide))).sum(-1)
    if head.bias is not None:
        logit = logit + head.bias.to(wide)[classes]
    if softcap:
        logit = softcap * torch.tanh(logit / softcap)
    lse = torch.where(valid, logit - logprob, 0.0)
    nll = torch.where(valid, -logprob, 0.0)
    if reduction == "none":
        return nll, lse
    total = nll.sum()
    return (total if reduction == "sum" else total / valid.sum()), lse


class LinearCrossEntropy(nn.Module):
    """`linear_cross_entropy` as a module; forward(e, c, targets, bias)."""

    def __init__(
        self,
        ignore_index: int = -100,
        softcap: float | None = None,
        reduction: str = "mean",
        shift: bool | int = 0,
        filter_eps: float | str | None = "auto",
        accum_e_fp32: bool = False,
        accum_c_fp32: bool = False,
        filter_e_grad: bool = True,
        filter_c_grad: bool = True,
        impl: Any = "cce",
        return_lse: bool = False,
    ) -> None:
        super().__init__()
        self.ignore_index = ignore_index
        self.softcap = softcap
        self.reduction = reduction
        self.shift = shift
        self.filter_eps = filter_eps
        self.accum_e_fp32 = accum_e_fp32
        self.accum_c_fp32 = accum_c_fp32
        self.filter_e_grad = filter_e_grad
        self.filter_c_grad = filter_c_grad
        self.impl = impl
        self.return_lse = return_lse

    def forward(
        self, e: Tensor, c: Tensor, targets: Tensor, bias: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        return linear_cross_entropy(
            e,
            c,
            targets,
            bias,
            ignore_index=self.ignore_index,
            softcap=self.softcap,
            reduction=self.reduction,
            shift=self.shift,
            return_lse=self.return_lse,
            filter_eps=self.filter_eps,
            accum_e_fp32=self.accum_e_fp32,
            accum_c_fp32=self.accum_c_fp32,
            filter_e_grad=self.filter_e_grad,
            filter_c_grad=self.filter_c_grad,
            impl=self.impl,
        )
