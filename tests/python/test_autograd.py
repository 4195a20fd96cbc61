# SPDX-License-Identifier: Apache-2.0
"""Derivatives: gradcheck, buffers that are added to, checkpointing, loss scaling, torch.func."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

import flce
import oracle
from flce.torch import linear_cross_entropy, linear_logprob, loss_and_grads
from support import GRAD_TOLERANCE, assert_close, problem

METHODS = ("auto", "fused", "recompute", "naive", "chunked")


def expected_grads(x: Tensor, w: Tensor, y: Tensor, factor: float = 1.0, **options: Any) -> Any:
    a, b = oracle.leaf(x), oracle.leaf(w)
    (factor * oracle.linear_cross_entropy(a, b, y, **options).loss).backward()
    return a.grad, b.grad


@pytest.mark.parametrize(
    ("method", "reduction"),
    [  # test_refusals.py has the pair that is missing
        (method, reduction)
        for method in METHODS
        for reduction in ("mean", "sum", "none")
        if (method, reduction) != ("fused", "none")
    ],
)
def test_gradcheck(method: str, reduction: str) -> None:
    x, w, y, bias = problem((2, 3), 4, 7, torch.float64)

    def loss(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        return linear_cross_entropy(
            x,
            w,
            y,
            linear_bias=bias,
            reduction=reduction,
            method=method,
            softcap=5.0,
            scale=0.7,
            label_smoothing=0.1,
            z_loss=0.01,
            temperature=1.3,
            shift=1,
        )

    assert torch.autograd.gradcheck(loss, (x, w, bias))


def test_gradcheck_of_linear_logprob() -> None:
    x, w, y, bias = problem((6,), 4, 7, torch.float64)
    temperature = torch.rand(6, dtype=torch.float64) + 0.5

    def both(x: Tensor, w: Tensor, bias: Tensor) -> Any:
        return linear_logprob(x, w, y, bias=bias, temperature=temperature, softcap=5.0)

    assert torch.autograd.gradcheck(both, (x, w, bias))


@pytest.mark.parametrize(
    ("dtype", "buffer_dtype"),
    (
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.bfloat16, torch.bfloat16),
    ),
)
@pytest.mark.parametrize("reduction", ("mean", "none"))
def test_accumulate_into(dtype: Any, buffer_dtype: Any, reduction: str) -> None:
    x, w, y, _ = problem((20,), dtype=dtype)
    buffer = torch.ones(33, 8, dtype=buffer_dtype)
    address = buffer.data_ptr()
    for _ in range(2):
        loss = linear_cross_entropy(x, w, y, accumulate_into=buffer, reduction=reduction)
        (3 * loss).sum().backward()
    assert w.grad is None and buffer.data_ptr() == address
    want = expected_grads(x, w, y, 3.0, reduction="sum" if reduction == "none" else "mean")
    tolerance = 1e-5 if buffer_dtype == torch.float32 else 2e-2
    if dtype == torch.bfloat16:
        tolerance = max(tolerance, GRAD_TOLERANCE[dtype])
    assert_close(buffer, 1 + 2 * want[1], tolerance, "buffer")
    assert_close(x.grad, 2 * want[0], 2 * GRAD_TOLERANCE[dtype], "x")


def test_accumulate_into_is_left_alone_without_a_backward_pass() -> None:
    x, w, y, _ = problem()
    buffer = torch.ones(33, 8)
    loss = linear_cross_entropy(x, w, y, accumulate_into=buffer)
    with torch.no_grad():
        assert torch.equal(loss, linear_cross_entropy(x, w, y, accumulate_into=buffer))
    assert torch.equal(buffer, torch.ones(33, 8))


@pytest.mark.parametrize("reentrant", (True, False))
@pytest.mark.parametrize("reduction", ("mean", "none"))
def test_activation_checkpointing(reentrant: bool, reduction: str) -> None:
    x, w, y, _ = problem((20,))

    def loss(x: Tensor, w: Tensor) -> Tensor:
        return linear_cross_entropy(x * 2, w, y, reduction=reduction)

    (1.5 * checkpoint(loss, x, w, use_reentrant=reentrant).sum()).backward()
    a, b = oracle.leaf(x), oracle.leaf(w)
    (1.5 * oracle.linear_cross_entropy(a * 2, b, y, reduction=reduction).loss.sum()).backward()
    assert_close(x.grad, a.grad, 1e-5, "x")
    assert_close(w.grad, b.grad, 1e-5, "w")


def test_saved_tensors_may_move_in_the_meantime() -> None:
    x, w, y, _ = problem((20,))
    with torch.autograd.graph.save_on_cpu():
        loss = linear_cross_entropy(x, w, y)
    (2 * loss).backward()
    want = expected_grads(x, w, y, 2.0)
    assert_close(x.grad, want[0], 1e-5, "x")
    assert_close(w.grad, want[1], 1e-5, "w")


def test_a_loss_scale_protects_float16_gradients() -> None:
    """Mean over many tokens: unscaled gradients lie below what float16 can hold."""
    x, w, y, _ = problem((4096,), 8, 33, torch.float16)
    with torch.no_grad():
        w *= 1e-5
    scale = 2.0**16
    (scale * linear_cross_entropy(x, w, y)).backward()
    want = expected_grads(x, w, y, scale)
    assert float(want[0].abs().max() / scale) < 2**-24  # all of it would have become 0
    assert_close(x.grad, want[0], 2e-3, "x")
    assert_close(w.grad, want[1], 2e-3, "w")


def test_grad_scaler_and_accumulation() -> None:
    """Two micro-batches under a scaler with the global count: the gradient of the whole batch."""
    x, w, y, _ = problem((40,))
    optimizer = torch.optim.SGD([w], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    count = (y != -100).sum()
    before, want = w.detach().clone(), expected_grads(x, w, y)[1]
    for part in (slice(0, 13), slice(13, 40)):
        scaler.scale(linear_cross_entropy(x[part], w, y[part], normalizer=count)).backward()
    scaler.step(optimizer)
    assert_close(before - w.detach(), want, 1e-5, "step")


def test_the_gradient_is_the_kernels_memory() -> None:
    """Autograd takes the gradients over as they are: no copy of (V, H) in the backward pass."""
    x, w, y, _ = problem()
    loss = linear_cross_entropy(x, w, y)
    saved = [t.data_ptr() for t in loss.grad_fn.saved_tensors if t is not None and t.numel()]
    (2 * loss).backward()
    assert [x.grad.data_ptr(), w.grad.data_ptr()] == saved


def test_an_unused_loss_costs_nothing() -> None:
    x, w, y, _ = problem()
    logprob, entropy = linear_logprob(x, w, y)
    (x.sum() + 0 * logprob.detach().sum()).backward()
    assert torch.equal(x.grad, torch.ones_like(x)) and w.grad is None
    assert entropy.requires_grad


# torch.func


def ours(x: Tensor, w: Tensor, y: Tensor, **options: Any) -> Tensor:
    return linear_cross_entropy(x, w, y, **options)


def plain(x: Tensor, w: Tensor, y: Tensor, **options: Any) -> Tensor:
    return oracle.linear_cross_entropy(x, w, y, **options).loss


def plain_inputs(batch: tuple[int, ...] = ()) -> tuple[Tensor, Tensor, Tensor]:
    x, w, y, _ = problem((*batch, 6), dtype=torch.float64)
    return x.detach(), w.detach(), y


@pytest.mark.parametrize("reduction", ("mean", "sum"))
def test_func_grad(reduction: str) -> None:
    inputs = plain_inputs()
    got = torch.func.grad(ours, (0, 1))(*inputs, reduction=reduction)
    want = torch.func.grad(plain, (0, 1))(*inputs, reduction=reduction)
    for a, b in zip(got, want, strict=True):
        assert_close(a, b, 1e-12, "gradient")


def test_func_jacrev() -> None:
    x, w, y = plain_inputs()
    got, want = (
        torch.func.jacrev(lambda a, b, f=f: f(a, b, y, reduction="none"), (0, 1))(x, w)
        for f in (ours, plain)
    )
    for a, b in zip(got, want, strict=True):
        assert_close(a, b, 1e-12, "jacobian")


@pytest.mark.parametrize("reduction", ("mean", "none"))
def test_vmap(reduction: str) -> None:
    x, w, y = plain_inputs((3,))
    x.requires_grad_()
    got = torch.vmap(lambda a, t: ours(a, w, t, reduction=reduction))(x, y)
    want = torch.stack([plain(a, w, t, reduction=reduction) for a, t in zip(x, y, strict=True)])
    assert_close(got, want.detach(), 1e-12, "loss")
    (a,), (b,) = torch.autograd.grad(got.sum(), x), torch.autograd.grad(want.sum(), x)
    assert_close(a, b, 1e-12, "gradient")


def test_vmap_of_grad_and_grad_of_vmap() -> None:
    x, w, y = plain_inputs((3,))
    dims = (0, None, 0)
    got = torch.vmap(torch.func.grad(ours, (0, 1)), dims)(x, w, y)
    want = [torch.func.grad(plain, (0, 1))(a, w, t) for a, t in zip(x, y, strict=True)]
    for i in range(2):
        assert_close(got[i], torch.stack([g[i] for g in want]), 1e-12, "per sample")
    total = torch.func.grad(lambda a, b: torch.vmap(ours, dims)(a, b, y).sum(), (0, 1))(x, w)
    assert_close(total[0], torch.stack([g[0] for g in want]), 1e-12, "x")
    assert_close(total[1], torch.stack([g[1] for g in want]).sum(0), 1e-12, "w")


def test_vmap_of_loss_and_grads() -> None:
    x, w, y = plain_inputs((3,))
    got = torch.vmap(loss_and_grads, (0, None, 0))(x, w, y)
    want = [loss_and_grads(a, w, t) for a, t in zip(x, y, strict=True)]
    for i in range(3):
        assert torch.equal(got[i], torch.stack([each[i] for each in want]))


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_batch_of_upstream_gradients(reduction: str) -> None:
    """What vectorized Jacobians ask for, by another kind of vmap than torch.func's."""
    x, w, y, _ = problem((5,), 4, 7, torch.float64)
    loss = linear_cross_entropy(x, w, y, reduction=reduction)
    upstream = torch.randn(3, *loss.shape, dtype=torch.float64)
    got = torch.autograd.grad(loss, (x, w), upstream, is_grads_batched=True)
    a, b = oracle.leaf(x), oracle.leaf(w)
    want = oracle.linear_cross_entropy(a, b, y, reduction=reduction).loss
    for i, each in enumerate(upstream):
        for ours, theirs in zip(
            got, torch.autograd.grad(want, (a, b), each, retain_graph=True), strict=True
        ):
            assert_close(ours[i], theirs, GRAD_TOLERANCE[x.dtype], "gradient")


def test_func_second_derivatives_are_refused() -> None:
    x, w, y = plain_inputs()
    inner = torch.func.grad(ours)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.func.grad(lambda a: inner(a, w, y).pow(2).sum())(x)


@pytest.mark.parametrize("trained", (True, False))
def test_forward_mode_is_refused(trained: bool) -> None:
    x, w, y = plain_inputs()
    w.requires_grad_(trained)
    with pytest.raises(flce.Unsupported, match="forward-mode.*reverse mode"):
        torch.func.jvp(lambda a: ours(a, w, y), (x,), (x,))
    with forward_ad.dual_level(), pytest.raises(flce.Unsupported, match="forward-mode"):
        ours(forward_ad.make_dual(x, x), w, y)
