# SPDX-License-Identifier: Apache-2.0
"""The operators flce::run, forward, backward and backward_into, and how they differentiate.

`run` makes the loss, and with it the gradients that are asked for, for an upstream gradient of 1;
its backward pass multiplies them by the scalar that comes. `forward` keeps a few bytes per token,
and its backward pass makes the gradients for any upstream gradient. functional.py chooses.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch as functorch

from . import _call
from ._call import Options

_lib = torch.library.Library("flce", "DEF")

_TENSORS = (
    "Tensor hidden, Tensor weight, Tensor target, Tensor? bias, Tensor? class_weight, "
    "Tensor? token_weight, Tensor? temperature, Tensor? normalizer"
)
_OPTIONS = (
    "int reduction, int ignore_index, float label_smoothing, float z_loss, float softcap, "
    "float scale, float temperature_value, float? normalizer_value, int shift, int method, "
    "int policy, int chunk, int budget, int outputs, int grads"
)
_RESULTS = "Tensor loss, Tensor rows, Tensor z_loss, Tensor counts"
_GRADS = "Tensor grad_hidden, Tensor grad_weight, Tensor grad_bias"
_NUM_TENSORS = 8
_NUM_INPUTS = _NUM_TENSORS + len(Options._fields)
_TAGS = (torch.Tag.pt2_compliant_tag,)

_lib.define(f"run({_TENSORS}, {_OPTIONS}) -> ({_RESULTS}, {_GRADS})", tags=_TAGS)
# entropy is a result of its own, for it has a gradient here. `into` is what the backward pass adds
# the weight's gradient to; forward only looks at its dtype, which the plan depends on.
_lib.define(
    f"forward({_TENSORS}, {_OPTIONS}, bool entropy_grad, Tensor? into) -> "
    f"({_RESULTS}, Tensor entropy, Tensor saved)",
    tags=_TAGS,
)
_UPSTREAM = "Tensor grad_loss, Tensor? grad_entropy, Tensor saved"
_lib.define(f"backward({_UPSTREAM}, {_TENSORS}, {_OPTIONS}) -> ({_GRADS})", tags=_TAGS)
_lib.define(
    f"backward_into(Tensor(a!) into, {_UPSTREAM}, {_TENSORS}, {_OPTIONS}) -> "
    "(Tensor grad_hidden, Tensor grad_bias)",
    tags=_TAGS,
)

_Tensors = tuple[Any, ...]


def _problem(args: _Tensors) -> tuple[_call.Inputs, Options, int]:
    """What the arguments of an operator mean, normalizer and sequences settled."""
    hidden, weight, target = args[:3]
    options = Options(*args[_NUM_TENSORS:])
    normalizer = _call.place_normalizer(args[7], hidden.device)
    sequence_length = target.shape[-1] if options.shift and target.dim() > 1 else 0
    optional = (*args[3:7], normalizer)
    return _call.inputs_of(hidden, weight, target, optional), options, sequence_length


def _run(*args: Any) -> tuple[Tensor, ...]:
    hidden, weight, target, bias = args[:4]
    with _call.on_device(hidden.device):
        inputs, options, sequence_length = _problem(args)
        outputs, grads = options.outputs, options.grads
        prepared = _call.prepare(inputs, options, sequence_length)
        results = _call.allocate_results(hidden, target, options.reduction, outputs)
        made = _call.allocate_grads(hidden, weight, bias, grads)
        words = _call.bound_words(prepared, inputs, options)
        _call.bind_results(words, outputs, *results)
        _call.bind_grads(words, grads, *made)
        _call.call("flce_run", prepared, words, hidden, None)
    return (*results, *made)


def _fake_run(*args: Any) -> tuple[Tensor, ...]:
    hidden, weight, target, bias = args[:4]
    options = Options(*args[_NUM_TENSORS:])
    return (
        *_call.allocate_results(hidden, target, options.reduction, options.outputs),
        *_call.allocate_grads(hidden, weight, bias, options.grads),
    )


def _entropy_of(hidden: Tensor, target: Tensor, entropy_grad: bool) -> Tensor:
    shape = target.shape if entropy_grad else 0
    return hidden.new_empty(shape, dtype=_call.result_dtype(hidden.dtype))


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
    dtype = None if into is None else into.dtype
    return _call.prepare(
        inputs, options, sequence_length, split=True, into=dtype, entropy_grad=entropy_grad
    )


def _forward(*args: Any) -> tuple[Tensor, ...]:
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
        _call.bind_results(words, options.outputs, *results)
        if entropy_grad:
            words[_call.WORD["entropy"]] = entropy.data_ptr()
        _call.call("flce_forward", prepared, words, hidden, saved)
    return (*results, entropy, saved)


def _fake_forward(*args: Any) -> tuple[Tensor, ...]:
    *problem, entropy_grad, into = args
    args = tuple(problem)
    hidden, weight, target = args[:3]
    options = Options(*args[_NUM_TENSORS:])
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
) -> tuple[Tensor, Tensor, Tensor]:
    grad_loss, grad_entropy, saved = upstream
    hidden, weight, _, bias = args[:4]
    with _call.on_device(hidden.device):
        inputs, options, sequence_length = _problem(args)
        has_entropy = grad_entropy is not None
        prepared = _prepare_split(inputs, options, sequence_length, into, has_entropy)
        grads = options.grads
        made = _call.allocate_grads(
            hidden, weight, bias, grads if into is None else grads & ~_call.GRAD_WEIGHT
        )
        words = _call.bound_words(prepared, inputs, options)
        _call.bind_grads(words, grads, made[0], made[1] if into is None else into, made[2])
        vectors = [
            None if v is None else v if v.dim() < 2 else v.reshape(-1)
            for v in (grad_loss, grad_entropy)
        ]
        _call.bind_upstream(words, "grad_output", vectors[0])  # type: ignore[arg-type]
        if vectors[1] is not None:
            _call.bind_upstream(words, "grad_entropy", vectors[1])
        _call.call("flce_backward", prepared, words, hidden, saved)
    return made


def _backward(*args: Any) -> tuple[Tensor, ...]:
    return _backward_call(None, args[:3], args[3:])


def _fake_backward(*args: Any) -> tuple[Tensor, ...]:
    hidden, weight, _, bias = args[3:7]
    return _call.allocate_grads(hidden, weight, bias, args[-1])


def _backward_into(into: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    made = _backward_call(into, args[:3], args[3:])
    return made[0], made[2]


def _fake_backward_into(into: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    made = _fake_backward(*args[:-1], args[-1] & ~_call.GRAD_WEIGHT)
    return made[0], made[2]


_SECOND_ORDER = (
    "flce has no second derivatives: the gradient of this loss cannot be differentiated again. "
    "Compute the loss with F.cross_entropy(F.linear(input, weight), target) where you need them, or "
    "detach the gradient"
)


class _FirstOrder(torch.autograd.Function):
    """Gives gradients that may be used, but not differentiated: a sentence in place of a zero.

    The loss and the upstream gradients tie them to the graph, so that whoever differentiates them
    comes here.
    """

    @staticmethod
    def forward(num_ties: int, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        grads = tensors[num_ties:]
        return tuple(grad.view_as(grad) for grad in grads)  # type: ignore[union-attr]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(_SECOND_ORDER)

    @staticmethod
    def vmap(info: Any, in_dims: Any, num_ties: int, *tensors: Tensor | None) -> Any:
        return _FirstOrder.apply(num_ties, *tensors), tuple(in_dims[1 + num_ties :])


def _first_order(grads: list[Tensor | None], *ties: Tensor | None) -> list[Tensor | None]:
    """The gradients as a graph of higher order may hold them."""
    if not torch.is_grad_enabled():
        return grads
    present = [grad for grad in grads if grad is not None]
    made = iter(_FirstOrder.apply(len(ties), *ties, *present))
    return [None if grad is None else next(made) for grad in grads]


try:
    _keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
except AttributeError:  # then a second backward pass may come, as far as anyone knows

    def _keeps_graph() -> bool:
        return True


def _is_plain(tensor: Tensor) -> bool:
    """Whether there is memory behind it: no tracing, no transformation of functions."""
    return (
        type(tensor) is Tensor
        and not tensor.is_meta
        and not functorch.is_functorch_wrapped_tensor(tensor)
    )


def _scaled(upstream: Tensor, grads: list[Tensor | None]) -> list[Tensor | None]:
    """grads * upstream; in place where nobody can ask for them again."""
    present = [grad for grad in grads if grad is not None]
    if all(map(_is_plain, (upstream, *present))):
        if torch.is_grad_enabled() or _keeps_graph():
            grads = [None if grad is None else grad.clone() for grad in grads]
        _call.scale_in_place(upstream, *grads)
        return grads
    # Traced: operations that a compiler can join with what follows, in the gradient's memory.
    return [
        None if grad is None else (grad.to(upstream.dtype) * upstream).to(grad.dtype)
        for grad in grads
    ]


def _taken(grads: int, made: tuple[Tensor, Tensor, Tensor]) -> list[Tensor | None]:
    return [grad if grads >> i & 1 else None for i, grad in enumerate(made)]


def _as_inputs(grads: list[Tensor | None], num_inputs: int) -> tuple[Tensor | None, ...]:
    """Gradients of an operator's inputs, in the order of its schema."""
    return (grads[0], grads[1], None, grads[2], *(None,) * (num_inputs - 4))


def _setup_run(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    loss, *others = output
    ctx.mark_non_differentiable(*others)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(loss, *others[3:])
    ctx.grads = inputs[-1]


def _backward_of_run(ctx: Any, grad_loss: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    if grad_loss is None:
        return (None,) * _NUM_INPUTS
    loss, *made = ctx.saved_tensors
    grads = _scaled(grad_loss, _taken(ctx.grads, tuple(made)))  # type: ignore[arg-type]
    return _as_inputs(_first_order(grads, loss, grad_loss), _NUM_INPUTS)


def _setup_forward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    loss, rows, z_loss, counts, entropy, saved = output
    *problem, entropy_grad, into = inputs
    unused = () if entropy_grad else (entropy,)
    ctx.mark_non_differentiable(rows, z_loss, counts, saved, *unused)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(loss, saved, *problem[:_NUM_TENSORS])
    ctx.options, ctx.entropy_grad = tuple(problem[_NUM_TENSORS:]), entropy_grad
    # Not saved for backward: others add to it in the meantime, as they should.
    ctx.into = into


def _backward_of_forward(
    ctx: Any, grad_loss: Tensor | None, *others: Tensor | None
) -> tuple[Tensor | None, ...]:
    grad_entropy = others[3]
    num_inputs = _NUM_INPUTS + 2
    if grad_loss is None and grad_entropy is None:
        return (None,) * num_inputs
    loss, saved, *tensors = ctx.saved_tensors
    zero = loss.new_zeros(())
    upstream_loss = zero if grad_loss is None else grad_loss
    upstream_entropy = (zero if grad_entropy is None else grad_entropy) if ctx.entropy_grad else None
    args = (upstream_loss, upstream_entropy, saved, *tensors, *ctx.options)
    grads_wanted = ctx.options[-1]
    with torch.no_grad():
        if ctx.into is None:
            grads = _taken(grads_wanted, backward(*args))
        else:
            grad_hidden, grad_bias = torch.ops.flce.backward_into.default(ctx.into, *args)
            grads = _taken(grads_wanted & ~_call.GRAD_WEIGHT, (grad_hidden, loss, grad_bias))
    return _as_inputs(_first_order(grads, loss, grad_loss, grad_entropy), num_inputs)


def _looped(name: str) -> Any:
    """vmap's rule: one call per element of the batch."""

    def rule(info: Any, in_dims: Any, *args: Any) -> Any:
        pairs = list(zip(args, in_dims, strict=True))
        made = [
            globals()[name](*[a if d is None else a.select(d, i) for a, d in pairs])
            for i in range(info.batch_size)
        ]
        return tuple(map(torch.stack, zip(*made, strict=True))), (0,) * len(made[0])

    return rule


for _name, _kernel, _fake in (
    ("run", _run, _fake_run),
    ("forward", _forward, _fake_forward),
    ("backward", _backward, _fake_backward),
    ("backward_into", _backward_into, _fake_backward_into),
):
    for _key in ("CPU", "CUDA"):
        _lib.impl(_name, _kernel, _key)
    torch.library.register_fake(f"flce::{_name}", _fake, lib=_lib)
    if _name != "backward_into":
        torch.library.register_vmap(f"flce::{_name}", _looped(_name), lib=_lib)
torch.library.register_autograd(
    "flce::run", _backward_of_run, setup_context=_setup_run, lib=_lib
)
torch.library.register_autograd(
    "flce::forward", _backward_of_forward, setup_context=_setup_forward, lib=_lib
)


def _function(name: str, setup: Any, backward: Any) -> type[torch.autograd.Function]:
    """The operator as a Function that torch.func can transform, as it cannot what
    register_autograd makes. Forward-mode derivatives are refused by torch: there is no jvp."""
    operator = getattr(torch.ops.flce, name).default
    members = {
        "forward": staticmethod(lambda *args: operator(*args)),
        "setup_context": staticmethod(lambda ctx, inputs, output: setup(ctx, inputs, output)),
        "backward": staticmethod(backward),
        "vmap": staticmethod(_looped(name)),
    }
    return type(f"flce_{name}", (torch.autograd.Function,), members)


_RunFunction = _function("run", _setup_run, _backward_of_run)
_ForwardFunction = _function("forward", _setup_forward, _backward_of_forward)
_run_operator, _forward_operator = torch.ops.flce.run.default, torch.ops.flce.forward.default
is_transformed = torch._C._are_functorch_transforms_active


def run(*args: Any) -> tuple[Tensor, ...]:
    """flce::run: results (4) and gradients (3)."""
    return (_RunFunction.apply if is_transformed() else _run_operator)(*args)


def forward(*args: Any) -> tuple[Tensor, ...]:
    """flce::forward: results (4), entropy, saved bytes."""
    return (_ForwardFunction.apply if is_transformed() else _forward_operator)(*args)


backward = torch.ops.flce.backward.default
