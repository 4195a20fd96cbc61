# SPDX-License-Identifier: Apache-2.0
"""FLCE: cross-entropy of `hidden @ weight.T` without ever holding the tokens x vocabulary logits.

`flce.plan` says what a loss needs; `flce.torch` and `flce.jax` are the front ends (imported by
name alone, so that this package needs neither torch nor JAX nor numpy).
"""

from __future__ import annotations

from ._abi import (
    DeviceError,
    Error,
    InternalError,
    InvalidArgument,
    OutOfBudget,
    OutOfMemory,
    TargetOutOfRange,
    Unsupported,
    cuda_refusal,
)
from ._plan import Plan, plan

__all__ = [
    "DeviceError",
    "Error",
    "InternalError",
    "InvalidArgument",
    "OutOfBudget",
    "OutOfMemory",
    "Plan",
    "TargetOutOfRange",
    "Unsupported",
    "cuda_refusal",
    "plan",
]


def __getattr__(name: str) -> str:
    # Looked up late: importing the package must work where only its Python part is read.
    if name == "__version__":
        from ._abi import version

        return version()
    raise AttributeError(f"module 'flce' has no attribute {name!r}")
