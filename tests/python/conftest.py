# SPDX-License-Identifier: Apache-2.0
"""The package of this tree and the newest library of its builds, or, with FLCE_TEST_INSTALLED set,
whatever is installed. Tests marked `gpu` are skipped, with the reason, where there is no card."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

if not os.environ.get("FLCE_TEST_INSTALLED"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bindings" / "python"))

import torch

import flce


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # JAX, once started, has threads, and warns of them at each fork: its tests come last.
    items.sort(key=lambda item: "jax" in item.nodeid)
    reason = "" if torch.cuda.is_available() else "torch finds no CUDA device"
    reason = reason or flce.cuda_refusal()
    if reason:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(20261202)
