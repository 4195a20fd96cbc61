# SPDX-License-Identifier: Apache-2.0
"""Runs every Python block of docs/pytorch.md, in order, as a reader would: one after the other."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest
import torch

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pytorch.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[int, str]]:
    """(line of the first statement, source)"""
    text = PAGE.read_text()
    return [(text.count("\n", 0, m.start(1)) + 1, m.group(1)) for m in BLOCK.finditer(text)]


def test_the_page_has_python_blocks_only_in_one_form() -> None:
    text = PAGE.read_text()
    assert len(blocks()) >= 10
    assert len(blocks()) == len(re.findall(r"^```(?:py|python)\b", text, re.MULTILINE))


def test_every_block_runs(monkeypatch: Any, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("peft")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    # What torchrun would set for the one process that this is.
    for name, value in {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    namespace: dict[str, Any] = {"__name__": "docs"}
    try:
        for line, source in blocks():
            code = compile("\n" * (line - 1) + source, str(PAGE), "exec")
            exec(code, namespace)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
