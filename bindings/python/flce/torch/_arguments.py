# SPDX-License-Identifier: Apache-2.0
"""Judges the arguments of the public functions, and turns them into what the operators take.

What the library checks itself (ranges of numbers, element types that go together) is not checked
again; what torch calls by another name is: shapes, devices, kinds of tensors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C import _functorch as functorch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad

from .. import _abi
from .._abi import integer
from .._plan import check_chunk
from . import _autograd, _call
from ._call import Options
from ._scalars import number
from ._torch_options import chunk_and_policy

METHODS = {name: n for name, n in _abi.METHODS.items() if not name.endswith("-eager")}
_REALS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_COUNTS = (torch.int64, torch.float32, torch.int32, torch.float64)


class Head(NamedTuple):
    """What is differentiated, the target, and the names that the caller's signature has."""

    input: Tensor
    weight: Tensor
    target: Tensor
    bias: Tensor | None
    weight_name: str = "linear_weight"
    bias_name: str = "linear_bias"


class Settings(NamedTuple):
    """Everything else of a signature, as it was given."""

    class_weight: Tensor | None = None
    token_weight: Tensor | None = None
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
    options: Any = None
    accumulate_into: Tensor | None = None
    outputs: int = 0


class Problem(NamedTuple):
    """What an operator is called with; `split` in a forward and a backward call."""

    tensors: tuple[Tensor | None, ...]
    options: Options
    split: bool
    into: Tensor | None


def _invalid(text: str) -> _abi.InvalidArgument:
    return _abi.InvalidArgument(text)


def _check_kind(name: str, tensor: Any) -> None:
    """Refuses what has no memory of its own to read: sharded, quantized and other wrappers."""
    kind = type(tensor)
    if isinstance(tensor, Tensor) and tensor.is_nested:
        raise TypeError(
            f"{name} is a nested tensor; pass a dense one, for example torch.cat({name}.unbind())"
        )
    if isinstance(tensor, Tensor) and tensor.layout is not torch.strided:
        raise TypeError(f"{name} has layout {tensor.layout}; pass a dense one: {name}.to_dense()")
    if kind is Tensor or kind is torch.nn.Parameter:
        return
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is a {kind.__name__}; it must be a torch.Tensor")
    if issubclass(kind, (FakeTensor, FunctionalTensor)):
        return
    if any(base.__name__ == "DTensor" for base in kind.__mro__):
        raise TypeError(
            f"{name} is a DTensor, of which this process holds a part: run the loss inside the "
            "forward of the module that owns the head, so that its hooks gather it (flce.torch."
            f"FusedLinearHead under fully_shard), or pass {name}.full_tensor()"
        )
    if torch.nn.parameter.is_lazy(tensor):
        raise TypeError(f"{name} is not initialized yet; run its lazy module once before")
    if kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
        raise TypeError(
            f"{name} is a {kind.__name__}, a tensor that computes in its own way; pass a plain "
            "tensor, for example what its dequantize(), wait() or to_local() gives"
        )


def _check_device(head: Head, others: dict[str, Tensor | None]) -> None:
    device = head.input.device
    if device.type not in ("cpu", "cuda", "meta"):
        raise _abi.Unsupported(
            f"input is on device '{device}'; flce.torch works on cpu and cuda (NVIDIA)"
        )
    if device.type == "cuda" and torch.version.hip is not None:
        raise _abi.Unsupported("this is a ROCm build of torch; flce.torch works on cpu and NVIDIA")
    for name, tensor in others.items():
        if tensor is not None and tensor.device != device:
            raise _invalid(
                f"{name} is on {tensor.device} and input on {device}; they must be on one device"
            )


def _check_shapes(head: Head) -> None:
    input, weight, target, bias, weight_name, bias_name = head
    if weight.dim() != 2 or weight.shape[0] < 1 or weight.shape[1] < 1:
        raise _invalid(
            f"{weight_name} has shape {tuple(weight.shape)}; it must be (V, H), V and H at least 1 "
            "(a sharded parameter must be gathered first: run the loss in the forward of the "
            "module that owns it)"
        )
    if input.dim() < 1 or input.shape[-1] != weight.shape[1]:
        raise _invalid(
            f"input has shape {tuple(input.shape)} and {weight_name} {tuple(weight.shape)}; input "
            "must be (..., H) with the H of (V, H)"
        )
    if target.dtype.is_floating_point or target.dtype.is_complex:
        raise TypeError(
            f"target has dtype {target.dtype} and shape {tuple(target.shape)}: class probabilities "
            "are not supported; pass class indices (int64 or int32), or use F.cross_entropy"
        )
    if target.dtype is not torch.int64 and target.dtype is not torch.int32:
        raise TypeError(f"target has dtype {target.dtype}; class indices are int64 or int32")
    if target.shape != input.shape[:-1]:
        raise _invalid(
            f"target has shape {tuple(target.shape)} and input {tuple(input.shape)}; there must be "
            f"one target per row of input: {tuple(input.shape[:-1])}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise _invalid(
            f"{bias_name} has shape {tuple(bias.shape)} and {weight_name} {tuple(weight.shape)}; "
            "it must be (V,)"
        )


def _check_dtypes(head: Head) -> None:
    input, weight, _, bias, weight_name, bias_name = head
    if input.dtype not in _REALS:
        raise TypeError(f"input has dtype {input.dtype}; float32, bfloat16, float16, float64 work")
    if weight.dtype != input.dtype:
        raise TypeError(
            f"{weight_name} has dtype {weight.dtype} and input {input.dtype}; they must be equal: "
            "convert one of them, or use torch.autocast"
        )
    if bias is not None:
        _check_companion(bias_name, bias, input.dtype)


def _check_companion(name: str, tensor: Tensor, dtype: torch.dtype) -> None:
    if tensor.dtype == dtype or (tensor.dtype == torch.float32 and dtype != torch.float64):
        return
    also = "" if dtype in (torch.float32, torch.float64) else " or torch.float32"
    raise TypeError(f"{name} has dtype {tensor.dtype}; with {dtype} input it must be {dtype}{also}")


def _check_constant(name: str, tensor: Tensor, shape: torch.Size, of: str) -> None:
    _check_kind(name, tensor)
    if tensor.shape != shape:
        raise _invalid(f"{name} has shape {tuple(tensor.shape)}; it must be {of}, {tuple(shape)}")
    _refuse_gradient(name, tensor)


def _refuse_gradient(name: str, tensor: Tensor) -> None:
    if tensor.requires_grad and torch.is_grad_enabled():
        raise _abi.Unsupported(
            f"{name} requires a gradient, which flce does not make; pass {name}.detach()"
        )


def _temperature(value: Any, target: Tensor) -> tuple[Tensor | None, float]:
    if not isinstance(value, Tensor):
        return None, number("temperature", value)
    _check_kind("temperature", value)
    if value.numel() == 1 and value.dim() < 2:
        value = value.reshape(()).expand(target.shape)
    _check_constant("temperature", value, target.shape, "a number or one per target")
    return value, 1.0


def _normalizer(value: Any, reduction: int) -> tuple[Tensor | None, float | None, int]:
    """Tensor, number and reduction: a normalizer divides the sum, in place of mean's divisor."""
    if value is None:
        return None, None, reduction
    if reduction == _abi.REDUCTIONS["none"]:
        raise _invalid(
            "normalizer is given with reduction 'none', where there is no sum to divide; use 'sum' "
            "(or 'mean', whose divisor it takes the place of)"
        )
    total = _abi.REDUCTIONS["sum"]
    if not isinstance(value, Tensor):
        return None, float(number("normalizer", value)), total
    _check_kind("normalizer", value)
    _refuse_gradient("normalizer", value)
    if value.numel() != 1:
        raise _invalid(f"normalizer has shape {tuple(value.shape)}; it must be one number")
    if value.dtype not in _COUNTS:
        raise TypeError(
            f"normalizer has dtype {value.dtype}; int64, int32, float32 and float64 count tokens"
        )
    return value, None, total


def under_autocast(head: Head) -> Head:
    """Casts as F.linear would; a float32 bias stays, for it is added in float32."""
    kind = head.input.device.type
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return head
    dtype = torch.get_autocast_dtype(kind)
    wide = (dtype, torch.float64)
    input, weight, bias = head.input, head.weight, head.bias
    if input.dtype not in wide:
        input = input.to(dtype)
    if weight.dtype not in wide:
        weight = weight.to(dtype)
    if bias is not None and bias.dtype not in (torch.float32, *wide):
        bias = bias.to(dtype)
    return head._replace(input=input, weight=weight, bias=bias)


def _check_buffer(buffer: Tensor, weight: Tensor, name: str) -> None:
    _check_kind("accumulate_into", buffer)
    if _autograd.is_transformed():
        raise _abi.Unsupported(
            "accumulate_into is given under a transformation of torch.func, whose gradients are "
            "its results; leave it out"
        )
    if not weight.requires_grad:
        raise _invalid(
            f"accumulate_into is given, but {name} does not require a gradient; leave it out"
        )
    if buffer.shape != weight.shape or buffer.stride(1) != 1 or buffer.requires_grad:
        raise _invalid(
            f"accumulate_into has shape {tuple(buffer.shape)}, strides {buffer.stride()} and "
            f"requires_grad={buffer.requires_grad}; it must be {tuple(weight.shape)} with unit "
            "inner stride, and not require a gradient"
        )
    _check_companion("accumulate_into", buffer, weight.dtype)


def _needs_grad(tensor: Tensor | None) -> bool:
    """requires_grad, looking through torch.func: a batched tensor does not say it of its parts."""
    if tensor is None or tensor.requires_grad or not _autograd.is_transformed():
        return tensor is not None and tensor.requires_grad
    if torch.compiler.is_compiling():  # cannot look: too much is made rather than too little
        return True
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
        if tensor.requires_grad:
            return True
    return False


def _grad_bits(head: Head) -> int:
    """What the backward pass will be asked for; nothing else is computed."""
    if not torch.is_grad_enabled():
        return 0
    return (
        _call.GRAD_HIDDEN * _needs_grad(head.input)
        | _call.GRAD_WEIGHT * _needs_grad(head.weight)
        | _call.GRAD_BIAS * _needs_grad(head.bias)
    )


def _is_split(settings: Settings, method: int, grads: int, dtype: torch.dtype) -> bool:
    """Whether the gradients are made in the backward pass, when their upstream is known.

    That is needed for an upstream per token and for adding to a buffer; it is the meaning of the
    methods other than fused; and it keeps float16 gradients in range, which a loss scaler has to
    multiply before they are rounded, not after.
    """
    if not grads:
        return False
    return (
        settings.reduction == "none"
        or settings.accumulate_into is not None
        or method not in (METHODS["auto"], METHODS["fused"])
        or (method == METHODS["auto"] and dtype == torch.float16)
    )


def _refuse_tangents(head: Head) -> None:
    for tensor in (head.input, head.weight, head.bias):
        if tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None:
            raise _abi.Unsupported(
                "flce has no forward-mode derivatives (jvp, jacfwd); use reverse mode, or "
                "F.cross_entropy(F.linear(input, weight), target)"
            )


def _check_head(head: Head) -> Head:
    """Kinds, shapes and dtypes of what is differentiated; as autocast makes it."""
    for name, tensor in (
        ("input", head.input),
        (head.weight_name, head.weight),
        ("target", head.target),
        (head.bias_name, head.bias),
    ):
        if tensor is not None or name != head.bias_name:
            _check_kind(name, tensor)
    if forward_ad._current_level >= 0:
        _refuse_tangents(head)
    _check_shapes(head)
    head = under_autocast(head)
    _check_dtypes(head)
    return head


def _check_constants(head: Head, s: Settings) -> None:
    """Class and token weights."""
    for name, vector, shape, of in (
        ("weight", s.class_weight, head.weight.shape[:1], "one per class"),
        ("token_weight", s.token_weight, head.target.shape, "one per target"),
    ):
        if vector is not None:
            _check_constant(name, vector, shape, of)
            _check_companion(name, vector, head.input.dtype)


def judge(head: Head, settings: Settings, *, entropy_grad: bool = False) -> Problem:
    """Everything that is wrong with a call, as an exception; else what to call."""
    s, head = settings, _check_head(head)
    input, weight, target, bias, weight_name, bias_name = head
    _check_constants(head, s)
    temperature, temperature_value = _temperature(s.temperature, target)
    if temperature is not None:
        _check_companion("temperature", temperature, input.dtype)
    reduction = _abi.choice("reduction", s.reduction, _abi.REDUCTIONS)
    normalizer, normalizer_value, reduction = _normalizer(s.normalizer, reduction)
    _check_device(
        head,
        {
            weight_name: weight,
            "target": target,
            bias_name: bias,
            "weight": s.class_weight,
            "token_weight": s.token_weight,
            "temperature": temperature,
            # A counter may lie on the host or on another card; it comes over without a wait.
            "normalizer": None if input.is_cuda else normalizer,
            "accumulate_into": s.accumulate_into,
        },
    )
    grads, into = _grad_bits(head), s.accumulate_into
    if into is not None:
        _check_buffer(into, weight, weight_name)
        into = into if grads & _call.GRAD_WEIGHT else None
    method = _abi.choice("method", s.method, METHODS)
    split = _is_split(s, method, grads, input.dtype) or (entropy_grad and grads != 0)
    if split and method == METHODS["auto"]:
        method = METHODS["recompute"]
    chunk, policy = check_chunk(s.chunk), 0
    if s.options is not None:
        chunk, policy = chunk_and_policy(s.options, s.chunk, target.numel(), input.dtype)
    options = Options(
        reduction,
        -100 if s.ignore_index is None else integer("ignore_index", s.ignore_index),
        number("label_smoothing", s.label_smoothing),
        number("z_loss", s.z_loss),
        0.0 if s.softcap is None else number("softcap", s.softcap),
        number("scale", s.scale),
        temperature_value,
        normalizer_value,
        integer("shift", s.shift),
        method,
        policy,
        chunk,
        min(_abi.parse_bytes(s.budget), (1 << 63) - 1),
        s.outputs,
        grads,
    )
    vectors = (bias, s.class_weight, s.token_weight, temperature, normalizer)
    return Problem((input, weight, target, *vectors), options, split, into)
