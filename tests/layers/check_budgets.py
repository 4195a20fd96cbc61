#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Budgets: a source file has at most 400 lines, a line at most 100 columns.

usage: check_budgets.py ROOT

A file that needs more says why, in itself: a comment with 'budget:' and a reason.
"""

import os
import re
import sys

MAX_LINES = 400
MAX_COLUMNS = 100
SUFFIXES = (".hpp", ".h", ".cpp", ".c", ".cuh", ".cu", ".inc", ".py", ".sh", ".cmake")
NAMES = {"CMakeLists.txt", "dev", "run"}
SKIPPED_FOLDERS = {"build", "install", ".git", ".venv", ".cache", "__pycache__"}
REASON = re.compile(r"budget: +\S+ +\S+")


def sources(root, suffixes=SUFFIXES):
    for folder, names, files in os.walk(root):
        names[:] = sorted(n for n in names if n not in SKIPPED_FOLDERS)
        for name in sorted(files):
            if name.endswith(suffixes) or name in NAMES:
                yield os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")


def check(root):
    """All faults as text, and the number of files looked at."""
    faults, count = [], 0
    for path in sources(root):
        count += 1
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        if REASON.search(text):
            continue
        lines = text.splitlines()
        if len(lines) > MAX_LINES:
            faults.append(f"{path}: {len(lines)} lines, {MAX_LINES} at most")
        faults += [
            f"{path}:{number}: {len(line)} columns, {MAX_COLUMNS} at most"
            for number, line in enumerate(lines, 1)
            if len(line) > MAX_COLUMNS
        ]
    return faults, count


def main():
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        sys.exit(__doc__)
    faults, count = check(sys.argv[1])
    if faults:
        print("\n".join(faults))
        print("Split it, or say in the file why not: a comment 'budget: <the reason>'.")
    else:
        print(f"budgets: {count} files within {MAX_LINES} lines and {MAX_COLUMNS} columns")
    sys.exit(1 if faults or count == 0 else 0)


if __name__ == "__main__":
    main()
