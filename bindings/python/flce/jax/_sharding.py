# SPDX-License-Identifier: Apache-2.0
"""Arrays that are spread over a mesh, as far as their types say so: inside jax.shard_map over which
axes each one varies, and with axes of type Explicit how it is split."""

from __future__ import annotations

from typing import Any

import jax

from .. import _abi


def _type_of(array: Any) -> Any:
    """None where JAX is too old to say."""
    return jax.typeof(array) if hasattr(jax, "typeof") else None


def varying_axes(array: Any) -> frozenset[str]:
    """Axes over which an array differs from device to device; none outside shard_map."""
    if not isinstance(array, jax.core.Tracer):
        return frozenset()
    kind = _type_of(array)
    axes = getattr(kind, "vma", None)  # until JAX 0.9; then a part of another field
    if axes is None:
        axes = getattr(getattr(kind, "manual_axis_type", None), "varying", None)
    return frozenset(axes or ())


def _vary(array: Any, axes: frozenset[str]) -> Any:
    missing = tuple(sorted(axes - varying_axes(array)))
    if not missing:
        return array
    lax: Any = jax.lax  # the newer name is the first one
    if hasattr(lax, "pcast"):
        return lax.pcast(array, missing, to="varying")
    return lax.pvary(array, missing)


def whole(array: Any) -> Any:
    """An array as each device of explicit axes will have it, as XLA does for others by itself: it
    cannot split the call. The derivative of this step splits the gradient again."""
    sharding: Any = getattr(_type_of(array), "sharding", None)
    spec = getattr(sharding, "spec", None) or ()
    if all(axes is None for axes in spec):
        return array
    if not hasattr(jax.sharding, "reshard"):
        raise _abi.Unsupported(
            f"an array is split as {spec} over explicit axes, which this JAX cannot undo; call it "
            "inside jax.shard_map, or with axes of type Auto"
        )
    unsplit = jax.sharding.PartitionSpec(*[None] * array.ndim)
    return jax.sharding.reshard(array, jax.sharding.NamedSharding(sharding.mesh, unsplit))


def vary_alike(arrays: list[Any]) -> list[Any]:
    """All of them over the axes of any: what a call of several arrays needs. The derivative of this
    step sums the gradient of an array that was the same everywhere, such as the head."""
    axes = frozenset().union(*[varying_axes(a) for a in arrays if a is not None])
    return [None if a is None else _vary(a, axes) for a in arrays] if axes else arrays
