# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests: random problems, and the comparison of one call with the oracle."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import oracle
from flce.torch import LinearCrossEntropyOutput, linear_cross_entropy

# Relative error of a loss (float32 inside) and of a gradient (rounded to its dtype at the end).
LOSS_TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 2e-6,
    torch.bfloat16: 2e-5,
    torch.float16: 2e-5,
}
GRAD_TOLERANCE = {
    torch.float64: 1e-11,
    torch.float32: 1e-5,
    torch.bfloat16: 6e-3,
    torch.float16: 2e-3,
}
EVERYTHING = {
    "return_lse": True,
    "return_logprob": True,
    "return_entropy": True,
    "return_accuracy": True,
    "return_z_loss": True,
    "return_argmax": True,
}


def problem(
    shape: tuple[int, ...] = (7,),
    hidden: int = 8,
    vocab: int = 33,
    dtype: torch.dtype = torch.float32,
    ignored: float = 0.2,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, w, y, bias; x, w and bias require gradients. About `ignored` of the targets are -100."""
    x = torch.randn(*shape, hidden).to(dtype).requires_grad_()
    w = torch.randn(vocab, hidden).to(dtype).requires_grad_()
    bias = torch.randn(vocab).to(dtype).requires_grad_()
    y = torch.randint(0, vocab, shape)
    y[torch.rand(shape) < ignored] = -100
    return x, w, y, bias


def assert_close(
    got: Tensor, want: Tensor, tolerance: float, what: str, floor: float = 0.0
) -> None:
    """Same NaN and infinities, and elsewhere an error of at most `tolerance` times the largest
    value, or times `floor`, the size of parts that cancel."""
    assert got.shape == want.shape, f"{what}: shape {tuple(got.shape)}, not {tuple(want.shape)}"
    got, want = got.detach().double().cpu(), want.detach().double()
    finite = torch.isfinite(want)
    torch.testing.assert_close(got[~finite], want[~finite], equal_nan=True)
    scale = max(float(want[finite].abs().max()) if finite.any() else 0.0, floor, 1e-30)
    error = float((got[finite] - want[finite]).abs().max()) / scale if finite.any() else 0.0
    assert error <= tolerance, f"{what}: relative error {error:.2e}, at most {tolerance:.0e}"


def _coldest(temperature: float | Tensor) -> float:
    if isinstance(temperature, Tensor):
        return float(temperature.min()) if temperature.numel() else 1.0
    return float(temperature)


def check_against_oracle(
    x: Tensor, w: Tensor, y: Tensor, bias: Tensor | None = None, **options: Any
) -> LinearCrossEntropyOutput:
    """Loss, every further output, and the gradients of what requires one, for a random upstream."""
    ours: LinearCrossEntropyOutput = linear_cross_entropy(
        x, w, y, linear_bias=bias, **options, **EVERYTHING
    )
    theirs = {k: v for k, v in options.items() if k not in ("method", "chunk", "budget", "options")}
    leaves = [oracle.leaf(t) for t in (x, w, bias)]
    expected = oracle.linear_cross_entropy(leaves[0], leaves[1], y, bias=leaves[2], **theirs)
    for name in ("loss", "lse", "logprob", "entropy", "z_loss"):
        assert_close(getattr(ours, name), getattr(expected, name), LOSS_TOLERANCE[x.dtype], name)
    assert int(ours.num_correct) == expected.num_correct
    assert int(ours.num_valid) == expected.num_valid
    trained = [i for i, t in enumerate((x, w, bias)) if t is not None and t.requires_grad]
    if not trained:
        assert not ours.loss.requires_grad
        return ours
    upstream = torch.randn(ours.loss.shape, dtype=ours.loss.dtype)
    asked = [(x, w, bias)[i] for i in trained]
    got = torch.autograd.grad(ours.loss, asked, upstream)
    want = torch.autograd.grad(expected.loss, [leaves[i] for i in trained], upstream.double())
    part = expected.largest_part * (float(upstream.abs().max()) if upstream.numel() else 0.0)
    part *= max(abs(options.get("scale", 1.0)), 1.0) / _coldest(options.get("temperature", 1.0))
    for i, leaf, ours_grad, their_grad in zip(trained, asked, got, want, strict=True):
        assert ours_grad.dtype == leaf.dtype
        # torch's are NaN where nothing is valid; 0 is the documented value.
        their_grad = torch.nan_to_num(their_grad) if expected.num_valid == 0 else their_grad
        other = (w, x, None)[i]
        floor = part * (
            float(other.detach().abs().max()) if other is not None and other.numel() else 1.0
        )
        floor = 0.0 if expected.num_valid == 0 else floor
        assert_close(ours_grad, their_grad, GRAD_TOLERANCE[x.dtype], f"gradient {i}", floor)
    return ours
