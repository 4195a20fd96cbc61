# SPDX-License-Identifier: Apache-2.0
"""The functions of flce.torch. Arguments are judged, then one operator of _ops.py is called.

Letters in shapes: H hidden size, V vocabulary, `...` any leading shape (its last part is the
sequence that `shift` looks along).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor

from .._abi import InvalidArgument
from . import _autograd, _call
from ._arguments import Head, Problem, Settings, judge
from ._scalars import real_dtype


class LinearCrossEntropyOutput(NamedTuple):
    """What `linear_cross_entropy` returns when more than the loss is asked for.

    What was not asked for is None. Only `loss` has a gradient. Per-token results have target's
    shape, are float32 (float64 for float64 input), and 0 at ignored tokens. `accuracy` is
    `num_correct / num_valid`, and 0 where no token is valid. `argmax` is int64.
    """

    loss: Tensor
    lse: Tensor | None = None
    logprob: Tensor | None = None
    entropy: Tensor | None = None
    accuracy: Tensor | None = None
    z_loss: Tensor | None = None
    num_correct: Tensor | None = None
    num_valid: Tensor | None = None
    argmax: Tensor | None = None


def _results(problem: Problem, entropy_grad: bool = False) -> tuple[Tensor, ...]:
    """loss, per-token rows, z-loss part, integers [, entropy] of one operator."""
    if not problem.split:
        return _autograd.run(*problem.tensors, *problem.options)
    return _autograd.forward(*problem.tensors, *problem.options, entropy_grad, problem.into)


def _output(
    results: tuple[Tensor, ...], outputs: int, loss: Tensor, shape: torch.Size
) -> LinearCrossEntropyOutput:
    _, rows, z_loss, integers, *_ = results
    row = iter(() if rows is None else rows)
    lse, logprob, entropy = (
        next(row) if outputs & bit else None for bit in (_call.LSE, _call.LOGPROB, _call.ENTROPY)
    )
    correct = valid = accuracy = argmax = None
    if outputs & _call.COUNTS:
        correct, valid = integers[0], integers[1]
        accuracy = correct.to(results[0].dtype) / valid.clamp(min=1)
    if outputs & _call.ARGMAX:
        argmax = integers[2 * bool(outputs & _call.COUNTS) :].view(shape)
    return LinearCrossEntropyOutput(
        loss,
        lse,
        logprob,
        entropy,
        accuracy,
        z_loss if outputs & _call.Z_LOSS else None,
        correct,
        valid,
        argmax,
    )


@overload
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = ...,
    weight: Tensor | None = ...,
    reduction: str = ...,
    ignore_index: int | None = ...,
    label_smoothing: float = ...,
    options: Any = ...,
    softcap: float | None = ...,
    scale: float = ...,
    z_loss: float = ...,
    token_weight: Tensor | None = ...,
    normalizer: float | Tensor | None = ...,
    shift: int = ...,
    temperature: float | Tensor = ...,
    method: str = ...,
    chunk: int | None = ...,
    budget: int | str | None = ...,
    accumulate_into: Tensor | None = ...,
    loss_dtype: torch.dtype | None = ...,
    return_lse: Literal[False] = ...,
    return_logprob: Literal[False] = ...,
    return_entropy: Literal[False] = ...,
    return_accuracy: Literal[False] = ...,
    return_z_loss: Literal[False] = ...,
    return_argmax: Literal[False] = ...,
) -> Tensor: ...


@overload
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = ...,
    weight: Tensor | None = ...,
    reduction: str = ...,
    ignore_index: int | None = ...,
    label_smoothing: float = ...,
    options: Any = ...,
    softcap: float | None = ...,
    scale: float = ...,
    z_loss: float = ...,
    token_weight: Tensor | None = ...,
    normalizer: float | Tensor | None = ...,
    shift: int = ...,
    temperature: float | Tensor = ...,
    method: str = ...,
    chunk: int | None = ...,
    budget: int | str | None = ...,
    accumulate_into: Tensor | None = ...,
    loss_dtype: torch.dtype | None = ...,
    return_lse: bool = ...,
    return_logprob: bool = ...,
    return_entropy: bool = ...,
    return_accuracy: bool = ...,
    return_z_loss: bool = ...,
    return_argmax: bool = ...,
) -> Tensor | LinearCrossEntropyOutput: ...


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = -100,
    label_smoothing: float = 0.0,
    options: Any = None,
    softcap: float | None = None,
    scale: float = 1.0,
    z_loss: float = 0.0,
    token_weight: Tensor | None = None,
    normalizer: float | Tensor | None = None,
    shift: int = 0,
    temperature: float | Tensor = 1.0,
    method: str = "auto",
    chunk: int | None = None,
    budget: int | str | None = None,
    accumulate_into: Tensor | None = None,
    loss_dtype: torch.dtype | None = None,
    return_lse: bool = False,
    return_logprob: bool = False,
    return_entropy: bool = False,
    return_accuracy: bool = False,
    return_z_loss: bool = False,
    return_argmax: bool = False,
) -> Tensor | LinearCrossEntropyOutput:
    """Cross-entropy of `F.linear(input, linear_weight, linear_bias)`, without the logits.

    The signature and meaning of `torch.nn.functional.linear_cross_entropy` for class indices; the
    arguments from `softcap` on are additions. Per token, with target y, class weight w, m =
    token_weight: `m * ((1 - e) * w_y * (lse - u_y) + e / V * sum_j w_j * (lse - u_j) + z_loss *
    lse**2)`, where `u = softcap * tanh((scale * input @ linear_weight.T + bias) / softcap) /
    temperature`, `lse = logsumexp(u)`, `e = label_smoothing`.

    Args:
        input: (..., H), float32, bfloat16, float16 or float64, of any strides.
        linear_weight: (V, H) of input's dtype.
        target: (...) int64 or int32, each in [0, V) or `ignore_index`.
        linear_bias: (V,) of input's dtype or float32.
        weight: (V,) a constant per class.
        reduction: "mean" divides by the sum of w_y over valid tokens, "sum", or "none".
        ignore_index: may lie in [0, V); None means -100.
        label_smoothing: from 0 to 1.
        options: a `torch.nn.LinearCrossEntropyOptions`, where its meaning exists here.
        softcap: caps logits at +-softcap; None or 0 does not.
        scale: multiplies the product, before bias and softcap.
        z_loss: the coefficient of lse**2.
        token_weight: (...) a constant per token; not part of the divisor of "mean".
        normalizer: divides the sum, in place of the divisor of "mean": a number or a tensor of one
            element on any device (a trainer's `num_items_in_batch`). Not with "none".
        shift: token t predicts `target[..., t + shift]`; the last `shift` of a sequence nothing.
        temperature: a number, or (...) one per token; divides logits after bias and softcap.
        method: "auto", "fused" (gradients in the forward pass), "recompute" (in the backward pass;
            what auto takes for "none", float16 and accumulate_into), "naive", "chunked".
        chunk: token rows that are worked on at once.
        budget: the most extra memory, in bytes or as text like "2GiB".
        accumulate_into: (V, H) of the weight's dtype or float32. In the backward pass the weight's
            gradient is added to it, and `linear_weight.grad` is left alone (it gets no gradient).
        loss_dtype: of the returned loss; None: float32 (float64 for float64), also for 16 bits.
        return_lse, return_logprob, return_entropy, return_accuracy, return_z_loss, return_argmax:
            any of them makes the result a `LinearCrossEntropyOutput`.

    Returns:
        The loss: 0-d, or (...) with "none". Ignored tokens give 0 and gradients of exactly 0.

    Raises:
        TypeError: an argument of the wrong kind or dtype (class probabilities, DTensor, ...).
        flce.InvalidArgument (ValueError): shapes, devices or numbers that do not fit.
        flce.Unsupported (NotImplementedError): what this device or method cannot do.
        flce.OutOfBudget (RuntimeError): no method fits into `budget`.
        flce.OutOfMemory (MemoryError): the library got none; torch, whose tensors hold all that is
            large, raises its own error. Gradients are whole, or as they were.
        flce.TargetOutOfRange (IndexError): on the CPU, or with FLCE_CHECK=1; otherwise on a card
            that token's loss is NaN and its gradients are 0.
    """
    outputs = (
        _call.LSE * bool(return_lse)
        | _call.LOGPROB * bool(return_logprob)
        | _call.ENTROPY * bool(return_entropy)
        | _call.COUNTS * bool(return_accuracy)
        | _call.Z_LOSS * bool(return_z_loss)
        | _call.ARGMAX * bool(return_argmax)
    )
    problem = judge(
        Head(input, linear_weight, target, linear_bias),
        Settings(
            weight,
            token_weight,
            temperature,
            normalizer,
            reduction,
            ignore_index,
            label_smoothing,
            z_loss,
            softcap,
            scale,
            shift,
            method,
            chunk,
            budget,
            options,
            accumulate_into,
            outputs,
        ),
    )
    results = _results(problem)
    loss = results[0] if loss_dtype is None else results[0].to(real_dtype(loss_dtype))
    return _output(results, outputs, loss, target.shape) if outputs else loss


def linear_logprob(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    bias: Tensor | None = None,
    temperature: float | Tensor = 1.0,
    softcap: float | None = None,
    scale: float = 1.0,
    ignore_index: int | None = -100,
    shift: int = 0,
    method: str = "auto",
    chunk: int | None = None,
    budget: int | str | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probability of each target and entropy of its distribution, without the logits.

    Both are (...), float32 (float64 for float64 input), differentiable with any gradient per token,
    and 0 at ignored tokens. Arguments and errors as for `linear_cross_entropy`; the distribution is
    `softmax(u)` with its u.

    Returns:
        (logprob, entropy).
    """
    settings = Settings(
        temperature=temperature,
        reduction="none",
        ignore_index=ignore_index,
        softcap=softcap,
        scale=scale,
        shift=shift,
        method=method,
        chunk=chunk,
        budget=budget,
    )
    head = Head(input, weight, target, bias, "weight", "bias")
    problem = judge(head, settings, entropy_grad=True)
    if problem.split:
        loss, *_, entropy = _results(problem, entropy_grad=True)
        return -loss, entropy
    outputs = _call.ENTROPY
    loss, rows, *_ = _results(problem._replace(options=problem.options._replace(outputs=outputs)))
    return -loss, rows[0]


def loss_and_grads(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    chunk_size: int | None = None,
    reduction: str = "mean",
    ignore_index: int | None = -100,
    label_smoothing: float = 0.0,
    softcap: float | None = None,
    scale: float = 1.0,
    z_loss: float = 0.0,
    normalizer: float | Tensor | None = None,
    shift: int = 0,
    method: str = "auto",
    budget: int | str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and both gradients in one call and without autograd, as the technique makes them.

    hidden (..., H), weight (V, H), target (...); `chunk_size` token rows are worked on at once and
    their logits are gone before the next ones are made. Other arguments and errors as for
    `linear_cross_entropy`; reduction "none" is refused, for it has no one gradient.

    Returns:
        (loss, grad_hidden, grad_weight): 0-d, hidden's shape and dtype, weight's shape and dtype.
    """
    if reduction == "none":
        raise InvalidArgument(
            "reduction is 'none': losses per token have no one gradient; use 'mean' or 'sum', or "
            "linear_cross_entropy, whose backward pass takes a gradient per token"
        )
    settings = Settings(
        normalizer=normalizer,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        z_loss=z_loss,
        softcap=softcap,
        scale=scale,
        shift=shift,
        method=method,
        chunk=chunk_size,
        budget=budget,
    )
    with torch.no_grad():
        problem = judge(Head(hidden, weight, target, None, "weight"), settings)
        grads = _call.GRAD_HIDDEN | _call.GRAD_WEIGHT
        options = problem.options._replace(grads=grads)
        loss, *_, grad_hidden, grad_weight, _ = _autograd.run_with_grads(*problem.tensors, *options)
    return loss, grad_hidden, grad_weight
