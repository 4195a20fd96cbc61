# SPDX-License-Identifier: Apache-2.0
"""Inputs that broke systems of this kind: autograd, memory, strides, autocast, modules, outputs."""

from __future__ import annotations

import gc
import itertools
import math
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import oracle
from flce.torch import FusedLinearHead, linear_cross_entropy, linear_logprob
from support import EVERYTHING, GRAD_TOLERANCE, assert_close, check_against_oracle, problem

METHODS = ("fused", "recompute", "naive", "chunked")


def reference_grads(x: Tensor, w: Tensor, y: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    a, b = oracle.leaf(x), oracle.leaf(w)
    oracle.linear_cross_entropy(a, b, y, **options).loss.backward()
    return a.grad, b.grad


@pytest.mark.parametrize("x_dtype", (torch.float32, torch.bfloat16))
@pytest.mark.parametrize("w_dtype", (torch.float32, torch.bfloat16))
@pytest.mark.parametrize("with_bias", (False, True))
@pytest.mark.parametrize("cast", (torch.bfloat16, torch.float16))
def test_c055_autocast(x_dtype: Any, w_dtype: Any, with_bias: bool, cast: torch.dtype) -> None:
    x, w, y, bias = problem((12,))
    x, w = (t.detach().to(d).requires_grad_() for t, d in ((x, x_dtype), (w, w_dtype)))
    b = bias if with_bias else None
    with torch.autocast("cpu", cast):
        loss = linear_cross_entropy(x, w, y, linear_bias=b)
    loss.backward()
    assert loss.dtype == torch.float32
    assert x.grad.dtype == x_dtype and w.grad.dtype == w_dtype
    want = reference_grads(x.to(cast), w.to(cast), y, bias=None if b is None else b.double())
    for leaf, expected in zip((x, w), want, strict=True):
        # What the cast operands give, rounded once more to the leaf's own dtype.
        assert_close(leaf.grad, expected, 2 * GRAD_TOLERANCE[torch.bfloat16], "gradient")
    if b is not None:
        assert bias.grad.dtype == torch.float32


@pytest.mark.parametrize("pair", ((torch.float32, torch.bfloat16), (torch.float16, torch.float32)))
def test_c055_mixed_dtypes_without_autocast(pair: tuple[torch.dtype, torch.dtype]) -> None:
    x, w, y, _ = problem()
    with pytest.raises(TypeError, match="linear_weight has dtype .*autocast"):
        linear_cross_entropy(x.to(pair[0]), w.to(pair[1]), y)


def strided() -> list[tuple[str, Tensor, Tensor]]:
    w = torch.randn(33, 8)
    return [
        ("transposed", torch.randn(4, 2, 8).transpose(0, 1), w),
        ("half of the columns", torch.randn(2, 4, 16)[..., :8], w),
        ("every second row", torch.randn(16, 8)[::2].view(2, 4, 8), w),
        ("expanded", torch.randn(1, 4, 8).expand(2, 4, 8), w),
        ("one row expanded", torch.randn(8).expand(2, 4, 8), w),
        ("inner stride", torch.randn(2, 8, 4).transpose(1, 2), w),
        ("weight transposed", torch.randn(2, 4, 8), torch.randn(8, 33).t()),
        ("weight's columns", torch.randn(2, 4, 8), torch.randn(33, 16)[:, 8:]),
        ("weight expanded", torch.randn(2, 4, 8), torch.randn(1, 8).expand(33, 8)),
    ]


@pytest.mark.parametrize("index", range(9))
@pytest.mark.parametrize("reduction", ("mean", "none"))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_c060_any_strides(index: int, reduction: str, dtype: torch.dtype) -> None:
    _, x, w = strided()[index]
    x, w = x.to(dtype), w.to(dtype)
    y = torch.randint(0, 33, (4, 2)).t()
    a, b = (t.detach().requires_grad_() for t in (x, w))
    loss = linear_cross_entropy(a, b, y, reduction=reduction)
    c, d = (t.detach().contiguous().requires_grad_() for t in (x, w))
    want = linear_cross_entropy(c, d, y.contiguous(), reduction=reduction)
    assert torch.equal(loss, want)
    upstream = torch.randn_like(loss)
    got = torch.autograd.grad(loss, (a, b), upstream)
    expected = torch.autograd.grad(want, (c, d), upstream)
    assert got[0].shape == x.shape
    assert all(torch.equal(p, q) for p, q in zip(got, expected, strict=True))


@pytest.mark.parametrize("reduction", ("mean", "none"))
def test_c060_views_that_negate_lazily(reduction: str) -> None:
    x, w, y, bias = problem((7,), dtype=torch.float64)
    lazy = [torch.complex(t.detach(), t.detach()).conj().imag for t in (x, w, bias)]
    assert all(t.is_neg() for t in lazy)
    a, b, c = (t.detach().requires_grad_() for t in lazy)
    check_against_oracle(a, b, y, c, reduction=reduction)
    with torch.no_grad():
        got = linear_cross_entropy(lazy[0], lazy[1], y, linear_bias=lazy[2], reduction=reduction)
    want = oracle.linear_cross_entropy(-x, -w, y, bias=-bias, reduction=reduction)
    assert_close(got, want.loss, 1e-12, "loss")
    loss = linear_cross_entropy(x, w, y, reduction=reduction)
    upstream = torch.complex(loss.detach(), loss.detach()).conj().imag
    lazily = torch.autograd.grad(loss, (x, w), upstream, retain_graph=True)
    plainly = torch.autograd.grad(loss, (x, w), -loss.detach())
    assert all(torch.equal(p, q) for p, q in zip(lazily, plainly, strict=True))


@pytest.mark.parametrize("trained", ("both", "trunk", "head"))
def test_c062_the_trunk_gets_its_gradient(trained: str) -> None:
    u = torch.randn(24, 8, requires_grad=trained != "head")
    w = torch.randn(33, 8, requires_grad=trained != "trunk")
    y = torch.randint(0, 33, (4, 6))
    linear_cross_entropy((u * 2).view(6, 4, 8).transpose(0, 1), w, y).backward()
    a, b = oracle.leaf(u), oracle.leaf(w)
    oracle.linear_cross_entropy((a * 2).view(6, 4, 8).transpose(0, 1), b, y).loss.backward()
    if trained != "head":
        assert_close(u.grad, a.grad, 1e-5, "trunk")
    if trained != "trunk":
        assert_close(w.grad, b.grad, 1e-5, "head")


@pytest.mark.parametrize("first", (True, False))
@pytest.mark.parametrize("method", METHODS)
def test_c064_inputs_stay_as_they_were(first: bool, method: str) -> None:
    u, w, y, bias = problem((6,), dtype=torch.float64)
    x = u * 1.5
    before = [t.detach().clone() for t in (x, w, bias, y)]
    losses = [lambda: linear_cross_entropy(x, w, y, linear_bias=bias, method=method)]
    losses.insert(0 if first else 1, lambda: (x**2).mean())
    for loss in [make() for make in losses]:
        loss.backward(retain_graph=True)
    for tensor, old in zip((x, w, bias, y), before, strict=True):
        assert torch.equal(tensor.detach(), old)
    a, b, c = (oracle.leaf(t) for t in (u, w, bias))
    other = oracle.linear_cross_entropy(a * 1.5, b, y, bias=c).loss + ((a * 1.5) ** 2).mean()
    other.backward()
    assert_close(u.grad, a.grad, 1e-11, "u")


@pytest.mark.parametrize("reduction", ("mean", "sum"))
@pytest.mark.parametrize("frozen", ("nothing", "x", "w"))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
@pytest.mark.parametrize("method", METHODS)
def test_c065_a_retained_graph(
    reduction: str, frozen: str, dtype: torch.dtype, method: str
) -> None:
    x, w, y, _ = problem((6,), dtype=dtype)
    asked = [t for name, t in (("x", x), ("w", w)) if name != frozen]
    for tensor in (x, w):
        tensor.requires_grad_(any(tensor is t for t in asked))
    loss = linear_cross_entropy(x, w, y, reduction=reduction, method=method)
    single = torch.autograd.grad(loss, asked, retain_graph=True)
    kept = [g.clone() for g in single]
    loss.backward(gradient=torch.tensor(1.0), retain_graph=True)
    loss.backward(gradient=torch.tensor(3.0))
    for tensor, grad, copy in zip(asked, single, kept, strict=True):
        assert torch.equal(grad, copy)
        assert_close(tensor.grad, 4 * grad.double(), 1e-6 if dtype == torch.float32 else 8e-3, "4x")


@pytest.mark.parametrize("reduction", ("mean", "sum", "none"))
def test_c066_second_derivatives_are_refused(reduction: str) -> None:
    x = torch.tensor([[0.0, 0, 0, 0], [1, 2, 3, 4]], dtype=torch.float64, requires_grad=True)
    loss = linear_cross_entropy(
        x, torch.eye(4, dtype=torch.float64), torch.tensor([0, 3]), reduction=reduction
    )
    (grad,) = torch.autograd.grad(loss.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives.*F.cross_entropy"):
        torch.autograd.grad((grad**2).sum(), x)


def test_c066_nor_is_the_upstream_differentiated() -> None:
    x, w, y, _ = problem(dtype=torch.float64)
    upstream = torch.ones(7, dtype=torch.float64, requires_grad=True)
    loss = linear_cross_entropy(x, w, y, reduction="none")
    (grad,) = torch.autograd.grad(loss, x, upstream, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad((grad**2).sum() + upstream.sum(), upstream)


@pytest.mark.parametrize("reduction", ("mean", "none"))
@pytest.mark.parametrize("method", ("auto", "recompute"))
def test_c067_nothing_waits_for_the_garbage_collector(reduction: str, method: str) -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(30):
            x, w, y, _ = problem()
            alive = [weakref.ref(x), weakref.ref(w)]
            loss = linear_cross_entropy(x * 1, w * 1, y, reduction=reduction, method=method)
            alive += [weakref.ref(loss), weakref.ref(loss.grad_fn)]
            del x, w, loss
            assert [r() for r in alive] == [None] * 4
    finally:
        gc.enable()


def test_c067_the_node_lets_its_gradients_go() -> None:
    x, w, y, _ = problem()
    loss = linear_cross_entropy(x, w, y)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time|already been freed"):
        loss.backward()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("trained", ("x", "w", "bias", "x w", "x bias", "w bias"))
def test_c070_what_is_frozen_changes_nothing_else(method: str, trained: str) -> None:
    x, w, y, bias = problem((30,), dtype=torch.bfloat16)
    everything = {"x": x, "w": w, "bias": bias}
    loss = linear_cross_entropy(x, w, y, linear_bias=bias, method=method)
    full = dict(zip(everything, torch.autograd.grad(loss, (x, w, bias)), strict=True))
    for name, tensor in everything.items():
        tensor.requires_grad_(name in trained.split())
    linear_cross_entropy(x, w, y, linear_bias=bias, method=method).backward()
    for name, tensor in everything.items():
        if name in trained.split():
            assert torch.equal(tensor.grad, full[name]), name
        else:
            assert tensor.grad is None


@pytest.mark.parametrize("context", (torch.no_grad, torch.inference_mode))
@pytest.mark.parametrize("reduction", ("mean", "sum", "none"))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float16))
def test_c071_evaluation_gives_the_same_loss(context: Any, reduction: str, dtype: Any) -> None:
    x, w, y, _ = problem((30,), dtype=dtype)
    trained = linear_cross_entropy(x, w, y, reduction=reduction)
    with context():
        evaluated = linear_cross_entropy(x, w, y, reduction=reduction)
    assert not evaluated.requires_grad
    assert torch.equal(trained.detach(), evaluated)


def test_c073_accuracy_without_logits() -> None:
    x = torch.tensor([[0.0, 1], [2, 0], [0, 3]])
    y = torch.tensor([1, 1, -100])
    out = linear_cross_entropy(x, torch.eye(2), y, return_accuracy=True)
    assert (int(out.num_correct), int(out.num_valid), float(out.accuracy)) == (1, 2, 0.5)
    ties = linear_cross_entropy(
        torch.zeros(1, 4), torch.eye(4), torch.tensor([0]), return_accuracy=True
    )
    assert float(ties.accuracy) == 1.0
    best = linear_cross_entropy(x, torch.eye(2), y, return_argmax=True)
    assert best.argmax.tolist() == [1, 0, 0] and best.argmax.dtype == torch.int64
    none = linear_cross_entropy(x, torch.eye(2), torch.full((3,), -100), return_accuracy=True)
    assert (int(none.num_correct), int(none.num_valid), float(none.accuracy)) == (0, 0, 0.0)


FIELDS = {
    "return_lse": ("lse",),
    "return_logprob": ("logprob",),
    "return_entropy": ("entropy",),
    "return_accuracy": ("accuracy", "num_correct", "num_valid"),
    "return_z_loss": ("z_loss",),
    "return_argmax": ("argmax",),
}


@pytest.mark.parametrize("reduction", ("mean", "none"))
def test_c074_every_combination_of_outputs_has_names(reduction: str) -> None:
    x, w, y, _ = problem((9,), dtype=torch.float64)
    plain = linear_cross_entropy(x, w, y, reduction=reduction, z_loss=0.1)
    want = torch.autograd.grad(plain.sum(), (x, w))
    whole = check_against_oracle(x, w, y, reduction=reduction, z_loss=0.1)
    for count in range(1, len(FIELDS) + 1):
        for asked in itertools.combinations(FIELDS, count):
            flags = dict.fromkeys(asked, True)
            out = linear_cross_entropy(x, w, y, reduction=reduction, z_loss=0.1, **flags)
            present = {"loss", *(field for name in asked for field in FIELDS[name])}
            for name, value in out._asdict().items():
                assert (value is not None) == (name in present), name
                if value is not None:
                    assert torch.equal(value, getattr(whole, name)), name
                    assert value.requires_grad == (name == "loss")
            got = torch.autograd.grad(out.loss.sum(), (x, w))
            assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


class Gathered(nn.Module):
    """A parameter that is whole only while its module's forward runs, as sharding makes it."""

    def __init__(self, head: FusedLinearHead) -> None:
        super().__init__()
        self.head, self.whole = head, head.weight.data
        head.weight.data = torch.empty(0)
        head.register_forward_pre_hook(lambda *_: setattr(head.weight, "data", self.whole))
        head.register_forward_hook(lambda *_: setattr(head.weight, "data", torch.empty(0)))


def test_c086_a_head_that_is_gathered_by_hooks() -> None:
    x, w, y, _ = problem()
    head = FusedLinearHead(nn.Linear(8, 33, bias=False))
    head.weight.data = w.detach().clone()
    want = linear_cross_entropy(x, w, y)
    owner = Gathered(head)
    for training in (True, False):
        assert torch.equal(owner.train(training).head(x, y), want)
    with pytest.raises(ValueError, match=r"linear_weight has shape \(0,\).*gathered first"):
        linear_cross_entropy(x, head.weight, y)


def test_c089_a_tied_embedding() -> None:
    torch.manual_seed(0)
    embedding = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    ids, y = torch.tensor([1, 2]), torch.tensor([2, 3])

    def loss(e: Tensor) -> Tensor:
        return linear_cross_entropy(F.embedding(ids, e).tanh(), e, y)

    assert torch.autograd.gradcheck(loss, (embedding,))
    embedding.grad = torch.ones_like(embedding)
    loss(embedding).backward()
    other = oracle.leaf(embedding)
    oracle.linear_cross_entropy(F.embedding(ids, other).tanh(), other, y).loss.backward()
    assert_close(embedding.grad, other.grad + 1, 1e-12, "accumulated")


def test_c089_tied_modules_stay_tied() -> None:
    embedding, linear = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    linear.weight = embedding.weight
    head = FusedLinearHead(linear)
    optimizer = torch.optim.SGD([*embedding.parameters()], lr=0.1)
    head(embedding(torch.tensor([0, 1])), torch.tensor([1, 2])).backward()
    before = head.weight.detach().clone()
    optimizer.step()
    assert head.weight is embedding.weight
    assert not torch.equal(head.weight.detach(), before)


@pytest.mark.parametrize("reduction", ("mean", "none"))
def test_c090_ignored_rows_hold_no_old_memory(reduction: str) -> None:
    x, w, y, _ = problem((256,), 32, 4096, ignored=0.3)
    want = linear_cross_entropy(x, w, y, reduction=reduction, **EVERYTHING)
    for _ in range(10):
        poison = [torch.full((n,), math.nan) for n in (256, 256, 8192, 1 << 20, 1 << 22)]
        del poison
        got = linear_cross_entropy(x, w, y, reduction=reduction, **EVERYTHING)
        for a, b in zip(got, want, strict=True):
            assert torch.equal(a, b)
        for rows in (got.lse, got.logprob, got.entropy):
            assert torch.equal(rows[y == -100], torch.zeros(int((y == -100).sum())))


@pytest.mark.parametrize("poison", (math.nan, math.inf))
def test_r9_poison_in_ignored_rows_never_comes_out(poison: float) -> None:
    for reduction in ("mean", "none"):
        x, w, y, bias = problem((8,), dtype=torch.float64)
        y[3] = -100
        clean = torch.autograd.grad(
            linear_cross_entropy(x, w, y, linear_bias=bias, reduction=reduction).sum(), (w, bias)
        )
        with torch.no_grad():
            x[3] = poison
        loss = linear_cross_entropy(x, w, y, linear_bias=bias, reduction=reduction)
        upstream = torch.ones_like(loss)
        if reduction == "none":
            upstream[3] = poison
        gx, gw, gb = torch.autograd.grad(loss, (x, w, bias), upstream)
        assert torch.isfinite(loss).all() and torch.equal(gx[3], torch.zeros(8, dtype=x.dtype))
        assert torch.equal(gw, clean[0]) and torch.equal(gb, clean[1])


def test_c099_twenty_runs_are_the_same_bits() -> None:
    x, w, y, bias = problem((512,), 64, 4000, ignored=0.1)
    y[:256] = y[0]
    for reduction in ("mean", "none"):
        runs = []
        for _ in range(20):
            loss = linear_cross_entropy(x, w, y, linear_bias=bias, reduction=reduction)
            runs.append((loss.detach(), *torch.autograd.grad(loss.sum(), (x, w, bias))))
        for other in runs[1:]:
            assert all(torch.equal(a, b) for a, b in zip(runs[0], other, strict=True))


def test_r12_logprob_of_a_retained_graph() -> None:
    x, w, y, _ = problem(dtype=torch.float64)
    logprob, entropy = linear_logprob(x, w, y)
    first = torch.autograd.grad(logprob.sum() - entropy.sum(), (x, w), retain_graph=True)
    second = torch.autograd.grad(logprob.sum() - entropy.sum(), (x, w))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
