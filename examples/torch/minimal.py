# SPDX-License-Identifier: Apache-2.0
"""One line replaced: the head's product and F.cross_entropy become one call.

python examples/torch/minimal.py [--device cuda]
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F

from flce.torch import linear_cross_entropy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device

    torch.manual_seed(0)
    tokens, hidden_size, vocab = 512, 64, 8192
    hidden = torch.randn(tokens, hidden_size, device=device, requires_grad=True)
    head = torch.nn.Linear(hidden_size, vocab, bias=False, device=device)
    target = torch.randint(0, vocab, (tokens,), device=device)
    target[:50] = -100  # a prompt, which is not trained on

    # Before: logits of tokens x vocab, their float32 copies and their gradient.
    loss = F.cross_entropy(F.linear(hidden, head.weight).float(), target)
    loss.backward()
    wanted = (loss.detach(), hidden.grad, head.weight.grad)

    # After: the same numbers, and nothing of that size.
    hidden.grad = head.weight.grad = None
    loss = linear_cross_entropy(hidden, head.weight, target)
    loss.backward()

    print(f"loss {loss.item():.6f}, with logits {wanted[0].item():.6f}")
    for name, ours, theirs in (
        ("hidden", hidden.grad, wanted[1]),
        ("weight", head.weight.grad, wanted[2]),
    ):
        error = (ours - theirs).norm() / theirs.norm()
        print(f"gradient of {name}: relative difference {error.item():.1e}")
        if error > 1e-5:
            raise SystemExit(f"the gradients of {name} differ")


if __name__ == "__main__":
    main()
