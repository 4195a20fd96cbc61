# SPDX-License-Identifier: Apache-2.0
"""What torch.nn.LinearCrossEntropyOptions means here, field by field."""

from __future__ import annotations

from typing import Any

import torch

from .. import _abi
from . import _call


def chunk_and_policy(
    options: Any, chunk: int | None, tokens: int, dtype: torch.dtype
) -> tuple[int, int]:
    """The chunk (0: chosen) and the policy that choose the same rows per chunk.

    `allow_retain_graph` needs nothing: a retained graph is always right here. Raises what the other
    fields ask for and cannot have.
    """
    if type(options).__name__ != "LinearCrossEntropyOptions":
        raise TypeError(
            f"options is a {type(options).__name__}; it must be torch.nn.LinearCrossEntropyOptions"
        )
    if chunk is not None:
        raise _abi.InvalidArgument(f"chunk={chunk} and options are given; give one of them")
    if options.acc_policy == "compact" and dtype in (torch.bfloat16, torch.float16):
        raise _abi.Unsupported(
            "options.acc_policy is 'compact', but 16-bit gradients are always summed in float32 "
            "here; use 'auto' or 'accurate'"
        )
    if options.acc_dtype not in (None, _call.result_dtype(dtype)):
        raise _abi.Unsupported(
            f"options.acc_dtype is {options.acc_dtype}; with {dtype} input sums are in "
            f"{_call.result_dtype(dtype)}: leave it out"
        )
    size, way = options.batch_chunk_size, options.chunking_method
    if size is not None:
        size = _abi.integer("options.batch_chunk_size", size)
    if way == "auto":
        return size or 0, _abi.POLICIES["measured"]
    if way is None:
        return size or max(tokens, 1), _abi.POLICIES["measured"]
    if way in ("aspect_ratio", "aspect_ratio:1") and size is None:
        return 0, _abi.POLICIES["liger"]
    raise _abi.Unsupported(
        f"options.chunking_method is {way!r} with batch_chunk_size={size}; 'auto', None with a "
        "batch_chunk_size, and 'aspect_ratio' without one work here"
    )
