# SPDX-License-Identifier: Apache-2.0
"""Inputs that broke systems of this kind: empty and ignored batches, reductions, chunks, targets.

Each test is named by the number of its row in the collection of cases.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import flce
from flce.torch import linear_cross_entropy, loss_and_grads
from support import assert_close, check_against_oracle, problem

REDUCTIONS = ("mean", "sum", "none")
ONES = torch.ones(4, 1), torch.tensor([[2.0], [0.0]]), torch.tensor([0, 1, 1, 1])


def leaves(*tensors: Tensor) -> list[Tensor]:
    return [t.clone().requires_grad_() for t in tensors]


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_c001_no_supervised_token(reduction: str) -> None:
    x, w = leaves(torch.arange(6.0).view(3, 2), torch.arange(10.0).view(5, 2))
    loss = linear_cross_entropy(x, w, torch.full((3,), -100), reduction=reduction)
    want = {"mean": torch.tensor(math.nan), "sum": torch.tensor(0.0), "none": torch.zeros(3)}
    torch.testing.assert_close(loss, want[reduction], equal_nan=True)
    loss.sum().backward()
    assert torch.equal(x.grad, torch.zeros(3, 2)) and torch.equal(w.grad, torch.zeros(5, 2))


@pytest.mark.parametrize("count", (0, torch.tensor(0)), ids=("number", "tensor"))
def test_c001_a_count_of_zero(count: Any) -> None:
    x, w = leaves(torch.randn(3, 2), torch.randn(5, 2))
    loss = linear_cross_entropy(x, w, torch.full((3,), -100), normalizer=count)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert torch.equal(x.grad, torch.zeros(3, 2)) and torch.equal(w.grad, torch.zeros(5, 2))


def test_c003_a_masked_batch_stays_in_the_graph() -> None:
    x, w = leaves(torch.randn(3, 2), torch.randn(5, 2))
    loss = linear_cross_entropy(x, w, torch.full((3,), -100), reduction="sum")
    assert loss.requires_grad
    loss.backward()
    assert torch.equal(x.grad, torch.zeros(3, 2)) and torch.equal(w.grad, torch.zeros(5, 2))


@pytest.mark.parametrize("smoothing", (0.0, 0.1))
@pytest.mark.parametrize("with_bias", (False, True))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_c004_all_ignored(smoothing: float, with_bias: bool, dtype: torch.dtype) -> None:
    x, w, bias = leaves(*(torch.randn(s).to(dtype) for s in ((3, 2), (5, 2), (5,))))
    y = torch.full((3,), -100)
    b = bias if with_bias else None
    loss = linear_cross_entropy(x, w, y, linear_bias=b, label_smoothing=smoothing)
    assert loss.isnan()
    loss.backward()
    for leaf in [x, w] + [bias] * with_bias:
        assert torch.equal(leaf.grad, torch.zeros_like(leaf))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("chunk", (None, 1, 1024))
def test_c005_c006_no_token(reduction: str, chunk: int | None) -> None:
    x, w, bias = leaves(torch.empty(0, 4), torch.randn(7, 4), torch.randn(7))
    y = torch.empty(0, dtype=torch.int64)
    loss = linear_cross_entropy(x, w, y, linear_bias=bias, reduction=reduction, chunk=chunk)
    want = {"mean": torch.tensor(math.nan), "sum": torch.tensor(0.0), "none": torch.zeros(0)}
    torch.testing.assert_close(loss, want[reduction], equal_nan=True)
    loss.sum().backward()
    assert x.grad.shape == (0, 4)
    assert torch.equal(w.grad, torch.zeros(7, 4)) and torch.equal(bias.grad, torch.zeros(7))


@pytest.mark.parametrize(
    ("x", "w", "y", "named"),
    (
        ((2, 4), (0, 4), (2,), r"linear_weight has shape \(0, 4\)"),
        ((2, 4), (0,), (2,), r"linear_weight has shape \(0,\).*gathered"),
        ((2, 4), (5, 3), (2,), r"\(2, 4\).*\(5, 3\)"),
        ((2, 4), (5, 4), (3,), r"target has shape \(3,\)"),
        ((2, 4), (5, 4, 1), (2,), r"\(5, 4, 1\)"),
        ((2, 0), (5, 0), (2,), r"\(5, 0\)"),
        ((2, 3, 4), (5, 4), (6,), r"target has shape \(6,\).*\(2, 3\)"),
    ),
)
def test_c007_shapes_that_do_not_fit(x: Any, w: Any, y: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        linear_cross_entropy(torch.zeros(x), torch.zeros(w), torch.zeros(y, dtype=torch.int64))


def test_c009_each_token_has_its_own_upstream() -> None:
    x, w, bias = leaves(torch.tensor([[1.0], [2.0]]), torch.zeros(2, 1), torch.zeros(2))
    loss = linear_cross_entropy(x, w, torch.tensor([0, 1]), linear_bias=bias, reduction="none")
    assert_close(loss, torch.full((2,), math.log(2.0)), 1e-6, "loss")
    loss.backward(torch.tensor([1.0, 3.0]))
    assert_close(w.grad, torch.tensor([[2.5], [-2.5]]), 1e-6, "dW")
    assert_close(bias.grad, torch.tensor([1.0, -1.0]), 1e-6, "db")


def test_c011_none_reduced_by_hand_equals_sum_and_mean() -> None:
    x, w, y, _ = problem((64,), 8, 33, torch.float64, ignored=0.0)
    y[torch.randperm(64)[:20]] = -100
    each = linear_cross_entropy(x, w, y, reduction="none")
    for own, other in (("sum", each.sum()), ("mean", each.sum() / 44)):
        ours = torch.autograd.grad(linear_cross_entropy(x, w, y, reduction=own), (x, w))
        theirs = torch.autograd.grad(other, (x, w), retain_graph=True)
        for a, b in zip(ours, theirs, strict=True):
            assert_close(a, b, 1e-12, own)


@pytest.mark.parametrize("shape", ((12,), (3, 4)))
def test_c012_none_gives_one_loss_per_target(shape: tuple[int, ...]) -> None:
    x, w, y, _ = problem(shape, dtype=torch.bfloat16)
    loss = linear_cross_entropy(x, w, y, reduction="none")
    assert loss.shape == shape and loss.dtype == torch.float32
    assert torch.equal(loss[y == -100], torch.zeros(int((y == -100).sum())))


@pytest.mark.parametrize("chunk", (1, 2, 3, 4, 5, 1024))
@pytest.mark.parametrize("method", ("auto", "fused", "recompute", "chunked"))
def test_c014_chunks_are_joined(chunk: int, method: str) -> None:
    x, w = leaves(*ONES[:2])
    loss = linear_cross_entropy(x, w, ONES[2], chunk=chunk, method=method)
    loss.backward()
    assert_close(loss, torch.tensor(1.6269280), 1e-6, "mean")
    assert_close(w.grad, torch.tensor([[0.6307971], [-0.6307971]]), 1e-6, "dW")
    if method != "fused":
        each = linear_cross_entropy(x, w, ONES[2], reduction="none", chunk=chunk, method=method)
        assert_close(each, torch.tensor([0.1269280, 2.1269280, 2.1269280, 2.1269280]), 1e-6, "none")


@pytest.mark.parametrize(("tokens", "chunk"), ((1334, 84), (1021, 256), (257, 256)))
def test_c016_chunks_that_do_not_divide(tokens: int, chunk: int) -> None:
    x, w, y, _ = problem((tokens,), 8, 17, ignored=0.0)
    whole = loss_and_grads(x, w, y, chunk_size=tokens)
    parts = loss_and_grads(x, w, y, chunk_size=chunk)
    for a, b in zip(parts, whole, strict=True):
        assert_close(a, b.double(), 2e-6, "chunked")
    assert parts[1][-1].abs().max() > 0


def test_c017_the_global_count_divides_every_micro_batch() -> None:
    x, w, y = ONES
    w = w.clone().requires_grad_()
    total = torch.zeros(())
    for rows in (slice(0, 1), slice(1, 4)):
        loss = linear_cross_entropy(x[rows], w, y[rows], normalizer=4)
        loss.backward()
        total += loss.detach()
    assert_close(total, torch.tensor(1.6269280), 1e-6, "loss")
    assert_close(w.grad, torch.tensor([[0.6307971], [-0.6307971]]), 1e-6, "dW")


@pytest.mark.parametrize(
    "count",
    (4, 4.0, np.int64(4), np.float32(4), torch.tensor(4), torch.tensor([4]), torch.tensor(4.0)),
    ids=str,
)
@pytest.mark.parametrize("reduction", ("mean", "sum"))
def test_c019_any_kind_of_count(count: Any, reduction: str) -> None:
    x, w, y = ONES
    loss = linear_cross_entropy(x, w, y, normalizer=count, reduction=reduction)
    assert_close(loss, torch.tensor(1.6269280), 1e-6, "loss")


def test_c021_any_split_with_a_normalizer_equals_the_mean() -> None:
    x, w, y, _ = problem((40,), dtype=torch.float64)
    valid = int((y != -100).sum())
    want = linear_cross_entropy(x, w, y)
    for cuts in ([7], [1, 39], [5, 6, 20, 33]):
        parts = zip(x.tensor_split(cuts), y.tensor_split(cuts), strict=True)
        got = sum(linear_cross_entropy(a, w, b, normalizer=valid) for a, b in parts)
        assert_close(got, want.detach(), 1e-12, str(cuts))


@pytest.mark.parametrize("bad", (5, 100, -1, -2, 2**31, -(2**40)))
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_c027_targets_outside_the_vocabulary(bad: int, reduction: str) -> None:
    x, w, y, _ = problem((4,), vocab=5, ignored=0.0)
    y[2] = bad
    with pytest.raises(IndexError, match=str(bad)) as caught:
        linear_cross_entropy(x, w, y, reduction=reduction)
    assert isinstance(caught.value, flce.Error)


@pytest.mark.parametrize("ignore_index", (255, -1, -(2**31)))
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_c028_ignore_index_outside_the_classes(ignore_index: int, reduction: str) -> None:
    x, w, _, bias = problem((6,), vocab=3)
    y = torch.tensor([0, 1, ignore_index, 0, 1, 2])
    ours = check_against_oracle(x, w, y, bias, reduction=reduction, ignore_index=ignore_index)
    assert int(ours.num_valid) == 5


@pytest.mark.parametrize("ignore_index", (0, 2))
def test_c028_ignore_index_inside_the_classes(ignore_index: int) -> None:
    x, w, y, bias = problem((12,), vocab=3, ignored=0.0)
    check_against_oracle(x, w, y, bias, ignore_index=ignore_index, label_smoothing=0.1)


def test_c028_ignore_index_none_means_minus_100() -> None:
    x, w, y, _ = problem()
    want = linear_cross_entropy(x, w, y)
    assert torch.equal(linear_cross_entropy(x, w, y, ignore_index=None), want)


def test_c030_int32_targets_are_the_same() -> None:
    x, w, y, _ = problem((9,), vocab=300)
    assert torch.equal(linear_cross_entropy(x, w, y.int()), linear_cross_entropy(x, w, y))


@pytest.mark.parametrize("dtype", (torch.int16, torch.uint8, torch.int8, torch.bool))
def test_c030_other_integers_are_refused(dtype: torch.dtype) -> None:
    x, w, _, _ = problem((2,), vocab=300)
    with pytest.raises(TypeError, match=f"target has dtype {dtype}.*int64 or int32"):
        linear_cross_entropy(x, w, torch.tensor([200, 1]).to(dtype))


def test_c030_c032_probabilities_are_refused_by_name() -> None:
    x, w, _, _ = problem((3,), vocab=5)
    for target in (torch.rand(3, 5), torch.rand(3), torch.rand(3, 5, requires_grad=True)):
        with pytest.raises(TypeError, match="class probabilities are not supported"):
            linear_cross_entropy(x, w, target)


@pytest.mark.parametrize("tokens", (1, 31, 33, 91, 1017))
def test_c036_nothing_beyond_the_end_is_read(tokens: int) -> None:
    x, w, y, _ = problem((tokens,), 8, 17)
    want = loss_and_grads(x, w, y)
    long_x = torch.full((tokens + 64, 8), math.nan)
    long_y = torch.full((tokens + 64,), 2**40)
    long_x[:tokens], long_y[:tokens] = x.detach(), y
    for _ in range(20):
        got = loss_and_grads(long_x[:tokens], w, long_y[:tokens])
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("shift", (1, 2))
def test_shift_equals_shifted_labels(shift: int) -> None:
    x, w, y, _ = problem((3, 6), dtype=torch.float64)
    by_hand = F.pad(y, (0, shift), value=-100)[:, shift:]
    a = linear_cross_entropy(x, w, y, shift=shift)
    assert_close(a, linear_cross_entropy(x, w, by_hand).detach(), 1e-14, "shift")
