# SPDX-License-Identifier: Apache-2.0
"""Reinforcement learning: per-token log-probabilities and entropies with gradients, no logits.

A policy with a large vocabulary is pushed towards even tokens by a clipped, group-relative
objective (GRPO) with an entropy bonus. Sampling makes logits, of one token at a time; the update
uses `linear_logprob` over all tokens at once.

    python examples/torch/grpo_logprob.py [--steps 30]
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

from flce.torch import linear_logprob

VOCAB, HIDDEN, GROUP, LENGTH = 2048, 32, 16, 8
TEMPERATURE, CLIP, ENTROPY_BONUS = 0.9, 0.2, 1e-3


class Policy(nn.Module):
    """A recurrent trunk and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.trunk = nn.GRU(HIDDEN, HIDDEN, batch_first=True)
        self.head = nn.Linear(HIDDEN, VOCAB)

    def hidden(self, tokens: Tensor) -> Tensor:
        return self.trunk(self.embedding(tokens))[0]


@torch.no_grad()
def sample(policy: Policy) -> Tensor:
    """(GROUP, LENGTH + 1) tokens; the first one starts every sequence."""
    tokens = torch.zeros(GROUP, 1, dtype=torch.long)
    for _ in range(LENGTH):
        logits = policy.head(policy.hidden(tokens)[:, -1]) / TEMPERATURE
        tokens = torch.cat([tokens, torch.multinomial(logits.softmax(-1), 1)], dim=1)
    return tokens


def logprob_and_entropy(policy: Policy, tokens: Tensor) -> tuple[Tensor, Tensor]:
    return linear_logprob(
        policy.hidden(tokens[:, :-1]),
        policy.head.weight,
        tokens[:, 1:],
        bias=policy.head.bias,
        temperature=TEMPERATURE,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    steps = parser.parse_args().steps

    torch.manual_seed(0)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    rewards = []
    for _ in range(steps):
        tokens = sample(policy)
        reward = (tokens[:, 1:] % 2 == 0).float().mean(-1)
        rewards.append(reward.mean().item())
        advantage = (reward - reward.mean()) / (reward.std() + 1e-6)
        with torch.no_grad():
            old, _ = logprob_and_entropy(policy, tokens)
        for _ in range(2):
            logprob, entropy = logprob_and_entropy(policy, tokens)
            ratio = (logprob - old).exp()
            gain = torch.minimum(
                ratio * advantage[:, None],
                ratio.clamp(1 - CLIP, 1 + CLIP) * advantage[:, None],
            )
            loss = -gain.mean() - ENTROPY_BONUS * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    tenth = max(steps // 10, 1)
    first, last = (sum(part) / tenth for part in (rewards[:tenth], rewards[-tenth:]))
    print(f"share of even tokens: {first:.2f} at first, {last:.2f} at last")


if __name__ == "__main__":
    main()
