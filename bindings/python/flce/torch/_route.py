# SPDX-License-Identifier: Apache-2.0
"""Which route of a card a call may take: Hopper's kernels fetch rows of whole 16 bytes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from .. import _abi

_ALIGNMENT = 16  # bytes, of addresses
_STRIDE_UNIT = 8  # elements, of row strides


def needs_portable(*matrices: Tensor | None) -> bool:
    """Whether the rows of one begin where Hopper's kernels cannot fetch or store them. Of a fake
    tensor, which has no address, the storage is taken to begin well."""
    for matrix in matrices:
        if matrix is None:
            continue
        if isinstance(matrix, FakeTensor):
            address = matrix.storage_offset() * matrix.element_size()
        else:
            address = matrix.data_ptr()
        stride = matrix.stride(0)
        if address % _ALIGNMENT:
            return True
        if matrix.shape[0] > 1 and (stride % _STRIDE_UNIT or stride < matrix.shape[1]):
            return True
    return False


def route_for(hidden: Tensor, weight: Tensor, into: Tensor | None) -> int:
    """Left to the planner where it may choose. Gradients that are allocated here begin well."""
    is_free = not weight.is_cuda or weight.dtype != torch.bfloat16
    is_free = is_free or not needs_portable(hidden, weight, into)
    return _abi.ROUTES["auto" if is_free else "portable"]
