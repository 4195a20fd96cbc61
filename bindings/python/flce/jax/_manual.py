# SPDX-License-Identifier: Apache-2.0
"""Arrays inside jax.shard_map: JAX tracks over which axes of the mesh each one varies."""

from __future__ import annotations

from typing import Any

import jax


def varying_axes(array: Any) -> frozenset[str]:
    """Axes over which an array differs from device to device; none outside shard_map."""
    if not isinstance(array, jax.core.Tracer) or not hasattr(jax, "typeof"):
        return frozenset()
    kind = jax.typeof(array)
    axes = getattr(kind, "vma", None)  # until JAX 0.9; then a part of another field
    if axes is None:
        axes = getattr(getattr(kind, "manual_axis_type", None), "varying", None)
    return frozenset(axes or ())


def _vary(array: Any, axes: frozenset[str]) -> Any:
    missing = tuple(sorted(axes - varying_axes(array)))
    if not missing:
        return array
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(array, missing, to="varying")
    return jax.lax.pvary(array, missing)


def vary_alike(arrays: list[Any]) -> list[Any]:
    """All of them over the axes of any: what a call of several arrays needs. The derivative of this
    step sums the gradient of an array that was the same everywhere, such as the head."""
    axes = frozenset().union(*[varying_axes(a) for a in arrays if a is not None])
    return [None if a is None else _vary(a, axes) for a in arrays] if axes else arrays
