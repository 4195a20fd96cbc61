# SPDX-License-Identifier: Apache-2.0
"""Random training steps through flce.torch: results right, memory flat.

    ./dev soak                                # 2000 steps on the CPU, with a seed of the clock
    ./dev soak --device cuda --steps 300      # on a card
    ./dev soak --device cpu --seed 7 --case 31     # one step of that run again

Each step draws sizes, layouts and options (cases.py), runs forward and backward, and is held
against float64 PyTorch operations (checks.py). A step that differs is printed with the command that
repeats it. Memory is read every few steps after a garbage collection: the resident set (what the C
library keeps free is given back first), on a card also what torch has allocated and what the device
has in use once torch's cache is empty. The rule: between the second quarter of these readings and
the last one, medians grow by no more than LIMITS_MIB; the first quarter is the warm-up. Each new
problem leaves a plan of some 2 KB in flce.torch, which keeps at most 4096 of them. A run of less
than 200 steps is not judged so. Exit code 1: a step or the memory is wrong.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))

import torch  # noqa: E402

import cases  # noqa: E402
import checks  # noqa: E402
import flce  # noqa: E402

LIMITS_MIB = {
    "cpu": {"resident set": 8.0},
    # A kernel's code is loaded at its first use, in the host's memory and the device's.
    "cuda": {"resident set": 64.0, "allocated by torch": 0.5, "in use on the device": 64.0},
}
NUM_READINGS = 100  # each costs a garbage collection
LEAST_STEPS = 200


class Memory:
    """Readings of a run, each a number of bytes."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.readings: dict[str, list[int]] = {name: [] for name in LIMITS_MIB[device]}
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
        self.trim = trim if trim is not None else lambda _: 0

    def read(self) -> None:
        gc.collect()
        self.trim(0)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        now = {"resident set": pages * 4096}
        if self.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            free, total = torch.cuda.mem_get_info()
            now["allocated by torch"] = torch.cuda.memory_allocated()
            now["in use on the device"] = total - free
        for name, value in now.items():
            self.readings[name].append(value)

    def growth_mib(self, name: str) -> float:
        values = self.readings[name]
        quarter = len(values) // 4
        early, late = values[quarter : 2 * quarter], values[-quarter:]
        return (statistics.median(late) - statistics.median(early)) / 2**20

    def verdict(self) -> list[str]:
        """Lines on what grew, those that are too much beginning with FAILED."""
        lines = []
        for name, limit in LIMITS_MIB[self.device].items():
            growth, last = self.growth_mib(name), self.readings[name][-1] / 2**20
            word = "FAILED: " if growth > limit else ""
            lines.append(f"{word}{name}: {growth:+.2f} MiB, at most {limit}; {last:.1f} at the end")
        return lines


class Soak:
    """A run: its seed, its counts, and the steps that failed."""

    def __init__(self, device: str, seed: int) -> None:
        self.device, self.seed = device, seed
        self.failed: list[int] = []
        self.num_budgets = 0

    def step(self, number: int) -> cases.Case:
        case = cases.draw(self.seed, number, self.device)
        said = str(case)
        faults = checks.faults_of(case, cases.tensors_of(case, self.seed, self.device))
        self.num_budgets += case.slack > 0
        if faults:
            self.failed.append(number)
            print(f"FAILED: case {number}: {said}")
            print("\n".join(f"    {fault}" for fault in faults))
            print(f"    ./dev soak --device {self.device} --seed {self.seed} --case {number}",
                  flush=True)  # fmt: skip
        return case

    def run(self, num_steps: int, seconds: float, most_failures: int) -> int:
        """Exit code."""
        memory, begin = Memory(self.device), time.monotonic()
        counts = dict.fromkeys(cases.DTYPES, 0)
        every = max(1, num_steps // NUM_READINGS)
        done = 0
        while done < num_steps and len(self.failed) < most_failures:
            if time.monotonic() - begin > seconds:
                print(f"the time is over after {done} of {num_steps} steps")
                break
            counts[self.step(done).dtype] += 1
            done += 1
            if done % every == 0:
                memory.read()
            if done % max(1, num_steps // 10) == 0:
                print(f"{done:6d} steps, {time.monotonic() - begin:6.1f} s", flush=True)
        by_dtype = ", ".join(f"{count} {dtype}" for dtype, count in counts.items())
        print(f"{done} steps ({by_dtype}) in {time.monotonic() - begin:.1f} s: {len(self.failed)} "
              f"failed; {self.num_budgets} had a budget")  # fmt: skip
        lines = memory.verdict() if done >= LEAST_STEPS else ["memory: too few steps to judge it"]
        print("\n".join(lines))
        is_flat = not any(line.startswith("FAILED") for line in lines)
        return 0 if done and not self.failed and is_flat else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--device", choices=tuple(LIMITS_MIB), default="cpu")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000)
    parser.add_argument("--case", type=int, help="only this step, with its description")
    parser.add_argument("--minutes", type=float, default=30.0, help="no step begins later")
    parser.add_argument("--failures", type=int, default=10, help="the run ends after so many")
    asked = parser.parse_args()
    if asked.device == "cuda":
        reason = "" if torch.cuda.is_available() else "torch finds no CUDA device"
        reason = reason or flce.cuda_refusal()
        if reason:
            parser.error(f"--device cuda: {reason}")
    print(f"seed {asked.seed}, {asked.device}, torch {torch.__version__}, "
          f"flce {flce.__version__}", flush=True)  # fmt: skip
    soak = Soak(asked.device, asked.seed)
    if asked.case is None:
        return soak.run(asked.steps, 60 * asked.minutes, asked.failures)
    print(f"case {asked.case}: {soak.step(asked.case)}")
    print("FAILED" if soak.failed else "right")
    return 1 if soak.failed else 0


if __name__ == "__main__":
    sys.exit(main())
