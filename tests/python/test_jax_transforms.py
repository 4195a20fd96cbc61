# SPDX-License-Identifier: Apache-2.0
"""flce.jax under the transformations of JAX, on several devices and threads (cases 107 and 108)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import flce
from jax_support import _call, array, arrays, jax, jnp, linear_cross_entropy

N, H, V = 16, 8, 33
P, NamedSharding = jax.sharding.PartitionSpec, jax.sharding.NamedSharding
Loss = Callable[..., Any]


def logits_loss(x: Any, w: Any, bias: Any, y: Any) -> Any:
    """What everything here is compared with: float32 with the logits."""
    log_p = jax.nn.log_softmax(x @ w.T + bias)
    valid = y != -100
    picked = jnp.take_along_axis(log_p, jnp.where(valid, y, 0)[..., None], -1)[..., 0]
    return -jnp.where(valid, picked, 0.0).sum() / valid.sum()


def loss(x: Any, w: Any, bias: Any, y: Any) -> Any:
    return linear_cross_entropy(x, w, y, bias=bias)


def loss_of_parts(x: Any, w: Any, bias: Any, y: Any) -> Any:
    """By reduction "none", whose gradients are made in the backward pass."""
    return linear_cross_entropy(x, w, y, bias=bias, reduction="none").sum() / (y != -100).sum()


@pytest.fixture
def leaves() -> tuple[Any, ...]:
    x, w, y, bias = arrays((N,), H, V)
    return x, w, bias, y


def assert_alike(got: Any, want: Any) -> None:
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("function", (loss, loss_of_parts))
def test_c107_every_way_of_tracing(function: Loss, leaves: tuple[Any, ...]) -> None:
    want = jax.value_and_grad(logits_loss, (0, 1, 2))(*leaves)
    for wrapped in (
        jax.value_and_grad(function, (0, 1, 2)),
        jax.jit(jax.value_and_grad(function, (0, 1, 2))),
        jax.value_and_grad(jax.jit(function), (0, 1, 2)),
        jax.value_and_grad(jax.checkpoint(function), (0, 1, 2)),
        jax.jit(jax.value_and_grad(jax.checkpoint(jax.jit(function)), (0, 1, 2))),
    ):
        assert_alike(wrapped(*leaves), want)
    assert_alike(jax.grad(function)(*leaves), want[1][0])
    shapes = jax.eval_shape(jax.value_and_grad(function, (0, 1, 2)), *leaves)
    assert jax.tree.map(lambda a: (a.shape, a.dtype), shapes) == jax.tree.map(
        lambda a: (a.shape, a.dtype), want
    )
    assert "ffi_call" in str(jax.make_jaxpr(jax.grad(function))(*leaves))
    value, pull = jax.vjp(function, *leaves)
    assert_alike(value, want[0])
    for upstream in (1.0, -3.0):  # a second backward pass is right, too
        assert_alike(pull(jnp.float32(upstream))[:3], [upstream * g for g in want[1]])
    _, tangent = jax.linearize(function, *leaves)
    del tangent


def test_c107_targets_have_a_cotangent_of_no_kind(leaves: tuple[Any, ...]) -> None:
    got = jax.grad(loss, (0, 3), allow_int=True)(*leaves)
    assert got[1].dtype == jax.dtypes.float0 and got[1].shape == leaves[3].shape


def test_c107_num_items_has_its_derivative(leaves: tuple[Any, ...]) -> None:
    x, w, _, y = leaves

    def mean(x: Any, n: Any) -> Any:
        return linear_cross_entropy(x, w, y, normalizer=n)

    whole = mean(x, jnp.float32(1.0))
    for n in (jnp.float32(7.0), jnp.array([7.0])):
        got = jax.jit(jax.grad(mean, (0, 1)))(x, n)
        assert_alike(got[1], jnp.broadcast_to(-whole / 49.0, n.shape))
        assert_alike(got[0], jax.grad(mean)(x, jnp.int32(7)))
        assert_alike(jax.grad(mean, 1)(x, n), got[1])  # of nothing else
    got = jax.grad(mean, (0, 1), allow_int=True)(x, jnp.int32(7))
    assert got[1].dtype == jax.dtypes.float0


def test_only_what_is_differentiated_is_made(leaves: tuple[Any, ...]) -> None:
    def results_of(which: Any) -> set[str]:
        text = str(jax.make_jaxpr(jax.grad(loss, which))(*leaves))
        return {name for name in ("grad_hidden", "grad_weight", "grad_bias") if name in text}

    assert "grad_" not in str(jax.make_jaxpr(loss)(*leaves))
    assert results_of(0) == {"grad_hidden"}
    assert results_of(1) == {"grad_weight"}
    assert results_of((0, 1, 2)) == {"grad_hidden", "grad_weight", "grad_bias"}


def test_a_loop_over_parts(leaves: tuple[Any, ...]) -> None:
    """The loss of jax.lax.scan's steps, with further results."""

    def scanned(x: Any, w: Any, bias: Any, y: Any) -> Any:
        def step(total: Any, part: Any) -> Any:
            out = linear_cross_entropy(
                *(part[0], w, part[1]),
                bias=bias,
                reduction="sum",
                return_accuracy=True,
                return_lse=True,
            )
            return total + out.loss, out._replace(lse=jax.lax.stop_gradient(out.lse))

        parts = x.reshape(4, N // 4, H), y.reshape(4, N // 4)
        total, outs = jax.lax.scan(step, jnp.float32(0.0), parts)
        return total / outs.num_valid.sum()

    want = jax.value_and_grad(logits_loss, (0, 1, 2))(*leaves)
    assert_alike(jax.jit(jax.value_and_grad(scanned, (0, 1, 2)))(*leaves), want)


@pytest.mark.parametrize("function", (loss, loss_of_parts))
def test_vmap(function: Loss, leaves: tuple[Any, ...]) -> None:
    x, w, bias, y = leaves
    y = jnp.where(y < 0, 1, y)
    parts = x.reshape(4, N // 4, H), y.reshape(4, N // 4)
    got = jax.vmap(function, (0, None, None, 0))(parts[0], w, bias, parts[1])
    assert_alike(got, jnp.stack([function(a, w, bias, b) for a, b in zip(*parts, strict=True)]))
    per_part = jax.vmap(jax.grad(function, (0, 1)), (0, None, None, 0))
    grad_x, grad_w = jax.jit(per_part)(parts[0], w, bias, parts[1])
    want = jax.grad(logits_loss, (0, 1))(x, w, bias, y)
    assert_alike(grad_x.reshape(N, H) / 4, want[0])
    assert_alike(grad_w.sum(0) / 4, want[1])

    def mean(x: Any, w: Any) -> Any:
        return jax.vmap(function, (0, None, None, 0))(x, w, bias, parts[1]).mean()

    assert_alike(jax.grad(mean, 1)(parts[0], w), want[1])


def test_donated_buffers(leaves: tuple[Any, ...]) -> None:
    want = jax.grad(logits_loss, (0, 1, 2))(*leaves)
    for function in (loss, loss_of_parts):
        step = jax.jit(jax.grad(function, (0, 1, 2)), donate_argnums=(0, 1, 2))
        assert_alike(step(*[leaf + 0 for leaf in leaves[:3]], leaves[3]), want)


def test_transposed_operands_come_in_rows(leaves: tuple[Any, ...]) -> None:
    x, w, bias, y = leaves
    got = jax.jit(lambda xt, wt: jax.grad(loss, (0, 1))(xt.T, wt.T, bias, y))(
        jnp.asarray(x.T), jnp.asarray(w.T)
    )
    assert_alike(got, jax.grad(logits_loss, (0, 1))(*leaves))


def test_two_threads_at_once() -> None:
    def task(seed: int) -> list[Any]:
        key = jax.random.split(jax.random.key(seed), 3)
        x, w = jax.random.normal(key[0], (40 + seed, H)), jax.random.normal(key[1], (V, H))
        y = jax.random.randint(key[2], (40 + seed,), 0, V)
        step = jax.jit(jax.value_and_grad(lambda x, w: linear_cross_entropy(x, w, y), (0, 1)))
        return [jax.tree.leaves(step(x, w)) for _ in range(10)]

    alone = [task(seed) for seed in range(4)]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(task, range(4)))
    for ours, theirs in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        assert jnp.array_equal(ours, theirs)


def test_the_device_is_chosen_when_a_program_is_lowered(
    leaves: tuple[Any, ...], monkeypatch: Any
) -> None:
    """As on a machine with a card: both plans are traced, one of them is compiled."""
    if len(_call._devices()) > 1:
        pytest.skip("there is a card")
    want = jax.value_and_grad(loss, (0, 1, 2))(*leaves)
    monkeypatch.setattr(_call, "_devices", lambda: ("cpu", "cuda"))
    for function in (loss, loss_of_parts):
        step = jax.value_and_grad(function, (0, 1, 2))
        assert_alike(step(*leaves), want)
        assert_alike(jax.jit(step)(*leaves), want)
    assert jax.jit(loss).lower(*leaves).compile().as_text().count("custom-call(") == 1
    batched = jax.vmap(loss, (0, None, None, 0))(leaves[0][None], *leaves[1:3], leaves[3][None])
    assert_alike(batched[0], want[0])


def test_a_program_for_a_card_that_the_library_cannot_use_says_why(
    leaves: tuple[Any, ...], monkeypatch: Any
) -> None:
    if not flce.cuda_refusal():
        pytest.skip("the library can use the card")
    plan_for = _call._plan_for
    monkeypatch.setattr(_call, "_plan_for", lambda problem, _: plan_for(problem, "cuda"))
    with pytest.raises((RuntimeError, ValueError), match=re.escape(flce.cuda_refusal())):
        loss(*leaves)


# Case 108. Two devices, as jax_support has asked for.


@pytest.fixture
def mesh() -> Any:
    if len(jax.devices("cpu")) < 2:
        pytest.skip("JAX was started with one device")
    return jax.sharding.Mesh(np.array(jax.devices("cpu")[:2]), ("data",))


def shard_map(function: Loss, **options: Any) -> Loss:
    if hasattr(jax, "shard_map"):
        return jax.shard_map(function, **options)
    from jax.experimental.shard_map import shard_map as experimental

    is_checked = options.pop("check_vma", False)  # until JAX 0.6 it knew no ffi_call
    assert "check_rep" in inspect.signature(experimental).parameters
    return experimental(function, check_rep=is_checked and False, **options)


def sharded(mesh: Any, **options: Any) -> Loss:
    """The loss of tokens that are split over the mesh, the head being on each device."""

    def local(x: Any, w: Any, bias: Any, y: Any, count: Any) -> Any:
        part = linear_cross_entropy(x, w, y, bias=bias, reduction="sum", normalizer=count)
        return jax.lax.psum(part, "data")

    specs = (P("data"), P(), P(), P("data"), P())
    mapped = shard_map(local, mesh=mesh, in_specs=specs, out_specs=P(), **options)
    return lambda x, w, bias, y: mapped(x, w, bias, y, (y != -100).sum())


@pytest.mark.parametrize("is_checked", (True, False))
def test_c108_shard_map_over_tokens(mesh: Any, leaves: tuple[Any, ...], is_checked: bool) -> None:
    want = jax.value_and_grad(loss, (0, 1, 2))(*leaves)
    step = jax.value_and_grad(sharded(mesh, check_vma=is_checked), (0, 1, 2))
    assert_alike(jax.jit(step)(*leaves), want)
    assert_alike(step(*leaves), want)


def test_c108_shard_map_of_losses_per_token(mesh: Any, leaves: tuple[Any, ...]) -> None:
    x, w, _, y = leaves

    def local(x: Any, w: Any, y: Any) -> Any:
        return linear_cross_entropy(x, w, y, reduction="none")

    mapped = shard_map(local, mesh=mesh, in_specs=(P("data"), P(), P("data")), out_specs=P("data"))
    upstream = array(torch.randn(N))
    got = jax.grad(lambda x, w: (mapped(x, w, y) * upstream).sum(), (0, 1))(x, w)
    assert_alike(got, jax.grad(lambda x, w: (local(x, w, y) * upstream).sum(), (0, 1))(x, w))


def test_c108_tokens_that_the_devices_do_not_divide(mesh: Any, leaves: tuple[Any, ...]) -> None:
    """shard_map asks for equal parts: ignored tokens fill the last one up."""
    x, w, bias, y = leaves
    x, y = x[: N - 1], y[: N - 1]
    want = jax.value_and_grad(loss, (0, 1, 2))(x, w, bias, y)

    def padded(x: Any, w: Any, bias: Any, y: Any) -> Any:
        filled = jnp.pad(x, ((0, 1), (0, 0))), jnp.pad(y, (0, 1), constant_values=-100)
        return sharded(mesh)(filled[0], w, bias, filled[1])

    assert_alike(jax.jit(jax.value_and_grad(padded, (0, 1, 2)))(x, w, bias, y), want)
    with pytest.raises(ValueError, match="divisible"):
        sharded(mesh)(x, w, bias, y)


@pytest.mark.parametrize("function", (loss, loss_of_parts))
def test_c108_jit_with_sharded_tokens_is_right(
    mesh: Any, leaves: tuple[Any, ...], function: Loss
) -> None:
    """XLA gathers the tokens for a call that it cannot split; docs/jax.md says so."""
    x, w, bias, y = leaves
    want = jax.value_and_grad(loss, (0, 1, 2))(*leaves)
    placed = [jax.device_put(a, NamedSharding(mesh, P("data"))) for a in (x, y)]
    step = jax.jit(jax.value_and_grad(function, (0, 1, 2)))
    assert_alike(step(placed[0], w, bias, placed[1]), want)
    assert "all-gather" in step.lower(placed[0], w, bias, placed[1]).compile().as_text()
    over_vocab = jax.device_put(w[: V - 1], NamedSharding(mesh, P("data")))
    y = jnp.where(y == V - 1, 0, y)
    got = jax.jit(loss)(x, over_vocab, bias[: V - 1], y)
    assert_alike(got, loss(x, w[: V - 1], bias[: V - 1], y))


@pytest.mark.skipif(
    not hasattr(jax.sharding, "AxisType") or not hasattr(jax.sharding, "reshard"),
    reason="this JAX has no explicit axes",
)
@pytest.mark.parametrize("spec", (P("data"), P(None, "data"), P(None, None, "data")), ids=str)
def test_c108_explicit_axes(mesh: Any, leaves: tuple[Any, ...], spec: Any) -> None:
    """Where arrays' types say how they are split, it is as with jit alone."""
    x, w, bias, y = leaves
    x, y = x.reshape(4, 4, H), y.reshape(4, 4)
    kinds = (jax.sharding.AxisType.Explicit,)
    explicit = jax.make_mesh((2,), ("data",), axis_types=kinds, devices=mesh.devices.flatten())
    of_targets = P(*tuple(spec)[:2])
    split = jax.device_put(x, NamedSharding(explicit, spec))
    targets = jax.device_put(y, NamedSharding(explicit, of_targets))
    for function in (loss, loss_of_parts):
        want = jax.value_and_grad(function, (0, 1, 2))(x, w, bias, y)
        got = jax.jit(jax.value_and_grad(function, (0, 1, 2)))(split, w, bias, targets)
        assert_alike(jax.device_get(got), jax.device_get(want))


def test_what_cannot_be_differentiated_says_so(leaves: tuple[Any, ...]) -> None:
    x, w, bias, y = leaves
    for name in ("token_weight", "temperature"):
        with pytest.raises(flce.Unsupported, match=rf"{name} is .*stop_gradient\({name}\)"):
            jax.grad(lambda m, n=name: linear_cross_entropy(x, w, y, **{n: m}))(jnp.ones(N))
    with pytest.raises(flce.Unsupported, match="class_weight is differentiated"):
        jax.grad(lambda m: linear_cross_entropy(x, w, y, class_weight=m))(jnp.ones(V))
    for name in ("lse", "logprob", "entropy", "z_loss"):

        def other(x: Any, name: str = name) -> Any:
            out = linear_cross_entropy(x, w, y, z_loss=0.1, **{f"return_{name}": True})
            return getattr(out, name).sum()

        with pytest.raises(flce.Unsupported, match=f"{name} is differentiated"):
            jax.grad(other)(x)
        assert not jax.grad(lambda x, f=other: jax.lax.stop_gradient(f(x)))(x).any()
    for twice in (jax.hessian, lambda f: jax.jacrev(jax.grad(f))):
        for function in (loss, loss_of_parts):
            with pytest.raises(flce.Unsupported, match="no second derivatives"):
                twice(lambda x, f=function: f(x, w, bias, y))(x)
    with pytest.raises(TypeError, match="jvp"):
        jax.jvp(lambda x: loss(x, w, bias, y), (x,), (x,))
