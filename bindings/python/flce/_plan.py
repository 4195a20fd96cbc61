# SPDX-License-Identifier: Apache-2.0
"""`flce.plan`: what a loss of given sizes would need, without torch and without any tensor."""

from __future__ import annotations

from dataclasses import dataclass

from . import _abi

_METHOD_NAMES = {number: name for name, number in _abi.METHODS.items()}
_ROUTE_NAMES = {number: name for name, number in _abi.ROUTES.items()}


@dataclass(frozen=True)
class Plan:
    """How a loss will be computed, and its memory to the byte.

    `extra_bytes` is workspace + what is saved between forward and backward; `peak_bytes` is inputs
    + outputs (loss, gradients) + extra. `seconds` is a roofline estimate, 0.0 where the device's
    figures are unknown; `num_threads` is 0 for CUDA; `slab` is how many vocabulary rows the
    backward pass of `recompute` handles at once (others: all).
    """

    method: str
    chunk: int
    num_chunks: int
    gemms: int
    workspace_bytes: int
    saved_bytes: int
    extra_bytes: int
    input_bytes: int
    output_bytes: int
    peak_bytes: int
    seconds: float
    num_threads: int
    route: str
    allow_tf32: bool
    slab: int


def plain(made: _abi.PlanStruct) -> Plan:
    """The dataclass of a flce_plan."""
    return Plan(
        method=_METHOD_NAMES[made.method],
        chunk=made.chunk,
        num_chunks=made.num_chunks,
        gemms=made.gemms,
        workspace_bytes=made.workspace_bytes,
        saved_bytes=made.saved_bytes,
        extra_bytes=made.extra_bytes,
        input_bytes=made.input_bytes,
        output_bytes=made.output_bytes,
        peak_bytes=made.peak_bytes,
        seconds=made.seconds,
        num_threads=made.num_threads,
        route=_ROUTE_NAMES[made.route],
        allow_tf32=bool(made.allow_tf32),
        slab=made.slab,
    )


def _vector(size: int, dtype: int) -> _abi.Vector:
    return _abi.Vector(None, size, 1, dtype, 0)


def plan(
    *,
    tokens: int,
    hidden: int,
    vocab: int,
    dtype: str = "bf16",
    method: str = "auto",
    chunk: int | None = None,
    budget: int | str | None = None,
    device: str = "cpu",
    policy: str = "measured",
    reduction: str = "mean",
    bias: bool = False,
    grad_hidden: bool = True,
    grad_weight: bool = True,
    grad_weight_dtype: str | None = None,
    softcap: float = 0.0,
    label_smoothing: float = 0.0,
    num_threads: int = 0,
    route: str = "auto",
    allow_tf32: bool = False,
) -> Plan:
    """Plans the loss of hidden (tokens, hidden) with a head (vocab, hidden).

    `dtype` is "f64", "f32", "bf16" or "f16"; `budget` bytes as a number or text ("2GiB") that
    `extra_bytes` must not exceed; `device` "cpu", or "cuda" for the current card; `route` how a
    card computes: "auto", "portable" or "hopper" (docs/devices.md). With `bias`, its gradient is
    planned too. Raises InvalidArgument, Unsupported or OutOfBudget (all `flce.Error`).
    """
    lib = _abi.library()
    tokens = _size("tokens", tokens, 0)
    hidden, vocab = _size("hidden", hidden, 1), _size("vocab", vocab, 1)
    number = _abi.choice("dtype", dtype, _abi.DTYPES)
    args = _abi.new_args(lib)
    args.hidden = _abi.Matrix(None, tokens, hidden, hidden, 1, number, 0)
    args.weight = _abi.Matrix(None, vocab, hidden, hidden, 1, number, 0)
    args.target = _vector(tokens, _abi.I64)
    args.reduction = _abi.choice("reduction", reduction, _abi.REDUCTIONS)
    result = _abi.F64 if number == _abi.F64 else _abi.F32
    args.loss = _vector(tokens if reduction == "none" else 1, result)
    if grad_hidden:
        args.grad_hidden = args.hidden
    if grad_weight:
        args.grad_weight = args.weight
        if grad_weight_dtype is not None:
            args.grad_weight.dtype = _abi.choice(
                "grad_weight_dtype", grad_weight_dtype, _abi.DTYPES
            )
    elif grad_weight_dtype is not None:
        raise _abi.InvalidArgument("grad_weight_dtype is given, but grad_weight is False")
    if bias:
        args.bias = args.grad_bias = _vector(vocab, number)
    args.softcap = _abi.number("softcap", softcap)
    args.label_smoothing = _abi.number("label_smoothing", label_smoothing)
    args.device = _abi.choice("device", device, _abi.DEVICES)
    request = _abi.new_request(lib)
    request.method = _abi.choice("method", method, _abi.METHODS)
    request.budget_bytes = _abi.parse_bytes(budget)
    _set_chunk(request, chunk, policy)
    request.route = _abi.choice("route", route, _abi.ROUTES)
    request.num_threads = _abi.integer("num_threads", num_threads, 32)
    request.allow_tf32 = int(bool(allow_tf32))
    return plain(_abi.make_plan(lib, args, request))


def _set_chunk(request: _abi.PlanRequest, chunk: int | None, policy: str) -> None:
    request.chunk = check_chunk(chunk)
    request.policy = _abi.choice("policy", policy, _abi.POLICIES)
    if chunk is not None and policy != "measured":
        raise _abi.InvalidArgument(
            f"chunk={chunk} and policy={policy!r} both choose the chunk; leave out one of them"
        )


def _size(name: str, value: int, least: int) -> int:
    value = _abi.integer(name, value)
    if value < least:
        raise _abi.InvalidArgument(f"{name} is {value}; it must be {least} or more")
    return value


def check_chunk(chunk: int | None) -> int:
    """Token rows of a chunk; 0 for None (chosen)."""
    if chunk is None:
        return 0
    try:
        count = int(chunk)  # a tensor of one number is compared as one, not as a tensor
        is_count = not isinstance(chunk, bool) and count == chunk and 1 <= count < 1 << 63
    except (TypeError, ValueError, OverflowError):
        is_count = False
    if not is_count:
        raise _abi.InvalidArgument(
            f"chunk is {chunk!r}; it must be a number of tokens from 1 to 2**63 - 1 (leave it out "
            "to have it chosen)"
        )
    return int(chunk)
