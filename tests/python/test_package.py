# SPDX-License-Identifier: Apache-2.0
"""The package without torch: imports, plan, budget texts, errors, and the C structs' layout."""

from __future__ import annotations

import ctypes
import dataclasses
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

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(flce.__file__).parent


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), **environment},
    )


def test_importing_the_package_imports_neither_torch_nor_numpy() -> None:
    ran = python(
        "import flce, sys; flce.plan(tokens=1, hidden=1, vocab=1);"
        "print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    assert ran.stdout == "[]\n", ran.stderr


def test_without_torch_the_front_end_says_what_to_install() -> None:
    ran = python("import sys; sys.modules['torch'] = None; import flce.torch")
    assert "flce.torch needs PyTorch 2.6 or newer" in ran.stderr
    assert "pip install torch" in ran.stderr


def test_an_old_torch_is_refused() -> None:
    ran = python("import torch; torch.__version__ = '2.5.1'; import flce.torch")
    assert "PyTorch 2.6 or newer, and 2.5.1 is installed" in ran.stderr


def test_a_library_that_is_not_there_is_named() -> None:
    ran = python("import flce; flce.plan(tokens=1, hidden=1, vocab=1)", FLCE_LIBRARY="/no/lib.so")
    assert "libflce was not found; looked at /no/lib.so" in ran.stderr


def test_another_library_is_refused() -> None:
    import torch

    other = next((Path(torch.__file__).parent / "lib").glob("libc10.so"))
    ran = python("import flce; flce.plan(tokens=1, hidden=1, vocab=1)", FLCE_LIBRARY=str(other))
    assert "cannot be used as libflce" in ran.stderr


def test_version_is_the_librarys() -> None:
    project = re.search(r"project\(flce VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert project is not None and flce.__version__ == project[1]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = flce.nothing


def test_plan_has_every_field_of_the_struct() -> None:
    fields = {f.name for f in dataclasses.fields(flce.Plan)}
    assert fields == {name for name, *_ in _abi.PlanStruct._fields_} - {"struct_size", "reserved"}
    plan = flce.plan(tokens=4096, hidden=1024, vocab=32000, dtype="bf16")
    assert plan.method == "fused" and plan.num_chunks == -(-4096 // plan.chunk)
    assert plan.gemms == 3 and plan.route == "auto" and not plan.allow_tf32
    assert plan.input_bytes == 2 * 1024 * (4096 + 32000) + 8 * 4096
    assert plan.output_bytes == 2 * 1024 * (4096 + 32000) + 4
    assert plan.extra_bytes == plan.workspace_bytes + plan.saved_bytes
    assert plan.peak_bytes == plan.input_bytes + plan.output_bytes + plan.extra_bytes


SIZES = {"tokens": 4096, "hidden": 1024, "vocab": 32000}


@pytest.mark.parametrize(
    ("options", "differs"),
    (
        ({"dtype": "f32"}, {"input_bytes": 4 * 1024 * (4096 + 32000) + 8 * 4096}),
        ({"method": "recompute"}, {"method": "recompute", "gemms": 4}),
        ({"chunk": 128}, {"chunk": 128, "num_chunks": 32}),
        ({"chunk": 128.0}, {"chunk": 128, "num_chunks": 32}),
        ({"budget": 60_000_000}, {}),
        ({"budget": "60MB"}, {}),
        ({"policy": "liger"}, {"chunk": 128}),
        ({"reduction": "none"}, {"output_bytes": 2 * 1024 * (4096 + 32000) + 4 * 4096}),
        ({"bias": True}, {"output_bytes": 2 * 1024 * (4096 + 32000) + 4 + 2 * 32000}),
        ({"grad_hidden": False}, {"gemms": 2}),
        ({"grad_weight": False}, {"gemms": 2}),
        ({"grad_weight_dtype": "f32"}, {"output_bytes": 1024 * (2 * 4096 + 4 * 32000) + 4}),
        ({"num_threads": 1}, {"num_threads": 1}),
    ),
    ids=str,
)
def test_every_option_changes_the_plan(options: Any, differs: dict[str, Any]) -> None:
    usual, plan = flce.plan(**SIZES), flce.plan(**SIZES, **options)
    assert plan != usual
    for name, value in differs.items():
        assert getattr(plan, name) == value, name
    if "budget" in options:
        assert plan.extra_bytes <= 60_000_000 < usual.extra_bytes


def test_softcap_with_smoothing_keeps_logits() -> None:
    """Each alone changes no memory; together they need logits in place of exponentials."""
    both = flce.plan(**SIZES, softcap=30.0, label_smoothing=0.1)
    assert both.extra_bytes > flce.plan(**SIZES, softcap=30.0).extra_bytes
    assert both.extra_bytes > flce.plan(**SIZES, label_smoothing=0.1).extra_bytes


@pytest.mark.parametrize(
    ("options", "error", "text"),
    (
        ({"dtype": "int3"}, flce.InvalidArgument, "dtype is 'int3'; known: 'f64', 'f32'"),
        ({"dtype": "i64"}, flce.InvalidArgument, "hidden has dtype i64"),
        ({"method": "magic"}, flce.InvalidArgument, "method is 'magic'; known: 'auto', 'naive'"),
        ({"reduction": "max"}, flce.InvalidArgument, "reduction is 'max'"),
        ({"policy": "x"}, flce.InvalidArgument, "policy is 'x'"),
        ({"route": "x"}, flce.InvalidArgument, "route is 'x'"),
        ({"route": "portable"}, flce.Unsupported, "route portable is for CUDA"),
        ({"route": "hopper"}, flce.Unsupported, "route hopper is for CUDA"),
        ({"device": "tpu"}, flce.InvalidArgument, "device is 'tpu'; known: 'cpu', 'cuda'"),
        ({"chunk": 0}, flce.InvalidArgument, "chunk is 0"),
        ({"chunk": 1.5}, flce.InvalidArgument, "chunk is 1.5"),
        ({"chunk": 2**64 + 2}, flce.InvalidArgument, "chunk is 18446744073709551618"),
        ({"chunk": math.inf}, flce.InvalidArgument, "chunk is inf; it must be a number of tokens"),
        ({"chunk": 2, "policy": "liger"}, flce.InvalidArgument, "chunk=2 and policy='liger'"),
        ({"budget": 0}, flce.InvalidArgument, "budget is 0"),
        ({"budget": math.nan}, flce.InvalidArgument, "budget is nan; it must be a number of bytes"),
        ({"budget": math.inf}, flce.InvalidArgument, "budget is inf"),
        ({"budget": 2**64}, flce.InvalidArgument, "budget is 18446744073709551616"),
        ({"budget": -1}, flce.InvalidArgument, "budget is -1"),
        ({"budget": "2XB"}, flce.InvalidArgument, "unknown unit 'XB'; write 2GiB"),
        ({"budget": "1KiB"}, flce.OutOfBudget, "budget"),
        ({"num_threads": -1}, flce.InvalidArgument, "num_threads is -1"),
        ({"num_threads": 2**32 + 1}, flce.InvalidArgument, "num_threads is 4294967297.*32 bits"),
        ({"allow_tf32": True}, flce.Unsupported, "tf32 is for f32 problems on CUDA"),
        ({"softcap": -1.0}, flce.InvalidArgument, "softcap is -1"),
        ({"softcap": 10**400}, flce.InvalidArgument, "softcap is an integer that no double holds"),
        ({"label_smoothing": 2.0}, flce.InvalidArgument, "label_smoothing is 2"),
        ({"tokens": -1}, flce.InvalidArgument, "tokens is -1; it must be 0 or more"),
        ({"tokens": 2**64 + 5}, flce.InvalidArgument, "tokens is 18446744073709551621.*64 bits"),
        ({"hidden": 2**63}, flce.InvalidArgument, "hidden is 9223372036854775808.*64 bits"),
        ({"hidden": 0}, flce.InvalidArgument, "hidden is 0; it must be 1 or more"),
        ({"vocab": 0}, flce.InvalidArgument, "vocab is 0; it must be 1 or more"),
        ({"vocab": -(2**64)}, flce.InvalidArgument, "vocab is -18446744073709551616"),
        (
            {"grad_weight": False, "grad_weight_dtype": "f32"},
            flce.InvalidArgument,
            "grad_weight is",
        ),
    ),
    ids=str,
)
def test_what_cannot_be_is_refused(options: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        flce.plan(**{**SIZES, **options})
    assert isinstance(caught.value, flce.Error)


def test_a_size_is_an_integer() -> None:
    with pytest.raises(TypeError, match="tokens is a float; it must be an integer"):
        flce.plan(tokens=4.0, hidden=8, vocab=9)  # type: ignore[arg-type]


def test_cuda_is_refused_with_the_librarys_sentence() -> None:
    if not flce.cuda_refusal():
        assert flce.plan(**SIZES, device="cuda").num_threads == 0
        return
    with pytest.raises(flce.Unsupported, match=re.escape(flce.cuda_refusal())):
        flce.plan(**SIZES, device="cuda")


@pytest.mark.parametrize("budget", ("2GiB", "500MB", "1.5GB", "123456"))
def test_budget_texts(budget: str) -> None:
    units = {"GiB": 2**30, "MB": 10**6, "GB": 10**9, "": 1}
    number, unit = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", budget).groups()  # type: ignore[union-attr]
    assert _abi.parse_bytes(budget) == int(float(number) * units[unit])


def test_errors_are_what_python_code_expects() -> None:
    for error, builtin in (
        (flce.InvalidArgument, ValueError),
        (flce.Unsupported, NotImplementedError),
        (flce.OutOfBudget, RuntimeError),
        (flce.TargetOutOfRange, IndexError),
        (flce.DeviceError, RuntimeError),
        (flce.InternalError, RuntimeError),
        (flce.OutOfMemory, MemoryError),
    ):
        assert issubclass(error, flce.Error) and issubclass(error, builtin)


STRUCTS = {
    "flce_matrix": _abi.Matrix,
    "flce_vector": _abi.Vector,
    "flce_args": _abi.Args,
    "flce_plan_request": _abi.PlanRequest,
    "flce_plan": _abi.PlanStruct,
}


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to ask for the layout")
def test_structs_lie_in_memory_as_the_header_says(tmp_path: Path) -> None:
    lines = []
    for name, struct in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field, *_ in struct._fields_:
            c_name = field.removesuffix("_")
            lines.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {c_name}));')
    source = '#include <stdio.h>\n#include "flce/flce.h"\nint main(void) {' + "\n".join(lines) + "}"
    (tmp_path / "layout.c").write_text(source)
    command = ["cc", "-I", str(ROOT / "include"), "layout.c", "-o", "layout"]
    subprocess.run(command, cwd=tmp_path, check=True)
    said = dict(
        line.split()
        for line in subprocess.check_output([tmp_path / "layout"], text=True).splitlines()
    )
    for name, struct in STRUCTS.items():
        assert int(said[name]) == ctypes.sizeof(struct)
        for field, *_ in struct._fields_:
            assert int(said[f"{name}.{field}"]) == getattr(struct, field).offset, f"{name}.{field}"


def test_constants_are_the_headers() -> None:
    header = (ROOT / "include" / "flce" / "flce.h").read_text()
    said = {name: int(value) for name, value in re.findall(r"FLCE_([A-Z0-9_]+) = (\d+)", header)}
    tables = {
        "": {**{k.replace("-", "_"): v for k, v in _abi.METHODS.items()}, **_abi.DTYPES},
        "REDUCTION_": _abi.REDUCTIONS,
        "POLICY_": _abi.POLICIES,
        "ROUTE_": _abi.ROUTES,
        "DEVICE_": _abi.DEVICES,
    }
    for prefix, table in tables.items():
        for name, value in table.items():
            assert said[prefix + name.upper()] == value, name
    assert said["PASS_FORWARD_BACKWARD"] == _abi.PASS_FORWARD_BACKWARD
    for status, error in _abi._ERRORS.items():
        (name,) = (n for n, value in said.items() if value == status and n == _snake(error))
        assert name


def _snake(error: type[Exception]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", error.__name__).upper()


def test_the_command_line_runs() -> None:
    if _abi.find_program() is None:
        pytest.skip("this build has no command line")
    ran = subprocess.run(
        [sys.executable, "-m", "flce", "info"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
    )
    assert ran.returncode == 0 and flce.__version__ in ran.stdout
    failed = subprocess.run(
        [sys.executable, "-m", "flce", "plan", "--tokens", "x"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
    )
    assert failed.returncode != 0 and "--tokens" in failed.stderr
