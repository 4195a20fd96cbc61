# SPDX-License-Identifier: Apache-2.0
"""On a card: values, memory, streams, graphs, no wait of the host. Skipped where there is none."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import flce
import oracle
from flce.torch import linear_cross_entropy, linear_logprob, loss_and_grads
from support import GRAD_TOLERANCE, LOSS_TOLERANCE, assert_close, problem

# What PyTorch says of its own prototypes and of how these tests use streams and graphs.
_SAID = (
    "Synchronization debug mode",
    "The AccumulateGrad node's stream",
    "The CUDA Graph is empty",
    "TensorFloat32 tensor cores",
)
pytestmark = [
    pytest.mark.gpu,
    *[pytest.mark.filterwarnings(f"ignore:{start}") for start in _SAID],
]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


def on_card(*args: Any, device: str = "cuda", **options: Any) -> list[Tensor]:
    x, w, y, bias = problem(*args, **options)
    leaves = [t.detach().to(device).requires_grad_() for t in (x, w, bias)]
    return [leaves[0], leaves[1], y.to(device), leaves[2]]


def expected(x: Tensor, w: Tensor, y: Tensor, bias: Tensor | None = None, **options: Any) -> Any:
    leaves = [None if t is None else oracle.leaf(t.cpu()) for t in (x, w, bias)]
    result = oracle.linear_cross_entropy(leaves[0], leaves[1], y.cpu(), bias=leaves[2], **options)
    return result, [leaf for leaf in leaves if leaf is not None]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", ("mean", "sum", "none"))
@pytest.mark.parametrize(
    "options",
    (
        {},
        {"label_smoothing": 0.1, "z_loss": 1e-3},
        {"softcap": 5.0, "scale": 0.5, "temperature": 0.8},
        {"shift": 1},
    ),
    ids=str,
)
def test_values(dtype: torch.dtype, reduction: str, options: dict[str, Any]) -> None:
    x, w, y, bias = on_card((3, 50), 64, 500, dtype)
    loss = linear_cross_entropy(x, w, y, linear_bias=bias, reduction=reduction, **options)
    want, leaves = expected(x, w, y, bias, reduction=reduction, **options)
    assert_close(loss, want.loss, LOSS_TOLERANCE[dtype], "loss")
    upstream = torch.randn(loss.shape, device="cuda")
    got = torch.autograd.grad(loss, (x, w, bias), upstream)
    grads = torch.autograd.grad(want.loss, leaves, upstream.double().cpu())
    for ours, theirs in zip(got, grads, strict=True):
        assert_close(ours, theirs, 2 * GRAD_TOLERANCE[dtype], "gradient")


@pytest.mark.parametrize("reduction", ("mean", "none"))
@pytest.mark.parametrize("dtype", DTYPES)
def test_argmax_and_counts(dtype: torch.dtype, reduction: str) -> None:
    """The class of the largest logit, or of one that rounding cannot tell from it."""
    x, w, y, _ = on_card((150,), 64, 500, dtype)
    out = linear_cross_entropy(
        x, w, y, reduction=reduction, return_argmax=True, return_accuracy=True
    )
    logits = oracle.logits(x.detach().double().cpu(), w.detach().double().cpu())
    best, valid = out.argmax.cpu(), y.cpu() != -100
    chosen = logits.gather(1, best[:, None])[:, 0]
    assert_close(chosen[valid], logits.max(1).values[valid], 1e-5, "largest logit")
    assert not best[~valid].any()
    assert int(out.num_correct) == int(((best == y.cpu()) & valid).sum())
    assert int(out.num_valid) == int(valid.sum())


@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_logprob(dtype: torch.dtype) -> None:
    x, w, y, bias = on_card((150,), 64, 500, dtype)
    got = linear_logprob(x, w, y, bias=bias, temperature=0.7)
    want, leaves = expected(x, w, y, bias, temperature=0.7)
    upstream = [torch.randn(150, device="cuda") for _ in range(2)]
    for ours, theirs in zip(got, (want.logprob, want.entropy), strict=True):
        assert_close(ours, theirs, 1e-4, "value")
    ours_grads = torch.autograd.grad(got, (x, w, bias), upstream)
    their_grads = torch.autograd.grad(
        (want.logprob, want.entropy), leaves, [u.double().cpu() for u in upstream]
    )
    for ours, theirs in zip(ours_grads, their_grads, strict=True):
        assert_close(ours, theirs, 2 * GRAD_TOLERANCE[dtype], "gradient")


@pytest.fixture
def no_waiting() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("reduction", ("mean", "none"))
@pytest.mark.parametrize("scaled", (False, True))
def test_c092_the_host_does_not_wait(reduction: str, scaled: bool, no_waiting: None) -> None:
    torch.cuda.set_sync_debug_mode("default")
    x, w, y, _ = on_card((64,), 64, 500, torch.bfloat16)
    count = (y != -100).sum()
    torch.cuda.set_sync_debug_mode("error")
    options: dict[str, Any] = {"reduction": reduction}
    if reduction == "mean":
        options["normalizer"] = count
    for retain in (True, False):
        loss = linear_cross_entropy(x, w, y, **options).sum()
        (loss * 3 if scaled else loss).backward(retain_graph=retain)


@pytest.mark.parametrize("reduction", ("mean", "none"))
def test_c092_a_captured_graph_is_replayed(reduction: str) -> None:
    x, w, y, _ = on_card((64,), 64, 500, torch.bfloat16)

    def step() -> list[Tensor]:
        loss = linear_cross_entropy(x, w, y, reduction=reduction)
        return [loss, *torch.autograd.grad(2 * loss.sum(), (x, w))]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for ignored in (0, 20, 64):
        with torch.no_grad():
            x.copy_(torch.randn_like(x))
            y.copy_(torch.randint(0, 500, (64,), device="cuda"))
            y[:ignored] = -100
        graph.replay()
        for ours, theirs in zip(captured, step(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


def test_c027_a_target_out_of_range_is_that_tokens_nan() -> None:
    x, w, y, _ = on_card((8,), 8, 5, torch.float32, ignored=0.0)
    clean = torch.autograd.grad(linear_cross_entropy(x, w, y, reduction="none").sum(), x)[0]
    for bad in (5, 100, -1, 2**31, -(2**40)):
        wrong = y.clone()
        wrong[3] = bad
        for reduction in ("none", "sum"):
            loss = linear_cross_entropy(x, w, wrong, reduction=reduction)
            assert bool((loss[3] if reduction == "none" else loss).isnan())
            (grad,) = torch.autograd.grad(loss.sum(), x)
            assert torch.equal(grad[3], torch.zeros(8, device="cuda"))
            torch.testing.assert_close(grad[[0, 1, 2, 4]], clean[[0, 1, 2, 4]])


@pytest.mark.parametrize("which", range(4))
def test_c095_operands_left_on_the_host_are_named(which: int) -> None:
    tensors = on_card()
    tensors[which] = tensors[which].detach().cpu()
    name = ("linear_weight", "linear_weight", "target", "linear_bias")[which]
    with pytest.raises(ValueError, match=f"{name} is on .*they must be on one device"):
        linear_cross_entropy(*tensors[:3], linear_bias=tensors[3])


@pytest.mark.parametrize("count", (40, torch.tensor(40), torch.tensor([40.0])), ids=str)
def test_c019_a_counter_anywhere(count: Any) -> None:
    x, w, y, _ = on_card()
    want = linear_cross_entropy(x, w, y, normalizer=40)
    assert torch.equal(linear_cross_entropy(x, w, y, normalizer=count), want)
    if isinstance(count, Tensor):
        assert torch.equal(linear_cross_entropy(x, w, y, normalizer=count.cuda()), want)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_the_peak_is_inputs_gradients_and_plan(dtype: torch.dtype) -> None:
    tokens, hidden, vocab = 2048, 512, 32000
    x, w, y, _ = on_card((tokens,), hidden, vocab, dtype)
    linear_cross_entropy(x, w, y).backward()
    x.grad = w.grad = None
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    linear_cross_entropy(x, w, y).backward()
    used = torch.cuda.max_memory_allocated() - before
    plan = flce.plan(tokens=tokens, hidden=hidden, vocab=vocab, dtype=NAMES[dtype], device="cuda")
    # The allocator rounds each piece up to 512 bytes.
    assert 0 <= used - (plan.output_bytes + plan.extra_bytes) <= 8 * 512


def test_c067_memory_returns_to_the_baseline() -> None:
    x, w, y, _ = on_card((256,), 64, 4000, torch.bfloat16)
    linear_cross_entropy(x, w, y)
    gc.collect()  # what earlier tests have left
    before = torch.cuda.memory_allocated()
    for _ in range(30):
        loss = linear_cross_entropy(x, w, y)
        del loss
        assert torch.cuda.memory_allocated() <= before


@pytest.mark.parametrize("reduction", ("mean", "none"))
def test_memory_runs_out_at_each_request(reduction: str) -> None:
    """A step that gets no memory, in either pass, keeps none; the first one that does is right."""
    x, w, y, _ = on_card((2048,), 1024, 16384, torch.bfloat16)

    def step() -> tuple[Tensor, ...]:
        loss = linear_cross_entropy(x, w, y, reduction=reduction)
        return loss.detach(), *torch.autograd.grad(loss.sum(), (x, w))

    want = step()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    whole = torch.cuda.get_device_properties(x.device).total_memory
    refused, got = 0, None
    try:
        while got is None and refused < 200:
            gc.collect()
            torch.cuda.empty_cache()
            assert torch.cuda.memory_allocated() == before
            allowed = torch.cuda.memory_reserved() + refused * (4 << 20)
            torch.cuda.set_per_process_memory_fraction(min(allowed / whole, 1.0))
            try:
                got = step()
            except torch.OutOfMemoryError:
                refused += 1
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert got is not None and refused > 5
    for ours, first in zip(got, want, strict=True):
        assert torch.equal(ours, first)


def test_another_stream() -> None:
    x, w, y, _ = on_card((512,), 256, 8000, torch.bfloat16)
    want = loss_and_grads(x, w, y)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    for _ in range(5):
        with torch.cuda.stream(stream):
            late = x.detach() * torch.ones((), device="cuda")
            torch.cuda._sleep(10_000_000)
            late = late + 0
            got = loss_and_grads(late, w, y)
        stream.synchronize()
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.skipif("torch.cuda.device_count() < 2", reason="needs two cards")
def test_c093_a_card_that_is_not_the_current_one() -> None:
    x, w, y, _ = on_card(device="cuda:1", dtype=torch.bfloat16)
    held = torch.cuda.memory_allocated(0)
    loss = linear_cross_entropy(x, w, y)
    (2 * loss).backward()
    want, leaves = expected(x, w, y)
    grads = torch.autograd.grad(2 * want.loss, leaves)
    assert_close(loss, want.loss, 1e-4, "loss")
    for leaf, theirs in zip((x, w), grads, strict=True):
        assert_close(leaf.grad, theirs, 1e-2, "gradient")
    assert torch.cuda.memory_allocated(0) == held and torch.cuda.current_device() == 0
    with pytest.raises(ValueError, match="linear_weight is on cuda:0 and input on cuda:1"):
        linear_cross_entropy(x, w.detach().to("cuda:0"), y)
    far = torch.tensor(40, device="cuda:0")
    assert torch.equal(
        linear_cross_entropy(x, w, y, normalizer=far), linear_cross_entropy(x, w, y, normalizer=40)
    )


@pytest.mark.parametrize("cast", (torch.bfloat16, torch.float16))
def test_autocast_and_a_loss_scale(cast: torch.dtype) -> None:
    x, w, y, _ = on_card((200,), 64, 500)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**12)
    with torch.autocast("cuda", cast):
        loss = linear_cross_entropy(x, w, y)
    scaler.scale(loss).backward()
    want, leaves = expected(x.to(cast), w.to(cast), y)
    grads = torch.autograd.grad(want.loss * 2.0**12, leaves)
    assert loss.dtype == torch.float32 and x.grad.dtype == torch.float32
    for leaf, theirs in zip((x, w), grads, strict=True):
        assert_close(leaf.grad, theirs, 2 * GRAD_TOLERANCE[torch.bfloat16], "gradient")


@pytest.mark.parametrize("reduction", ("mean", "none"))
@pytest.mark.parametrize("mode", ("default", "reduce-overhead"))
def test_compiled(reduction: str, mode: str) -> None:
    torch._dynamo.reset()
    x, w, y, _ = on_card((128,), 64, 500)

    def ours(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
        return linear_cross_entropy(torch.sin(x), w, y, reduction=reduction)

    compiled = torch.compile(ours, fullgraph=True, mode=mode)
    for _ in range(3):
        upstream = torch.randn(() if reduction == "mean" else (128,), device="cuda")
        got = torch.autograd.grad(compiled(x, w, y), (x, w), upstream)
        want = torch.autograd.grad(ours(x, w, y), (x, w), upstream)
        for a, b in zip(got, want, strict=True):
            assert_close(a, b.double().cpu(), 1e-4, "gradient")


def test_c090_compiled_outputs_hold_no_old_memory() -> None:
    torch._dynamo.reset()
    x, w, y, _ = on_card((256,), 32, 4096, ignored=0.3)
    options = {"reduction": "none", "return_lse": True, "return_entropy": True}
    compiled = torch.compile(lambda *a: linear_cross_entropy(*a, **options), fullgraph=True)
    want = linear_cross_entropy(x, w, y, **options)
    for _ in range(10):
        poison = [torch.full((n,), math.nan, device="cuda") for n in (256, 512, 1 << 20, 1 << 22)]
        del poison
        got = compiled(x, w, y)
        for name in ("loss", "lse", "entropy"):
            assert torch.equal(getattr(got, name), getattr(want, name))
            assert not getattr(got, name)[y == -100].any()


@pytest.mark.filterwarnings("ignore::UserWarning")  # some versions speak of the newer setting
def test_tf32_is_torchs_setting() -> None:
    """With it, products are as exact as torch's own with it; without, as in float32."""
    x, w, y, _ = on_card((256,), 512, 2000)
    with torch.no_grad():
        exact = linear_cross_entropy(x, w, y)
        torch.set_float32_matmul_precision("high")
        try:
            rounded = linear_cross_entropy(x, w, y)
        finally:
            torch.set_float32_matmul_precision("highest")
    want, _ = expected(x, w, y)
    assert_close(exact, want.loss, 1e-5, "float32")
    assert_close(rounded, want.loss, 5e-3, "tf32")
    assert not torch.equal(exact, rounded)
