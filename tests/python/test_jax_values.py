# SPDX-License-Identifier: Apache-2.0
"""flce.jax against float64: options, reductions, dtypes, methods, ragged and empty sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import flce
import flce.torch as door
from jax_support import (
    array,
    arrays,
    check_against_oracle,
    check_logprob,
    enable_x64,
    jax,
    jnp,
    linear_cross_entropy,
    linear_logprob,
    tensor,
)
from support import EVERYTHING, problem

V = 33
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"label_smoothing": 0.1, "z_loss": 1e-2},
    {"softcap": 5.0, "scale": 0.5, "temperature": 0.8},
    {"softcap": 3.0, "label_smoothing": 0.2},
    {"ignore_index": 3, "shift": 1},
)


@pytest.mark.parametrize("reduction", ("mean", "sum", "none"))
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options(options: dict[str, Any], reduction: str) -> None:
    x, w, y, bias = arrays((3, 7), vocab=V)
    y = jnp.where(y < 0, options.get("ignore_index", -100), y)
    check_against_oracle(x, w, y, bias, reduction=reduction, **options)


@pytest.mark.parametrize("reduction", ("mean", "none"))
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_16_bits(dtype: torch.dtype, reduction: str) -> None:
    x, w, y, bias = arrays((19,), 24, V, dtype)
    # A kept gradient is rounded again when it is multiplied by the upstream.
    loosened = 2.0 if reduction == "mean" else 1.0
    for b in (bias, bias.astype("float32")):
        check_against_oracle(x, w, y, b, loosened=loosened, reduction=reduction)


@pytest.mark.parametrize("reduction", ("mean", "none"))
def test_float64_and_int64(reduction: str) -> None:
    with enable_x64(True):
        x, w, y, bias = arrays((19,), 24, V, torch.float64)
        assert y.dtype == "int64" and x.dtype == "float64"
        ours = check_against_oracle(x, w, y, bias, reduction=reduction)
        assert ours.num_valid.dtype == "int32"
        as_int32 = linear_cross_entropy(x, w, y.astype("int32"), bias=bias, reduction=reduction)
        assert jnp.array_equal(as_int32, ours.loss)


@pytest.mark.parametrize("method", ("fused", "recompute", "naive", "chunked"))
def test_methods_and_chunks(method: str) -> None:
    x, w, y, bias = arrays((2, 19), vocab=V)
    check_against_oracle(x, w, y, bias, method=method)
    check_against_oracle(x, w, y, bias, method=method, chunk=5, label_smoothing=0.1)


def test_constants_per_class_and_per_token() -> None:
    x, w, y, bias = arrays((3, 7), vocab=V)
    vectors = {
        "class_weight": array(torch.rand(V) + 0.5),
        "token_weight": array(torch.rand(3, 7) + 0.5),
        "temperature": array(torch.rand(3, 7) + 0.5),
    }
    for reduction in ("mean", "none"):
        check_against_oracle(x, w, y, bias, reduction=reduction, label_smoothing=0.1, **vectors)
    check_against_oracle(x, w, y, None, temperature=jnp.float32(0.7))


@pytest.mark.parametrize("normalizer", (13, 13.5, np.array(13, "int32"), np.array(13.5)), ids=repr)
@pytest.mark.parametrize("reduction", ("mean", "sum"))
def test_normalizer(normalizer: Any, reduction: str) -> None:
    x, w, y, _ = arrays((3, 7), vocab=V)
    if isinstance(normalizer, np.ndarray):
        normalizer = jnp.asarray(normalizer)
    check_against_oracle(x, w, y, reduction=reduction, normalizer=normalizer)


def test_a_normalizer_may_be_traced() -> None:
    x, w, y, _ = arrays((3, 7), vocab=V)
    step = jax.jit(lambda n: linear_cross_entropy(x, w, y, normalizer=n))
    for count in (13, 7):
        assert float(step(count)) == float(linear_cross_entropy(x, w, y, normalizer=count))
    assert step._cache_size() == 1


@pytest.mark.parametrize("tokens", (1, 2, 97))
@pytest.mark.parametrize("vocab", (1, 2, 193))
def test_ragged_sizes(tokens: int, vocab: int) -> None:
    x, w, y, bias = arrays((tokens,), 5, vocab)
    check_against_oracle(x, w, y, bias)


def test_one_token_without_a_leading_dimension() -> None:
    x, w, y, _ = arrays((), 8, V, ignored=0.0)
    for reduction in ("mean", "none"):
        ours = check_against_oracle(x, w, y, reduction=reduction)
        assert ours.loss.shape == () and ours.lse.shape == ()


@pytest.mark.parametrize("shape", ((0,), (2, 0), (0, 3)))
def test_no_token(shape: tuple[int, ...]) -> None:
    x, w, y, _ = arrays(shape, 8, V)

    def loss(x: Any, w: Any, reduction: str) -> Any:
        return linear_cross_entropy(x, w, y, reduction=reduction).sum()

    assert jnp.isnan(loss(x, w, "mean"))
    for reduction in ("mean", "sum", "none"):
        grad_x, grad_w = jax.jit(jax.grad(loss, (0, 1)), static_argnums=2)(x, w, reduction)
        assert grad_x.shape == x.shape and grad_w.shape == w.shape
        assert not grad_w.any(), reduction
    assert linear_cross_entropy(x, w, y, reduction="none").shape == shape


def test_all_ignored() -> None:
    x, w, y, bias = arrays((3, 7), vocab=V, ignored=1.1)
    for reduction in ("mean", "sum", "none"):
        ours = check_against_oracle(x, w, y, bias, reduction=reduction)
        assert bool(jnp.isnan(ours.loss).all()) == (reduction == "mean")


def test_nan_in_an_ignored_row_never_comes_out() -> None:
    x, w, y, _ = arrays((9,), vocab=V, ignored=0.0)
    y = y.at[4].set(-100)
    dirty = x.at[4].set(jnp.nan)

    def loss(x: Any, w: Any, reduction: str) -> Any:
        return linear_cross_entropy(x, w, y, reduction=reduction).sum()

    for reduction in ("mean", "none"):
        step = jax.jit(jax.value_and_grad(loss, (0, 1)), static_argnums=2)
        clean, got = step(x, w, reduction), step(dirty, w, reduction)
        for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(clean), strict=True):
            assert jnp.array_equal(ours, theirs)
        assert not got[1][0][4].any()
    valid = dirty.at[0].set(jnp.nan)
    assert jnp.isnan(loss(valid, w, "sum"))


def test_numpy_arrays_and_weak_types_are_taken() -> None:
    x, w, y, _ = arrays((9,), vocab=V)
    want = linear_cross_entropy(x, w, y)
    numpy = (jax.device_get(a) for a in (x, w, y))
    assert jnp.array_equal(linear_cross_entropy(*numpy), want)
    weak = jnp.broadcast_to(jnp.asarray(1.0), x.shape)
    assert weak.weak_type
    strong = linear_cross_entropy(jnp.ones_like(x), w, y)
    assert jnp.array_equal(linear_cross_entropy(weak, w, y), strong)


def test_loss_dtype() -> None:
    x, w, y, _ = arrays((9,), vocab=V, dtype=torch.bfloat16)
    loss = linear_cross_entropy(x, w, y)
    assert loss.dtype == "float32"
    rounded = linear_cross_entropy(x, w, y, loss_dtype=jnp.bfloat16)
    assert rounded.dtype == "bfloat16" and jnp.array_equal(rounded, loss.astype("bfloat16"))


def test_repeated_the_same_bits() -> None:
    x, w, y, bias = arrays((2, 61), 24, 257, torch.bfloat16)

    def loss(*leaves: Any) -> Any:
        out = linear_cross_entropy(*leaves[:2], y, bias=leaves[2], **EVERYTHING)
        return out.loss, out

    step = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))
    first = jax.tree.leaves(step(x, w, bias))
    for _ in range(3):
        for ours, theirs in zip(jax.tree.leaves(step(x, w, bias)), first, strict=True):
            assert jnp.array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_as_pytorchs_door_bit_by_bit(dtype: torch.dtype) -> None:
    """Both hand the same numbers to one library."""
    x, w, y, bias = problem((2, 31), 24, 257, dtype)
    theirs = door.linear_cross_entropy(x, w, y, linear_bias=bias, label_smoothing=0.1)
    theirs.backward()

    def loss(x: Any, w: Any, bias: Any) -> Any:
        return linear_cross_entropy(x, w, array(y), bias=bias, label_smoothing=0.1)

    ours, grads = jax.value_and_grad(loss, (0, 1, 2))(array(x), array(w), array(bias))
    assert torch.equal(tensor(ours), theirs.detach().double())
    for grad, leaf in zip(grads, (x, w, bias), strict=True):
        assert torch.equal(tensor(grad), leaf.grad.double())


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float16))
@pytest.mark.parametrize("options", ({}, {"softcap": 5.0, "temperature": 0.7, "shift": 1}), ids=str)
def test_linear_logprob(dtype: torch.dtype, options: dict[str, Any]) -> None:
    check_logprob(problem((3, 13), 24, V, dtype), **options)


def test_linear_logprob_makes_no_gradient_unasked() -> None:
    x, w, y, _ = arrays((9,), vocab=V)
    text = str(jax.make_jaxpr(lambda x: linear_logprob(x, w, y))(x))
    assert "flce_run" in text and "flce_forward" not in text and "grad_" not in text
    with pytest.raises(flce.Unsupported, match="recompute takes it"):
        jax.grad(lambda x: linear_logprob(x, w, y, method="fused")[0].sum())(x)
