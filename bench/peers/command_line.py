# SPDX-License-Identifier: Apache-2.0
"""The command line: which systems are there, what of the work is not done yet, one child for each
piece of it, and its rows into the files. This process uses no device itself.
"""

from __future__ import annotations

import argparse
import datetime
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from peers import child, children, rows, systems
from peers.problem import DTYPES, SHAPES, SIZES, Shape

ROOT = Path(__file__).resolve().parents[2]
USAGE = """\
python bench/peers [run]       time, memory and errors of each system on each shape
python bench/peers features    who supports what, by trying
python bench/peers list        which systems are there, and how to get the others

What is in the files already, of this device and these versions, is not done again."""


class Found(NamedTuple):
    """A system as the check found it."""

    name: str
    note: str
    facts: dict[str, Any]

    @property
    def missing(self) -> str:
        return self.facts.get("missing", "")

    def row(self, **more: str) -> dict[str, str]:
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"device": rows.plain(self.facts["device"]), "torch": self.facts["torch"],
                "system": self.name, "system_version": rows.plain(self.facts["version"]),
                "date": date, "note": self.note, **more}  # fmt: skip


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python bench/peers", usage=USAGE, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("task", nargs="?", default="run", choices=("run", "features", "list"))
    parser.add_argument("--systems", help="names, by commas; default: all")
    parser.add_argument("--shapes", default=",".join(SHAPES), help="NxHxV, by commas")
    parser.add_argument("--data", default=",".join(SIZES), help="random, peaked or both")
    parser.add_argument("--dtype", choices=tuple(DTYPES), help="default: bf16; f32 on the CPU")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda where one is")
    parser.add_argument("--out", type=Path, help="folder of peers.csv and features.csv")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=20.0, help="at most, for the rounds")
    parser.add_argument("--warm-seconds", type=float, default=3.0)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of one process")
    parser.add_argument("--minutes", type=float, help="begin nothing new after so many")
    parser.add_argument("--again", action="store_true", help="also what the files have")
    parser.add_argument("--no-errors", action="store_true", help="no comparison with float64")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PATH",
                        help="the sources of a system that is not installed")  # fmt: skip
    parser.add_argument("--adapter", action="append", default=[], metavar="FILE.py",
                        help="more systems: subclasses of peers.systems.Peer")  # fmt: skip
    asked = parser.parse_args(given)
    try:
        asked.shapes = [f"{s.tokens}x{s.hidden}x{s.vocab}"
                        for s in map(Shape.of, asked.shapes.split(","))]  # fmt: skip
    except ValueError as error:
        parser.error(f"{error}")
    asked.sources = {}
    for text in asked.peer:
        name, _, path = text.partition("=")
        if not path or not Path(path).exists():
            parser.error(f"--peer {text}: give NAME=PATH, of a folder or file that is there")
        asked.sources[name] = str(Path(path).resolve())
    asked.adapter = [str(Path(path).resolve()) for path in asked.adapter]
    asked.data = asked.data.split(",")
    if unknown := set(asked.data) - set(SIZES):
        parser.error(f"--data {','.join(sorted(unknown))}: known are {', '.join(SIZES)}")
    known = systems.known(asked.adapter)
    asked.names = asked.systems.split(",") if asked.systems else list(known)
    if unknown := (set(asked.names) | set(asked.sources)) - set(known):
        parser.error(f"no system {', '.join(sorted(unknown))}; known are {', '.join(known)}")
    asked.device = asked.device or ("cuda" if child.torch.cuda.is_available() else "cpu")
    asked.dtype = asked.dtype or ("bf16" if asked.device == "cuda" else "f32")
    return asked


def job(asked: argparse.Namespace, task: str, name: str, **more: Any) -> dict[str, Any]:
    return {"task": task, "system": name, "source": asked.sources.get(name),
            "adapters": asked.adapter, "device": asked.device, "dtype": asked.dtype,
            **more}  # fmt: skip


def checked(asked: argparse.Namespace) -> list[Found]:
    """All at once: this is importing, not measuring."""
    kinds = systems.known(asked.adapter)

    def one(name: str) -> Found:
        answer = children.run(job(asked, "check", name), asked.limit)
        facts = answer.lines[0] if answer.lines else {}
        if not facts:
            facts = {"device": "", "torch": "", "version": "", "get": kinds[name].get,
                     "missing": answer.fault or "no answer"}  # fmt: skip
        return Found(name, kinds[name].note, facts)

    with ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1))) as pool:
        found = list(pool.map(one, asked.names))
    device = next((f.facts["device"] for f in found if f.facts["device"]), asked.device)
    for f in found:
        f.facts["device"] = f.facts["device"] or device
    return found


def show(found: list[Found]) -> None:
    for f in found:
        if f.missing:
            how = f"; to get it: {f.facts['get']}" if f.facts.get("get") else ""
            version = f" ({f.facts['version']})" if f.facts["version"] else ""
            print(f"missing  {f.name:40s} {f.missing}{version}{how}")
        else:
            print(f"there    {f.name:40s} {f.facts['version']}")
    sys.stdout.flush()


def folder_of(asked: argparse.Namespace, found: list[Found]) -> Path:
    """The card's folder in bench/results; figures of a CPU go to no table."""
    if asked.out:
        return asked.out
    if asked.device == "cpu":
        return ROOT / "build" / "bench" / "peers-cpu"
    name = found[0].facts["device"].lower().removeprefix("nvidia ")
    return ROOT / "bench" / "results" / "-".join(name.split())


def store_missing(file: rows.File, found: list[Found]) -> None:
    """One row says that a system is not there; it goes when the system comes."""
    for f in found:
        if f.facts.get("get") or not f.missing:
            file.drop(device=rows.plain(f.facts["device"]), system=f.name, shape="")
    file.store(f.row(refused=f"missing: {f.missing}; to get it: {f.facts['get']}")
               for f in found if f.missing and f.facts.get("get"))  # fmt: skip


def time_is_over(asked: argparse.Namespace, start: float) -> bool:
    return asked.minutes is not None and time.monotonic() - start > 60 * asked.minutes


def pieces(asked: argparse.Namespace, file: rows.File,
           found: list[Found]) -> Iterator[tuple[Found, str, list[str]]]:  # fmt: skip
    """System, shape and kinds of data that the file does not have yet; shape by shape."""
    for shape in asked.shapes:
        for f in found:
            base = f.row(shape=shape, dtype=asked.dtype)
            data = [d for d in asked.data if asked.again or not file.has({**base, "data": d})]
            if not f.missing and data:
                yield f, shape, data


def measure(asked: argparse.Namespace, file: rows.File, found: list[Found], start: float) -> int:
    store_missing(file, found)
    settings = {"rounds": asked.rounds, "seconds": asked.seconds,
                "warm_seconds": asked.warm_seconds, "errors": not asked.no_errors}  # fmt: skip
    left_out = 0
    for f, shape, data in pieces(asked, file, found):
        if time_is_over(asked, start):
            left_out += 1
            continue
        print(f"==> {shape} {asked.dtype} {f.name}", flush=True)
        answer = children.run(
            job(asked, "measure", f.name, shape=shape, data=data, settings=settings), asked.limit
        )
        lines = {line["data"]: line for line in answer.lines}
        for kind in data:  # what the process did not come to, it refused
            lines.setdefault(kind, {"data": kind, "refused": answer.fault or "no answer"})
        file.store({**f.row(shape=shape, dtype=asked.dtype), **lines[kind]} for kind in data)
        for kind in data:
            found_there = [f"{n} {v}" for n, v in lines[kind].items() if n != "data" and v != ""]
            said = lines[kind].get("refused") or " ".join(found_there)
            print("   ", kind, said, flush=True)
    return left_out


def attempt(asked: argparse.Namespace, file: rows.File, found: list[Found], start: float) -> int:
    """A process tries a system's features in turn; after a crash a new one tries the rest. One that
    was late tried many: the feature that was next begins the next process, with all of its time."""
    left_out = 0
    for f in found:
        if f.missing:
            continue
        base = f.row(dtype=asked.dtype)
        todo = [name for name in child.features.FEATURES
                if asked.again or not file.has({**base, "feature": rows.plain(name)})]  # fmt: skip
        print(f"==> {f.name}: {len(todo)} features to try", flush=True)
        while todo:
            if time_is_over(asked, start):
                left_out += len(todo)
                break
            answer = children.run(job(asked, "features", f.name, features=todo), asked.limit)
            lines = answer.lines
            ended_by_itself = answer.fault and not answer.is_late
            if len(lines) < len(todo) and (ended_by_itself or not lines):
                lines = [*lines, {"feature": todo[len(lines)], "supported": "no",
                                  "answer": answer.fault or "no answer"}]  # fmt: skip
            file.store({**base, **line} for line in lines)
            for line in lines:
                print(f"    {line['feature']:36s} {line['supported']:4s} {line['answer']}")
            todo = todo[len(lines):]  # fmt: skip
    return left_out


def main(given: list[str] | None = None) -> int:
    if (sys.argv[1:] if given is None else given) == ["child"]:
        return child.main()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that children are ended too
    start, asked = time.monotonic(), arguments(given)
    found = checked(asked)
    show(found)
    if asked.task == "list":
        return 0
    folder = folder_of(asked, found)
    try:
        if asked.task == "run":
            left_out = measure(asked, rows.timings(folder / "peers.csv"), found, start)
        else:
            left_out = attempt(asked, rows.features(folder / "features.csv"), found, start)
    except KeyboardInterrupt:
        print(f"stopped; the rows so far are in {folder}")
        return 130
    print(f"rows in {folder}" + (f"; {left_out} left for the next call" if left_out else ""))
    return 0
