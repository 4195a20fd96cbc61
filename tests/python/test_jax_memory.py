# SPDX-License-Identifier: Apache-2.0
"""What a program with flce.jax in it holds: no logits, its plan to the byte, nothing twice."""

from __future__ import annotations

import re
from typing import Any

import pytest

import flce
from jax_support import jax, jnp, linear_cross_entropy

N, H, V = 1024, 64, 20000
SHAPES = (
    jax.ShapeDtypeStruct((N, H), "bfloat16"),
    jax.ShapeDtypeStruct((V, H), "bfloat16"),
    jax.ShapeDtypeStruct((N,), "int32"),
)


def compiled(reduction: str, **options: Any) -> Any:
    def loss(x: Any, w: Any, y: Any) -> Any:
        return linear_cross_entropy(x, w, y, reduction=reduction, **options).sum()

    return jax.jit(jax.value_and_grad(loss, (0, 1))).lower(*SHAPES).compile()


def largest(text: str) -> int:
    """Elements of the largest array of a compiled program that is not bytes of a workspace."""
    shapes = re.findall(r"\b(?:f64|f32|bf16|f16|s32|pred)\[([0-9,]+)\]", text)
    sizes = [eval(shape.replace(",", "*") or "1") for shape in shapes]
    return max(sizes)


@pytest.mark.parametrize("reduction", ("mean", "none"))
def test_no_logits(reduction: str) -> None:
    assert largest(compiled(reduction).as_text()) == V * H < N * V


def unfused(x: Any, w: Any, y: Any) -> Any:
    log_p = jax.nn.log_softmax((x @ w.T).astype("float32"))
    return -jnp.take_along_axis(log_p, y[:, None], 1).sum()


def test_temporary_memory_is_the_plans() -> None:
    plan = flce.plan(tokens=N, hidden=H, vocab=V)
    program = compiled("mean")
    held = program.memory_analysis().temp_size_in_bytes
    # XLA rounds the size of each buffer up, and keeps a loss and some addresses beside.
    assert plan.workspace_bytes <= held <= plan.workspace_bytes + 4096
    eager = jax.jit(jax.value_and_grad(unfused, (0, 1))).lower(*SHAPES).compile()
    assert eager.memory_analysis().temp_size_in_bytes > N * V * 4


def test_a_budget_is_a_limit() -> None:
    usual = flce.plan(tokens=N, hidden=H, vocab=V)
    small = flce.plan(tokens=N, hidden=H, vocab=V, budget=usual.extra_bytes // 2)
    held = compiled("mean", budget=usual.extra_bytes // 2).memory_analysis().temp_size_in_bytes
    assert small.workspace_bytes <= held <= small.workspace_bytes + 4096 < usual.workspace_bytes


def test_an_upstream_of_one_costs_no_pass() -> None:
    text = compiled("mean").as_text()
    assert "multiply" not in text and text.count("custom-call(") == 1


def test_two_calls_share_a_workspace() -> None:
    def both(x: Any, w: Any, y: Any) -> Any:
        first = linear_cross_entropy(x, w, y)
        return first + linear_cross_entropy(x * first.astype(x.dtype), w, y)

    held = jax.jit(both).lower(*SHAPES).compile().memory_analysis().temp_size_in_bytes
    one = flce.plan(tokens=N, hidden=H, vocab=V, grad_hidden=False, grad_weight=False)
    assert held < 1.5 * one.workspace_bytes + 2 * N * H
