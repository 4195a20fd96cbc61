# SPDX-License-Identifier: Apache-2.0
"""FLCE for PyTorch: one line in place of the head's product and F.cross_entropy."""

from __future__ import annotations

try:
    import torch as _torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError(
        "flce.torch needs PyTorch 2.6 or newer, which is not installed; install it with "
        "'pip install torch' (or 'pip install flce[torch]')"
    ) from error

if tuple(int(part) for part in _torch.__version__.split(".")[:2]) < (2, 6):
    raise ImportError(
        f"flce.torch needs PyTorch 2.6 or newer, and {_torch.__version__} is installed; "
        "'pip install --upgrade torch' brings a newer one"
    )

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
