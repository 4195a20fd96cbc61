# SPDX-License-Identifier: Apache-2.0
"""Runs every Python block of docs/pytorch.md and docs/jax.md, in order, as a reader would: one
after the other; and those of the README, each by itself.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import child

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "pytorch.md"
JAX_PAGE = ROOT / "docs" / "jax.md"
sys.path.insert(0, str(ROOT / "tests" / "docs"))
import run_snippets  # noqa: E402


def blocks(page: Path = PAGE) -> list[tuple[int, str]]:
    """(line of the first statement, source)"""
    return list(run_snippets.blocks(page.read_text(), "python"))


def run(page: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "docs"}
    for line, source in blocks(page):
        exec(compile("\n" * (line - 1) + source, str(page), "exec"), namespace)


def test_the_readmes_example_runs_and_has_ten_lines() -> None:
    for page in run_snippets.READMES:
        ((_, source),) = run_snippets.blocks((ROOT / page).read_text(), "python")
        assert len(source.splitlines()) <= 10
    command = [sys.executable, str(ROOT / "tests" / "docs" / "run_snippets.py"), str(ROOT)]
    done = subprocess.run(
        [*command, "--python"], capture_output=True, text=True, env=child.environment()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 ran" in done.stdout


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
    try:
        run(PAGE)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def test_every_block_of_jax_runs() -> None:
    pytest.importorskip("jax_support", reason="JAX is not installed")
    assert len(blocks(JAX_PAGE)) == len(re.findall(r"^```py", JAX_PAGE.read_text(), re.MULTILINE))
    run(JAX_PAGE)
