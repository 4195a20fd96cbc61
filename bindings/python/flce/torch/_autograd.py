# SPDX-License-Identifier: Apache-2.0
"""How the operators of _ops.py are differentiated, and the two entries that functional.py calls.

The backward pass of `run` multiplies the gradients that it has kept by the scalar that comes; that
of `forward` makes them. Each is said once and reached in three ways: through the dispatcher (when
traced, compiled, under dispatch modes), as a Function under torch.func, and, for plain tensors, as
a Function around the kernel: the dispatcher's way costs the host 100 us more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch as functorch

from .. import _abi
from . import _call, _ops

_Grads = list[Tensor | None]

_SECOND_ORDER = (
    "flce has no second derivatives: the gradient of this loss cannot be differentiated again. "
    "Compute the loss with F.cross_entropy(F.linear(input, weight), target) where you need them, "
    "or detach the gradient"
)


class _FirstOrder(torch.autograd.Function):
    """Gives gradients that may be used, but not differentiated: a sentence in place of a zero.

    A tie, which is a result of the forward pass, and the upstream gradients hold them to the graph,
    so that whoever differentiates them comes here.
    """

    @staticmethod
    def forward(num_ties: int, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        grads = tensors[num_ties:]
        return tuple(grad.view_as(grad) for grad in grads)  # type: ignore[union-attr, arg-type]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(_SECOND_ORDER)

    @staticmethod
    def vmap(info: Any, in_dims: Any, num_ties: int, *tensors: Tensor | None) -> Any:
        return _FirstOrder.apply(num_ties, *tensors), tuple(in_dims[1 + num_ties :])


def _first_order(grads: _Grads, *ties: Tensor | None) -> _Grads:
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


def _has_memory(tensor: Tensor) -> bool:
    """No tracing, no sizes alone, no transformation of functions."""
    return (
        not torch.compiler.is_compiling()
        and type(tensor) is Tensor
        and tensor.device.type in _abi.DEVICES
        and not functorch.is_functorch_wrapped_tensor(tensor)
    )


def _hold_values(*tensors: Tensor | None) -> bool:
    """No view that negates lazily, as the imaginary part of a conjugate does: its memory holds the
    opposite. The dispatcher makes the values before it calls a kernel."""
    return not any(t is not None and t.is_neg() for t in tensors)


def _scaled(upstream: Tensor, grads: _Grads) -> _Grads:
    """grads * upstream; in place where nobody can ask for them again."""
    if all(_has_memory(t) for t in (upstream, *grads) if t is not None):
        if torch.is_grad_enabled() or _keeps_graph():
            grads = [None if grad is None else grad.clone() for grad in grads]
        _call.scale_in_place(upstream.resolve_neg(), *grads)
        return grads
    # Traced: operations that a compiler can join with what follows, in the gradient's memory.
    return [
        None if grad is None else (grad.to(upstream.dtype) * upstream).to(grad.dtype)
        for grad in grads
    ]


def _taken(bits: int, made: tuple[Tensor | None, ...]) -> _Grads:
    return [grad if bits >> i & 1 else None for i, grad in enumerate(made)]


# The tie that is saved is never the loss that the caller gets: trainers change that in place
# (loss *= n), and torch refuses a backward pass whose saved tensors were changed.
def _save_run(ctx: Any, bits: int, tie: Tensor, made: tuple[Tensor | None, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(tie, *made)
    ctx.bits = bits


def _grads_of_run(ctx: Any, grad_loss: Tensor | None) -> _Grads:
    """Of hidden, weight and bias."""
    if grad_loss is None:
        return [None, None, None]
    tie, *made = ctx.saved_tensors
    return _first_order(_scaled(grad_loss, _taken(ctx.bits, made)), tie, grad_loss)


def _save_forward(ctx: Any, args: tuple[Any, ...], tie: Tensor, saved: Tensor) -> None:
    *problem, entropy_grad, into = args
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(tie, saved, *problem[: _ops.NUM_TENSORS])
    ctx.options, ctx.entropy_grad = tuple(problem[_ops.NUM_TENSORS :]), entropy_grad
    # Not saved for backward: others add to it in the meantime, as they should.
    ctx.into = into


def _grads_of_forward(ctx: Any, grad_loss: Tensor | None, grad_entropy: Tensor | None) -> _Grads:
    """Of hidden, weight and bias; the weight's goes into the buffer if there is one."""
    if grad_loss is None and grad_entropy is None:
        return [None, None, None]
    tie, saved, *tensors = ctx.saved_tensors
    zero = tie.new_zeros(())
    upstream = (
        zero if grad_loss is None else grad_loss,
        (zero if grad_entropy is None else grad_entropy) if ctx.entropy_grad else None,
        saved,
    )
    bits = ctx.options[-1]
    args = (*upstream, *tensors, *ctx.options)
    is_plain = _has_memory(saved) and _is_unwatched() and _hold_values(*upstream, *tensors)
    with torch.no_grad():
        if ctx.into is None:
            grads = _taken(bits, (_ops.backward_kernel if is_plain else _backward_op)(*args))
        else:
            call = _ops.backward_into_kernel if is_plain else _backward_into_op
            grad_hidden, grad_bias = call(ctx.into, *args)
            grads = _taken(bits & ~_call.GRAD_WEIGHT, (grad_hidden, None, grad_bias))
    return _first_order(grads, tie, grad_loss, grad_entropy)


class LinearCrossEntropy(torch.autograd.Function):
    """flce::run on plain tensors. Results that have no gradient travel in a tuple."""

    @staticmethod
    def forward(ctx: Any, hidden: Any, weight: Any, bias: Any, args: tuple[Any, ...]) -> Any:
        loss, *others = _ops.run_kernel(*args)
        tie = loss.new_empty(0)
        _save_run(ctx, args[-1], tie, tuple(others[3:]))
        return loss, tie, tuple(others[:3])

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor | None, *_: Any) -> Any:
        return (*_grads_of_run(ctx, grad_loss), None)


class LinearCrossEntropyLater(torch.autograd.Function):
    """flce::forward on plain tensors."""

    @staticmethod
    def forward(ctx: Any, hidden: Any, weight: Any, bias: Any, args: tuple[Any, ...]) -> Any:
        output = _ops.forward_kernel(*args)
        tie = output[0].new_empty(0)
        _save_forward(ctx, args, tie, output[5])
        entropy = output[4]
        return output[0], entropy, tie, output[1:4]

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor | None, grad_entropy: Tensor | None, *_: Any) -> Any:
        return (*_grads_of_forward(ctx, grad_loss, grad_entropy), None)


def _as_inputs(grads: _Grads, num_inputs: int) -> tuple[Tensor | None, ...]:
    """Gradients of an operator's inputs, in the order of its schema."""
    return (grads[0], grads[1], None, grads[2], *(None,) * (num_inputs - 4))


def _setup_run(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.mark_non_differentiable(*output[1:])
    _save_run(ctx, inputs[-1], output[0], tuple(output[4:]))


def _backward_run(ctx: Any, grad_loss: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    return _as_inputs(_grads_of_run(ctx, grad_loss), _ops.NUM_INPUTS)


def _setup_forward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    loss, rows, z_loss, counts, entropy, saved = output
    unused = () if inputs[-2] else (entropy,)
    ctx.mark_non_differentiable(rows, z_loss, counts, saved, *unused)
    _save_forward(ctx, inputs, loss, saved)


def _backward_forward(
    ctx: Any, grad_loss: Tensor | None, *others: Tensor | None
) -> tuple[Tensor | None, ...]:
    grads = _grads_of_forward(ctx, grad_loss, others[3])
    return _as_inputs(grads, _ops.NUM_INPUTS + 2)


def _called(function: str, operator: Any) -> Any:
    """All results of an operator, at whatever level of torch.func a Function's rule is called."""
    return lambda *args: (globals()[function].apply if is_transformed() else operator)(*args)


def _looped(call: Any) -> Any:
    """vmap's rule: one call per element of the batch."""

    def rule(info: Any, in_dims: Any, *args: Any) -> Any:
        pairs = list(zip(args, in_dims, strict=True))
        made = [
            call(*[a if d is None else a.select(d, i) for a, d in pairs])
            for i in range(info.batch_size)
        ]
        return tuple(map(torch.stack, zip(*made, strict=True))), (0,) * len(made[0])

    return rule


def _function(name: str, operator: Any, setup: Any, backward: Any) -> Any:
    """The operator as a Function that torch.func can transform, as it cannot what
    register_autograd makes. Forward-mode derivatives are refused by torch: there is no jvp."""

    def forward(*args: Any) -> Any:  # a function: the compiler does not trace an operator here
        return operator(*args)

    members = {
        "forward": staticmethod(forward),
        "setup_context": staticmethod(setup),
        "backward": staticmethod(backward),
        "vmap": staticmethod(_looped(_called(name, operator))),
    }
    return type(name, (torch.autograd.Function,), members)


_run_op, _forward_op = torch.ops.flce.run.default, torch.ops.flce.forward.default
_backward_op = torch.ops.flce.backward.default
_backward_into_op = torch.ops.flce.backward_into.default
_TransformedRun = _function("_TransformedRun", _run_op, _setup_run, _backward_run)
_TransformedForward = _function(
    "_TransformedForward", _forward_op, _setup_forward, _backward_forward
)
for _name, _setup, _backward in (
    ("run", _setup_run, _backward_run),
    ("forward", _setup_forward, _backward_forward),
):
    torch.library.register_autograd(f"flce::{_name}", _backward, setup_context=_setup, lib=_ops.lib)
for _name, _operator in (("run", _run_op), ("forward", _forward_op), ("backward", _backward_op)):
    torch.library.register_vmap(f"flce::{_name}", _looped(_operator), lib=_ops.lib)

is_transformed = torch._C._are_functorch_transforms_active


def _is_unwatched() -> bool:
    """Whether calls past the dispatcher are missed by nobody: tracer, compiler, dispatch mode."""
    return (
        not torch.compiler.is_compiling()
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._get_tracing_state() is None
    )


def _is_eager(args: tuple[Any, ...]) -> bool:
    """Whether the kernel may be called past the dispatcher."""
    hidden, weight = args[:2]
    return (
        _is_unwatched()
        and type(hidden) in (Tensor, torch.nn.Parameter)
        and type(weight) in (Tensor, torch.nn.Parameter)
        and hidden.device.type in _abi.DEVICES
        and _hold_values(*args[: _ops.NUM_TENSORS])
    )


def _apart(output: tuple[Tensor, ...], count: int) -> tuple[Tensor, ...]:
    """The first results of an operator whose loss, its tie, is the caller's to change."""
    loss, *others = output
    return (loss.clone(), *others[: count - 1])


def run(*args: Any) -> tuple[Tensor, ...]:
    """flce::run: the four results."""
    if is_transformed():
        return _apart(_TransformedRun.apply(*args), 4)
    if not _is_eager(args):
        return _apart(_run_op(*args), 4)
    if args[-1] == 0:
        return _ops.run_kernel(*args)[:4]
    loss, _, others = LinearCrossEntropy.apply(args[0], args[1], args[3], args)
    return (loss, *others)


def forward(*args: Any) -> tuple[Tensor, ...]:
    """flce::forward: the four results and the entropy."""
    if is_transformed():
        return _apart(_TransformedForward.apply(*args), 5)
    if not _is_eager(args):
        return _apart(_forward_op(*args), 5)
    loss, entropy, _, others = LinearCrossEntropyLater.apply(args[0], args[1], args[3], args)
    return (loss, *others, entropy)


def run_with_grads(*args: Any) -> tuple[Tensor, ...]:
    """flce::run without autograd: the four results and the three gradients."""
    is_plain = _is_eager(args) and not is_transformed()
    return (_ops.run_kernel if is_plain else _run_op)(*args)
