# SPDX-License-Identifier: Apache-2.0
"""The functions of flce.jax. Letters in shapes: H hidden size, V vocabulary, `...` any leading
shape (its last part is the sequence that `shift` looks along).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ._arguments import Settings, constant, judge
from ._call import COUNTS, PER_TOKEN
from ._gradient import results


class LinearCrossEntropyOutput(NamedTuple):
    """What `linear_cross_entropy` returns when more than the loss is asked for.

    What was not asked for is None. Only `loss` has a gradient: differentiating another result is
    refused. Per-token results have target's shape, are float32 (float64 for float64 input), and 0
    at ignored tokens. `accuracy` is `num_correct / num_valid`, and 0 where no token is valid;
    `num_correct`, `num_valid` and `argmax` are int32.
    """

    loss: jax.Array
    lse: jax.Array | None = None
    logprob: jax.Array | None = None
    entropy: jax.Array | None = None
    accuracy: jax.Array | None = None
    z_loss: jax.Array | None = None
    num_correct: jax.Array | None = None
    num_valid: jax.Array | None = None
    argmax: jax.Array | None = None


def _output(made: dict[str, Any], loss: Any, shape: tuple[int, ...]) -> LinearCrossEntropyOutput:
    other: dict[str, Any] = {name: made[name].reshape(shape) for name in PER_TOKEN if name in made}
    if "z_loss" in made:
        other["z_loss"] = made["z_loss"].reshape(loss.shape)
    # Integers come as pairs of 32 bits, the lower ones first.
    if "num_valid" in made:
        other |= {name: made[name][0] for name in COUNTS}
        correct = other["num_correct"].astype(made["loss"].dtype)
        other["accuracy"] = correct / jnp.maximum(other["num_valid"], 1).astype(correct.dtype)
    if "argmax" in made:
        other["argmax"] = made["argmax"][:, 0].reshape(shape)
    return LinearCrossEntropyOutput(loss, **other)


def linear_cross_entropy(
    hidden: jax.Array,
    weight: jax.Array,
    target: jax.Array,
    *,
    bias: jax.Array | None = None,
    class_weight: jax.Array | None = None,
    reduction: str = "mean",
    ignore_index: int | None = -100,
    label_smoothing: float = 0.0,
    softcap: float | None = None,
    scale: float = 1.0,
    z_loss: float = 0.0,
    token_weight: jax.Array | None = None,
    normalizer: float | jax.Array | None = None,
    shift: int = 0,
    temperature: float | jax.Array = 1.0,
    method: str = "auto",
    chunk: int | None = None,
    budget: int | str | None = None,
    loss_dtype: Any = None,
    return_lse: bool = False,
    return_logprob: bool = False,
    return_entropy: bool = False,
    return_accuracy: bool = False,
    return_z_loss: bool = False,
    return_argmax: bool = False,
) -> jax.Array | LinearCrossEntropyOutput:
    """Cross-entropy of `hidden @ weight.T + bias`, without the logits.

    Per token, with target y, w = class_weight, m = token_weight: `m * ((1 - e) * w_y * (lse - u_y)
    + e / V * sum_j w_j * (lse - u_j) + z_loss * lse**2)`, where `u = softcap * tanh((scale * hidden
    @ weight.T + bias) / softcap) / temperature`, `lse = logsumexp(u)`, `e = label_smoothing`.

    Differentiable once, in reverse, in hidden, weight, bias and an array `normalizer`. Arrays may
    be traced; what is not an array is a constant of the program.

    Args:
        hidden: (..., H), float32, bfloat16, float16 or float64.
        weight: (V, H) of hidden's dtype.
        target: (...) int32 or int64, each in [0, V) or `ignore_index`.
        bias: (V,) of hidden's dtype or float32.
        class_weight: (V,) a constant per class.
        reduction: "mean" divides by the sum of w_y over valid tokens, "sum", or "none".
        ignore_index: may lie in [0, V); None means -100.
        label_smoothing: from 0 to 1.
        softcap: caps logits at +-softcap; None or 0 does not.
        scale: multiplies the product, before bias and softcap.
        z_loss: the coefficient of lse**2.
        token_weight: (...) a constant per token; not part of the divisor of "mean".
        normalizer: divides the sum, in place of the divisor of "mean": a number or, where it
            changes from step to step, an array of one element. Not with "none".
        shift: token t predicts `target[..., t + shift]`; the last `shift` of a sequence nothing.
        temperature: a number, or (...) one per token; divides logits after bias and softcap.
        method: "auto", "fused" (gradients in the forward pass), "recompute" (in the backward pass;
            what auto takes for "none" and float16), "naive", "chunked".
        chunk: token rows that are worked on at once.
        budget: the most extra memory, in bytes or as text like "2GiB".
        loss_dtype: of the returned loss; None: float32 (float64 for float64), also for 16 bits.
        return_lse, return_logprob, return_entropy, return_accuracy, return_z_loss, return_argmax:
            any of them makes the result a `LinearCrossEntropyOutput`.

    Returns:
        The loss: 0-d, or (...) with "none". Ignored tokens give 0 and gradients of exactly 0.

    Raises:
        TypeError: an argument of the wrong kind or dtype; an array where a constant is meant.
        flce.InvalidArgument (ValueError): shapes or numbers that do not fit.
        flce.Unsupported (NotImplementedError): what this device or method cannot do, and the
            derivative of what has none.
        flce.OutOfBudget (RuntimeError): no method fits into `budget`.

        These come while the program is traced. What depends on data comes from JAX when it runs
        (jax.errors.JaxRuntimeError, ValueError): on the CPU a target out of range, named with its
        place. On a card that token's loss is NaN and its gradients are 0.
    """
    wanted = {
        "lse": constant("return_lse", return_lse),
        "logprob": constant("return_logprob", return_logprob),
        "entropy": constant("return_entropy", return_entropy),
        "num_correct": constant("return_accuracy", return_accuracy),
        "num_valid": return_accuracy,
        "z_loss": constant("return_z_loss", return_z_loss),
        "argmax": constant("return_argmax", return_argmax),
    }
    settings = Settings(
        class_weight,
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
        tuple(name for name, is_wanted in wanted.items() if is_wanted),
    )
    tensors, options = judge(hidden, weight, target, bias, settings)
    made = results(options, tensors)
    loss = made["loss"] if reduction != "none" else made["loss"].reshape(target.shape)
    if loss_dtype is not None:
        loss = loss.astype(_real_dtype(loss_dtype))
    return _output(made, loss, target.shape) if options.outputs else loss


def linear_logprob(
    hidden: jax.Array,
    weight: jax.Array,
    target: jax.Array,
    *,
    bias: jax.Array | None = None,
    temperature: float | jax.Array = 1.0,
    softcap: float | None = None,
    scale: float = 1.0,
    ignore_index: int | None = -100,
    shift: int = 0,
    method: str = "auto",
    chunk: int | None = None,
    budget: int | str | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Log-probability of each target and entropy of its distribution, without the logits.

    Both are (...), float32 (float64 for float64 input), differentiable once, in reverse, in hidden,
    weight and bias, with any gradient per token, and 0 at ignored tokens. Arguments and errors as
    for `linear_cross_entropy`; the distribution is `softmax(u)` with its u.

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
        outputs=("entropy",),
        entropy_grad=True,
    )
    tensors, options = judge(hidden, weight, target, bias, settings)
    made = results(options, tensors)
    return -made["loss"].reshape(target.shape), made["entropy"].reshape(target.shape)


def _real_dtype(dtype: Any) -> Any:
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"loss_dtype is {dtype!r}; it must be a floating dtype, or None")
    return jnp.dtype(dtype)
