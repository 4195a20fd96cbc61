# SPDX-License-Identifier: Apache-2.0
"""What a child process does: one job, read as JSON from standard input. Answers are lines of JSON
in the file that the job names, each written when it is known, so that a crash loses only its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import results
import torch

from peers import features, measure, systems, words
from peers.problem import Shape


def end_with_the_parent() -> None:
    """On Linux: where the parent is killed, this process is too."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def loaded(job: dict[str, Any]) -> systems.Peer:
    peer = systems.known(job["adapters"])[job["system"]]()
    peer.source = Path(job["source"]) if job.get("source") else None
    peer.load()
    return peer


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else results.cpu_model()


def check(job: dict[str, Any]) -> dict[str, Any]:
    """Whether it is there, and of which version."""
    found = {"device": device_name(job["device"]), "torch": torch.__version__, "version": ""}
    kind = systems.known(job["adapters"])[job["system"]]
    try:
        found["version"] = loaded(job).version()
    except Exception as error:  # a broken package is as missing as none
        return {**found, "missing": words.of_error(error), "get": kind.get}
    if job["device"] not in kind.devices:
        return {**found, "missing": f"does not run on {job['device']}", "get": ""}
    return found


def measured(job: dict[str, Any]) -> Any:
    peer, settings = loaded(job), measure.Settings(**job["settings"])
    shape = Shape.of(job["shape"])
    for data in job["data"]:
        try:
            row = measure.measured(peer, shape, job["dtype"], job["device"], data, settings)
        except Exception as error:
            row = {"refused": words.of_error(error)}
        yield {"data": data, **row}


def is_well(device: str) -> bool:
    """After a fault on a card every later call of the process fails, whosever it is."""
    try:
        if device == "cuda":
            torch.cuda.synchronize()
    except Exception:
        return False
    return True


def tried(job: dict[str, Any]) -> Any:
    case = features.Case(loaded(job), job["dtype"], job["device"])
    for name in job["features"]:
        supported, answer = features.tried(case, name)
        yield {"feature": name, "supported": supported, "answer": answer}
        if not is_well(job["device"]):
            os._exit(0)  # a broken card makes a clean end crash; a new process tries the rest


def main() -> int:
    end_with_the_parent()
    job = json.load(sys.stdin)
    ways: dict[str, Any] = {
        "check": lambda: [check(job)],
        "measure": lambda: measured(job),
        "features": lambda: tried(job),
    }
    with open(job["answer"], "w", encoding="utf-8") as out:
        for line in ways[job["task"]]():
            out.write(json.dumps(line) + "\n")
            out.flush()
    return 0
