# SPDX-License-Identifier: Apache-2.0
"""The other implementation: F.linear and F.cross_entropy in float64, with every option spelled out.

Includes nothing of the package. Tests compare values and gradients with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Expected(NamedTuple):
    """What an unfused float64 computation gives; per-token values have target's shape."""

    loss: Tensor
    lse: Tensor
    logprob: Tensor
    entropy: Tensor
    z_loss: Tensor
    num_correct: int
    num_valid: int
    largest_part: float  # of what is added to make a gradient of a logit, for an upstream of 1


def logits(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    scale: float = 1.0,
    softcap: float | None = None,
    temperature: float | Tensor = 1.0,
) -> Tensor:
    """u of shape (..., V)."""
    z = scale * F.linear(x, w)
    if bias is not None:
        z = z + bias
    if softcap:
        z = softcap * torch.tanh(z / softcap)
    if isinstance(temperature, Tensor) and temperature.dim():
        temperature = temperature.double()[..., None]
    return z / temperature


def shifted(y: Tensor, shift: int, ignore_index: int) -> Tensor:
    """The target of each token, ignore_index where the sequence ends before it."""
    moved = torch.full_like(y, ignore_index)
    if shift < y.shape[-1]:
        moved[..., : y.shape[-1] - shift] = y[..., shift:]
    return moved


def linear_cross_entropy(
    x: Tensor,
    w: Tensor,
    y: Tensor,
    *,
    bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    token_weight: Tensor | None = None,
    normalizer: float | None = None,
    shift: int = 0,
    **of_logits: Any,
) -> Expected:
    """Differentiable in x, w and bias, which must be float64."""
    u = logits(x, w, bias, **of_logits)
    y = shifted(y, shift, ignore_index) if shift else y
    valid = y != ignore_index
    flat, flat_y = u.reshape(-1, u.shape[-1]), y.reshape(-1).long()
    class_weight = None if weight is None else weight.double()
    parts = F.cross_entropy(
        flat,
        flat_y,
        weight=class_weight,
        reduction="none",
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    ).view(y.shape)
    lse = torch.where(valid, torch.logsumexp(u, -1), 0.0)
    z_part = z_loss * lse**2
    if token_weight is not None:
        parts, z_part = parts * token_weight.double(), z_part * token_weight.double()
    safe = torch.where(valid, y, 0).long()
    of_target = torch.ones_like(lse) if weight is None else class_weight[safe]
    divisor = torch.where(valid, of_target, 0.0).sum()
    if divisor == 0:
        divisor = torch.full_like(divisor, torch.nan)
    if normalizer is not None:
        divisor = torch.tensor(float(normalizer)).double()
    log_p = torch.log_softmax(u, -1)
    logprob = torch.where(valid, log_p.gather(-1, safe[..., None])[..., 0], 0.0)
    entropy = torch.where(valid, torch.special.entr(log_p.exp()).sum(-1), 0.0)

    divided = normalizer is not None or (reduction == "mean" and bool(valid.any()))

    def reduced(values: Tensor) -> Tensor:
        if reduction == "none":
            return values
        total = values.sum()
        return total / divisor if reduction == "mean" or normalizer is not None else total

    return Expected(
        reduced(parts + z_part),
        lse,
        logprob,
        entropy,
        reduced(z_part),
        int((valid & (u.argmax(-1) == y)).sum()),
        int(valid.sum()),
        _largest_part(lse, class_weight, token_weight, z_loss)
        / (float(divisor) if divided else 1.0),
    )


def _largest_part(
    lse: Tensor, weight: Tensor | None, token_weight: Tensor | None, z_loss: float
) -> float:
    """Parts of a gradient may cancel; what they are rounded to does not."""
    of_class = 1.0 if weight is None else float(weight.max())
    of_token = (
        1.0 if token_weight is None or not token_weight.numel() else float(token_weight.max())
    )
    largest_lse = float(lse.detach().abs().max()) if lse.numel() else 0.0
    return of_token * (of_class + 2 * z_loss * largest_lse)


def leaf(tensor: Tensor | None, requires_grad: bool = True) -> Tensor | None:
    """The same values as a float64 leaf."""
    if tensor is None:
        return None
    return tensor.detach().double().clone().requires_grad_(requires_grad)


def relative_error(got: Tensor, want: Tensor) -> float:
    """Frobenius norm of the difference over that of `want` (at least 1e-30)."""
    return float((got.double() - want).norm() / want.norm().clamp(min=1e-30))
