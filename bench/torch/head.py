# SPDX-License-Identifier: Apache-2.0
"""A model's head in PyTorch, forward and backward: eager, and by flce.torch.

usage: head.py [--csv FILE] [--hidden H] [--vocab V] [--dtype bf16] [--tokens N,N,...] [--rounds R]
               [--limit 80GB] [--flce PROGRAM] [--device cuda]

Eager is F.linear and F.cross_entropy of float32 logits, as trainers call it. Times are medians of
interleaved rounds on random data; memory is torch.cuda.max_memory_allocated, inputs and gradients
included. --limit also looks for the most tokens, up to 262144, that fit into that much memory, by
running them. --flce times the same problem by the command line: what the way through PyTorch costs.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import flce
from flce.torch import linear_cross_entropy

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
COLUMNS = ("device", "date", "torch", "what", "tokens", "hidden", "vocab", "dtype", "median_ms",
           "peak_bytes", "inputs_and_gradients_bytes", "plan_bytes")  # fmt: skip


class Shape(NamedTuple):
    tokens: int
    hidden: int
    vocab: int
    dtype: str
    device: str


def eager(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(x, w).float(), y)


METHODS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "eager": eager,
    "flce": linear_cross_entropy,
}


def problem(shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
    dtype = DTYPES[shape.dtype]
    x = torch.randn(shape.tokens, shape.hidden, device=shape.device, dtype=dtype)
    w = torch.randn(shape.vocab, shape.hidden, device=shape.device, dtype=dtype)
    w.mul_(shape.hidden**-0.5)
    y = torch.randint(0, shape.vocab, (shape.tokens,), device=shape.device)
    return x.requires_grad_(), w.requires_grad_(), y


def step(method: str, tensors: tuple[Tensor, Tensor, Tensor]) -> None:
    for leaf in tensors[:2]:
        leaf.grad = None
    METHODS[method](*tensors).backward()


def milliseconds(method: str, tensors: tuple[Tensor, Tensor, Tensor]) -> float:
    if not tensors[0].is_cuda:
        start = time.perf_counter()
        step(method, tensors)
        return 1e3 * (time.perf_counter() - start)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    step(method, tensors)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def peak_of(method: str, tensors: tuple[Tensor, Tensor, Tensor]) -> int:
    """Bytes, what the tensors hold included; 0 on the CPU."""
    if not tensors[0].is_cuda:
        return 0
    for leaf in tensors[:2]:
        leaf.grad = None
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step(method, tensors)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def measure(
    shape: Shape, rounds: int, seconds: float, methods: Iterable[str] = METHODS
) -> dict[str, tuple[float, int]]:
    """Of each method that has the room: median milliseconds and peak bytes."""
    tensors = problem(shape)
    peaks: dict[str, int] = {}
    for method in methods:
        try:
            peaks[method] = peak_of(method, tensors)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
    times: dict[str, list[float]] = {method: [] for method in peaks}
    warm_until = time.monotonic() + seconds
    while time.monotonic() < warm_until:  # a cold card flatters
        for method in peaks:
            milliseconds(method, tensors)
    for _ in range(rounds):
        for method in peaks:
            times[method].append(milliseconds(method, tensors))
    return {m: (statistics.median(times[m]) if rounds else 0.0, peaks[m]) for m in peaks}


def fits(method: str, shape: Shape) -> bool:
    tensors: tuple[Tensor, Tensor, Tensor] | None = None
    try:
        tensors = problem(shape)
        step(method, tensors)
        torch.cuda.synchronize()
        return True
    except torch.OutOfMemoryError:
        return False
    finally:
        if tensors is not None:
            for leaf in tensors[:2]:
                leaf.grad = None
        del tensors
        torch.cuda.empty_cache()


def most_tokens(method: str, shape: Shape, unit: int = 1024, bound: int = 1 << 18) -> int:
    """The most that fit, to a multiple of `unit`; `bound` where as many as that do."""
    low, high = 0, 16 * unit
    while fits(method, shape._replace(tokens=high)):
        if high >= bound:
            return bound
        low, high = high, 2 * high
    while high - low > unit:
        middle = (low + high) // 2 // unit * unit
        if fits(method, shape._replace(tokens=middle)):
            low = middle
        else:
            high = middle
    return low


def by_command_line(program: str, shape: Shape, rounds: int) -> float:
    """Median milliseconds of the same problem without PyTorch."""
    text = f"n{shape.tokens}_h{shape.hidden}_v{shape.vocab}"
    command = [program, "bench", text, shape.dtype, "--device", shape.device, "--methods", "fused"]
    command += ["--rounds", str(rounds), "--no-error", "--json"]
    command += ["--no-floor"] if shape.device == "cuda" else ["--no-rss"]
    rows: Any = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return float(rows[0]["median_ms"])


class Report:
    """Rows to a CSV file, and to the terminal."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.rows: list[dict[str, Any]] = []

    def add(self, what: str, shape: Shape, median_ms: float, peak_bytes: int) -> None:
        plan = flce.plan(tokens=shape.tokens, hidden=shape.hidden, vocab=shape.vocab,
                         dtype=shape.dtype, device=shape.device)  # fmt: skip
        given = plan.input_bytes + plan.output_bytes
        name = torch.cuda.get_device_name() if shape.device == "cuda" else "CPU"
        date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        values = (name, date, torch.__version__, what, shape.tokens, shape.hidden, shape.vocab,
                  shape.dtype, f"{median_ms:.3f}", peak_bytes, given, plan.extra_bytes)  # fmt: skip
        self.rows.append(dict(zip(COLUMNS, values, strict=True)))
        print(f"{what:24s} {shape.tokens:8d} tokens {median_ms:10.3f} ms {peak_bytes / 1e9:8.3f} GB"
              f"  (inputs, gradients and plan: {(given + plan.extra_bytes) / 1e9:.3f} GB)",
              flush=True)  # fmt: skip

    def write(self) -> None:
        if self.file is None:
            return
        part = self.file.with_name(self.file.name + ".part")
        with part.open("w", newline="") as out:
            writer = csv.DictWriter(out, COLUMNS)
            writer.writeheader()
            writer.writerows(self.rows)
        part.replace(self.file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--vocab", type=int, default=128256)
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="bf16")
    parser.add_argument("--tokens", default="4096,16384")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--warm-seconds", type=float, default=3.0)
    parser.add_argument("--limit", help="such as 80GB; on a card")
    parser.add_argument("--flce", help="the program, to time the same without PyTorch")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    asked = parser.parse_args()
    report = Report(asked.csv)
    shape = Shape(0, asked.hidden, asked.vocab, asked.dtype, asked.device)
    for tokens in map(int, asked.tokens.split(",")):
        this = shape._replace(tokens=tokens)
        for method, (median, peak) in measure(this, asked.rounds, asked.warm_seconds).items():
            report.add(method, this, median, peak)
        if asked.flce:
            report.add("flce bench", this, by_command_line(asked.flce, this, asked.rounds), 0)
    if asked.limit:
        if asked.device != "cuda":
            parser.error("--limit: only a card's memory is limited; give --device cuda")
        limit = float(asked.limit.removesuffix("GB")) * 1e9
        torch.cuda.set_per_process_memory_fraction(
            limit / torch.cuda.get_device_properties(0).total_memory
        )
        for method in METHODS:
            most = shape._replace(tokens=most_tokens(method, shape))
            median, peak = measure(most, asked.rounds, asked.warm_seconds, [method])[method]
            report.add(f"{method}, most in {asked.limit}", most, median, peak)
    report.write()


if __name__ == "__main__":
    main()
