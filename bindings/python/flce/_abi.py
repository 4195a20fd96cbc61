# SPDX-License-Identifier: Apache-2.0
"""The C ABI of libflce (include/flce/flce.h): structs, constants, and calls that raise.

Everything in this package goes through here. This module must not know what torch or numpy are:
memory comes as addresses.
"""

from __future__ import annotations

import ctypes
import operator
import os
import threading
from ctypes import c_char_p, c_double, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, ClassVar

NONE, F64, F32, BF16, F16, I64, I32 = range(7)
DTYPES = {"f64": F64, "f32": F32, "bf16": BF16, "f16": F16, "i64": I64, "i32": I32}
METHODS = {
    "auto": 0,
    "naive": 1,
    "chunked": 2,
    "fused": 3,
    "recompute": 4,
    "naive-eager": 5,
    "chunked-eager": 6,
}
REDUCTIONS = {"none": 0, "sum": 1, "mean": 2}
POLICIES = {"measured": 0, "liger": 1}
ROUTES = {"auto": 0, "portable": 1, "hopper": 2}
DEVICES = {"cpu": 0, "cuda": 1}
PASS_RUN, PASS_FORWARD_BACKWARD = 0, 1


class Matrix(ctypes.Structure):
    """flce_matrix."""

    _fields_ = [
        ("data", c_void_p),
        ("rows", c_int64),
        ("cols", c_int64),
        ("row_stride", c_int64),
        ("col_stride", c_int64),
        ("dtype", c_int32),
        ("reserved", c_int32),
    ]


class Vector(ctypes.Structure):
    """flce_vector."""

    _fields_ = [
        ("data", c_void_p),
        ("size", c_int64),
        ("stride", c_int64),
        ("dtype", c_int32),
        ("reserved", c_int32),
    ]


_INPUT_VECTORS = (
    "target",
    "bias",
    "class_weight",
    "token_weight",
    "temperature",
    "normalizer",
    "grad_output",
    "grad_entropy",
)
_OUTPUT_VECTORS = (
    "loss",
    "lse",
    "logprob",
    "entropy",
    "z_loss",
    "argmax",
    "num_correct",
    "num_valid",
)


class Args(ctypes.Structure):
    """flce_args."""

    _fields_: ClassVar[Any] = (
        [("struct_size", c_uint64), ("abi_major", c_uint32), ("abi_minor", c_uint32)]
        + [(name, Matrix) for name in ("hidden", "weight")]
        + [(name, Vector) for name in _INPUT_VECTORS + _OUTPUT_VECTORS]
        + [(name, Matrix) for name in ("topk_logprob", "topk_index", "grad_hidden", "grad_weight")]
        + [("grad_bias", Vector), ("ignore_index", c_int64)]
        + [
            (name, c_double)
            for name in (
                "label_smoothing",
                "z_loss_weight",
                "softcap",
                "scale",
                "temperature_value",
                "normalizer_value",
            )
        ]
        + [("shift", c_int64), ("sequence_length", c_int64)]
        + [
            (name, c_int32)
            for name in (
                "reduction",
                "pass_",
                "has_normalizer_value",
                "accumulate_grad_weight",
                "accumulate_grad_bias",
                "device",
            )
        ]
        + [("stream", c_void_p), ("check_targets", c_int32), ("reserved2", c_int32)]
    )


class PlanRequest(ctypes.Structure):
    """flce_plan_request."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("budget_bytes", c_uint64),
        ("chunk", c_int64),
        ("method", c_int32),
        ("policy", c_int32),
        ("num_threads", c_int32),
        ("reserved", c_int32),
        ("route", c_int32),
        ("allow_tf32", c_int32),
    ]


class PlanStruct(ctypes.Structure):
    """flce_plan."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("workspace_bytes", c_uint64),
        ("saved_bytes", c_uint64),
        ("extra_bytes", c_uint64),
        ("input_bytes", c_uint64),
        ("output_bytes", c_uint64),
        ("peak_bytes", c_uint64),
        ("chunk", c_int64),
        ("num_chunks", c_int64),
        ("seconds", c_double),
        ("method", c_int32),
        ("gemms", c_int32),
        ("num_threads", c_int32),
        ("reserved", c_int32),
        ("route", c_int32),
        ("allow_tf32", c_int32),
        ("slab", c_int64),
    ]


class Error(Exception):
    """A failure that the library reports; `str()` says what was wrong and what would work."""


class InvalidArgument(Error, ValueError):
    """Arguments that make no sense together, or a shape, dtype or number that does not fit."""


class Unsupported(Error, NotImplementedError):
    """A combination that the device or the asked-for method cannot serve."""


class OutOfBudget(Error, RuntimeError):
    """No method fits into the budget that was given."""


class TargetOutOfRange(Error, IndexError):
    """A target that is neither in [0, V) nor ignore_index."""


class DeviceError(Error, RuntimeError):
    """A failure of the device or its libraries."""


class InternalError(Error, RuntimeError):
    """The library contradicts itself."""


class OutOfMemory(Error, MemoryError):
    """The library got no memory from the system."""


_ERRORS: dict[int, type[Error]] = {
    1: InvalidArgument,
    2: Unsupported,
    3: OutOfBudget,
    4: TargetOutOfRange,
    6: DeviceError,
    8: OutOfMemory,
}

# The newest function that is called here came with this minor version.
_ABI_MAJOR, _ABI_MINOR = 1, 4
_FILE = "libflce.so.0"
_HERE = Path(__file__).resolve().parent


def _candidates() -> list[Path]:
    """Where the library may be: FLCE_LIBRARY, the wheel's folder, the source tree's builds."""
    named = os.environ.get("FLCE_LIBRARY")
    if named:
        return [Path(named)]
    places = [_HERE / "lib" / _FILE]
    root = _HERE.parents[2]
    if (root / "include" / "flce" / "flce.h").is_file():
        places += [root / "build" / name / "lib" / _FILE for name in ("cuda", "release", "debug")]
    return places


def find_library() -> Path:
    """Where the library is; ImportError saying where it was looked for."""
    places = _candidates()
    for place in places:
        if place.is_file():
            return place
    raise ImportError(
        f"libflce was not found; looked at {', '.join(map(str, places))}. Install the package with "
        "'pip install .', build the tree with './dev build', or set FLCE_LIBRARY to the file"
    )


def find_program() -> Path | None:
    """The command line: it lies beside the library, in the wheel as in a build of the tree."""
    path = find_library().parents[1] / "bin" / "flce"
    return path if path.is_file() else None


def _declare(lib: ctypes.CDLL) -> None:
    """Result types; and argument types where an integer could be cut to 32 bits."""
    for name in ("flce_version", "flce_last_error", "flce_cuda_refusal"):
        getattr(lib, name).restype = c_char_p
    pointer, u64 = c_void_p, c_uint64
    for name, types in {
        "flce_args_init": [pointer, u64],
        "flce_plan_request_init": [pointer, u64],
        "flce_make_plan": [pointer, pointer, pointer],
        "flce_can_serve": [pointer, c_int32],
        "flce_run": [pointer, pointer, pointer, u64],
        "flce_forward": [pointer, pointer, pointer, u64, pointer, u64],
        "flce_backward": [pointer, pointer, pointer, u64, pointer, u64],
        "flce_scale_grads_on": [c_int32, pointer, pointer, pointer, pointer, pointer],
        "flce_parse_bytes": [c_char_p, pointer],
    }.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = c_int32, types


class Library:
    """libflce, loaded once per process; `functions` are its C functions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.functions: Any = ctypes.CDLL(str(path))
            _declare(self.functions)
        except (OSError, AttributeError) as error:
            raise ImportError(
                f"{path} cannot be used as libflce with C ABI {_ABI_MAJOR}.{_ABI_MINOR} or newer: "
                f"{error}. Install the package and the library from one version"
            ) from error
        args = new_args(self)
        if args.abi_major != _ABI_MAJOR:
            raise ImportError(
                f"{path} has C ABI {args.abi_major}.{args.abi_minor}; this package needs "
                f"{_ABI_MAJOR}.{_ABI_MINOR}. Install both from one version"
            )

    def check(self, status: int) -> None:
        """Raises what a status other than 0 means."""
        if status:
            raise _ERRORS.get(status, InternalError)(self.functions.flce_last_error().decode())


_lock = threading.Lock()
_library: Library | None = None


def library() -> Library:
    """The library; the first call looks for it, and raises ImportError saying where it looked."""
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                _library = Library(find_library())
    return _library


def new_args(lib: Library) -> Args:
    """flce_args with the library's defaults and no tensors."""
    args = Args()
    lib.check(lib.functions.flce_args_init(ctypes.byref(args), ctypes.sizeof(args)))
    return args


def new_request(lib: Library) -> PlanRequest:
    """flce_plan_request with the library's defaults."""
    request = PlanRequest()
    lib.check(lib.functions.flce_plan_request_init(ctypes.byref(request), ctypes.sizeof(request)))
    return request


def make_plan(lib: Library, args: Args, request: PlanRequest) -> PlanStruct:
    """Plans; raises what the planner says."""
    made = PlanStruct(struct_size=ctypes.sizeof(PlanStruct))
    lib.check(
        lib.functions.flce_make_plan(ctypes.byref(args), ctypes.byref(request), ctypes.byref(made))
    )
    return made


def parse_bytes(budget: int | str | None) -> int:
    """Bytes of a budget given as a number or as text such as "2GiB"; 0 for None (no budget)."""
    if budget is None:
        return 0
    if isinstance(budget, str):
        lib, value = library(), c_uint64()
        lib.check(lib.functions.flce_parse_bytes(budget.encode(), ctypes.byref(value)))
        parsed = value.value
    else:
        try:
            parsed = int(budget)
        except (ValueError, OverflowError):  # nan, inf
            parsed = 0
    if not 0 < parsed < 1 << 64:
        raise InvalidArgument(
            f"budget is {budget!r}; it must be a number of bytes from 1 to 2**64 - 1, or text such "
            "as '2GiB' (leave it out for none)"
        )
    return parsed


def integer(name: str, value: Any, bits: int = 64) -> int:
    """An int that fits: ctypes would cut a larger one without a word."""
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is a {type(value).__name__}; it must be an integer") from None
    limit = 1 << (bits - 1)
    if type(value) is int and not -limit <= value < limit:
        raise InvalidArgument(f"{name} is {value}; it must fit in {bits} bits")
    return value


def number(name: str, value: Any) -> float:
    """A plain number that a C double holds."""
    if not hasattr(value, "__float__"):
        raise TypeError(f"{name} is a {type(value).__name__}; it must be a number")
    try:
        as_double = float(value)
    except OverflowError:
        raise InvalidArgument(
            f"{name} is an integer that no double holds; it must be a number up to 1.8e308"
        ) from None
    return value if isinstance(value, (float, int)) else as_double


def choice(name: str, value: str, known: dict[str, int]) -> int:
    """The number of a word of an option; ValueError listing the known ones."""
    number = known.get(value)
    if number is None:
        raise InvalidArgument(f"{name} is {value!r}; known: {', '.join(map(repr, known))}")
    return number


def version() -> str:
    """The version of the library, "MAJOR.MINOR.PATCH"."""
    text: bytes = library().functions.flce_version()
    return text.decode()


def cuda_refusal() -> str:
    """Why CUDA cannot be used here, as a sentence; "" if it can."""
    text: bytes = library().functions.flce_cuda_refusal()
    return text.decode()
