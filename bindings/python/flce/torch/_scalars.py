# SPDX-License-Identifier: Apache-2.0
"""Judges arguments that are no tensors, for all public functions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _abi


def number(name: str, value: Any) -> float:
    """A plain number; a tensor would have to be read back from its device."""
    if isinstance(value, Tensor):
        raise TypeError(f"{name} is a {type(value).__name__}; it must be a number")
    return _abi.number(name, value)


def real_dtype(dtype: Any) -> torch.dtype:
    """The dtype that a loss can be returned in."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"loss_dtype is {dtype!r}; it must be a floating dtype, or None")
    return dtype
