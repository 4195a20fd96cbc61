# SPDX-License-Identifier: Apache-2.0
"""Trains two layers on a real text with a real vocabulary of 131072 tokens, by one of three losses.

    python examples/torch/train_text.py --loss fused        # flce.torch
    python examples/torch/train_text.py --loss eager        # logits, F.cross_entropy
    python examples/torch/train_text.py --loss chunk-loop   # PyTorch operations chunk by chunk

The last one makes each chunk's gradients at once and drops its graph: the technique by hand. The
text is the documentation that comes with Python, or --text FILE; the tokenizer is that of the
package mistral-common. Prints one JSON object: losses, seconds of a step, peak memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flce.torch import FusedLinearHead

VOCAB = 131072
HIDDEN, CONTEXT, SEQUENCES = 64, 64, 4


class Model(nn.Module):
    """Embedding, two causal layers, a head of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.positions = nn.Embedding(CONTEXT, HIDDEN)
        layer = nn.TransformerEncoderLayer(
            HIDDEN, 4, 4 * HIDDEN, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = FusedLinearHead(nn.Linear(HIDDEN, VOCAB, bias=False))

    def hidden(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        x = self.embedding(tokens) + self.positions.weight[:length]
        return self.layers(x, mask=mask, is_causal=True)


def fused(model: Model, hidden: Tensor, target: Tensor) -> Tensor:
    loss = model.head(hidden, target)
    loss.backward()
    return loss


def eager(model: Model, hidden: Tensor, target: Tensor) -> Tensor:
    logits = F.linear(hidden, model.head.weight).float()
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
    loss.backward()
    return loss


def chunk_loop(model: Model, hidden: Tensor, target: Tensor, rows: int = 64) -> Tensor:
    """Autograd per chunk: the weight's gradient adds up in place, the hidden's is put together."""
    flat, classes = hidden.detach().flatten(0, 1), target.flatten()
    grad, total = torch.empty_like(flat), torch.zeros(())
    for start in range(0, len(flat), rows):
        part = flat[start : start + rows].requires_grad_()
        logits = F.linear(part, model.head.weight).float()
        loss = F.cross_entropy(logits, classes[start : start + rows], reduction="sum") / len(flat)
        loss.backward()
        grad[start : start + rows] = part.grad
        total += loss.detach()
    hidden.backward(grad.view_as(hidden))
    return total


LOSSES: dict[str, Callable[[Model, Tensor, Tensor], Tensor]] = {
    "fused": fused,
    "eager": eager,
    "chunk-loop": chunk_loop,
}


def tokens_of(text: str) -> Tensor:
    try:
        import mistral_common
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    except ImportError as error:
        raise SystemExit("the tokenizer is missing: pip install mistral-common") from error
    files = Path(mistral_common.__file__).parent.glob("data/tekken_*.json")
    tokenizer = Tekkenizer.from_file(sorted(files)[-1])
    return torch.tensor(tokenizer.encode(text, bos=False, eos=False))


def python_documentation() -> str:
    from pydoc_data import topics

    return "\n".join(text for _, text in sorted(topics.topics.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loss", choices=LOSSES, default="fused")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--text", type=Path)
    options = parser.parse_args()

    text = options.text.read_text() if options.text else python_documentation()
    batch = SEQUENCES * CONTEXT
    tokens = tokens_of(text[: 8 * batch * options.steps])
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses, seconds = [], []
    for step in range(options.steps):
        picked = tokens[step * batch : (step + 1) * batch + 1]
        inputs, target = (t.view(SEQUENCES, CONTEXT) for t in (picked[:-1], picked[1:]))
        optimizer.zero_grad()
        hidden = model.hidden(inputs)
        start = time.perf_counter()
        loss = LOSSES[options.loss](model, hidden, target)
        seconds.append(time.perf_counter() - start)
        optimizer.step()
        losses.append(loss.item())
    print(
        json.dumps(
            {
                "loss": options.loss,
                "losses": losses,
                "seconds_of_loss_and_backward": statistics.median(seconds),
                "peak_rss_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            }
        )
    )


if __name__ == "__main__":
    main()
