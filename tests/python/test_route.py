# SPDX-License-Identifier: Apache-2.0
"""Which route is asked for: the planner knows no addresses, so whoever has them must look."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from flce import _abi
from flce.torch._route import needs_portable, route_for


def rows(stride: int, offset: int = 0, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Three rows of 16 elements."""
    memory = torch.zeros(3 * stride + offset, dtype=dtype)
    return memory.as_strided((3, 16), (stride, 1), offset)


@pytest.mark.parametrize("fake", (False, True))
@pytest.mark.parametrize(
    ("stride", "offset", "portable"),
    ((16, 0, False), (24, 8, False), (24, 4, True), (20, 0, True), (17, 0, True), (16, 1, True)),
)
def test_rows_that_hopper_cannot_fetch(
    stride: int, offset: int, portable: bool, fake: bool
) -> None:
    if fake:
        with FakeTensorMode():
            matrix = rows(stride, offset)
            assert needs_portable(matrix) == portable
    else:
        matrix = rows(stride, offset)
        assert needs_portable(matrix) == portable
        assert needs_portable(rows(16), None, matrix) == portable


def test_addresses_count_in_bytes_and_strides_in_elements() -> None:
    assert not needs_portable()
    assert not needs_portable(None)
    assert not needs_portable(rows(16, 4, torch.float32))
    assert needs_portable(rows(16, 2, torch.float32))
    assert needs_portable(rows(20, 0, torch.float32))


def test_the_cpu_is_never_asked_for_a_route() -> None:
    assert route_for(rows(17), rows(17), None) == _abi.ROUTES["auto"]
    with FakeTensorMode():
        on_card = torch.empty(3, 17, dtype=torch.bfloat16, device="cuda")
        aligned = torch.empty(3, 16, dtype=torch.bfloat16, device="cuda")
        assert route_for(aligned, on_card, None) == _abi.ROUTES["portable"]
        assert route_for(on_card, aligned, None) == _abi.ROUTES["portable"]
        assert route_for(on_card.float(), on_card.float(), None) == _abi.ROUTES["auto"]
        assert route_for(aligned, aligned, None) == _abi.ROUTES["auto"]
        assert route_for(aligned, aligned, on_card) == _abi.ROUTES["portable"]
