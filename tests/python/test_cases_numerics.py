# SPDX-License-Identifier: Apache-2.0
"""Inputs that broke systems of this kind: smoothing, padding, cancellation, range, precision."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import oracle
from flce.torch import linear_cross_entropy, linear_logprob, loss_and_grads
from support import assert_close

I4 = torch.eye(4)
ROWS = torch.tensor([[0.0, 0, 0, 0], [1, 2, 3, 4]])


def leaves(*tensors: Tensor) -> list[Tensor]:
    return [t.clone().requires_grad_() for t in tensors]


def near(got: Tensor, want: object, tolerance: float = 1e-6) -> None:
    assert_close(got, torch.as_tensor(want, dtype=torch.float64), tolerance, "value")


def test_c022_smoothing_skips_ignored_rows() -> None:
    x, w = leaves(ROWS, I4)
    loss = linear_cross_entropy(x, w, torch.tensor([-100, 3]), label_smoothing=0.1)
    near(loss, 0.5901897)
    loss.backward()
    near(x.grad[1], [0.0070586, 0.0621443, 0.2118828, -0.2810857], 2e-6)
    assert torch.equal(x.grad[0], torch.zeros(4))
    near(linear_cross_entropy(x, w, torch.tensor([0, 3]), label_smoothing=0.1), 0.9882420)


def test_c024_class_weights_divide() -> None:
    weight = torch.tensor([1.0, 2, 3, 4])
    near(linear_cross_entropy(ROWS, I4, torch.tensor([0, 3]), weight=weight), 0.6294106)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_class_weights_that_sum_to_nothing_are_as_in_torch(smoothing: float) -> None:
    y, weight = torch.tensor([0, -100, 0]), torch.tensor([0.0, 2, 3, 4])
    options = {"weight": weight, "label_smoothing": smoothing}
    x, x2, w, w2 = leaves(torch.ones(3, 4), torch.ones(3, 4), I4, I4)
    ours = linear_cross_entropy(x, w, y, **options)
    theirs = torch.nn.functional.cross_entropy(x2 @ w2.T, y, **options)
    ours.backward()
    theirs.backward()
    for got, want in ((ours, theirs), (x.grad, x2.grad), (w.grad, w2.grad)):
        torch.testing.assert_close(got, want, equal_nan=True)
    want = oracle.linear_cross_entropy(x.detach().double(), w.detach().double(), y, **options)
    torch.testing.assert_close(want.loss.float(), theirs, equal_nan=True)


def test_c026_minus_infinity_without_smoothing() -> None:
    x, w, bias = leaves(torch.ones(1, 1), torch.zeros(3, 1), torch.tensor([-math.inf, 0, 0]))
    y = torch.tensor([1])
    loss = linear_cross_entropy(x, w, y, linear_bias=bias)
    near(loss, math.log(2.0))
    loss.backward()
    near(bias.grad, [0, -0.5, 0.5])
    near(w.grad[:, 0], [0, -0.5, 0.5])
    bias.grad = None
    smooth = linear_cross_entropy(x, w, y, linear_bias=bias, label_smoothing=0.1)
    assert smooth == math.inf
    smooth.backward()
    near(bias.grad, [-0.0333333, -0.4333333, 0.4666667], 2e-6)


@pytest.mark.parametrize("vocab", (5, 127, 129, 129920, 151936))
@pytest.mark.parametrize("sign", (-20.0, 20.0))
def test_c033_no_column_but_the_real_ones(vocab: int, sign: float) -> None:
    x, w = leaves(torch.ones(1, 1), torch.full((vocab, 1), sign))
    y = torch.tensor([2])
    loss = linear_cross_entropy(x, w, y)
    near(loss, math.log(vocab))
    loss.backward()
    assert abs(float(w.grad.double().sum())) <= 1e-6
    near(linear_logprob(x, w, y)[1][0], math.log(vocab))


@pytest.mark.parametrize("offset", (0.0, 1e4, 1e6))
def test_c037_a_common_offset_loses_nothing(offset: float) -> None:
    w = torch.tensor([[2.0 + offset], [-1.0 + offset]], requires_grad=True)
    loss = linear_cross_entropy(torch.ones(1, 1), w, torch.tensor([0]))
    near(loss, 0.0485873, 2e-6)
    loss.backward()
    near(w.grad[:, 0], [-0.0474259, 0.0474259], 2e-6)


def test_c037_a_huge_offset() -> None:
    w = torch.full((2, 1), 1e8)
    near(linear_cross_entropy(torch.ones(1, 1), w, torch.tensor([0])), math.log(2.0))


@pytest.mark.parametrize("at", ((0,), (50000,), (99999,), (3, 77777)))
def test_c038_all_but_a_few_logits_are_minus_infinity(at: tuple[int, ...]) -> None:
    bias = torch.full((100000,), -math.inf)
    bias[list(at)] = 10.0
    bias.requires_grad_()
    loss = linear_cross_entropy(
        torch.ones(1, 1), torch.zeros(100000, 1), torch.tensor([at[0]]), linear_bias=bias
    )
    loss.backward()
    want = torch.zeros(100000)
    if len(at) == 2:
        want[list(at)] = torch.tensor([-0.5, 0.5])
    near(loss, math.log(len(at)))
    assert_close(bias.grad, want.double(), 1e-6, "db")


@pytest.mark.parametrize("vocab", (262144, 1000003))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float16))
def test_c040_huge_vocabularies(vocab: int, dtype: torch.dtype) -> None:
    x, w = torch.ones(1, 1, dtype=dtype), torch.zeros(vocab, 1, dtype=dtype, requires_grad=True)
    loss = linear_cross_entropy(x, w, torch.tensor([0]), reduction="sum")
    near(loss, math.log(vocab))
    loss.backward()
    # float16 has no finer steps than 6e-8 below 6e-5.
    tolerance = 1e-3 if dtype == torch.float32 else 4e-3 if dtype == torch.bfloat16 else 6e-2
    near(w.grad[1:, 0] * vocab, torch.ones(vocab - 1), tolerance)


@pytest.mark.parametrize("peak", (5.0, 20.0, 80.0, 320.0))
def test_c041_probabilities_add_up(peak: float) -> None:
    torch.manual_seed(4)
    for _ in range(4):
        x, w = torch.randn(1, 64), torch.randn(512, 64)
        x = (x * peak / (x @ w.T).max()).bfloat16()
        w = w.bfloat16().requires_grad_()
        bias = torch.zeros(512, requires_grad=True)
        y = torch.randint(0, 512, (1,))
        linear_cross_entropy(x, w, y, linear_bias=bias).backward()
        assert abs(float(bias.grad.sum())) <= 4e-3 * float(bias.grad.abs().sum())
        total = w.grad.double().sum(0).abs().max()
        assert total <= 4e-3 * float(w.grad.double().abs().sum(0).max())


def test_c043_the_gradient_of_a_confident_token() -> None:
    x = torch.tensor([[8.0, 0, 0, 0]]).bfloat16().requires_grad_()
    linear_cross_entropy(x, I4.bfloat16(), torch.tensor([0]), reduction="sum").backward()
    want = torch.tensor([-0.00100538, 0.00033513, 0.00033513, 0.00033513])
    assert ((x.grad[0] - want).abs() <= 0.01 * want.abs()).all()


@pytest.mark.parametrize("chunk", (1, 16, 256, 4096))
def test_c045_chunks_are_summed_in_float32(chunk: int) -> None:
    x, w = torch.ones(4096, 1).bfloat16(), torch.zeros(2, 1).bfloat16()
    y = torch.zeros(4096, dtype=torch.int64)
    *_, grad = loss_and_grads(x, w, y, chunk_size=chunk, reduction="sum")
    assert grad.tolist() == [[-2048.0], [2048.0]]


def test_c046_small_probabilities_count() -> None:
    w = torch.zeros(65536, 1, requires_grad=True)
    linear_cross_entropy(torch.ones(1, 1), w, torch.tensor([0]), reduction="sum").backward()
    near(w.grad[1:, 0], torch.full((65535,), 1.5258789e-5))


def test_c048_float16_sums_do_not_overflow() -> None:
    x, w = torch.ones(20480, 1).half(), torch.zeros(14749, 1).half()
    y = torch.arange(20480) % 14749
    near(linear_cross_entropy(x, w, y), 9.5989306, 1e-5)
    near(linear_cross_entropy(x, w, y, reduction="sum"), 196586.10, 1e-5)


@pytest.mark.parametrize(("vocab", "want"), ((4096, 8.3177662), (70000, 11.1562505)))
def test_c049_float16_denominators(vocab: int, want: float) -> None:
    w = torch.zeros(vocab, 1).half()
    near(linear_cross_entropy(torch.ones(1, 1).half(), w, torch.tensor([0])), want)


def test_c050_float16_logits_beyond_its_range() -> None:
    x, w = torch.full((1, 1024), 16.0).half(), torch.full((1000, 1024), 16.0).half()
    near(linear_cross_entropy(x, w, torch.tensor([5])), 6.9077553)


@pytest.mark.parametrize("method", ("auto", "recompute"))
@pytest.mark.parametrize("upstream", (0.0, -2.5))
def test_c051_any_upstream(method: str, upstream: float) -> None:
    x, w = leaves(torch.randn(5, 4), torch.randn(7, 4))
    y = torch.randint(0, 7, (5,))
    base = torch.autograd.grad(linear_cross_entropy(x, w, y, method=method), (x, w))
    loss = linear_cross_entropy(x, w, y, method=method)
    loss.backward(gradient=torch.tensor(upstream))
    for got, unit in zip((x.grad, w.grad), base, strict=True):
        assert_close(got, upstream * unit.double(), 1e-6, "gradient")


@pytest.mark.parametrize(("vocab", "want"), ((50257, 10.8249051), (70000, 11.1562505)))
def test_c053_the_loss_of_bfloat16_is_not_rounded(vocab: int, want: float) -> None:
    x, w = torch.ones(1, 1).bfloat16(), torch.zeros(vocab, 1).bfloat16()
    loss = linear_cross_entropy(x, w, torch.tensor([0]))
    assert loss.dtype == torch.float32
    near(loss, want, 1e-6)
    rounded = linear_cross_entropy(x, w, torch.tensor([0]), loss_dtype=torch.bfloat16)
    assert rounded.dtype == torch.bfloat16 and rounded == loss.bfloat16()


def test_c075_softcap() -> None:
    x = torch.tensor([[60.0, 0.0]], requires_grad=True)
    loss = linear_cross_entropy(x, torch.eye(2), torch.tensor([1]), softcap=30.0)
    near(loss, 28.9208274)
    loss.backward()
    near(x.grad[0], [0.0706508, -1.0])
    for off in (None, 0, 0.0):
        near(linear_cross_entropy(x, torch.eye(2), torch.tensor([1]), softcap=off), 60.0)


def test_c076_logit_scale() -> None:
    x, w = leaves(torch.tensor([[8.0, 0.0]]), torch.eye(2))
    loss = linear_cross_entropy(x, w, torch.tensor([0]), scale=0.125)
    near(loss, 0.3132617)
    loss.backward()
    near(x.grad[0], [-0.0336177, 0.0336177], 2e-6)
    near(w.grad, [[-0.2689414, 0.0], [0.2689414, 0.0]], 2e-6)


def test_c077_bias() -> None:
    w, bias = leaves(torch.zeros(4, 1), torch.tensor([1.0, 2, 3, 4]).log())
    loss = linear_cross_entropy(torch.ones(1, 1), w, torch.tensor([3]), linear_bias=bias)
    near(loss, 0.9162907)
    loss.backward()
    near(bias.grad, [0.1, 0.2, 0.3, -0.6])
    near(w.grad[:, 0], [0.1, 0.2, 0.3, -0.6])


def test_c077_a_bias_of_stride_two() -> None:
    wide = torch.randn(8)
    x, w, y = torch.randn(3, 4), torch.randn(4, 4), torch.tensor([0, 1, 2])
    got = linear_cross_entropy(x, w, y, linear_bias=wide[::2])
    assert torch.equal(got, linear_cross_entropy(x, w, y, linear_bias=wide[::2].contiguous()))


def test_c078_a_temperature_per_token() -> None:
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0]], requires_grad=True)
    loss = linear_cross_entropy(
        x,
        torch.eye(2),
        torch.tensor([0, 0]),
        temperature=torch.tensor([0.5, 2.0]),
        reduction="none",
    )
    near(loss, [0.1269280, 0.4740770])
    loss.sum().backward()
    near(x.grad, [[-0.2384058, 0.2384058], [-0.1887703, 0.1887703]])


def test_c079_z_loss() -> None:
    x = torch.zeros(1, 4, requires_grad=True)
    y = torch.tensor([0])
    near(linear_cross_entropy(x, I4, y, z_loss=0.0), 1.3862944)
    out = linear_cross_entropy(x, I4, y, z_loss=1e-4, return_z_loss=True)
    near(out.loss, 1.3864865)
    near(out.z_loss, 1e-4 * math.log(4.0) ** 2, 1e-5)
    near(out.loss - out.z_loss, math.log(4.0))
    assert torch.equal(out.loss, linear_cross_entropy(x, I4, y, z_loss=1e-4))
    out.loss.backward()
    near(x.grad[0], [-0.7499307, 0.2500693, 0.2500693, 0.2500693])
