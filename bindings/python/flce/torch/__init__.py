# SPDX-License-Identifier: Apache-2.0
"""FLCE for PyTorch: one line in place of the head's product and F.cross_entropy."""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "flce.torch needs PyTorch 2.6 or newer, which is not installed; install it with "
        "'pip install torch' (or 'pip install flce[torch]')"
    ) from error

from .functional import (
    LinearCrossEntropyOutput,
    linear_cross_entropy,
    linear_logprob,
    loss_and_grads,
)
from .hf import patch, plan_for, unpatch
from .modules import FusedLinearHead, LinearCrossEntropyLoss

__all__ = [
    "FusedLinearHead",
    "LinearCrossEntropyLoss",
    "LinearCrossEntropyOutput",
    "linear_cross_entropy",
    "linear_logprob",
    "loss_and_grads",
    "patch",
    "plan_for",
    "unpatch",
]
