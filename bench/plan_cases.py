#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the planner says of the published cases: bench/results/plan/*.csv, by `flce plan --json`.

usage: plan_cases.py [--flce PATH]             writes published.csv and checklist.csv
       plan_cases.py [--flce PATH] --check     exit code 1 if they are not what it says now

Plans are for an H200, which need not be here. Rows of route `hopper` are checked by builds that
have its kernels. bench/report_figures.py reads the files.
"""

import argparse
import csv
import io
import json
import os
import subprocess
import sys

from tables import replace_file

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CARD = "h200"
CASES = {
    "qwen": "--preset qwen3-8b --sequences 4 --sequence-length 4096",
    "qwen_128k": "--preset qwen3-8b --tokens 131072",
    "llama_65536": "--preset llama3-8b --tokens 65536",
    "llama_65536_f32": "--preset llama3-8b --tokens 65536 --dtype f32",
    "llama_81920": "--preset llama3-8b --tokens 81920",
    "llama_16384": "--preset llama3-8b --tokens 16384",
    "llama_16384_liger": "--preset llama3-8b --tokens 16384 --policy liger",
    "llama_step": "--preset llama3-8b --sequences 8 --sequence-length 2048 --shards 8 "
    "--checkpointing",
}
CHECKLIST = "llama_16384"
COLUMNS = (
    "case", "arguments", "dtype", "tokens", "hidden", "vocab", "hidden_bytes", "logits_bytes",
    "inc", "liger_chunk", "method", "route", "chunk", "num_chunks", "extra_bytes", "peak_bytes",
    "step_bytes", "refused",
)  # fmt: skip
STEPS = ("case", "step", "text")
WITHOUT_HOPPER = "this build is without its kernels"


def plan(flce, arguments):
    command = [flce, "plan", *arguments.split(), "--device-caps", CARD, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def rows_of(case, said):
    step = said["step"]
    kind = "bytes_with_checkpointing" if step["checkpointing"] else "bytes"
    totals = {total["method"]: total[kind] for total in step["totals"]}
    rule = said["chunk_rule"]["liger"]
    for method in said["methods"]:
        row = {name: said[name] for name in COLUMNS[2:8]}
        row.update(case=case, arguments=CASES[case], inc=rule["inc"], liger_chunk=rule["chunk"])
        row.update({name: method[name] for name in COLUMNS[11:16]}, method=method["name"])
        row.update(step_bytes=totals.get(method["name"], ""), refused=method["refused"] or "")
        yield {name: str(row[name]) for name in COLUMNS}


def made(flce):
    """The rows of both files, and whether this build plans for the Hopper kernels."""
    plans = {case: plan(flce, arguments) for case, arguments in CASES.items()}
    rows = [row for case, said in plans.items() for row in rows_of(case, said)]
    steps = [
        {"case": CHECKLIST, "step": str(number), "text": text}
        for number, text in enumerate(plans[CHECKLIST]["checklist"], 1)
    ]
    reasons = [method["route_reason"] for said in plans.values() for method in said["methods"]]
    return rows, steps, WITHOUT_HOPPER not in reasons


def text_of(columns, rows):
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def faults(folder, rows, steps, has_hopper):
    """What the files say otherwise, as sentences."""
    stored = {
        (row["case"], row["method"]): row for row in read(os.path.join(folder, "published.csv"))
    }
    if len(stored) != len(rows):
        yield f"published.csv: {len(stored)} rows, the planner gives {len(rows)}"
    for row in rows:
        old = stored.get((row["case"], row["method"]))
        if old is None or (not has_hopper and old["route"] == "hopper"):
            continue
        for name in COLUMNS:
            if old[name] != row[name]:
                where = f"published.csv: {row['case']}, {row['method']}"
                yield f"{where}: {name} {old[name]}, the planner says {row[name]}"
    if has_hopper and read(os.path.join(folder, "checklist.csv")) != steps:
        yield "checklist.csv: the planner says otherwise"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--flce", default=os.path.join(ROOT, "build", "release", "bin", "flce"))
    parser.add_argument("--folder", default=os.path.join(ROOT, "bench", "results", "plan"))
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    rows, steps, has_hopper = made(args.flce)
    if args.check:
        found = list(faults(args.folder, rows, steps, has_hopper))
        sys.exit(
            "\n".join([*found, "run bench/plan_cases.py, then bench/report.py"]) if found else 0
        )
    if not has_hopper:
        sys.exit(f"{args.flce}: no Hopper kernels in this build; the files need one that has them")
    for name, columns, lines in (("published", COLUMNS, rows), ("checklist", STEPS, steps)):
        replace_file(os.path.join(args.folder, name + ".csv"), text_of(columns, lines))


if __name__ == "__main__":
    main()
