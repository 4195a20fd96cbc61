# SPDX-License-Identifier: Apache-2.0
"""libflce_jax.so (bindings/python/xla_ffi.cpp), and its handlers made known to XLA."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

import jax

from .. import _abi

STEPS = ("run", "forward", "backward")
_FILE = "libflce_jax.so"
_BUILD = (
    "FLCE_XLA_FFI_DIR=$(python -c 'import jax; print(jax.ffi.include_dir())') pip install . "
    "(in the repository)"
)
_PLATFORMS = (("cpu", "cpu"), ("cuda", "CUDA"))  # as its symbols end, as XLA calls them


def _find() -> Path:
    """It lies beside libflce, in the wheel as in a build of the tree."""
    library = _abi.library().path  # loaded first: the handlers use this one and no other
    path = library.with_name(_FILE)
    if not path.is_file():
        raise ImportError(
            f"{_FILE} is not beside {library}: that build had no headers of XLA. Build it with "
            f"those of the JAX at hand: {_BUILD}"
        )
    return path


_lock = threading.Lock()
_is_registered = False


def _register() -> None:
    path = _find()
    try:
        handlers = ctypes.CDLL(str(path))
        for step in STEPS:
            for suffix, platform in _PLATFORMS:
                handler = jax.ffi.pycapsule(getattr(handlers, f"flce_jax_{step}_{suffix}"))
                jax.ffi.register_ffi_target(f"flce_{step}", handler, platform=platform)
    except (OSError, AttributeError, RuntimeError) as error:
        raise ImportError(
            f"{path} cannot be used with JAX {jax.__version__}: {error}. Build it with this JAX's "
            f"headers: {_BUILD}"
        ) from error


def target(step: str) -> str:
    """The name that a program calls a step by. The first call makes all of them known."""
    global _is_registered
    with _lock:
        if not _is_registered:
            _register()
            _is_registered = True
    return f"flce_{step}"
