# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of flce.jax: random problems as arrays of JAX, and the comparison of one call
with the oracle, which computes in float64 by PyTorch. Without JAX they are skipped.

Two devices on the CPU, for what is sharded: as long as nothing has started JAX before.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
)
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # beside torch on one card
jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

import oracle  # noqa: E402
from flce.jax import (  # noqa: E402
    LinearCrossEntropyOutput,
    _call,  # noqa: F401
    linear_cross_entropy,
    linear_logprob,
)
from support import EVERYTHING, GRAD_TOLERANCE, LOSS_TOLERANCE, assert_close, problem  # noqa: E402

enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
NAMES = {
    torch.float64: "float64",
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
}
# The oracle's names of what is called otherwise here.
_ORACLE = {"class_weight": "weight"}


def array(tensor: Tensor | None, device: Any = None) -> Any:
    """The same values in JAX; 64-bit numbers become 32-bit ones where JAX has no others."""
    if tensor is None:
        return None
    tensor = tensor.detach()
    if tensor.dtype in (torch.bfloat16, torch.float16):  # numpy has no bfloat16 of its own
        values = jnp.asarray(tensor.float().numpy()).astype(NAMES[tensor.dtype])
    else:
        values = jnp.asarray(tensor.numpy())
    return values if device is None else jax.device_put(values, device)


def tensor(values: Any) -> Tensor:
    """In float64, or as integers."""
    if jnp.issubdtype(values.dtype, jnp.integer):
        return torch.from_numpy(np.array(values)).long()
    # A way of float32 for 16 bits, which loses nothing.
    wide = values if values.dtype == "float64" else values.astype("float32")
    return torch.from_numpy(np.array(wide)).double()


def arrays(*args: Any, **options: Any) -> list[Any]:
    """hidden, weight, target, bias, as support.problem makes them."""
    return [array(t) for t in problem(*args, **options)]


def _expected(x: Any, w: Any, y: Any, bias: Any, options: dict[str, Any]) -> tuple[Any, list[Any]]:
    leaves = [None if a is None else oracle.leaf(tensor(a)) for a in (x, w, bias)]
    theirs = {
        _ORACLE.get(name, name): tensor(value) if isinstance(value, jax.Array) else value
        for name, value in options.items()
        if name not in ("method", "chunk", "budget")
    }
    if isinstance(options.get("normalizer"), jax.Array):
        theirs["normalizer"] = float(options["normalizer"])
    return oracle.linear_cross_entropy(
        leaves[0], leaves[1], tensor(y), bias=leaves[2], **theirs
    ), leaves


def check_against_oracle(
    x: Any,
    w: Any,
    y: Any,
    bias: Any = None,
    *,
    loosened: float = 1.0,
    others: float | None = None,
    **options: Any,
) -> LinearCrossEntropyOutput:
    """Loss, every further output, and the gradients for a random upstream, under jax.jit. Gradients
    may err `loosened` times as much as usual, further outputs by `others`."""
    dtype = next(t for t, name in NAMES.items() if name == str(x.dtype))
    expected, leaves = _expected(x, w, y, bias, options)
    upstream = torch.randn(expected.loss.shape, dtype=torch.float64)
    real = "float64" if x.dtype == "float64" else "float32"
    sent = array(upstream).astype(real)
    trained = [i for i, a in enumerate((x, w, bias)) if a is not None]

    def weighted(x: Any, w: Any, bias: Any = None) -> Any:
        ours = linear_cross_entropy(x, w, y, bias=bias, **options, **EVERYTHING)
        return (ours.loss * sent).sum(), ours

    values = [(x, w, bias)[i] for i in trained]
    step = jax.jit(jax.grad(weighted, tuple(range(len(trained))), has_aux=True))
    got, ours = step(*values)
    for name in ("loss", "lse", "logprob", "entropy", "z_loss"):
        result = getattr(ours, name)
        assert result.dtype == real, name
        tolerance = LOSS_TOLERANCE[dtype] if name == "loss" or others is None else others
        assert_close(tensor(result), getattr(expected, name), tolerance, name)
    assert int(ours.num_correct) == expected.num_correct
    assert int(ours.num_valid) == expected.num_valid
    assert float(ours.accuracy) == pytest.approx(
        expected.num_correct / max(expected.num_valid, 1), rel=1e-6
    )
    assert ours.argmax.shape == y.shape and ours.argmax.dtype == "int32"
    _check_grads(got, values, expected, [leaves[i] for i in trained], upstream, options, loosened)
    return ours


def _check_grads(
    got: Any,
    values: list[Any],
    expected: Any,
    leaves: list[Any],
    upstream: Tensor,
    options: dict[str, Any],
    loosened: float,
) -> None:
    want = torch.autograd.grad(expected.loss, leaves, upstream)
    dtype = next(t for t, name in NAMES.items() if name == str(values[0].dtype))
    part = expected.largest_part * (float(upstream.abs().max()) if upstream.numel() else 0.0)
    coldest = float(jnp.min(jnp.asarray(options.get("temperature", 1.0))))
    part *= max(abs(options.get("scale", 1.0)), 1.0) / coldest
    for i, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        assert ours.dtype == values[i].dtype and ours.shape == values[i].shape
        other = tensor(values[1 - i]) if i < 2 else torch.ones(1)
        floor = part * (float(other.abs().max()) if other.numel() else 1.0)
        # The oracle's are NaN where nothing is valid; 0 is the documented value.
        if expected.num_valid == 0:
            theirs, floor = torch.nan_to_num(theirs), 0.0
        tolerance = loosened * GRAD_TOLERANCE[dtype]
        assert_close(tensor(ours), theirs, tolerance, f"gradient {i}", floor)


def check_logprob(
    given: tuple[Tensor, ...],
    *,
    device: Any = None,
    values: float | None = None,
    loosened: float = 2.0,
    **options: Any,
) -> None:
    """linear_logprob of support.problem's tensors: both results, and the gradients of both together
    and of each alone, whose other upstream is no array."""
    x, w, y, bias = given
    leaves = [oracle.leaf(t) for t in (x, w, bias)]
    want = oracle.linear_cross_entropy(leaves[0], leaves[1], y, bias=leaves[2], **options)
    arguments, target = [array(t, device) for t in (x, w, bias)], array(y, device)
    upstream = [torch.randn(y.shape, dtype=torch.float64) for _ in range(2)]
    sent = [array(u.float(), device) for u in upstream]

    def weighted(x: Any, w: Any, bias: Any, which: tuple[int, ...]) -> Any:
        made = linear_logprob(x, w, target, bias=bias, **options)
        return sum((made[i] * sent[i]).sum() for i in which), made

    step = jax.jit(jax.grad(weighted, (0, 1, 2), has_aux=True), static_argnums=3)
    for which in ((0, 1), (0,), (1,)):
        got, made = step(*arguments, which)
        for ours, theirs in zip(made, (want.logprob, want.entropy), strict=True):
            assert ours.dtype == "float32"
            assert_close(tensor(ours), theirs, values or LOSS_TOLERANCE[x.dtype], "value")
        parts = [upstream[i] if i in which else torch.zeros_like(upstream[i]) for i in range(2)]
        grads = torch.autograd.grad((want.logprob, want.entropy), leaves, parts, retain_graph=True)
        for ours, theirs in zip(got, grads, strict=True):
            assert_close(tensor(ours), theirs, loosened * GRAD_TOLERANCE[x.dtype], "gradient")
