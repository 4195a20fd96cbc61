# SPDX-License-Identifier: Apache-2.0
"""The operators flce::run, forward, backward and backward_into: schemas, kernels, fake kernels.

`run` makes the loss, and with it the gradients that are asked for, for an upstream gradient of 1.
`forward` keeps a few bytes per token, from which `backward` makes the gradients for any upstream.
How they are differentiated is in _autograd.py, which of them is called in _arguments.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _call
from ._call import Options

lib = torch.library.Library("flce", "DEF")

_TENSORS = (
    "Tensor hidden, Tensor weight, Tensor target, Tensor? bias, Tensor? class_weight, "
    "Tensor? token_weight, Tensor? temperature, Tensor? normalizer"
)
_OPTIONS = (
    "int reduction, int ignore_index, float label_smoothing, float z_loss, float softcap, "
    "float scale, float temperature_value, float? normalizer_value, int shift, int method, "
    "int policy, int chunk, int budget, int outputs, int grads"
)
_RESULTS = "Tensor loss, Tensor rows, Tensor z_loss, Tensor integers"
_GRADS = "Tensor grad_hidden, Tensor grad_weight, Tensor grad_bias"
NUM_TENSORS = 8
NUM_INPUTS = NUM_TENSORS + len(Options._fields)
_TAGS = (torch.Tag.pt2_compliant_tag,)

lib.define(f"run({_TENSORS}, {_OPTIONS}) -> ({_RESULTS}, {_GRADS})", tags=_TAGS)
# entropy is a result of its own, for it has a gradient here. `into` is what the backward pass adds
# the weight's gradient to; forward only looks at its dtype, which the plan depends on.
lib.define(
    f"forward({_TENSORS}, {_OPTIONS}, bool entropy_grad, Tensor? into) -> "
    f"({_RESULTS}, Tensor entropy, Tensor saved)",
    tags=_TAGS,
)
_UPSTREAM = "Tensor grad_loss, Tensor? grad_entropy, Tensor saved"
lib.define(f"backward({_UPSTREAM}, {_TENSORS}, {_OPTIONS}) -> ({_GRADS})", tags=_TAGS)
lib.define(
    f"backward_into(Tensor(a!) into, {_UPSTREAM}, {_TENSORS}, {_OPTIONS}) -> "
    "(Tensor grad_hidden, Tensor grad_bias)",
    tags=_TAGS,
)

_Tensors = tuple[Any, ...]
_Made = tuple[Any, ...]  # tensors, and None for what nobody asked for


def _problem(args: _Tensors) -> tuple[_call.Inputs, Options, int]:
    """What the arguments of an operator mean, normalizer and sequences settled."""
    hidden, weight, target = args[:3]
    options = Options(*args[NUM_TENSORS:])
    normalizer, number = _call.place_normalizer(args[7], hidden.device)
    if number is not None:
        options = options._replace(normalizer=number)
    sequence_length = target.shape[-1] if options.shift and target.dim() > 1 else 0
    optional = (*args[3:7], normalizer)
    return _call.inputs_of(hidden, weight, target, optional), options, sequence_length


def run_kernel(*args: Any) -> _Made:
    hidden, weight, target, bias = args[:4]
    with _call.on_device(hidden.device):
        inputs, options, sequence_length = _problem(args)
        prepared = _call.prepare(inputs, options, sequence_length)
        results = _call.allocate_results(hidden, target, options.reduction, options.outputs)
        grads = _call.allocate_grads(hidden, weight, bias, options.grads)
        words = _call.bound_words(prepared, inputs, options)
        _call.bind_results(words, options.outputs, results)
        _call.bind_grads(words, grads)
        _call.call("flce_run", prepared, words, hidden, None)
    return (*results, *grads)


def _fake_run(*args: Any) -> _Made:
    hidden, weight, target, bias = args[:4]
    options = Options(*args[NUM_TENSORS:])
    return (
        *_call.allocate_results(hidden, target, options.reduction, options.outputs),
        *_call.allocate_grads(hidden, weight, bias, options.grads),
    )


def _entropy_of(hidden: Tensor, target: Tensor, entropy_grad: bool) -> Tensor | None:
    if not entropy_grad:
        return None
    return hidden.new_empty(target.shape, dtype=_call.result_dtype(hidden.dtype))


def _prepare_split(
    inputs: _call.Inputs,
    options: Options,
    sequence_length: int,
    into: Tensor | None,
    entropy_grad: bool,
) -> _call.Prepared:
    """The one plan of a forward call and its backward call."""
    if entropy_grad:
        options = options._replace(outputs=options.outputs | _call.ENTROPY)
    return _call.prepare(
        inputs, options, sequence_length, split=True, into=into, entropy_grad=entropy_grad
    )


def forward_kernel(*args: Any) -> _Made:
    *problem, entropy_grad, into = args
    args = tuple(problem)
    hidden, _, target = args[:3]
    with _call.on_device(hidden.device):
        inputs, options, sequence_length = _problem(args)
        prepared = _prepare_split(inputs, options, sequence_length, into, entropy_grad)
        results = _call.allocate_results(hidden, target, options.reduction, options.outputs)
        entropy = _entropy_of(hidden, target, entropy_grad)
        saved = hidden.new_empty(prepared.saved_bytes, dtype=torch.uint8)
        words = _call.bound_words(prepared, inputs, options)
        _call.bind_results(words, options.outputs, results)
        if entropy is not None:
            words[_call.WORD["entropy"]] = entropy.data_ptr()
        _call.call("flce_forward", prepared, words, hidden, saved)
    return (*results, entropy, saved)


def _fake_forward(*args: Any) -> _Made:
    *problem, entropy_grad, into = args
    args = tuple(problem)
    hidden, weight, target = args[:3]
    options = Options(*args[NUM_TENSORS:])
    if all(type(size) is int for size in (*hidden.shape, *weight.shape)):
        inputs, options, sequence_length = _problem(args)
        prepared = _prepare_split(inputs, options, sequence_length, into, entropy_grad)
        saved_bytes: Any = prepared.saved_bytes
    else:
        saved_bytes = torch.library.get_ctx().new_dynamic_size()
    return (
        *_call.allocate_results(hidden, target, options.reduction, options.outputs),
        _entropy_of(hidden, target, entropy_grad),
        hidden.new_empty(saved_bytes, dtype=torch.uint8),
    )


def _backward_call(
    into: Tensor | None, upstream: tuple[Any, ...], args: tuple[Any, ...]
) -> _call.Grads:
    grad_loss, grad_entropy, saved = upstream
    hidden, weight, _, bias = args[:4]
    with _call.on_device(hidden.device):
        inputs, options, sequence_length = _problem(args)
        has_entropy = grad_entropy is not None
        prepared = _prepare_split(inputs, options, sequence_length, into, has_entropy)
        made = _call.allocate_grads(
            hidden, weight, bias, options.grads & ~(0 if into is None else _call.GRAD_WEIGHT)
        )
        words = _call.bound_words(prepared, inputs, options)
        _call.bind_grads(words, made if into is None else (made[0], into, made[2]))
        vectors = [
            None if v is None else v if v.dim() < 2 else v.reshape(-1)
            for v in (grad_loss, grad_entropy)
        ]
        _call.bind_upstream(words, "grad_output", vectors[0])  # type: ignore[arg-type]
        if vectors[1] is not None:
            _call.bind_upstream(words, "grad_entropy", vectors[1])
        _call.call("flce_backward", prepared, words, hidden, saved)
    return made


def backward_kernel(*args: Any) -> _Made:
    return _backward_call(None, args[:3], args[3:])


def _fake_backward(*args: Any) -> _Made:
    hidden, weight, _, bias = args[3:7]
    return _call.allocate_grads(hidden, weight, bias, args[-1])


def backward_into_kernel(into: Tensor, *args: Any) -> _Made:
    made = _backward_call(into, args[:3], args[3:])
    return made[0], made[2]


def _fake_backward_into(into: Tensor, *args: Any) -> _Made:
    made = _fake_backward(*args[:-1], args[-1] & ~_call.GRAD_WEIGHT)
    return made[0], made[2]


def _whole(kernel: Any, first: int) -> Any:
    """The kernel for the dispatcher, whose operators return tensors: empty ones in place of None.
    `first` is the number of the argument that says on which device."""

    def made(*args: Any) -> tuple[Tensor, ...]:
        return tuple(args[first].new_empty(0) if t is None else t for t in kernel(*args))

    return made


sizes_of_run = _whole(_fake_run, 0)  # what run gives back, with nothing in it

for _name, _kernel, _fake, _hidden in (
    ("run", run_kernel, _fake_run, 0),
    ("forward", forward_kernel, _fake_forward, 0),
    ("backward", backward_kernel, _fake_backward, 3),
    ("backward_into", backward_into_kernel, _fake_backward_into, 4),
):
    for _key in ("CPU", "CUDA"):
        lib.impl(_name, _whole(_kernel, _hidden), _key)
    torch.library.register_fake(f"flce::{_name}", _whole(_fake, _hidden), lib=lib)
