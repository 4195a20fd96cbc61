# SPDX-License-Identifier: Apache-2.0
"""What flce.jax refuses, and the sentence that says what would work."""

from __future__ import annotations

import inspect
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import flce
from flce import _abi
from jax_support import arrays, jax, jnp, linear_cross_entropy

N, H, V = 6, 8, 33


@pytest.fixture
def xwy() -> tuple[Any, ...]:
    return tuple(arrays((N,), H, V, ignored=0.0)[:3])


def refused(error: type[Exception], text: str, *args: Any, **options: Any) -> None:
    with pytest.raises(error, match=text):
        linear_cross_entropy(*args, **options)
    with pytest.raises(error, match=text):
        jax.jit(lambda *a: linear_cross_entropy(*a, **options))(*args)


def test_shapes(xwy: tuple[Any, ...]) -> None:
    x, w, y = xwy
    invalid = flce.InvalidArgument
    refused(invalid, r"weight has shape \(8, 33\); .*kernel.T|hidden has shape", x, w.T, y)
    refused(invalid, r"weight has shape \(33,\); it must be \(V, H\)", x, w[:, 0], y)
    refused(invalid, r"weight has shape \(0, 8\)", x, w[:0], y)
    refused(invalid, r"hidden has shape \(6, 7\) and weight \(33, 8\)", x[:, 1:], w, y)
    refused(
        invalid, r"target has shape \(5,\) .* one target per row of hidden: \(6,\)", x, w, y[1:]
    )
    refused(invalid, r"bias has shape \(32,\)", x, w, y, bias=jnp.ones(V - 1))
    refused(invalid, r"class_weight has shape \(6,\)", x, w, y, class_weight=jnp.ones(N))
    refused(invalid, r"token_weight has shape \(33,\)", x, w, y, token_weight=jnp.ones(V))
    refused(invalid, r"temperature has shape \(5,\)", x, w, y, temperature=jnp.ones(5))
    refused(invalid, r"normalizer has shape \(2,\)", x, w, y, normalizer=jnp.ones(2))


def test_kinds_and_dtypes(xwy: tuple[Any, ...]) -> None:
    x, w, y = xwy
    half = w.astype("bfloat16")
    refused(TypeError, "weight has dtype bfloat16 and hidden float32; .*astype", x, half, y)
    refused(TypeError, "hidden has dtype int32", x.astype("int32"), w, y)
    refused(TypeError, "target has dtype float32: class probabilities", x, w, y.astype("float32"))
    for dtype in ("uint8", "int16", "uint32", "bool"):
        refused(TypeError, rf"target has dtype {dtype}; .*astype\('int32'\)", x, w, y.astype(dtype))
    bias = jnp.ones(V, "bfloat16")
    refused(TypeError, "bias has dtype bfloat16; .* must be float32", x, w, y, bias=bias)
    args, bias = (x.astype("bfloat16"), half, y), jnp.ones(V, "float16")
    refused(TypeError, "bias has dtype float16; .* be bfloat16 or float32", *args, bias=bias)
    refused(TypeError, "normalizer has dtype bool", x, w, y, normalizer=jnp.array(True))
    for args, text in (
        ((x.tolist(), w, y), "hidden is a list; it must be a jax.Array"),
        ((x, None, y), "weight is a NoneType"),
        ((x, w, 3), "target is a int"),
    ):
        with pytest.raises(TypeError, match=text):
            linear_cross_entropy(*args)
    with pytest.raises(TypeError, match="loss_dtype is .*int32"):
        linear_cross_entropy(x, w, y, loss_dtype=jnp.int32)


CONSTANTS = (
    *("ignore_index", "label_smoothing", "softcap", "scale", "z_loss", "shift", "chunk", "budget"),
    *("reduction", "method", "return_lse", "return_accuracy", "return_argmax"),
)


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_of_the_program_is_no_array(name: str, xwy: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=f"{name} is a traced array; .*static_argnames"):
        jax.jit(lambda value: linear_cross_entropy(*xwy, **{name: value}))(1)
    with pytest.raises(TypeError, match=f"{name} is a jax.Array; .*plain Python value"):
        linear_cross_entropy(*xwy, **{name: jnp.float32(1.0)})


@pytest.mark.parametrize(
    ("options", "error", "text"),
    (
        ({"reduction": "max"}, flce.InvalidArgument, "reduction is 'max'; known: 'none'"),
        ({"method": "magic"}, flce.InvalidArgument, "method is 'magic'; known: 'auto'"),
        ({"method": "naive-eager"}, flce.InvalidArgument, "method is 'naive-eager'"),
        ({"label_smoothing": 1.5}, flce.InvalidArgument, "label_smoothing is 1.5"),
        ({"softcap": -1.0}, flce.InvalidArgument, "softcap is -1"),
        ({"temperature": 0.0}, flce.InvalidArgument, "temperature is 0"),
        ({"scale": math.nan}, flce.InvalidArgument, "scale is "),
        ({"normalizer": math.nan}, flce.InvalidArgument, "normalizer is "),
        ({"normalizer": 3, "reduction": "none"}, flce.InvalidArgument, "normalizer is given with"),
        ({"shift": -1}, flce.InvalidArgument, "shift is -1"),
        ({"shift": 1.5}, TypeError, "shift is a float; it must be an integer"),
        ({"z_loss": "x"}, TypeError, "z_loss is a str; it must be a number"),
        ({"chunk": 0}, flce.InvalidArgument, "chunk is 0"),
        ({"budget": "2XB"}, flce.InvalidArgument, "unknown unit 'XB'"),
        ({"budget": "1KiB"}, flce.OutOfBudget, "the smallest budget that works is"),
    ),
    ids=str,
)
def test_numbers(
    options: dict[str, Any], error: type[Exception], text: str, xwy: tuple[Any, ...]
) -> None:
    refused(error, text, *xwy, **options)


def test_gradients_that_fused_cannot_make(xwy: tuple[Any, ...]) -> None:
    x, w, y = xwy

    def total(x: Any) -> Any:
        return linear_cross_entropy(x, w, y, reduction="none", method="fused").sum()

    with pytest.raises(flce.Unsupported, match="recompute takes it"):
        jax.grad(total)(x)
    assert jnp.isfinite(total(x))


@pytest.mark.parametrize("bad", (V, -1, 2**31 - 1))
def test_a_target_out_of_range_is_named(bad: int, xwy: tuple[Any, ...]) -> None:
    x, w, y = xwy
    wrong = y.at[3].set(bad)
    text = rf"target\[3\] is {bad}, outside the vocabulary \[0, {V}\)"
    step = jax.jit(linear_cross_entropy)
    for function in (linear_cross_entropy, step, step, jax.grad(linear_cross_entropy)):
        # JAX calls it so when a program runs first, and a ValueError later.
        with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match=text):
            jax.block_until_ready(function(x, w, wrong))
        assert jnp.isfinite(step(x, w, y))  # the next call is right


def test_every_argument_is_known_to_these_tests() -> None:
    """One that is added here must be added to what test_jax_values.py tries, and to the page."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "jax.md").read_text()
    for name in inspect.signature(linear_cross_entropy).parameters:
        assert f"`{name}`" in page, f"docs/jax.md does not name {name}"


def python(code: str, **environment: str) -> str:
    package = str(Path(flce.__file__).parents[1])
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": package, **environment},
    )
    return ran.stdout + ran.stderr


def test_without_jax_the_front_end_says_what_to_install() -> None:
    said = python("import sys; sys.modules['jax'] = None; import flce.jax")
    assert "flce.jax needs JAX 0.5 or newer" in said and "pip install jax" in said


def test_an_old_jax_is_refused() -> None:
    said = python("import jax; jax.__version__ = '0.4.38'; import flce.jax")
    assert "JAX 0.5 or newer, and 0.4.38 is installed" in said


def test_a_build_without_the_library_says_how_to_build_it(tmp_path: Path) -> None:
    alone = tmp_path / "libflce.so.0"
    shutil.copy(_abi.library().path, alone)
    said = python(
        "import jax.numpy as jnp, flce.jax\n"
        "flce.jax.linear_cross_entropy(jnp.ones((2, 2)), jnp.ones((3, 2)), jnp.array([0, 1]))",
        FLCE_LIBRARY=str(alone),
    )
    assert re.search(r"libflce_jax.so is not beside .*FLCE_XLA_FFI_DIR=", said), said
