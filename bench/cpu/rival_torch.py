#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's ways to the same loss and gradients against ours, in one process.

Ours runs through the C ABI of libflce on torch's memory. Rounds are interleaved; a way that would
take longer than --limit seconds a run is left out and named.
"""

import argparse
import ctypes
import datetime
import functools
import os
import statistics
import sys
import time

os.environ.pop("OPENBLAS_CORETYPE", None)
os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # idle threads do not spin beside ours
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import flce_ctypes  # noqa: E402
import results  # noqa: E402
from flce_ctypes import _abi  # noqa: E402

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit("rival_torch: PyTorch is not installed here; './dev bench cpu --torch' installs it")

CHUNK = 512


def reference(hidden, weight, target):
    loss = F.cross_entropy(F.linear(hidden, weight).float(), target)
    loss.backward()
    return loss.detach()


def chunk_loop(hidden, weight, target):
    total = 0.0
    for first in range(0, len(hidden), CHUNK):
        logits = F.linear(hidden[first : first + CHUNK], weight).float()
        loss = F.cross_entropy(logits, target[first : first + CHUNK], reduction="sum") / len(hidden)
        loss.backward()
        total = total + loss.detach()
    return total


def own(hidden, weight, target, options=None):
    loss = F.linear_cross_entropy(hidden, weight, target, options=options)
    loss.backward()
    return loss.detach()


def own_chunked(hidden, weight, target):
    return own(hidden, weight, target, torch.nn.LinearCrossEntropyOptions())


def ways():
    """Name -> (function, chunk); logits are f32 in the loss except in torch's own function."""
    found = {}
    if hasattr(F, "linear_cross_entropy"):
        found["torch-linear_cross_entropy"] = (own, 0)
        if hasattr(torch.nn, "LinearCrossEntropyOptions"):
            found["torch-linear_cross_entropy-chunked"] = (own_chunked, 0)
    found["torch-linear+cross_entropy"] = (reference, 0)
    found["torch-chunk-loop"] = (chunk_loop, CHUNK)
    return found


class Problem:
    def __init__(self, library, n, h, v, dtype, threads):
        torch.manual_seed(1)
        self.shape, self.dtype, self.threads = (n, h, v), dtype, threads
        self.kind = torch.float32 if dtype == "f32" else torch.bfloat16
        self.hidden = torch.randn(n, h).to(self.kind).requires_grad_()
        self.weight = (torch.randn(v, h) / h**0.5).to(self.kind).requires_grad_()
        self.target = torch.randint(v, (n,))
        self.loss = torch.zeros(1)
        self.grad_hidden = torch.zeros(n, h, dtype=self.kind)
        self.grad_weight = torch.zeros(v, h, dtype=self.kind)
        self.code = _abi.F32 if dtype == "f32" else _abi.BF16
        self.fused = flce_ctypes.Fused(
            library,
            {
                "hidden": (self.hidden.data_ptr(), n, h, self.code),
                "weight": (self.weight.data_ptr(), v, h, self.code),
                "target": (self.target.data_ptr(), n, None, _abi.I64),
                "loss": (self.loss.data_ptr(), 1, None, _abi.F32),
                "grad_hidden": (self.grad_hidden.data_ptr(), n, h, self.code),
                "grad_weight": (self.grad_weight.data_ptr(), v, h, self.code),
            },
            threads,
        )

    def torch_run(self, way):
        self.hidden.grad = self.weight.grad = None
        self.torch_loss = way(self.hidden, self.weight, self.target)

    def too_slow(self, way, limit):
        """Tries more and more of the tokens; says what took longer than `limit`, or None."""
        tokens = self.shape[0]
        tries = [16, 16, 8, 4, 2]  # the first pays for what is made once, and does not count
        for number, parts in enumerate(tries):
            count = max(1, tokens // parts)
            few = self.hidden.detach()[:count].clone().requires_grad_()
            self.weight.grad = None
            seconds = timed(functools.partial(way, few, self.weight, self.target[:count]))
            if number > 0 and (seconds > limit or seconds * parts > 30 * limit):
                return f"{seconds:.1f} s for {count} of {tokens} tokens"
        return None

    def differences(self):
        def relative(ours, theirs):
            ours, theirs = ours.double(), theirs.double()
            return ((ours - theirs).norm() / ours.norm()).item()

        ours = self.loss.item()
        return {
            "diff_loss": abs(self.torch_loss.item() - ours) / abs(ours),
            "diff_grad_hidden": relative(self.grad_hidden, self.hidden.grad),
            "diff_grad_weight": relative(self.grad_weight, self.weight.grad),
        }


def peak_growth(action):
    """Growth of the resident set's peak over `action`, or None where the system does not tell."""

    def status(name):
        with open("/proc/self/status", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))

    ctypes.CDLL(None).malloc_trim(0)  # freed memory that malloc keeps would hide what is taken
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        return None
    before = status("VmRSS")
    action()
    return max(0, status("VmHWM") - before)


def timed(action):
    time.sleep(0.05)
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def extra_bytes(problem, way):
    problem.hidden.grad = problem.weight.grad = None
    growth = peak_growth(lambda: problem.torch_run(way))
    if growth is None:
        return ""
    return max(0, growth - problem.grad_hidden.nbytes - problem.grad_weight.nbytes)


def set_up(problem, limit):
    """The systems that can run: name -> (action, facts)."""
    systems = {
        "flce-fused": (
            problem.fused.run,
            {
                "method": "fused",
                "chunk": problem.fused.plan.chunk,
                "extra_bytes": problem.fused.plan.extra_bytes,
            },
        )
    }
    problem.fused.run()
    for name, (way, chunk) in ways().items():
        slow = problem.too_slow(way, limit)
        if slow:
            print(f"left out: {name} {problem.dtype}: {slow}")
            continue
        facts = {"method": "torch", "chunk": chunk, "extra_bytes": extra_bytes(problem, way)}
        facts.update(problem.differences())
        worst = max(facts["diff_grad_hidden"], facts["diff_grad_weight"])
        if worst > (1e-4 if problem.dtype == "f32" else 5e-2):
            print(f"note: {name} {problem.dtype}: gradients differ from ours by {worst:.1e}")
        systems[name] = (lambda way=way: problem.torch_run(way), facts)
    return systems


def measure(library, problem, args):
    """Rows of one shape and dtype."""
    systems = set_up(problem, args.limit)
    seconds = {name: [] for name in systems}
    peaks, start, names = [], time.monotonic(), list(systems)
    while len(peaks) < args.min_rounds or (
        len(peaks) < args.max_rounds and time.monotonic() - start < args.seconds
    ):
        peaks.append(library.peak_flops(problem.code, problem.threads))
        turn = len(peaks) % len(names)
        for name in names[turn:] + names[:turn]:
            seconds[name].append(timed(systems[name][0]))
    n, h, v = problem.shape
    ours, peak = seconds["flce-fused"], statistics.median(peaks)
    for name, (_, facts) in systems.items():
        median = statistics.median(seconds[name])
        flops = 6.0 * n * h * v / median
        row = {
            "series": "torch",
            "system": name,
            "tokens": n,
            "hidden": h,
            "vocab": v,
            "dtype": problem.dtype,
            "isa": library.isa(),
            "threads": problem.threads,
            "rounds": len(peaks),
            "median_ms": f"{1e3 * median:.3f}",
            "min_ms": f"{1e3 * min(seconds[name]):.3f}",
            "max_ms": f"{1e3 * max(seconds[name]):.3f}",
            "gflops": f"{flops * 1e-9:.2f}",
            "peak_gflops": f"{peak * 1e-9:.2f}",
            "share_of_peak": f"{flops / peak:.4f}",
            "ours_ms": f"{1e3 * statistics.median(ours):.3f}",
            "ratio_to_ours": f"{statistics.median(a / b for a, b in zip(seconds[name], ours)):.4f}",
            "kernel": library.isa()
            if name == "flce-fused"
            else torch.backends.cpu.get_cpu_capability(),
            "system_version": f"flce {library.version()}"
            if name == "flce-fused"
            else f"torch {torch.__version__}",
            "flce_version": library.version(),
            "cpu_model": results.cpu_model(),
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        }
        row.update(
            {
                key: f"{value:.2e}" if key.startswith("diff") else value
                for key, value in facts.items()
            }
        )
        yield row


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lib", required=True, help="libflce.so")
    parser.add_argument("--shape", default="512x256x8192", help="NxHxV[,NxHxV..]")
    parser.add_argument("--dtype", default="f32,bf16")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=60.0, help="for the rounds of a case")
    parser.add_argument("--min-rounds", type=int, default=3)
    parser.add_argument("--max-rounds", type=int, default=15)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a run")
    parser.add_argument("--csv", help="results file, rows of the same key are replaced")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    library = flce_ctypes.Library(args.lib)
    for shape in args.shape.split(","):
        for dtype in args.dtype.split(","):
            problem = Problem(library, *map(int, shape.split("x")), dtype, args.threads)
            rows = list(measure(library, problem, args))
            for row in rows:
                print(
                    "{tokens}x{hidden}x{vocab} {dtype:5} {system:36} {median_ms:>10} ms "
                    "{gflops:>7} GFLOP/s  ratio {ratio_to_ours:>8}  extra {extra_bytes}".format(
                        **row
                    ),
                    flush=True,
                )
            if args.csv:
                results.store(args.csv, rows)


if __name__ == "__main__":
    main()
