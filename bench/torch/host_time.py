# SPDX-License-Identifier: Apache-2.0
"""Host time of a call of flce.torch beside that of an empty custom operator of the same signature.

usage: host_time.py [--device cuda] [--rounds N]

Sizes are small, and one thread works, so that on the CPU little is computed; on a card rounds are
so short that its queue does not fill. What is left is the host's work, in microseconds per call,
the smallest of the rounds.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import torch

from flce.torch import _ops, linear_cross_entropy
from flce.torch._arguments import Head, Settings, judge

_lib = torch.library.Library("flce_bench", "DEF")


def define_empty() -> Any:
    """An operator that allocates what flce::run gives back, and does nothing."""
    schema = str(torch.ops.flce.run.default._schema).removeprefix("flce::")
    _lib.define(schema)
    for key in ("CPU", "CUDA"):
        _lib.impl("run", _ops.sizes_of_run, key)
    torch.library.register_autograd(
        "flce_bench::run",
        lambda ctx, *_: (None,) * _ops.NUM_INPUTS,
        setup_context=lambda ctx, inputs, output: ctx.mark_non_differentiable(*output[1:]),
        lib=_lib,
    )
    return torch.ops.flce_bench.run.default


def microseconds(call: Callable[[], Any], device: str, rounds: int, calls: int = 50) -> float:
    best = float("inf")
    for _ in range(rounds):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) / calls * 1e6)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=40)
    asked = parser.parse_args()
    os.environ.setdefault("FLCE_NUM_THREADS", "1")
    dtype = torch.bfloat16 if asked.device == "cuda" else torch.float32
    x = torch.randn(4, 8, device=asked.device, dtype=dtype, requires_grad=True)
    w = torch.randn(16, 8, device=asked.device, dtype=dtype, requires_grad=True)
    y = torch.randint(0, 16, (4,), device=asked.device)
    problem = judge(Head(x, w, y, None), Settings())
    empty = define_empty()

    def ours() -> torch.Tensor:
        return linear_cross_entropy(x, w, y)

    def step() -> None:
        ours().backward()
        x.grad = w.grad = None

    lines = {
        "empty operator, forward": lambda: empty(*problem.tensors, *problem.options),
        "linear_cross_entropy, forward": ours,
        "linear_cross_entropy, forward and backward": step,
    }
    lines["empty operator, no gradient"] = no_grad(lines["empty operator, forward"])
    lines["linear_cross_entropy, no gradient"] = no_grad(ours)
    for call in lines.values():
        for _ in range(100):
            call()
    for name, call in lines.items():
        print(f"{name:45s} {microseconds(call, asked.device, asked.rounds):8.1f} us")


def no_grad(call: Callable[[], Any]) -> Callable[[], Any]:
    def without() -> Any:
        with torch.no_grad():
            return call()

    return without


if __name__ == "__main__":
    main()
