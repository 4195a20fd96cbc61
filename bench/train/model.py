# SPDX-License-Identifier: Apache-2.0
"""A small decoder whose last layer and loss are computed in one of two ways; all else is the same.

Learned positions, RMSNorm before each part, causal attention by scaled_dot_product_attention, GELU,
a head of its own. B sequences of length S, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flce.torch import linear_cross_entropy

DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


class Setup(NamedTuple):
    """What is trained; the same for every way."""

    layers: int
    hidden: int
    heads: int
    vocab: int
    sequence: int
    batch: int
    dtype: str
    seed: int


def eager(hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """As trainers write it: (B, S, V) logits, the loss in float32."""
    logits = F.linear(hidden, weight).float()
    return F.cross_entropy(logits.flatten(0, -2), target.flatten())


class Way(NamedTuple):
    """How the last layer and the loss are computed, and whether torch.compile takes the model."""

    loss: Loss
    is_compiled: bool


WAYS = {
    "eager": Way(eager, False),
    "compile": Way(eager, True),
    "flce": Way(linear_cross_entropy, False),
    "flce-compile": Way(linear_cross_entropy, True),
}


class Block(nn.Module):
    """Attention and an MLP, each beside its residual."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.RMSNorm(hidden) for _ in range(2))
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.up = nn.Linear(hidden, 4 * hidden, bias=False)
        self.down = nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        split = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1))  # (B, S, 3, heads, d)
        query, key, value = split.permute(2, 0, 3, 1, 4)  # (B, heads, S, d) each
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Decoder(nn.Module):
    """Its forward is the loss of a batch."""

    def __init__(self, setup: Setup, loss: Loss) -> None:
        super().__init__()
        self.loss = loss
        self.tokens = nn.Embedding(setup.vocab, setup.hidden)
        self.positions = nn.Embedding(setup.sequence, setup.hidden)
        self.blocks = nn.ModuleList(Block(setup.hidden, setup.heads) for _ in range(setup.layers))
        self.norm = nn.RMSNorm(setup.hidden)
        self.head = nn.Linear(setup.hidden, setup.vocab, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def last_hidden(self, inputs: Tensor) -> Tensor:
        """(B, S) to (B, S, H)."""
        x = self.tokens(inputs) + self.positions.weight[: inputs.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def forward(self, inputs: Tensor, target: Tensor) -> Tensor:
        return self.loss(self.last_hidden(inputs), self.head.weight, target)


def build(setup: Setup, way: str, device: str) -> Decoder:
    """The same weights for every way: they are drawn on the device from the setup's seed."""
    torch.manual_seed(setup.seed)
    with torch.device(device):
        return Decoder(setup, WAYS[way].loss).to(DTYPES[setup.dtype])


def parameter_bytes(model: nn.Module) -> int:
    return sum(p.nbytes for p in model.parameters())
