# SPDX-License-Identifier: Apache-2.0
"""The problems: shapes, and the same data for every system (fixed seeds, drawn on the device).

`random` is standard normal hidden states and weights of size 1/sqrt(H), so that logits are of size
1; `peaked` has weights eight times as large, as `flce bench --data peaked` does.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
SIZES = {"random": 1.0, "peaked": 8.0}
# N x H x V: two of Llama 3, Gemma 2, Qwen 3, GPT-2.
SHAPES = (
    "4096x4096x128256",
    "16384x4096x128256",
    "8192x2304x256000",
    "16384x4096x151936",
    "1024x768x50257",
)


class Shape(NamedTuple):
    tokens: int
    hidden: int
    vocab: int

    @classmethod
    def of(cls, text: str) -> Shape:
        parts = text.split("x")
        if len(parts) != 3 or not all(part.isdigit() and int(part) > 0 for part in parts):
            raise ValueError(f"shape {text!r}: give NxHxV, such as {SHAPES[0]}")
        return cls(*map(int, parts))


class Problem(NamedTuple):
    hidden: Tensor  # (N, H), a leaf
    weight: Tensor  # (V, H), a leaf
    target: Tensor  # (N,)

    def clear(self) -> None:
        self.hidden.grad = self.weight.grad = None

    @property
    def input_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self)


def _normal(rows: int, columns: int, size: float, like: Tensor, seed: int) -> Tensor:
    """Drawn on the device: the same on each run of one device and one torch."""
    generator = torch.Generator(like.device).manual_seed(seed)
    out = torch.empty(rows, columns, dtype=like.dtype, device=like.device)
    out.normal_(generator=generator)
    return out.mul_(size)


def make(shape: Shape, dtype: str, device: str, data: str = "random") -> Problem:
    like = torch.empty(0, dtype=DTYPES[dtype], device=device)
    generator = torch.Generator(device).manual_seed(3)
    return Problem(
        _normal(shape.tokens, shape.hidden, 1.0, like, 1).requires_grad_(),
        _normal(
            shape.vocab, shape.hidden, SIZES[data] * shape.hidden**-0.5, like, 2
        ).requires_grad_(),
        torch.randint(shape.vocab, (shape.tokens,), generator=generator, device=device),
    )
