# SPDX-License-Identifier: Apache-2.0
"""The list of systems. A new one: a class in a file here, and its name in ALL."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Iterable
from pathlib import Path

from . import cce, liger, ours, quack, torch_ways, verl
from .base import Peer, Result

ALL: tuple[type[Peer], ...] = (
    *torch_ways.ALL, *liger.ALL, *cce.ALL, *quack.ALL, *verl.ALL, *ours.ALL
)  # fmt: skip

__all__ = ["ALL", "Peer", "Result", "known"]


def _of_file(path: Path) -> list[type[Peer]]:
    spec = importlib.util.spec_from_file_location(f"peer_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path}: no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kinds = [kind for _, kind in inspect.getmembers(module, inspect.isclass)]
    own = [kind for kind in kinds if issubclass(kind, Peer) and kind.__module__ == spec.name]
    return [kind for kind in own if "name" in vars(kind)]


def known(adapters: Iterable[str | Path] = ()) -> dict[str, type[Peer]]:
    """Name -> class, of the list and of files that --adapter names."""
    found = {kind.name: kind for kind in ALL}
    for path in adapters:
        found.update((kind.name, kind) for kind in _of_file(Path(path)))
    return found
