# SPDX-License-Identifier: Apache-2.0
"""One system on one shape, in a process of its own: memory, time beside the floor, errors.

The floor is the three matrix products of the operation as common code calls them, timed in the same
rounds. Memory is what torch's allocator had at most during a step, beyond the inputs; what a system
keeps between steps counts, what it takes once while it tunes itself does not.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from peers import oracle, problem
from peers.problem import Problem, Shape
from peers.rows import number
from peers.systems import Peer


class Settings(NamedTuple):
    rounds: int = 15
    seconds: float = 20.0  # for the rounds; no fewer than three are made
    warm_seconds: float = 3.0  # of products before the first round: a cold card flatters
    errors: bool = True


class Times(NamedTuple):
    system: list[float]
    floor: list[float]


def floor_step(p: Problem) -> None:
    """logits, grad_hidden and grad_weight, with the logits in the place of their gradient."""
    with torch.no_grad():
        logits = torch.mm(p.hidden, p.weight.T)
        torch.mm(logits, p.weight)
        torch.mm(logits.T, p.hidden)


def milliseconds(step: Callable[[], Any], device: str) -> float:
    if device != "cuda":
        start = time.perf_counter()
        step()
        return 1e3 * (time.perf_counter() - start)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    step()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def settle(device: str) -> int:
    """Bytes that are held; the peak begins there. 0 on the CPU."""
    gc.collect()
    if device != "cuda":
        return 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def has_floor(p: Problem, device: str, seconds: float) -> bool:
    """Warms the device up; False where the floor's N x V matrix does not fit."""
    try:
        until = time.monotonic() + seconds
        floor_step(p)
        while time.monotonic() < until:
            milliseconds(lambda: floor_step(p), device)
    except torch.OutOfMemoryError:
        return False
    return True


def timed(step: Callable[[], Any], p: Problem | None, device: str, s: Settings) -> Times:
    """Rounds of one step and one floor, in turns; p is None where there is no floor."""
    times, start = Times([], []), time.monotonic()
    if p is not None and device == "cuda":
        has_floor(p, device, s.warm_seconds / 3)
    while len(times.system) < s.rounds and (
        len(times.system) < 3 or time.monotonic() - start < s.seconds
    ):
        times.system.append(milliseconds(step, device))
        if p is not None:
            times.floor.append(milliseconds(lambda: floor_step(p), device))
    return times


def median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def speed(peer: Peer, p: Problem, device: str, s: Settings) -> dict[str, object]:
    """Columns of memory and time."""

    def step() -> None:
        p.clear()
        peer.step(*p)

    floor = p if has_floor(p, device, s.warm_seconds if device == "cuda" else 0.0) else None
    before = settle(device)
    first = milliseconds(step, device)
    p.clear()
    settle(device)
    step()
    if device == "cuda":
        torch.cuda.synchronize()
    beyond = torch.cuda.max_memory_allocated() - before if device == "cuda" else None
    times = timed(step, floor, device, s)
    middle, base = median(times.system), median(times.floor)
    grads = sum(t.numel() * t.element_size() for t in (p.hidden, p.weight))
    return {
        "first_call_ms": number(first),
        "median_ms": number(middle, 6),
        "min_ms": number(min(times.system), 6),
        "max_ms": number(max(times.system), 6),
        "rounds": len(times.system),
        "floor_ms": number(base, 6),
        "ratio": number(middle / base if middle and base else None, 5),
        "beyond_inputs_bytes": "" if beyond is None else beyond,
        "extra_bytes": "" if beyond is None else beyond - grads,
        "peak_bytes": "" if beyond is None else beyond + p.input_bytes,
    }


def errors(loss: Tensor, p: Problem) -> dict[str, object]:
    """Columns of relative errors against float64, of the gradients that p holds."""
    want = oracle.expected(*p)
    found = {"err_loss": (loss, want.loss), "err_grad_hidden": (p.hidden.grad, want.grad_hidden),
             "err_grad_weight": (p.weight.grad, want.grad_weight)}  # fmt: skip
    for name, (got, _) in found.items():
        if got is None:
            raise RuntimeError(f"the backward pass left none: {name}")
    return {name: number(oracle.relative(*pair), 3) for name, pair in found.items()}


def measured(peer: Peer, shape: Shape, dtype: str, device: str, data: str,
             s: Settings) -> dict[str, object]:  # fmt: skip
    """The columns of one row. Times are taken on random data alone."""
    p = problem.make(shape, dtype, device, data)
    row: dict[str, object] = {"chunk": peer.chunk(p.hidden, p.weight) or ""}
    if data == "random":
        row.update(speed(peer, p, device, s))
    if s.errors:
        p.clear()
        settle(device)
        loss = peer.step(*p).loss.detach()
        settle(device)
        row.update(errors(loss, p))
    return row
