# SPDX-License-Identifier: Apache-2.0
"""Judges arguments that are no tensors, for all public functions."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor

from .._abi import InvalidArgument


def number(name: str, value: Any) -> float:
    """A plain number; a tensor would have to be read back from its device."""
    if isinstance(value, Tensor) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} is a {type(value).__name__}; it must be a number")
    return value if isinstance(value, (float, int)) else float(value)


def integer(name: str, value: Any) -> int:
    """What an operator's schema takes for an int; the C ABI would wrap a larger one."""
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is a {type(value).__name__}; it must be an integer") from None
    if type(value) is int and not -(1 << 63) <= value < 1 << 63:
        raise InvalidArgument(f"{name} is {value}; it must fit in 64 bits")
    return value


def real_dtype(dtype: Any) -> torch.dtype:
    """The dtype that a loss can be returned in."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"loss_dtype is {dtype!r}; it must be a floating dtype, or None")
    return dtype
