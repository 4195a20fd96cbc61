# SPDX-License-Identifier: Apache-2.0
"""libflce_jax.so (bindings/python/xla_ffi.cpp), and its handlers made known to XLA."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import jax

from .. import _abi

STEPS = ("run", "forward", "backward")
_FILE = "libflce_jax.so"
_PLATFORMS = (("cpu", "cpu"), ("cuda", "CUDA"))  # as its symbols end, as XLA calls them


def _find() -> Path:
    """It lies beside libflce, in the wheel as in a build of the tree."""
    library = _abi.library().path  # loaded first: the handlers use this one and no other
    path = library.with_name(_FILE)
    if not path.is_file():
        raise ImportError(
            f"{_FILE} is not beside {library}: that build had no headers of XLA. Name those of the "
            "JAX at hand and build again: FLCE_XLA_FFI_DIR=$(python -c 'import jax; "
            "print(jax.ffi.include_dir())') pip install . (in the repository)"
        )
    return path


@functools.cache
def register() -> None:
    """Every handler, as the target flce_run, flce_forward or flce_backward; once per process."""
    path = _find()
    try:
        handlers = ctypes.CDLL(str(path))
        for step in STEPS:
            for suffix, platform in _PLATFORMS:
                handler = jax.ffi.pycapsule(getattr(handlers, f"flce_jax_{step}_{suffix}"))
                jax.ffi.register_ffi_target(f"flce_{step}", handler, platform=platform)
    except (OSError, AttributeError) as error:
        raise ImportError(
            f"{path} cannot be used: {error}. Install the package and its libraries from one "
            "version"
        ) from error


def target(step: str) -> str:
    """The name that a program calls a step by."""
    register()
    return f"flce_{step}"
