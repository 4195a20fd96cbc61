# SPDX-License-Identifier: Apache-2.0
"""Random combinations of options, shapes and dtypes against the float64 oracle."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracle
from flce.torch import linear_logprob, loss_and_grads
from support import GRAD_TOLERANCE, assert_close, check_against_oracle, problem

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
SWEEP = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@st.composite
def options(draw: Any) -> dict[str, Any]:
    """Everything that goes together."""
    chosen: dict[str, Any] = {
        "reduction": draw(st.sampled_from(("mean", "sum", "none"))),
        "label_smoothing": draw(st.sampled_from((0.0, 0.1, 1.0))),
        "softcap": draw(st.sampled_from((None, 0.0, 3.0))),
        "scale": draw(st.sampled_from((1.0, 0.3, -2.0))),
        "z_loss": draw(st.sampled_from((0.0, 1e-2))),
        "shift": draw(st.integers(0, 3)),
        "chunk": draw(st.sampled_from((None, 1, 3, 1000))),
        "method": draw(st.sampled_from(("auto", "naive", "chunked", "recompute"))),
    }
    if chosen["reduction"] != "none" and draw(st.booleans()):
        chosen["normalizer"] = draw(st.sampled_from((1, 7, 2.5)))
    return chosen


@SWEEP
@given(
    options(),
    st.sampled_from(DTYPES),
    st.sampled_from(((), (1,), (5,), (2, 3), (2, 1, 4))),
    st.integers(1, 9),
    st.sampled_from((1, 2, 17, 40)),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.sampled_from(("none", "number", "tensor")),
    st.tuples(st.booleans(), st.booleans(), st.booleans()).filter(any),
    st.integers(0, 2**31),
)
def test_any_combination(
    chosen: dict[str, Any],
    dtype: torch.dtype,
    shape: tuple[int, ...],
    hidden: int,
    vocab: int,
    given_tensors: tuple[bool, bool, bool],
    temperature: str,
    trained: tuple[bool, bool, bool],
    seed: int,
) -> None:
    torch.manual_seed(seed)
    x, w, y, bias = problem(shape, hidden, vocab, dtype)
    with_bias, with_class_weight, with_token_weight = given_tensors
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    if with_class_weight:
        chosen["weight"] = torch.rand(vocab, dtype=wide) + 0.1
    if with_token_weight:
        chosen["token_weight"] = torch.rand(shape, dtype=wide)
    if temperature == "number":
        chosen["temperature"] = 0.7
    elif temperature == "tensor":
        chosen["temperature"] = torch.rand(shape, dtype=wide) + 0.5
    for tensor, is_trained in zip((x, w, bias), trained, strict=True):
        tensor.requires_grad_(is_trained)
    if not shape:
        chosen["shift"] = 0
    check_against_oracle(x, w, y, bias if with_bias else None, **chosen)


@SWEEP
@given(
    st.sampled_from(DTYPES),
    st.sampled_from(((6,), (2, 3))),
    st.booleans(),
    st.sampled_from((None, 3.0)),
    st.sampled_from(("number", "tensor")),
    st.integers(0, 2),
    st.sampled_from((None, 1, 4)),
    st.integers(0, 2**31),
)
def test_linear_logprob(
    dtype: torch.dtype,
    shape: tuple[int, ...],
    with_bias: bool,
    softcap: float | None,
    temperature_kind: str,
    shift: int,
    chunk: int | None,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    x, w, y, bias = problem(shape, dtype=dtype)
    b = bias if with_bias else None
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    temperature = 0.8 if temperature_kind == "number" else torch.rand(shape, dtype=wide) + 0.5
    common = {"softcap": softcap, "scale": 0.5, "temperature": temperature, "shift": shift}
    got = linear_logprob(x, w, y, bias=b, chunk=chunk, **common)
    leaves = [oracle.leaf(t) for t in (x, w, b)]
    expected = oracle.linear_cross_entropy(*leaves[:2], y, bias=leaves[2], **common)
    upstream = [torch.randn(shape, dtype=wide) for _ in range(2)]
    pairs = list(zip(got, (expected.logprob, expected.entropy), strict=True))
    for ours, theirs in pairs:
        assert_close(ours, theirs, 2e-5 if dtype != torch.float64 else 1e-12, "value")
    asked = [t for t in (x, w, b) if t is not None]
    ours_grads = torch.autograd.grad(got, asked, upstream)
    their_grads = torch.autograd.grad(
        [theirs for _, theirs in pairs],
        [t for t in leaves if t is not None],
        [u.double() for u in upstream],
    )
    for ours, theirs in zip(ours_grads, their_grads, strict=True):
        assert_close(ours, theirs, GRAD_TOLERANCE[dtype], "gradient")


@pytest.mark.parametrize("only", (0, 1))
def test_linear_logprob_of_one_output_alone(only: int) -> None:
    x, w, y, _ = problem(dtype=torch.float64)
    got = linear_logprob(x, w, y)[only]
    a, b = oracle.leaf(x), oracle.leaf(w)
    expected = oracle.linear_cross_entropy(a, b, y)
    want = (expected.logprob, expected.entropy)[only]
    for ours, theirs in zip(
        torch.autograd.grad(got.sum(), (x, w)), torch.autograd.grad(want.sum(), (a, b)), strict=True
    ):
        assert_close(ours, theirs, 1e-11, "gradient")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", ("mean", "sum"))
@pytest.mark.parametrize("chunk_size", (None, 1, 4))
def test_loss_and_grads(dtype: torch.dtype, reduction: str, chunk_size: int | None) -> None:
    x, w, y, _ = problem((2, 5), dtype=dtype)
    loss, grad_hidden, grad_weight = loss_and_grads(
        x, w, y, chunk_size=chunk_size, reduction=reduction, label_smoothing=0.1, softcap=4.0
    )
    assert not loss.requires_grad and x.grad is None and w.grad is None
    a, b = oracle.leaf(x), oracle.leaf(w)
    expected = oracle.linear_cross_entropy(
        a, b, y, reduction=reduction, label_smoothing=0.1, softcap=4.0
    )
    expected.loss.backward()
    assert_close(loss, expected.loss, 2e-5, "loss")
    assert_close(grad_hidden, a.grad, GRAD_TOLERANCE[dtype], "grad_hidden")
    assert_close(grad_weight, b.grad, GRAD_TOLERANCE[dtype], "grad_weight")
    assert grad_hidden.dtype == dtype and grad_weight.dtype == dtype


def test_loss_and_grads_refuses_losses_per_token() -> None:
    x, w, y, _ = problem()
    with pytest.raises(ValueError, match="reduction is 'none'.*use 'mean' or 'sum'"):
        loss_and_grads(x, w, y, reduction="none")
