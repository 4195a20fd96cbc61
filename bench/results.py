#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The results files of the CPU benchmark: bench/results/cpu/<processor>.csv.

usage: results.py slug    the name of this machine's file, without .csv

bench_rivals (bench/cpu/results.cpp) writes the same columns. A rerun replaces the rows of the same
key. No field holds a comma or a quote.
"""
import os
import re
import sys

from tables import replace_file

KEY = ("series", "system", "tokens", "hidden", "vocab", "dtype", "isa", "threads")
COLUMNS = KEY + (
    "method", "chunk", "rounds", "median_ms", "min_ms", "max_ms", "gflops", "peak_gflops",
    "share_of_peak", "ours_ms", "ratio_to_ours", "extra_bytes", "diff_loss", "diff_grad_hidden",
    "diff_grad_weight", "kernel", "system_version", "flce_version", "compiler", "cpu_model", "date")


def key_of(row):
    return tuple(str(row[name]) for name in KEY)


def load(path):
    """The rows of a file, in its order; [] if there is none. ValueError if it is no such file."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        lines = [line for line in file.read().split("\n") if line]
    if lines and tuple(lines[0].split(",")) != COLUMNS:
        raise ValueError(f"{path}: other columns than {','.join(COLUMNS)}")
    rows = []
    for number, line in enumerate(lines[1:], 2):
        values = line.split(",")
        if len(values) != len(COLUMNS):
            raise ValueError(f"{path}:{number}: {len(values)} fields, {len(COLUMNS)} expected")
        rows.append(dict(zip(COLUMNS, values)))
    return rows


def plain(value):
    return str(value).replace(",", ";").replace('"', "'").replace("\n", " ")


def store(path, new_rows):
    """Adds rows to a file, in the place of those of the same key."""
    rows = {key_of(row): row for row in load(path)}
    for row in new_rows:
        clean = {name: plain(row.get(name, "")) for name in COLUMNS}
        rows[key_of(clean)] = clean
    lines = [COLUMNS, *([row[name] for name in COLUMNS] for row in rows.values())]
    replace_file(path, "".join(",".join(line) + "\n" for line in lines))


def cpu_facts():
    facts = {}
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if not line.strip():
                break
            name, _, value = line.partition(":")
            facts[name.strip()] = value.strip()
    return facts


def cpu_model():
    """As bench/cpu/results.cpp: many virtual machines give no more than a brand."""
    facts = cpu_facts()
    return (f"{facts.get('model name', '')} (family {facts.get('cpu family', '')} "
            f"model {facts.get('model', '')})")


def slug(model):
    text = re.sub(r"\((r|tm)\)", "", model.lower())
    text = re.sub(r"\bcpu\b|@.*?ghz|\bprocessor\b", "", text)
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")


if __name__ == "__main__":
    if sys.argv[1:] != ["slug"]:
        sys.exit(__doc__)
    print(slug(cpu_model()))
