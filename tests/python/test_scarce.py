# SPDX-License-Identifier: Apache-2.0
"""Processes that run out of memory: scarce_child.py, libscarce.so preloaded (tests/scarce)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from child import environment
from flce import _abi


def scarce_library() -> Path:
    """Beside the library that is tested, where a build has made it."""
    return _abi.library().path.parent / "libscarce.so"


@pytest.mark.parametrize("what", ("library", "tensors"))
def test_each_request_refused_in_turn(what: str) -> None:
    scarce = scarce_library()
    if not scarce.is_file():
        pytest.skip(f"{scarce} is not built")
    child = Path(__file__).with_name("scarce_child.py")
    preload = os.pathsep.join(filter(None, (str(scarce), os.environ.get("LD_PRELOAD"))))
    done = subprocess.run(
        [sys.executable, str(child), str(scarce), what],
        env=environment(LD_PRELOAD=preload),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    assert "refused" in done.stdout
