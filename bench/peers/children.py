# SPDX-License-Identifier: Apache-2.0
"""Starts a process for a job and waits for it. What goes wrong there becomes words here: nothing
that a system does ends the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parent


class Answer(NamedTuple):
    lines: list[dict[str, Any]]
    fault: str  # empty where the process ended well
    log: str  # the end of what it printed
    is_late: bool = False  # it was ended for its time


def without_paths(text: str, *folders: str) -> str:
    """Results are for others: no folder of this machine stands in them."""
    named = sorted({*folders, str(FOLDER.parents[1]), str(Path.home()), sys.prefix}, key=len)
    for folder in reversed(named):
        if len(folder) > 1:
            text = text.replace(folder.rstrip("/") + "/", "")
    return text


def whole_lines(path: Path) -> list[dict[str, Any]]:
    """A process that was killed may have left half of its last line."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            found.append(json.loads(line))
    return found


def end(process: subprocess.Popen[bytes]) -> None:
    """The process and its compilers: all of the session that it leads."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def fault_of(code: int, log: str) -> str:
    if code == 0:
        return ""
    if code < 0:
        name = signal.Signals(-code).name
        hint = ", which a machine out of memory does too" if name == "SIGKILL" else ""
        return f"ended by {name}{hint}"
    last = [line for line in log.splitlines() if line.strip()]
    return f"ended with status {code}: {last[-1].strip() if last else ''}"


def run(job: dict[str, Any], limit: float) -> Answer:
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        answer, log = Path(folder, "answer"), Path(folder, "log")
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, str(FOLDER), "child"], stdin=subprocess.PIPE, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            fault, is_late = "", False
            try:
                process.communicate(json.dumps({**job, "answer": str(answer)}).encode(), limit)
            except subprocess.TimeoutExpired:
                fault, is_late = f"not done after {limit:.0f} s", True
            finally:
                end(process)
        text = log.read_text(encoding="utf-8", errors="replace")[-4000:]
        folders = [job["source"]] if job.get("source") else []
        fault = without_paths(fault or fault_of(process.returncode, text), *folders)
        lines = [{key: without_paths(value, *folders) if isinstance(value, str) else value
                  for key, value in line.items()} for line in whole_lines(answer)]  # fmt: skip
        return Answer(lines, fault, text, is_late)
