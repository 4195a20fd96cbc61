# SPDX-License-Identifier: Apache-2.0
"""Arrays in, one custom call of XLA, arrays out: plan, constants of the call, platform.

Called by _gradient.py while a program is traced; knows no derivative and no public name. A plan
depends on sizes, options and device alone, so it is made here, once, and is a constant of the
program; its workspace is one more result of the call, which nobody reads: XLA counts it among the
program's temporary memory and uses the same bytes for others before and after.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import _abi
from ._handlers import target
from ._sharding import varying_axes

DTYPES = {
    "float64": _abi.F64,
    "float32": _abi.F32,
    "bfloat16": _abi.BF16,
    "float16": _abi.F16,
    "int64": _abi.I64,
    "int32": _abi.I32,
}
# Results by what they have an element for.
PER_TOKEN = ("lse", "logprob", "entropy")
LIKE_LOSS = ("loss", "z_loss")
COUNTS = ("num_correct", "num_valid")
_TENSOR_CORES = ("tensorfloat32", "TF32_TF32_F32")  # what jax_default_matmul_precision calls tf32


class Tensors(NamedTuple):
    """The arrays of a call, named as in the C ABI. None: absent."""

    hidden: Any  # (N, H)
    weight: Any  # (V, H)
    target: Any  # (N,), as all without a comment
    bias: Any = None  # (V,)
    class_weight: Any = None  # (V,)
    token_weight: Any = None
    temperature: Any = None
    normalizer: Any = None  # one element


class Options(NamedTuple):
    """Everything else: constants of the program."""

    reduction: int
    ignore_index: int
    label_smoothing: float
    z_loss: float
    softcap: float
    scale: float
    temperature: float
    normalizer: float | None
    shift: int
    sequence_length: int
    method: int
    chunk: int
    budget: int
    outputs: tuple[str, ...]
    entropy_grad: bool = False  # whether the entropy, one of them, has a gradient too


class _Problem(NamedTuple):
    """What a plan depends on."""

    options: Options
    sizes: tuple[tuple[str, tuple[int, ...], str], ...]  # of each array: name, shape, dtype
    grads: tuple[str, ...]  # of what gradients are made: some of "hidden", "weight", "bias"
    is_split: bool  # in a forward and a backward call
    allow_tf32: bool


class _Planned(NamedTuple):
    args: np.ndarray  # flce_args without addresses
    plan: np.ndarray  # flce_plan
    workspace_bytes: int
    saved_bytes: int


def result_dtype(hidden: Any) -> str:
    """Of the loss and of every other real result."""
    return "float64" if hidden.dtype == "float64" else "float32"


def _words(struct: Any) -> np.ndarray:
    return np.frombuffer(bytes(struct), np.int64)


def _view(shape: tuple[int, ...], dtype: int) -> _abi.Matrix | _abi.Vector:
    if len(shape) == 2:
        return _abi.Matrix(None, *shape, shape[1], 1, dtype, 0)
    return _abi.Vector(None, shape[0] if shape else 1, 1, dtype, 0)


def _args_of(problem: _Problem, device: str) -> _abi.Args:
    args, options = _abi.new_args(_abi.library()), problem.options
    for name, shape, dtype in problem.sizes:
        setattr(args, name, _view(shape, DTYPES[dtype]))
        if name in problem.grads:
            setattr(args, f"grad_{name}", _view(shape, DTYPES[dtype]))
    tokens = args.hidden.rows
    real = _abi.F64 if args.hidden.dtype == _abi.F64 else _abi.F32
    args.loss = _abi.Vector(None, 1 if options.reduction else tokens, 1, real, 0)
    for name in options.outputs:
        if name in COUNTS:
            view = _abi.Vector(None, 1, 1, _abi.I64, 0)
        elif name == "argmax":
            view = _abi.Vector(None, tokens, 1, _abi.I64, 0)
        else:
            view = args.loss if name == "z_loss" else _abi.Vector(None, tokens, 1, real, 0)
        setattr(args, name, view)
    if problem.is_split:
        args.pass_, args.grad_output = _abi.PASS_FORWARD_BACKWARD, args.loss
        if options.entropy_grad:
            args.grad_entropy = args.entropy
    args.reduction, args.ignore_index = options.reduction, options.ignore_index
    args.label_smoothing, args.z_loss_weight = options.label_smoothing, options.z_loss
    args.softcap, args.scale = options.softcap, options.scale
    args.temperature_value = options.temperature
    args.shift, args.sequence_length = options.shift, options.sequence_length
    if options.normalizer is not None:
        args.has_normalizer_value, args.normalizer_value = 1, options.normalizer
    args.device = _abi.DEVICES[device]
    return args


@functools.lru_cache(maxsize=4096)
def _planned(problem: _Problem, device: str) -> _Planned:
    """The plan for a device; what the planner refuses is raised where the program is traced."""
    lib, args = _abi.library(), _args_of(problem, device)
    request = _abi.new_request(lib)
    request.method, request.chunk = problem.options.method, problem.options.chunk
    request.budget_bytes = problem.options.budget
    request.allow_tf32 = int(problem.allow_tf32 and device == "cuda")
    plan = _abi.make_plan(lib, args, request)
    return _Planned(_words(args), _words(plan), plan.workspace_bytes, plan.saved_bytes)


@functools.cache
def _devices() -> tuple[str, ...]:
    """For which this process may compile a program."""
    try:
        jax.devices("cuda")
    except RuntimeError:
        return ("cpu",)
    return ("cpu", "cuda")


def _plan_for(problem: _Problem, device: str) -> _Planned:
    """The plan, or, where the library has no card, one whose call fails and says why: whether the
    program is for the card is not known yet."""
    if device == "cuda" and _abi.cuda_refusal():
        planned = _planned(problem, "cpu")
        plan = _abi.PlanStruct.from_buffer_copy(planned.plan)
        plan.num_threads = 0
        return planned._replace(args=_words(_args_of(problem, "cuda")), plan=_words(plan))
    return _planned(problem, device)


def _problem_of(
    tensors: Tensors, options: Options, grads: tuple[str, ...], is_split: bool
) -> _Problem:
    sizes = tuple(
        (name, tuple(array.shape), str(array.dtype))
        for name, array in tensors._asdict().items()
        if array is not None
    )
    is_f32 = str(tensors.hidden.dtype) == "float32"
    precision = getattr(jax.config, "jax_default_matmul_precision", None)
    return _Problem(options, sizes, grads, is_split, is_f32 and precision in _TENSOR_CORES)


_Shape = tuple[tuple[int, ...], str]


def _shape_of(name: str, tensors: Tensors, options: Options) -> _Shape:
    """Shape and dtype of a result. 64-bit integers are pairs of 32 bits: JAX has them by choice."""
    tokens, real = tensors.hidden.shape[0], result_dtype(tensors.hidden)
    if name.startswith("grad_"):
        of = getattr(tensors, name.removeprefix("grad_"))
        return tuple(of.shape), str(of.dtype)
    if name in LIKE_LOSS:
        return () if options.reduction else (tokens,), real
    if name in COUNTS:
        return (2,), "int32"
    return ((tokens, 2), "int32") if name == "argmax" else ((tokens,), real)


def _structs(shapes: list[_Shape], like: Any) -> list[Any]:
    """Results as ffi_call wants them; inside shard_map as varying as `like` is."""
    if not varying_axes(like):
        return [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]
    return jax.eval_shape(
        lambda x: [jnp.broadcast_to(jnp.sum(x).astype(d), s) for s, d in shapes], like
    )


def _call(
    step: str, problem: _Problem, operands: dict[str, Any], results: dict[str, _Shape]
) -> dict[str, Any]:
    """One call by names, for whichever device the program will be compiled."""
    devices = {device: _plan_for(problem, device) for device in _devices()}
    saved_bytes = max(planned.saved_bytes for planned in devices.values())
    if step == "forward":
        results = {**results, "saved": ((saved_bytes,), "uint8")}

    def branch(planned: _Planned) -> Callable[..., list[Any]]:
        def on_device(*arrays: Any) -> list[Any]:
            shapes = [*results.values(), ((planned.workspace_bytes,), "uint8")]
            made = jax.ffi.ffi_call(
                target(step), _structs(shapes, arrays[0]), vmap_method="sequential"
            )(
                *arrays,
                args=planned.args,
                plan=planned.plan,
                operands=" ".join(operands),
                results=" ".join((*results, "workspace")),
            )
            return list(made[:-1])

        return on_device

    branches = {device: branch(planned) for device, planned in devices.items()}
    if len(branches) == 1:
        made = branches["cpu"](*operands.values())
    else:
        made = jax.lax.platform_dependent(*operands.values(), **branches)
    return dict(zip(results, made, strict=True))


def _operands(tensors: Tensors) -> dict[str, Any]:
    return {name: array for name, array in tensors._asdict().items() if array is not None}


def run(tensors: Tensors, options: Options, grads: tuple[str, ...] = ()) -> dict[str, Any]:
    """The results, and the gradients that are asked for, for an upstream gradient of 1."""
    names = ("loss", *options.outputs, *[f"grad_{name}" for name in grads])
    shapes = {name: _shape_of(name, tensors, options) for name in names}
    return _call("run", _problem_of(tensors, options, grads, False), _operands(tensors), shapes)


def forward(tensors: Tensors, options: Options, grads: tuple[str, ...]) -> dict[str, Any]:
    """The results, and "saved", with which `backward` makes the gradients of `grads`."""
    shapes = {name: _shape_of(name, tensors, options) for name in ("loss", *options.outputs)}
    return _call("forward", _problem_of(tensors, options, grads, True), _operands(tensors), shapes)


def backward(
    tensors: Tensors, options: Options, grads: tuple[str, ...], saved: Any, upstream: dict[str, Any]
) -> dict[str, Any]:
    """The gradients, for the upstream gradient of the loss and, if it has one, of the entropy."""
    shapes = {f"grad_{name}": _shape_of(f"grad_{name}", tensors, options) for name in grads}
    operands = {**_operands(tensors), **upstream, "saved": saved}
    return _call("backward", _problem_of(tensors, options, grads, True), operands, shapes)
