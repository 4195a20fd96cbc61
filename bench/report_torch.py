# SPDX-License-Identifier: Apache-2.0
"""The table of a head in PyTorch from bench/results/<card>/torch.csv, which bench/torch/head.py
writes. bench/report_cuda.py puts it beside the card's others."""

import os

from tables import read_rows, table

COLUMNS = (
    "date",
    "torch",
    "what",
    "tokens",
    "hidden",
    "vocab",
    "dtype",
    "median_ms",
    "peak_bytes",
    "inputs_and_gradients_bytes",
    "plan_bytes",
)


def line(row):
    peak = int(row["peak_bytes"])
    planned = int(row["inputs_and_gradients_bytes"]) + int(row["plan_bytes"])
    is_ours = row["what"].startswith("flce") and peak > 0
    return [
        row["what"],
        row["tokens"],
        f"{float(row['median_ms']):.1f}",
        f"{peak / 1e9:.2f} GB" if peak else "-",
        f"{planned / 1e9:.2f} GB" if is_ours else "-",
    ]


def section(folder):
    """Text for docs/measured.md; empty where there is no such file."""
    path = os.path.join(folder, "torch.csv")
    if not os.path.exists(path):
        return ""
    rows = read_rows(path, COLUMNS)
    first = rows[0]
    return (
        f"Through PyTorch {first['torch']}, {first['date']}: a head of H={first['hidden']}, "
        f"V={first['vocab']} in {first['dtype']}, forward and backward, by "
        "`bench/torch/head.py`. Eager is `F.linear` and `F.cross_entropy` of float32 logits; "
        "`flce bench` is the same problem without PyTorch, in the same run. Peaks are "
        "`torch.cuda.max_memory_allocated`; `most in` is the most tokens found to run with "
        "that much memory, of those up to 262144.\n\n"
        + table(
            ["", "tokens", "median ms", "peak", "inputs, gradients and plan"],
            [line(row) for row in rows],
        )
    )
