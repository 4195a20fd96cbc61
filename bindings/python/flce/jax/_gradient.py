# SPDX-License-Identifier: Apache-2.0
"""How a call is differentiated: in reverse, once.

Gradients are made of what is differentiated alone, and of nothing outside a derivative. Those of a
scalar loss are made in the forward pass and multiplied by the upstream scalar in the backward pass,
by XLA, which drops a factor that is the constant 1 and joins another with what follows. Where an
upstream per token must come first they are made in the backward pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from .. import _abi
from . import _call
from ._call import Options, Tensors
from ._sharding import vary_alike

_TRAINED = ("hidden", "weight", "bias")
_CONSTANTS = ("class_weight", "token_weight", "temperature")
_SECOND_ORDER = (
    "flce has no second derivatives: what was differentiated here is the gradient of its loss. "
    "Compute the loss from the logits where you need them, or stop the gradient of what the first "
    "derivative is taken at (jax.lax.stop_gradient)"
)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _once(call: Callable[..., Any], *arrays: Any) -> Any:
    """call(*arrays), whose derivative is refused with a sentence."""
    return call(*arrays)


@_once.defjvp
def _refuse_twice(call: Callable[..., Any], primals: Any, tangents: Any) -> Any:
    raise _abi.Unsupported(_SECOND_ORDER)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def results(options: Options, tensors: Tensors) -> dict[str, Any]:
    """ "loss" and options.outputs, as the library makes them."""
    return _call.run(tensors, options)


def _is_split(options: Options, hidden: Any) -> bool:
    """Whether the gradients are made in the backward pass, when their upstream is known.

    An upstream per token needs that; it is the meaning of the methods other than fused; and it
    keeps float16 gradients in range, which a loss scale must multiply before they are rounded.
    """
    methods = _abi.METHODS
    if options.method == methods["auto"]:
        return options.reduction == _abi.REDUCTIONS["none"] or str(hidden.dtype) == "float16"
    return options.reduction == _abi.REDUCTIONS["none"] or options.method != methods["fused"]


def _later(options: Options) -> Options:
    """Of what the two calls are planned for."""
    if options.method == _abi.METHODS["auto"]:
        return options._replace(method=_abi.METHODS["recompute"])
    return options


def _refuse_constants(is_perturbed: Tensors) -> None:
    for name in _CONSTANTS:
        if getattr(is_perturbed, name):
            raise _abi.Unsupported(
                f"{name} is differentiated, and flce makes no gradient of it; pass "
                f"jax.lax.stop_gradient({name})"
            )


def _forward(options: Options, tensors: Tensors) -> tuple[dict[str, Any], dict[str, Any]]:
    values = jax.tree.map(lambda primal: primal.value, tensors)
    is_perturbed = jax.tree.map(lambda primal: primal.perturbed, tensors)
    _refuse_constants(is_perturbed)
    grads = tuple(name for name in _TRAINED if getattr(is_perturbed, name))
    kept: dict[str, Any] = {}
    if not grads:
        made = _once(lambda t: _call.run(t, options), values)
    elif _is_split(options, values.hidden):
        made = _once(lambda t: _call.forward(t, _later(options), grads), values)
        kept = {
            "saved": made.pop("saved"),
            "tensors": values,
            "grads": dict.fromkeys(grads, ()),
        }
    else:
        made = _once(lambda t: _call.run(t, options, grads), values)
        kept = {"made": {name: made.pop(f"grad_{name}") for name in grads}}
    if is_perturbed.normalizer:
        kept["divided"] = made["loss"], values.normalizer
    return made, kept


def _is_zero(cotangent: Any) -> bool:
    return isinstance(cotangent, SymbolicZero) or cotangent.dtype == jax.dtypes.float0


def _upstream(options: Options, cotangents: dict[str, Any]) -> dict[str, Any]:
    """What comes from above, by the names of the C ABI; nothing where all of it is zero."""
    names = {"loss": "grad_output"}
    if options.entropy_grad:
        names["entropy"] = "grad_entropy"
    for name, cotangent in cotangents.items():
        if name not in names and not _is_zero(cotangent):
            raise _abi.Unsupported(
                f"{name} is differentiated, and of the results only loss has a gradient; pass it "
                "through jax.lax.stop_gradient, or compute it from the logits"
            )
    if all(_is_zero(cotangents[name]) for name in names):
        return {}
    given = [cotangents[name] for name in names]
    given = [jnp.zeros(c.shape, c.dtype) if _is_zero(c) else c for c in given]
    return dict(zip(names.values(), vary_alike(given), strict=True))


def _scaled(grad: Any, upstream: Any) -> Any:
    return (grad.astype(upstream.dtype) * upstream).astype(grad.dtype)


def _backward(options: Options, kept: dict[str, Any], cotangents: dict[str, Any]) -> tuple[Tensors]:
    upstream = _upstream(options, cotangents)
    if not upstream:
        return (Tensors(None, None, None),)
    made = {}
    if "saved" in kept:
        grads = tuple(name for name in _TRAINED if name in kept["grads"])
        named = _once(
            lambda *arrays: _call.backward(arrays[0], _later(options), grads, *arrays[1:]),
            kept["tensors"],
            kept["saved"],
            upstream,
        )
        made = {name: named[f"grad_{name}"] for name in grads}
    elif "made" in kept:
        factor = upstream["grad_output"]
        made = {name: _scaled(grad, factor) for name, grad in kept["made"].items()}
    if "divided" in kept:
        loss, normalizer = kept["divided"]
        made["normalizer"] = _of_normalizer(loss, normalizer, upstream["grad_output"])
    return (Tensors(**{name: made.get(name) for name in Tensors._fields}),)


def _of_normalizer(loss: Any, normalizer: Any, upstream: Any) -> Any:
    """The gradient of what the loss, a sum, was divided by."""
    return (-upstream * loss / normalizer.astype(loss.dtype)).astype(normalizer.dtype)


results.defvjp(_forward, _backward, symbolic_zeros=True)
