# SPDX-License-Identifier: Apache-2.0
"""An exception in one line: what a system answers where it refuses."""

from __future__ import annotations

import traceback

import torch


def of_error(error: BaseException) -> str:
    """Its own words; where it has none, such as a bare assertion, the line of code that raised."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return "out of memory"
    said = str(error).strip().splitlines()
    frames = traceback.extract_tb(error.__traceback__)
    line = said[0] if said else (frames[-1].line or "" if frames else "")
    return f"{type(error).__name__}: {line}".rstrip(": ")
