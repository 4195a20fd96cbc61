# SPDX-License-Identifier: Apache-2.0
"""Tensors in, one call of the C ABI, tensors out: plan cache, workspace, stream, device.

Called by the operators of _ops.py, below autograd, with real tensors only. Knows no autograd and no
public name. Host time matters here: on a card a call costs the host more than the device needs to
start, so a plan and its argument struct are made once per problem and copied per call.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from .. import _abi
from ._route import route_for

LSE, LOGPROB, ENTROPY, Z_LOSS, COUNTS, ARGMAX = 1, 2, 4, 8, 16, 32
GRAD_HIDDEN, GRAD_WEIGHT, GRAD_BIAS = 1, 2, 4
# Rows of the tensor of per-token results, in this order.
_ROWS = ((LSE, "lse"), (LOGPROB, "logprob"), (ENTROPY, "entropy"))

DTYPES = {
    torch.float64: _abi.F64,
    torch.float32: _abi.F32,
    torch.bfloat16: _abi.BF16,
    torch.float16: _abi.F16,
    torch.int64: _abi.I64,
    torch.int32: _abi.I32,
}

_SIZE = ctypes.sizeof(_abi.Args)
_Words = ctypes.c_uint64 * (_SIZE // 8)
_Numbers = ctypes.c_double * (_SIZE // 8)
# Every field is written by its number of 8-byte word: a fifth of the time of ctypes attributes.
WORD = {name: getattr(_abi.Args, name).offset // 8 for name, *_ in _abi.Args._fields_}
_HIDDEN, _WEIGHT, _TARGET = WORD["hidden"], WORD["weight"], WORD["target"]
_GRAD_HIDDEN, _GRAD_WEIGHT, _GRAD_BIAS = WORD["grad_hidden"], WORD["grad_weight"], WORD["grad_bias"]
_ROW_STRIDE, _STRIDE = _abi.Matrix.row_stride.offset // 8, _abi.Vector.stride.offset // 8
_OPTIONAL = tuple(
    WORD[name] for name in ("bias", "class_weight", "token_weight", "temperature", "normalizer")
)
_ROW_WORDS = tuple((bit, WORD[name]) for bit, name in _ROWS)
# A forward call is told that there will be an upstream gradient, and must not read it.
_UNREAD = ctypes.c_double()


class Options(NamedTuple):
    """What the operators take besides tensors; in the order of their schema."""

    reduction: int
    ignore_index: int
    label_smoothing: float
    z_loss: float
    softcap: float
    scale: float
    temperature: float
    normalizer: float | None
    shift: int
    method: int
    policy: int
    chunk: int
    budget: int
    outputs: int
    grads: int


class Inputs(NamedTuple):
    """Tensors as the C ABI takes them: rows of unit stride, vectors of any stride."""

    hidden: Tensor
    weight: Tensor
    target: Tensor
    optional: tuple[Tensor | None, ...]  # in the order of _OPTIONAL


Results = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]
Grads = tuple[Tensor | None, Tensor | None, Tensor | None]


class Prepared:
    """A plan and the arguments of its calls, lacking only addresses, strides and the normalizer."""

    __slots__ = ("plan", "plan_address", "saved_bytes", "template", "workspace_bytes")

    def __init__(self, args: _abi.Args, plan: _abi.PlanStruct) -> None:
        self.template = bytes(args)
        self.plan = plan
        self.plan_address = ctypes.addressof(plan)
        self.workspace_bytes = plan.workspace_bytes
        self.saved_bytes = plan.saved_bytes


def result_dtype(dtype: torch.dtype) -> torch.dtype:
    """Of the loss and of every other real result."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def allocate_results(hidden: Tensor, target: Tensor, reduction: int, outputs: int) -> Results:
    """loss, per-token results (k, *target.shape), z-loss part, integers; None what is not asked.

    integers: how many are correct and how many valid if COUNTS, then of each token the ARGMAX.

    Also for fake tensors: this is where the shapes of results are said.
    """
    real = result_dtype(hidden.dtype)
    shape = target.shape if reduction == 0 else ()
    rows = (outputs & LSE) + (outputs >> 1 & 1) + (outputs >> 2 & 1)
    integers = 2 * bool(outputs & COUNTS) + (target.numel() if outputs & ARGMAX else 0)
    new = hidden.new_empty
    return (
        new(shape, dtype=real),
        new((rows, *target.shape), dtype=real) if rows else None,
        new(shape, dtype=real) if outputs & Z_LOSS else None,
        new(integers, dtype=torch.int64) if outputs & (COUNTS | ARGMAX) else None,
    )


def allocate_grads(hidden: Tensor, weight: Tensor, bias: Tensor | None, grads: int) -> Grads:
    """Gradients of hidden, weight and bias; None what nobody asked for."""
    new = hidden.new_empty
    return (
        new(hidden.shape) if grads & GRAD_HIDDEN else None,
        new(weight.shape) if grads & GRAD_WEIGHT else None,
        new(bias.shape, dtype=bias.dtype) if bias is not None and grads & GRAD_BIAS else None,
    )


def inputs_of(
    hidden: Tensor, weight: Tensor, target: Tensor, optional: tuple[Tensor | None, ...]
) -> Inputs:
    """Copies only what the ABI cannot read: hidden rows without a common stride, inner strides."""
    if hidden.dim() != 2:
        hidden = hidden.reshape(-1, hidden.shape[-1])
    if hidden.stride(1) != 1:
        hidden = hidden.contiguous()
    if weight.stride(1) != 1:
        weight = weight.contiguous()
    vectors = tuple(v if v is None or v.dim() == 1 else v.reshape(-1) for v in (target, *optional))
    return Inputs(hidden, weight, vectors[0], vectors[1:])  # type: ignore[arg-type]


def place_normalizer(
    normalizer: Tensor | None, device: torch.device
) -> tuple[Tensor | None, float | None]:
    """As a tensor on the problem's device or as a number, without waiting for a card: what lies on
    the host is read there, what lies on another card comes over on the stream."""
    if normalizer is None or normalizer.device == device:
        return normalizer, None
    if normalizer.is_cpu:
        # Of a fake tensor only that there is a number matters, for the plan.
        return None, 1.0 if isinstance(normalizer, FakeTensor) else float(normalizer)
    return normalizer.to(device, non_blocking=True), None


# PyTorch 2.9 gave the setting this name; it says as well what the old ones have set.
_HAS_PRECISION = hasattr(torch.backends.cuda.matmul, "fp32_precision")


def _tf32(hidden: Tensor) -> bool:
    """Whether torch would round the operands of a float32 product: a setting of its own."""
    if hidden.dtype != torch.float32 or not hidden.is_cuda:
        return False
    if _HAS_PRECISION:
        return torch.backends.cuda.matmul.fp32_precision == "tf32"
    return bool(torch.backends.cuda.matmul.allow_tf32)


_plans: dict[tuple[Any, ...], Prepared] = {}
_MAX_PLANS = 4096


def prepare(
    inputs: Inputs,
    options: Options,
    sequence_length: int,
    *,
    split: bool = False,
    into: Tensor | None = None,
    entropy_grad: bool = False,
) -> Prepared:
    """The plan of this problem. `split`: in a forward and a backward call; `into`: the buffer that
    the weight's gradient is added to. On a card: of the current device."""
    hidden, weight = inputs.hidden, inputs.weight
    into_dtype, route = None if into is None else into.dtype, route_for(hidden, weight, into)
    # The normalizer's value changes with every batch and the plan does not depend on it.
    key = (
        hidden.shape,
        weight.shape,
        sequence_length,
        hidden.dtype,
        hidden.device,
        inputs.target.dtype,
        *[None if v is None else v.dtype for v in inputs.optional],
        options.normalizer is None,
        *options[:7],
        *options[8:],
        split,
        into_dtype,
        entropy_grad,
        _tf32(hidden),
        route,
    )
    prepared = _plans.get(key)
    if prepared is None:
        prepared = _prepare(
            inputs, options, sequence_length, split, into_dtype, entropy_grad, route
        )
        if len(_plans) >= _MAX_PLANS:
            _plans.clear()
        _plans[key] = prepared
    return prepared


def _prepare(
    inputs: Inputs,
    options: Options,
    sequence_length: int,
    split: bool,
    into: torch.dtype | None,
    entropy_grad: bool,
    route: int,
) -> Prepared:
    lib = _abi.library()
    args = _abi.new_args(lib)
    hidden, weight = inputs.hidden, inputs.weight
    (n, h), v = hidden.shape, weight.shape[0]
    dtype, real = DTYPES[hidden.dtype], DTYPES[result_dtype(hidden.dtype)]
    args.hidden = _abi.Matrix(None, n, h, h, 1, dtype, 0)
    args.weight = _abi.Matrix(None, *weight.shape, weight.shape[1], 1, DTYPES[weight.dtype], 0)
    args.target = _abi.Vector(None, len(inputs.target), 1, DTYPES[inputs.target.dtype], 0)
    names = ("bias", "class_weight", "token_weight", "temperature", "normalizer")
    for name, vector in zip(names, inputs.optional, strict=True):
        if vector is not None:
            setattr(args, name, _abi.Vector(None, len(vector), 1, DTYPES[vector.dtype], 0))
    per_token = _abi.Vector(None, n, 1, real, 0)
    one = _abi.Vector(None, 1, 1, real, 0)
    args.loss = per_token if options.reduction == 0 else one
    for bit, name in _ROWS:
        if options.outputs & bit:
            setattr(args, name, per_token)
    if options.outputs & Z_LOSS:
        args.z_loss = args.loss
    if options.outputs & COUNTS:
        args.num_correct = args.num_valid = _abi.Vector(None, 1, 1, _abi.I64, 0)
    if options.outputs & ARGMAX:
        args.argmax = _abi.Vector(None, n, 1, _abi.I64, 0)
    if options.grads & GRAD_HIDDEN:
        args.grad_hidden = args.hidden
    if options.grads & GRAD_WEIGHT:
        args.grad_weight = args.weight
        if into is not None:
            args.grad_weight.dtype, args.accumulate_grad_weight = DTYPES[into], 1
    if options.grads & GRAD_BIAS:
        args.grad_bias = _abi.Vector(None, v, 1, args.bias.dtype, 0)
    if split:
        args.pass_ = _abi.PASS_FORWARD_BACKWARD
        args.grad_output = _abi.Vector(ctypes.addressof(_UNREAD), args.loss.size, 0, real, 0)
        if entropy_grad:
            args.grad_entropy = _abi.Vector(ctypes.addressof(_UNREAD), n, 0, real, 0)
    _set_options(args, options, sequence_length)
    args.device = _abi.DEVICES.get(hidden.device.type, 0)  # sizes alone (meta): as on the CPU
    request = _abi.new_request(lib)
    request.method, request.policy = options.method, options.policy
    request.chunk, request.budget_bytes = options.chunk, options.budget
    request.route, request.allow_tf32 = route, int(_tf32(hidden))
    return Prepared(args, _abi.make_plan(lib, args, request))


def _set_options(args: _abi.Args, options: Options, sequence_length: int) -> None:
    args.reduction, args.ignore_index = options.reduction, options.ignore_index
    args.label_smoothing, args.z_loss_weight = options.label_smoothing, options.z_loss
    args.softcap, args.scale = options.softcap, options.scale
    args.temperature_value, args.shift = options.temperature, options.shift
    args.sequence_length = sequence_length
    if options.normalizer is not None:
        args.has_normalizer_value, args.normalizer_value = 1, options.normalizer


def bound_words(prepared: Prepared, inputs: Inputs, options: Options) -> Any:
    """The arguments of one call as words, with its inputs."""
    words = _Words.from_buffer_copy(prepared.template)
    hidden, weight, target = inputs.hidden, inputs.weight, inputs.target
    words[_HIDDEN], words[_HIDDEN + _ROW_STRIDE] = hidden.data_ptr(), hidden.stride(0)
    words[_WEIGHT], words[_WEIGHT + _ROW_STRIDE] = weight.data_ptr(), weight.stride(0)
    words[_TARGET], words[_TARGET + _STRIDE] = target.data_ptr(), target.stride(0)
    for word, vector in zip(_OPTIONAL, inputs.optional, strict=True):
        if vector is not None:
            words[word], words[word + _STRIDE] = vector.data_ptr(), vector.stride(0)
    if options.normalizer is not None:
        _Numbers.from_buffer(words)[WORD["normalizer_value"]] = options.normalizer
    return words


def bind_results(words: Any, outputs: int, results: Results) -> None:
    """The memory of allocate_results."""
    loss, rows, z_loss, integers = results
    words[WORD["loss"]] = loss.data_ptr()
    if rows is not None:
        address, step = rows.data_ptr(), rows.stride(0) * rows.element_size()
        for bit, word in _ROW_WORDS:
            if outputs & bit:
                words[word] = address
                address += step
    if z_loss is not None:
        words[WORD["z_loss"]] = z_loss.data_ptr()
    if integers is not None:
        address = integers.data_ptr()
        if outputs & COUNTS:
            words[WORD["num_correct"]], words[WORD["num_valid"]] = address, address + 8
            address += 16
        if outputs & ARGMAX:
            words[WORD["argmax"]] = address


def bind_grads(words: Any, grads: Grads) -> None:
    """The memory of allocate_grads; that of the weight may be a buffer of any row stride."""
    hidden, weight, bias = grads
    if hidden is not None:
        words[_GRAD_HIDDEN] = hidden.data_ptr()
    if weight is not None:
        words[_GRAD_WEIGHT] = weight.data_ptr()
        words[_GRAD_WEIGHT + _ROW_STRIDE] = weight.stride(0)
    if bias is not None:
        words[_GRAD_BIAS] = bias.data_ptr()


def bind_upstream(words: Any, name: str, upstream: Tensor) -> None:
    """A vector of upstream gradients; one element is repeated."""
    word = WORD[name]
    words[word] = upstream.data_ptr()
    words[word + _STRIDE] = upstream.stride(0) if upstream.dim() else 0


def stream_of(device: torch.device) -> int:
    """The cudaStream_t of torch's current stream there."""
    return int(torch._C._cuda_getCurrentRawStream(device.index))


def on_device(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """The guard that the C ABI's "current device" needs; nothing where it is current already."""
    if device.type != "cuda" or torch.cuda.current_device() == device.index:
        return contextlib.nullcontext()
    return torch.cuda.device(device)


def call(name: str, prepared: Prepared, words: Any, hidden: Tensor, saved: Tensor | None) -> None:
    """flce_run, flce_forward or flce_backward, with a workspace from torch's allocator.

    Give back at once: the allocator reuses it for what comes later on the same stream.
    """
    lib = _abi.library()
    device = hidden.device
    if device.type == "cuda":
        words[WORD["stream"]] = stream_of(device)
    size = prepared.workspace_bytes
    workspace = hidden.new_empty(size, dtype=torch.uint8)
    arguments = (ctypes.addressof(words), prepared.plan_address, workspace.data_ptr(), size)
    function = getattr(lib.functions, name)
    if saved is None:
        status = function(*arguments)
    else:
        status = function(*arguments, saved.data_ptr(), prepared.saved_bytes)
    if status:
        lib.check(status)


def scale_in_place(
    upstream: Tensor, hidden: Tensor | None, weight: Tensor | None, bias: Tensor | None
) -> None:
    """grad *= upstream for each given gradient, on their device and its current stream; without a
    pass over the memory, and without the host knowing, where upstream is 1."""
    lib = _abi.library()
    device = upstream.device
    views = [_abi.Vector(upstream.data_ptr(), 1, 1, DTYPES[upstream.dtype], 0)]
    addresses: list[int | None] = [ctypes.addressof(views[0])]
    for grad in (hidden, weight, bias):
        if grad is None or grad.numel() == 0:
            addresses.append(None)
            continue
        number, dtype = grad.data_ptr(), DTYPES[grad.dtype]
        if grad is bias:
            view: Any = _abi.Vector(number, grad.shape[0], grad.stride(0), dtype, 0)
        else:
            width = grad.shape[-1]
            view = _abi.Matrix(number, grad.numel() // width, width, width, 1, dtype, 0)
        views.append(view)
        addresses.append(ctypes.addressof(view))
    is_cuda = device.type == "cuda"
    with on_device(device):
        lib.check(
            lib.functions.flce_scale_grads_on(
                _abi.DEVICES[device.type], stream_of(device) if is_cuda else None, *addresses
            )
        )
