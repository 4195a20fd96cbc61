# SPDX-License-Identifier: Apache-2.0
"""The adapters of bench/peers/systems, with stand-ins for what needs a card: options reach each
system as its authors document them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

BENCH = Path(__file__).resolve().parents[2] / "bench"
if not (BENCH / "peers").is_dir():
    pytest.skip("no bench/peers here", allow_module_level=True)
sys.path.insert(0, str(BENCH))

from peers import features, systems  # noqa: E402
from peers.systems import cce, liger, quack, torch_ways  # noqa: E402
from torch import Tensor  # noqa: E402


def tried(peer: systems.Peer, *names: str) -> dict[str, str]:
    case = features.Case(peer, "f32", "cpu")
    return {name: features.tried(case, name)[0] for name in names}


def problem(tokens: int, hidden: int, vocab: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty(tokens, hidden), torch.empty(vocab, hidden), torch.empty(tokens)


def test_a_loss_per_token_is_a_logprob() -> None:
    found = tried(torch_ways.Eager(), "logprob output", "logprob gradient", "entropy output")
    assert list(found.values()) == ["yes", "yes", "no"]


def cce_function(
    e: Tensor, c: Tensor, targets: Tensor, *, ignore_index: int = -100, reduction: str = "mean",
    return_lse: bool = False, impl: str,
) -> Any:  # fmt: skip
    assert impl == "cce"
    logits = F.linear(e, c)
    loss = F.cross_entropy(logits, targets, reduction=reduction, ignore_index=ignore_index)
    return (loss, logits.logsumexp(-1)) if return_lse else loss


def cce_z_loss(
    lse: Tensor, targets: Tensor, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    squares = lse.square()[targets != ignore_index]
    return squares.mean() if reduction == "mean" else squares.sum()


def test_cce_adds_its_z_loss() -> None:
    peer = cce.Cce()
    peer.function, peer.z_loss = cce_function, cce_z_loss
    wanted = ("loss and gradients", "z-loss", "lse output", "reduction none", "logprob gradient")
    assert set(tried(peer, *wanted).values()) == {"yes"}
    p = features.Case(peer, "f32", "cpu").problem()
    p.target[::2] = 7
    features.compared(features.Case(peer, "f32", "cpu"), p, z_loss=0.3, reduction="sum",
                      ignore_index=7)  # fmt: skip
    supported, answer = features.tried(features.Case(peer, "f32", "cpu"), "temperature")
    assert supported == "no" and "temperature" in answer


def scaled(
    x: Tensor, weight: Tensor, target: Tensor, temperature: float = 1.0, ignore_index: int = -100,
    return_entropy: bool = False,
) -> Any:  # fmt: skip
    logits = F.linear(x, weight) / temperature
    losses = F.cross_entropy(logits, target, reduction="none", ignore_index=ignore_index)
    p = logits.softmax(-1)
    return (losses, -(p * p.log()).sum(-1)) if return_entropy else losses


def test_ligers_function_per_token() -> None:
    peer = liger.Scaled()
    peer.function = scaled
    peer.parallel = lambda x, w, y, group, **options: scaled(x, w, y, **options)
    wanted = ("loss and gradients", "targets of -100", "ignore_index", "temperature",
              "reduction sum", "reduction none", "logprob output", "logprob gradient",
              "entropy output", "entropy gradient", "vocab-parallel")  # fmt: skip
    assert set(tried(peer, *wanted).values()) == {"yes"}
    assert set(tried(peer, "bias", "softcap", "lse output").values()) == {"no"}


@pytest.mark.parametrize("tokens", [256, 4096, 5000, 16384])
@pytest.mark.parametrize(("hidden", "vocab"), [(768, 50257), (2304, 256000), (4096, 128256)])
def test_ligers_budget_for_chunks_of_4096(tokens: int, hidden: int, vocab: int) -> None:
    peer, given = liger.Triton4096(), {}
    peer.function = lambda *_, **options: given.update(options)
    p = problem(tokens, hidden, vocab)
    peer.loss(*p)
    # Liger Kernel 0.8.5, fused_linear_cross_entropy_forward: its rows of a chunk.
    parts = -(-vocab // (given["chunk_mem_const"] * hidden))
    rows = min(tokens, 1 << (-(-tokens // parts) - 1).bit_length())
    assert rows == peer.chunk(*p[:2]) == min(tokens, 4096)


@pytest.mark.parametrize(
    ("tokens", "hidden", "chunk", "given"),
    [(1024, 768, 1024, 4096), (8192, 2304, 4096, 4096), (4096, 4096, 2048, 2048),
     (16384, 4096, 2048, 2048), (256, 256, 128, 128), (37, 72, 37, 4096)],
)  # fmt: skip
def test_quacks_chunk(tokens: int, hidden: int, chunk: int, given: int) -> None:
    peer, options = quack.Quack(), {}
    peer.function = lambda *_, **more: options.update(more)
    p = problem(tokens, hidden, 512)
    peer.loss(*p)
    assert peer.chunk(*p[:2]) == chunk and options == {"chunk_size": given}


def test_the_one_file_in_larger_chunks() -> None:
    hidden, weight, _ = problem(8192, 64, 2048)
    assert torch_ways.OwnFile().chunk(hidden, weight) == 256
    assert torch_ways.OwnFile4096().chunk(hidden, weight) == 4096
    assert torch_ways.OwnFile4096().chunk(hidden[:100], weight) == 100
