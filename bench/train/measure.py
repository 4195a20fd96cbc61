# SPDX-License-Identifier: Apache-2.0
"""One measurement of one way, in a process of its own; bench/train/train.py starts it.

usage: measure.py WHAT ASKED        WHAT is `steps` or `largest`, ASKED a JSON object

The last line on standard output is a JSON object. `steps` trains and gives each step's loss, the
median time of a step, that of the last layer and loss alone, forward and backward, and the peak of
allocated memory. `largest` looks for the most sequences of which a training step still fits.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

import flce
from model import WAYS, Decoder, Setup, build, parameter_bytes

UNTIMED_STEPS = 5  # at most: compilation, first use, a cold card
HEAD_ROUNDS = 15
MOST_SEQUENCES = 1024


class Asked(NamedTuple):
    """What train.py writes."""

    setup: Setup
    way: str
    device: str
    backend: str
    tokens: str  # a file of torch.save
    steps: int
    rate: float


def parse(text: str) -> Asked:
    fields: dict[str, Any] = json.loads(text)
    return Asked(**{**fields, "setup": Setup(**fields["setup"])})


class Trainer:
    """A model of one way, its optimizer, and the batches of the text in one order."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.model: Decoder = build(asked.setup, asked.way, asked.device)
        self.loss_of = self.compiled(self.model)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=asked.rate, fused=asked.device == "cuda"
        )
        self.tokens = torch.load(asked.tokens).to(asked.device, torch.int64)
        length = asked.setup.sequence
        order = torch.Generator().manual_seed(asked.setup.seed)
        self.starts = torch.randperm((len(self.tokens) - 1) // length, generator=order) * length

    def compiled(self, call: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """`call`, compiled where the way says so. Sizes are constants: each gets its own code."""
        if not WAYS[self.asked.way].is_compiled:
            return call
        return torch.compile(call, backend=self.asked.backend, dynamic=False)

    def batch(self, step: int, sequences: int) -> tuple[Tensor, Tensor]:
        """(B, S) inputs and targets; the text begins anew where it ends."""
        length = self.asked.setup.sequence
        picked = [
            self.starts[(step * sequences + i) % len(self.starts)].item() for i in range(sequences)
        ]
        rows = torch.stack([self.tokens[start : start + length + 1] for start in picked])
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def step(self, inputs: Tensor, target: Tensor, rate_share: float = 1.0) -> Tensor:
        self.optimizer.param_groups[0]["lr"] = self.asked.rate * rate_share
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_of(inputs, target)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class Clock:
    """Times of calls in milliseconds; on a card by events, so that nothing waits in between."""

    def __init__(self, device: str) -> None:
        self.is_cuda = device == "cuda"
        self.marks: list[Any] = []

    def mark(self) -> None:
        if self.is_cuda:
            self.marks.append(torch.cuda.Event(enable_timing=True))
            self.marks[-1].record()
        else:
            self.marks.append(time.perf_counter())

    def between(self) -> list[float]:
        if self.is_cuda:
            torch.cuda.synchronize()
        pairs = zip(self.marks, self.marks[1:], strict=False)
        return [a.elapsed_time(b) if self.is_cuda else 1e3 * (b - a) for a, b in pairs]


def head_ms(trainer: Trainer) -> float:
    """Last layer and loss alone, forward and backward, on a batch's hidden states."""
    inputs, target = trainer.batch(0, trainer.asked.setup.batch)
    weight = trainer.model.head.weight
    with torch.no_grad():
        hidden = trainer.model.last_hidden(inputs)
    hidden.requires_grad_()
    loss_of = trainer.compiled(trainer.model.loss)
    times: list[float] = []
    for _ in range(UNTIMED_STEPS + HEAD_ROUNDS):
        hidden.grad = weight.grad = None
        clock = Clock(trainer.asked.device)
        clock.mark()
        loss_of(hidden, weight, target).backward()
        clock.mark()
        times += clock.between()
    return statistics.median(times[UNTIMED_STEPS:])


def steps(trainer: Trainer) -> dict[str, Any]:
    asked = trainer.asked
    untimed = min(UNTIMED_STEPS, asked.steps - 1)
    clock, losses = Clock(asked.device), []
    warm_up = max(1, asked.steps // 10)
    for step in range(asked.steps):
        if step == untimed:
            if clock.is_cuda:
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
            clock.mark()
        batch = trainer.batch(step, asked.setup.batch)
        losses.append(trainer.step(*batch, min(1.0, (step + 1) / warm_up)))
        if step >= untimed:
            clock.mark()
    times = clock.between()
    peak = torch.cuda.max_memory_allocated() if clock.is_cuda else 0
    return {
        "losses": [float(loss) for loss in losses],
        "step_ms": statistics.median(times),
        "min_ms": min(times),
        "max_ms": max(times),
        "peak_bytes": peak,
        "head_ms": head_ms(trainer),
        "parameter_bytes": parameter_bytes(trainer.model),
    }


def search(
    peak_of: Callable[[int], int | None], fixed: int, total: int, start: int, most: int
) -> tuple[int, int]:
    """The largest batch up to `most` that fits into `total` bytes, and its peak.

    `peak_of` tries a batch and gives its peak, None where it does not fit. A peak is about a line
    over the batch that begins at `fixed` bytes: the next batch to try is where that line meets
    `total`, and halves where the line leads nowhere new. (0, 0) where not even one fits.
    """
    low, low_peak, high = 0, 0, most + 1
    guess = min(start, most)
    while high - low > 1:
        peak = peak_of(guess)
        if peak is None:
            high = guess
            guess = (low + high) // 2
        else:
            low, low_peak = guess, peak
            slope = max(1.0, (peak - fixed) / guess)
            line = int((total - fixed) / slope)
            guess = line if line < high else (low + high) // 2
        guess = max(low + 1, min(guess, high - 1))
    return low, low_peak


def is_out_of_memory(error: RuntimeError) -> bool:
    """Of torch's allocator, also from within a compiler, or of a plan for a card of that size."""
    out = (torch.OutOfMemoryError, flce.OutOfBudget)
    return isinstance(error, out) or "out of memory" in str(error).lower()


def largest(trainer: Trainer) -> dict[str, Any]:
    if trainer.asked.device != "cuda":
        raise SystemExit("largest: only a card's memory is the limit that is looked for")
    trainer.model(*trainer.batch(0, 1)).backward()
    trainer.optimizer.step()  # its states are there from now on
    trainer.optimizer.zero_grad(set_to_none=True)
    torch.cuda.empty_cache()
    fixed = torch.cuda.memory_allocated() + parameter_bytes(trainer.model)
    total = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved()
    tried: dict[int, str] = {}

    def peak_of(sequences: int) -> int | None:
        torch.compiler.reset()
        torch.cuda.reset_peak_memory_stats()
        try:
            for step in range(2):
                trainer.step(*trainer.batch(step, sequences))
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated()
            tried[sequences] = "fits"
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            peak = None
            tried[sequences] = "does not fit"
        trainer.optimizer.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
        print(f"    {sequences} sequences: {tried[sequences]}", file=sys.stderr, flush=True)
        return peak

    start = 2 * trainer.asked.setup.batch
    batch, peak = search(peak_of, fixed, total, start, MOST_SEQUENCES)
    return {"batch": batch, "peak_bytes": peak, "total_bytes": total,
            "parameter_bytes": parameter_bytes(trainer.model)}  # fmt: skip


def main() -> None:
    what, text = sys.argv[1:]
    trainer = Trainer(parse(text))
    print(json.dumps({"steps": steps, "largest": largest}[what](trainer)))


if __name__ == "__main__":
    main()
