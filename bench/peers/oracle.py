# SPDX-License-Identifier: Apache-2.0
"""What is right, in float64, for the benchmark's errors and for the features.

It uses nothing of the systems. Rows are taken in blocks, so that of the N x V numbers only
BLOCK_NUMBERS are held at a time; weight and its gradient are held whole. Semantics are those of
torch.nn.functional.cross_entropy; options beyond it are those of docs/math.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

BLOCK_NUMBERS = 1 << 25  # of one float64 block of logits; autograd holds a few such


class Expected(NamedTuple):
    loss: Tensor
    lse: Tensor
    logprob: Tensor
    entropy: Tensor
    grad_hidden: Tensor
    grad_weight: Tensor
    grad_bias: Tensor | None


class _Block(NamedTuple):
    """Per-token values of some rows; 0 where the target is ignored."""

    loss: Tensor
    lse: Tensor
    logprob: Tensor
    entropy: Tensor


def _block(x: Tensor, w: Tensor, y: Tensor, bias: Tensor | None, o: dict[str, Any]) -> _Block:
    logits = F.linear(x, w, bias)
    if o.get("softcap"):
        logits = o["softcap"] * torch.tanh(logits / o["softcap"])
    logits = logits / o.get("temperature", 1.0)
    valid = y != o.get("ignore_index", -100)
    safe = torch.where(valid, y, 0)
    lse = torch.logsumexp(logits, -1)
    logprob = logits.gather(-1, safe[:, None])[:, 0] - lse
    smoothing, classes = o.get("label_smoothing", 0.0), o.get("class_weight")
    classes = torch.ones_like(w[:, 0]) if classes is None else classes.double()
    loss = -(1 - smoothing) * classes[safe] * logprob
    if smoothing:
        loss = loss + smoothing / len(w) * (classes * (lse[:, None] - logits)).sum(-1)
    loss = loss + o.get("z_loss", 0.0) * lse.square()
    entropy = lse - (torch.softmax(logits, -1) * logits).sum(-1)
    return _Block(*(torch.where(valid, v, 0.0) for v in (loss, lse, logprob, entropy)))


def _divisor(y: Tensor, o: dict[str, Any]) -> Tensor | float:
    if o.get("normalizer") is not None:
        return o["normalizer"]
    if o.get("reduction", "mean") != "mean":
        return 1.0
    valid = y[y != o.get("ignore_index", -100)]
    classes = o.get("class_weight")
    return float(len(valid)) if classes is None else classes.double()[valid].sum()


def expected(
    hidden: Tensor, weight: Tensor, target: Tensor, upstream: Tensor | None = None,
    of: str = "loss", **options: Any,
) -> Expected:  # fmt: skip
    """Values, and the gradients of the loss, or of the sum of `of` ("entropy", "logprob") times
    `upstream`, a number per token where the result has one per token."""
    x, w = hidden.detach(), weight.detach().double().requires_grad_()
    bias = options.get("bias")
    bias = None if bias is None else bias.detach().double().requires_grad_()
    tokens, vocab = len(x), len(w)
    is_scalar = of == "loss" and options.get("reduction", "mean") != "none"
    factor = torch.ones(tokens, dtype=torch.float64, device=x.device)
    if of == "loss":
        if options.get("token_weight") is not None:
            factor = options["token_weight"].double()
        factor = factor / _divisor(target, options)
    scale = factor if upstream is None else factor * upstream.double()
    rows = max(1, BLOCK_NUMBERS // vocab)
    kept: list[_Block] = []
    grad_hidden = torch.empty(x.shape, dtype=torch.float64, device=x.device)
    for begin in range(0, tokens, rows):
        part = slice(begin, begin + rows)
        leaf = x[part].double().requires_grad_()
        block = _block(leaf, w, target[part], bias, options)
        (getattr(block, of) * scale[part]).sum().backward()
        grad_hidden[part] = leaf.grad
        kept.append(_Block(*(value.detach() for value in block)))
    loss, lse, logprob, entropy = map(torch.cat, zip(*kept, strict=True))
    loss = loss * factor if of == "loss" else loss
    grad_bias = None if bias is None else bias.grad
    return Expected(loss.sum() if is_scalar else loss, lse, logprob, entropy, grad_hidden,
                    w.grad, grad_bias)  # fmt: skip


def relative(got: Tensor, want: Tensor) -> float:
    """Norm of the difference over the norm of what is right, in blocks of rows."""
    got, want = (t.detach().reshape(len(t), -1) if t.dim() else t.detach().reshape(1, 1)
                 for t in (got, want))  # fmt: skip
    if got.shape != want.shape:
        raise ValueError(f"a result of shape {tuple(got.shape)}, not {tuple(want.shape)}")
    rows = max(1, BLOCK_NUMBERS // want.shape[1])
    off = sum(float((g.double() - w).square().sum())
              for g, w in zip(got.split(rows), want.split(rows), strict=True))  # fmt: skip
    size = sum(float(w.square().sum()) for w in want.split(rows))
    return (off / size) ** 0.5 if size else off**0.5
