# SPDX-License-Identifier: Apache-2.0
"""Python processes that see the modules which this one sees: the package and these helpers."""

from __future__ import annotations

import os
import sys


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": path, **more}
