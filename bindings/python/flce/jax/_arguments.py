# SPDX-License-Identifier: Apache-2.0
"""Judges the arguments of the public functions, and turns them into what _gradient.py takes.

What the library checks itself (ranges of numbers, methods, budgets) is not checked again: it says
so while the program is traced, when the plan is made. What JAX calls by another name is: shapes,
dtypes, and what has to be a constant of the program.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import _abi
from .._plan import check_chunk
from ._call import Options, Tensors
from ._sharding import vary_alike, whole

METHODS = {name: n for name, n in _abi.METHODS.items() if not name.endswith("-eager")}
_REALS = ("float32", "bfloat16", "float16", "float64")
_COUNTS = ("int32", "int64", "float32", "float64")


class Settings(NamedTuple):
    """Of a signature all but what is differentiated and the target, as it was given."""

    class_weight: Any = None
    token_weight: Any = None
    temperature: Any = 1.0
    normalizer: Any = None
    reduction: str = "mean"
    ignore_index: int | None = -100
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    softcap: float | None = None
    scale: float = 1.0
    shift: int = 0
    method: str = "auto"
    chunk: int | None = None
    budget: int | str | None = None
    outputs: tuple[str, ...] = ()
    entropy_grad: bool = False


def _invalid(text: str) -> _abi.InvalidArgument:
    return _abi.InvalidArgument(text)


def _is_array(value: Any) -> bool:
    return isinstance(value, (jax.Array, np.ndarray))


def _array(name: str, value: Any) -> Any:
    if not _is_array(value):
        raise TypeError(f"{name} is a {type(value).__name__}; it must be a jax.Array")
    return whole(jnp.asarray(value))


def constant(name: str, value: Any) -> Any:
    """Refuses an array where a number of Python is meant."""
    if isinstance(value, jax.Array):
        kind = "a traced array" if isinstance(value, jax.core.Tracer) else "a jax.Array"
        raise TypeError(
            f"{name} is {kind}; it is a constant of the program, so it must be a plain Python "
            "value (an argument of jax.jit is one where static_argnames names it)"
        )
    return value


def _number(name: str, value: Any) -> float:
    return float(_abi.number(name, constant(name, value)))


def _integer(name: str, value: Any) -> int:
    return _abi.integer(name, constant(name, value))


def _check_shapes(hidden: Any, weight: Any, target: Any, bias: Any) -> None:
    if weight.ndim != 2 or weight.shape[0] < 1 or weight.shape[1] < 1:
        raise _invalid(
            f"weight has shape {weight.shape}; it must be (V, H), V and H at least 1 (a kernel of "
            "shape (H, V), as flax.linen.Dense has it, is passed as kernel.T)"
        )
    if hidden.ndim < 1 or hidden.shape[-1] != weight.shape[1]:
        raise _invalid(
            f"hidden has shape {hidden.shape} and weight {weight.shape}; hidden must be (..., H) "
            "with the H of (V, H) (a kernel of shape (H, V) is passed as kernel.T)"
        )
    if target.shape != hidden.shape[:-1]:
        raise _invalid(
            f"target has shape {target.shape} and hidden {hidden.shape}; there must be one target "
            f"per row of hidden: {hidden.shape[:-1]}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise _invalid(f"bias has shape {bias.shape} and weight {weight.shape}; it must be (V,)")


def _check_dtypes(hidden: Any, weight: Any, target: Any) -> None:
    if hidden.dtype not in _REALS:
        raise TypeError(
            f"hidden has dtype {hidden.dtype}; float32, bfloat16, float16, float64 work"
        )
    if weight.dtype != hidden.dtype:
        raise TypeError(
            f"weight has dtype {weight.dtype} and hidden {hidden.dtype}; they must be equal: "
            "convert one of them with astype"
        )
    if jnp.issubdtype(target.dtype, jnp.inexact):
        raise TypeError(
            f"target has dtype {target.dtype}: class probabilities are not supported; pass class "
            "indices (int32 or int64)"
        )
    if target.dtype not in ("int32", "int64"):
        raise TypeError(
            f"target has dtype {target.dtype}; class indices are int32 or int64: "
            "target.astype('int32')"
        )


def _companion(name: str, array: Any, dtype: Any) -> Any:
    """An array that goes with hidden: of its dtype, or float32 beside 16 bits."""
    if array.dtype == dtype or (array.dtype == "float32" and dtype != "float64"):
        return array
    also = "" if dtype in ("float32", "float64") else " or float32"
    raise TypeError(f"{name} has dtype {array.dtype}; with {dtype} hidden it must be {dtype}{also}")


def _vector(name: str, value: Any, shape: tuple[int, ...], of: str, dtype: Any) -> Any:
    if value is None:
        return None
    array = _array(name, value)
    if array.shape != shape:
        raise _invalid(f"{name} has shape {array.shape}; it must be {of}, {shape}")
    return _companion(name, array, dtype).reshape(-1)


def _temperature(value: Any, target: Any, dtype: Any) -> tuple[Any, float]:
    """Array and number."""
    if not _is_array(value):
        return None, _number("temperature", value)
    array = _array("temperature", value)
    if array.size == 1 and array.ndim < 2:
        array = jnp.broadcast_to(array.reshape(()), target.shape)
    return _vector("temperature", array, target.shape, "a number or one per target", dtype), 1.0


def _normalizer(value: Any, reduction: int) -> tuple[Any, float | None, int]:
    """Array, number and reduction: a normalizer divides the sum, in place of mean's divisor."""
    if value is None:
        return None, None, reduction
    if reduction == _abi.REDUCTIONS["none"]:
        raise _invalid(
            "normalizer is given with reduction 'none', where there is no sum to divide; use 'sum' "
            "(or 'mean', whose divisor it takes the place of)"
        )
    total = _abi.REDUCTIONS["sum"]
    if not _is_array(value):
        return None, _number("normalizer", value), total
    array = _array("normalizer", value)
    if array.size != 1:
        raise _invalid(f"normalizer has shape {array.shape}; it must be one number")
    if array.dtype not in _COUNTS:
        raise TypeError(
            f"normalizer has dtype {array.dtype}; int32, int64, float32 and float64 count tokens"
        )
    return array.reshape(()), None, total


def judge(hidden: Any, weight: Any, target: Any, bias: Any, s: Settings) -> tuple[Tensors, Options]:
    """Everything that is wrong with a call, as an exception; else what to call with."""
    hidden, weight = _array("hidden", hidden), _array("weight", weight)
    target, bias = _array("target", target), None if bias is None else _array("bias", bias)
    _check_shapes(hidden, weight, target, bias)
    _check_dtypes(hidden, weight, target)
    dtype, shape, vocab = hidden.dtype, target.shape, weight.shape[:1]
    temperature, temperature_value = _temperature(s.temperature, target, dtype)
    reduction = _abi.choice("reduction", constant("reduction", s.reduction), _abi.REDUCTIONS)
    normalizer, normalizer_value, reduction = _normalizer(s.normalizer, reduction)
    tensors = Tensors(
        hidden.reshape(math.prod(shape), hidden.shape[-1]),
        weight,
        target.reshape(-1),
        None if bias is None else _companion("bias", bias, dtype),
        _vector("class_weight", s.class_weight, vocab, "one per class", dtype),
        _vector("token_weight", s.token_weight, shape, "one per target", dtype),
        temperature,
        normalizer,
    )
    shift = _integer("shift", s.shift)
    options = Options(
        reduction,
        -100 if s.ignore_index is None else _integer("ignore_index", s.ignore_index),
        _number("label_smoothing", s.label_smoothing),
        _number("z_loss", s.z_loss),
        0.0 if s.softcap is None else _number("softcap", s.softcap),
        _number("scale", s.scale),
        temperature_value,
        normalizer_value,
        shift,
        shape[-1] if shift and len(shape) > 1 else 0,
        _abi.choice("method", constant("method", s.method), METHODS),
        check_chunk(constant("chunk", s.chunk)),
        _abi.parse_bytes(constant("budget", s.budget)),
        s.outputs,
        s.entropy_grad,
    )
    return Tensors(*vary_alike(list(tensors))), options
