# SPDX-License-Identifier: Apache-2.0
"""FLCE for JAX: one line in place of the head's product and the cross-entropy of its logits."""

from __future__ import annotations

try:
    import jax as _jax
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    raise ImportError(
        "flce.jax needs JAX 0.5 or newer, which is not installed; install it with "
        "'pip install jax' (or 'pip install flce[jax]')"
    ) from error

if tuple(int(part) for part in _jax.__version__.split(".")[:2]) < (0, 5):
    raise ImportError(
        f"flce.jax needs JAX 0.5 or newer, and {_jax.__version__} is installed; "
        "'pip install --upgrade jax' brings a newer one"
    )

from .functional import LinearCrossEntropyOutput, linear_cross_entropy, linear_logprob

__all__ = ["LinearCrossEntropyOutput", "linear_cross_entropy", "linear_logprob"]
