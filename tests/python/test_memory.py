# SPDX-License-Identifier: Apache-2.0
"""What a call allocates, to the byte: torch's own record of it against the plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import flce
from flce.torch import linear_cross_entropy, linear_logprob
from support import problem

N, H, V = 512, 64, 8000
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16"}
# What torch may allocate beside: the zeros and counters of a node.
SMALL = 64


def allocations(call: Callable[[], Any]) -> list[int]:
    """Bytes of each allocation (negative: freed), in order. `call` gives back what must live."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        result = call()
    del result
    events = recorded.profiler.kineto_results.events()
    return [event.nbytes() for event in events if event.name() == "[memory]"]


def peak(sizes: list[int]) -> int:
    total = highest = 0
    for size in sizes:
        total += size
        highest = max(highest, total)
    return highest


def inputs(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    x, w, y, _ = problem((N,), H, V, dtype)
    return x, w, y


def plan(dtype: torch.dtype, **options: Any) -> flce.Plan:
    return flce.plan(tokens=N, hidden=H, vocab=V, dtype=NAMES[dtype], **options)


def step(x: Tensor, w: Tensor, y: Tensor, **options: Any) -> Any:
    loss = linear_cross_entropy(x, w, y, **options)
    loss.sum().backward()
    return loss, x.grad, w.grad


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("chunk", (None, 64))
def test_the_peak_of_a_step_is_the_plans(dtype: torch.dtype, chunk: int | None) -> None:
    x, w, y = inputs(dtype)
    planned = plan(dtype, chunk=chunk)
    assert peak(allocations(lambda: step(x, w, y, chunk=chunk))) == (
        planned.output_bytes + planned.extra_bytes
    )


@pytest.mark.parametrize("dtype", NAMES)
def test_a_budget_is_kept(dtype: torch.dtype) -> None:
    x, w, y = inputs(dtype)
    usual = plan(dtype)
    budget = usual.extra_bytes // 2
    used = peak(allocations(lambda: step(x, w, y, budget=budget))) - usual.output_bytes
    assert used <= budget < usual.extra_bytes


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_each_budget_serves_recompute(reduction: str) -> None:
    """A budget takes the slab's rows and then the chunk's; both calls use what the plan found."""
    x, w, y, _ = problem((200,), 16, 1000)
    options: dict[str, Any] = {"method": "recompute", "reduction": reduction}

    def run(**more: Any) -> list[Tensor]:
        xs, ws = (t.detach().clone().requires_grad_() for t in (x, w))
        loss = linear_cross_entropy(xs, ws, y, **options, **more)
        loss.backward(torch.ones_like(loss))
        return [loss.detach(), xs.grad, ws.grad]

    free = run()
    slabs = set()
    for budget in range(280_000, 1_700_000, 150_000):
        planned = flce.plan(
            tokens=200, hidden=16, vocab=1000, dtype="f32", method="recompute", budget=budget,
            reduction=reduction,
        )  # fmt: skip
        slabs.add(planned.slab)
        for ours, whole in zip(run(budget=budget), free):
            torch.testing.assert_close(ours, whole, rtol=1e-4, atol=1e-6)
    assert len(slabs) > 1


@pytest.mark.parametrize("dtype", NAMES)
def test_c071_evaluation_allocates_a_loss_and_a_workspace(dtype: torch.dtype) -> None:
    x, w, y = inputs(dtype)
    planned = plan(dtype, grad_hidden=False, grad_weight=False)

    def evaluate() -> Tensor:
        with torch.no_grad():
            return linear_cross_entropy(x, w, y)

    assert peak(allocations(evaluate)) == planned.output_bytes + planned.extra_bytes
    assert planned.extra_bytes < plan(dtype).extra_bytes / 3


@pytest.mark.parametrize("dtype", NAMES)
def test_c070_a_frozen_head_pays_for_no_gradient(dtype: torch.dtype) -> None:
    x, w, y = inputs(dtype)
    planned = plan(dtype, grad_weight=False)
    w.requires_grad_(False)
    sizes = allocations(lambda: step(x, w, y))
    assert peak(sizes) == planned.output_bytes + planned.extra_bytes
    assert w.nbytes not in sizes


@pytest.mark.parametrize("dtype", NAMES)
def test_the_backward_pass_allocates_nothing(dtype: torch.dtype) -> None:
    x, w, y = inputs(dtype)
    loss = linear_cross_entropy(x, w, y)
    assert peak(allocations(lambda: loss.backward(torch.tensor(3.0)))) <= SMALL


@pytest.mark.parametrize("dtype", NAMES)
def test_a_retained_graph_costs_one_copy(dtype: torch.dtype) -> None:
    x, w, y = inputs(dtype)
    loss = linear_cross_entropy(x, w, y)
    sizes = allocations(lambda: loss.backward(retain_graph=True))
    assert x.nbytes + w.nbytes <= peak(sizes) <= x.nbytes + w.nbytes + SMALL


@pytest.mark.parametrize("dtype", NAMES)
def test_recompute_holds_a_few_bytes_per_token(dtype: torch.dtype) -> None:
    x, w, y = inputs(dtype)
    sizes = allocations(lambda: linear_cross_entropy(x, w, y, method="recompute"))
    held = sum(size for size in sizes if abs(size) >= N)
    assert held <= 128 * N
    logprob = allocations(lambda: linear_logprob(x, w, y))
    assert sum(size for size in logprob if abs(size) >= N) <= 128 * N


def test_accumulate_into_makes_no_gradient_of_its_own() -> None:
    x, w, y = inputs(torch.bfloat16)
    buffer = torch.zeros(V, H)

    def accumulate() -> Any:
        linear_cross_entropy(x, w, y, accumulate_into=buffer).backward()
        return x.grad

    sizes = allocations(accumulate)
    assert w.nbytes not in sizes and buffer.nbytes not in sizes
    planned = plan(torch.bfloat16, method="recompute", grad_weight_dtype="f32")
    allowed = planned.extra_bytes + planned.output_bytes - buffer.nbytes + N * 128
    assert peak(sizes) <= allowed


@pytest.mark.parametrize("reduction", ("mean", "none"))
def test_nothing_is_left_after_a_step(reduction: str) -> None:
    x, w, y = inputs(torch.float32)

    def leave_nothing() -> None:
        step(x, w, y, reduction=reduction)
        x.grad = w.grad = None

    assert abs(sum(allocations(leave_nothing))) <= SMALL


@pytest.mark.parametrize("reduction", ("mean", "none"))
def test_c067_after_the_backward_pass_the_node_holds_nothing(reduction: str) -> None:
    x, w, y = inputs(torch.float32)
    kept = []

    def keep_the_loss() -> None:
        loss, *_ = step(x, w, y, reduction=reduction)
        x.grad = w.grad = None
        kept.append(loss)

    sizes = allocations(keep_the_loss)
    assert abs(sum(sizes) - kept[0].nbytes) <= SMALL
