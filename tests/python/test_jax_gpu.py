# SPDX-License-Identifier: Apache-2.0
"""flce.jax on a card: values, the plan's device, memory, streams of XLA. Skipped where JAX has
none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import flce
from jax_support import (
    _call,
    arrays,
    check_against_oracle,
    check_logprob,
    jax,
    jnp,
    linear_cross_entropy,
)
from support import problem

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def card() -> Any:
    try:
        device = jax.devices("cuda")[0]
    except RuntimeError as error:
        pytest.skip(f"JAX has no card: {error}")
    with jax.default_device(device):
        yield device


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float16))
@pytest.mark.parametrize("reduction", ("mean", "sum", "none"))
@pytest.mark.parametrize(
    "options",
    (
        {},
        {"label_smoothing": 0.1, "z_loss": 1e-3},
        {"softcap": 5.0, "scale": 0.5, "temperature": 0.8},
        {"shift": 1},
    ),
    ids=str,
)
def test_values(dtype: torch.dtype, reduction: str, options: dict[str, Any], card: Any) -> None:
    x, w, y, bias = (jax.device_put(a, card) for a in arrays((3, 50), 64, 500, dtype))
    check_against_oracle(x, w, y, bias, loosened=2.0, others=1e-4, reduction=reduction, **options)


def test_rows_that_hopper_cannot_fetch(card: Any) -> None:
    """H and V that no multiple of 16 bytes divides."""
    x, w, y, bias = (jax.device_put(a, card) for a in arrays((37,), 65, 501, torch.bfloat16))
    check_against_oracle(x, w, y, bias, loosened=2.0, others=1e-4)


def test_one_program_for_either_device(card: Any) -> None:
    """Where the arrays are decides, not the default."""
    assert _call._devices() == ("cpu", "cuda")
    made = arrays((64,), 64, 500)[:3]
    step = jax.jit(jax.value_and_grad(linear_cross_entropy, (0, 1)))
    here = step(*[jax.device_put(a, card) for a in made])
    there = step(*[jax.device_put(a, jax.devices("cpu")[0]) for a in made])
    assert here[0].devices() == {card} and there[0].devices() == {jax.devices("cpu")[0]}
    for ours, theirs in zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True):
        assert jnp.allclose(jax.device_get(ours), jax.device_get(theirs), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("reduction", ("mean", "none"))
def test_inside_a_longer_program_again_and_again(reduction: str, card: Any) -> None:
    """Calls between XLA's own kernels, on its stream; the same bits each time."""
    x, w, y, _ = (jax.device_put(a, card) for a in arrays((256,), 64, 2000, torch.bfloat16))

    def loss(x: Any, w: Any) -> Any:
        hidden = jnp.tanh(x @ w[:64].T)
        out = linear_cross_entropy(hidden, w, y, reduction=reduction, return_lse=True)
        return out.loss.sum() * 3, out.lse

    step = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))
    first = jax.tree.leaves(step(x, w))
    for _ in range(20):
        for ours, theirs in zip(jax.tree.leaves(step(x, w)), first, strict=True):
            assert jnp.array_equal(ours, theirs)

    def scanned(x: Any, w: Any) -> Any:
        def one(total: Any, part: Any) -> Any:
            return total + loss(part, w)[0], None

        return jax.lax.scan(one, jnp.float32(0.0), jnp.stack([x, x]))[0]

    assert jnp.allclose(jax.jit(scanned)(x, w), 2 * first[0], rtol=1e-5)


def test_no_logits_and_the_plans_memory(card: Any) -> None:
    n, h, v = 2048, 256, 50000
    shapes = [
        jax.ShapeDtypeStruct(shape, dtype, sharding=jax.sharding.SingleDeviceSharding(card))
        for shape, dtype in (((n, h), "bfloat16"), ((v, h), "bfloat16"), ((n,), "int32"))
    ]
    step = jax.jit(jax.value_and_grad(linear_cross_entropy, (0, 1)))
    held = step.lower(*shapes).compile().memory_analysis().temp_size_in_bytes
    plan = flce.plan(tokens=n, hidden=h, vocab=v, device="cuda")
    assert plan.workspace_bytes <= held <= plan.workspace_bytes + (1 << 20)


def test_a_target_out_of_range_is_that_tokens_nan(card: Any) -> None:
    x, w, y, _ = (jax.device_put(a, card) for a in arrays((8,), 8, 5, ignored=0.0))
    for bad in (5, 100, -1):
        losses = linear_cross_entropy(x, w, y.at[3].set(bad), reduction="none")
        assert bool(jnp.isnan(losses[3])) and int(jnp.isnan(losses).sum()) == 1
        grad = jax.grad(lambda x, b=bad: linear_cross_entropy(x, w, y.at[3].set(b)))(x)
        assert not grad[3].any() and bool(grad[0].any())


@pytest.mark.parametrize("shape", ((0,), (2, 0)))
def test_no_token(shape: tuple[int, ...], card: Any) -> None:
    x, w, y, _ = (jax.device_put(a, card) for a in arrays(shape, 8, 33))
    step = jax.jit(jax.grad(lambda x, w: linear_cross_entropy(x, w, y, reduction="sum"), (0, 1)))
    assert not step(x, w)[1].any()


def test_several_cards(card: Any) -> None:
    cards = jax.devices("cuda")
    if len(cards) < 2 or not hasattr(jax, "shard_map"):
        pytest.skip(f"{len(cards)} card")
    x, w, y, _ = arrays((32,), 64, 500, ignored=0.0)
    mesh, spec = jax.sharding.Mesh(cards[:2], ("data",)), jax.sharding.PartitionSpec

    def local(x: Any, w: Any, y: Any) -> Any:
        part = linear_cross_entropy(x, w, y, reduction="sum", normalizer=32)
        return jax.lax.psum(part, "data")

    specs = (spec("data"), spec(), spec("data"))
    mapped = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=spec())
    got = jax.jit(jax.value_and_grad(mapped, (0, 1)))(x, w, y)
    want = jax.value_and_grad(linear_cross_entropy, (0, 1))(x, w, y)
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert jnp.allclose(jax.device_get(ours), jax.device_get(theirs), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_linear_logprob(dtype: torch.dtype, card: Any) -> None:
    given = problem((150,), 64, 500, dtype)
    check_logprob(given, device=card, values=1e-4, temperature=0.7)
