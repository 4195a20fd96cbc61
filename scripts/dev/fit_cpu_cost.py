#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits the constants of src/plan/cost_cpu.cpp to rows of `flce bench`.

usage: fit_cpu_cost.py FILE.csv...

Rows to fit to, on an otherwise idle machine (a few minutes on two cores):

    all=naive,chunked,fused,recompute,naive-eager,chunked-eager
    for d in f32 bf16; do
      flce bench n512_h256_v8192   $d --methods $all --chunks 1,2,4,8 --rounds 7 --csv a_$d.csv
      flce bench n512_h64_v32000   $d --methods $all --chunks 1,2,4,8 --rounds 5 --csv b_$d.csv
      flce bench n512_h1024_v16000 $d --methods $all --chunks 1,4     --rounds 5 --csv c_$d.csv
      flce bench n1024_h512_v32000 $d --methods $all --chunks 2,8     --rounds 5 --csv d_$d.csv
      flce bench n2048_h1024_v32000 $d --methods naive,fused,recompute --rounds 3 --csv e_$d.csv
    done
    scripts/dev/fit_cpu_cost.py ?_f32.csv ?_bf16.csv

Shapes of a second machine or instruction set (FLCE_ISA) may stand beside them.

Least squares of the relative errors, no constant below its floor. The best round counts: what
disturbs a round only makes it slower. The terms here are those of cost_cpu.cpp; change both.
"""

import csv
import math
import sys

NAMES = (
    "product",
    "kLogitNs",
    "kExpGradientNs",
    "kLogitGradientNs",
    "kNarrowNs",
    "kPackedWeightNs",
    "kAddedWeightNs",
    "kNarrowWeightNs",
    "kEagerNs",
)
FLOORS = (1.0,) + (0.01,) * 8
SIZES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2}
EAGER = ("naive-eager", "chunked-eager")


def terms(row):
    """(seconds for each unit of a constant), and seconds that no constant scales."""
    tokens, hidden, vocab = (float(row[k]) for k in ("tokens", "hidden", "vocab"))
    method, narrow = row["method"], SIZES[row["dtype"]]
    wide = max(narrow, 4)
    peak, bandwidth = 1e9 * float(row["peak_gflops"]), 1e9 * float(row["bandwidth_gbs"])
    logits, weight = tokens * vocab, vocab * hidden
    chunks, again = float(row["num_chunks"]), 2.0 if method == "recompute" else 1.0
    pieces = max(1, math.floor(float(row["chunk"]) / 512 + 0.5))
    passes = chunks * (1 if method in (*EAGER, "fused") else pieces) * again
    threads = float(row["threads"])
    counts = [0.0] * len(NAMES)
    counts[1] = logits * again
    if method in EAGER:
        twice = 1.5 if chunks > 1 else 1.0
        counts[8] = logits * twice
        all_bytes = 2 * narrow + 3 * wide if narrow < wide else 3 * wide
        moved = 2 * twice * logits * all_bytes
    else:
        is_fused = method == "fused"
        is_narrow = is_fused and row["dtype"] == "bf16"
        counts[2 if is_fused else 3] = 2 * logits
        counts[4] = 3 * logits if is_narrow else 0.0
        moved = 3 * logits * (2 if is_narrow else wide)
    counts[5] = (passes + chunks) * weight
    counts[6] = chunks * weight
    counts[7] = chunks * weight if chunks > 1 and narrow < 4 else 0.0
    moved += (passes + chunks) * weight * narrow
    moved += (2 * chunks - 1) * weight * (wide if chunks > 1 else narrow)
    factors = [1e-9 * count / threads for count in counts]
    factors[0] = float(row["gemms"]) * 2 * logits * hidden / peak
    return factors, moved / bandwidth


def fit(rows):
    """Coordinate descent; the problem is small and convex."""
    constants = [1.2] + [1.0] * (len(NAMES) - 1)
    scaled = []
    for row in rows:
        seconds = 1e-3 * float(row["min_ms"])
        factors, rest = terms(row)
        scaled.append(([f / seconds for f in factors], 1.0 - rest / seconds))
    for _ in range(20000):
        for k, floor in enumerate(FLOORS):
            above = below = 0.0
            for factors, want in scaled:
                others = sum(c * f for c, f in zip(constants, factors)) - constants[k] * factors[k]
                above += factors[k] * (want - others)
                below += factors[k] ** 2
            if below > 0.0:
                constants[k] = max(floor, above / below)
    return constants


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    rows = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8", newline="") as file:
            rows += [row for row in csv.DictReader(file) if row["min_ms"]]
    constants = fit(rows)
    print(f"constexpr double kProductShare = {1.0 / constants[0]:.2f};")
    for name, value in list(zip(NAMES, constants))[1:]:
        print(f"constexpr double {name} = {value:.2f};")
    print(f"\n{'problem':30} {'method':14} {'chunk':>6} {'best ms':>9} {'model ms':>9}  off")
    for row in rows:
        factors, rest = terms(row)
        model = 1e3 * (sum(c * f for c, f in zip(constants, factors)) + rest)
        best = float(row["min_ms"])
        print(
            f"{row['problem']:30} {row['method']:14} {row['chunk']:>6} {best:9.2f} {model:9.2f} "
            f"{100 * (model / best - 1):+5.0f}%"
        )


if __name__ == "__main__":
    main()
