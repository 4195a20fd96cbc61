#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The version stands in one place, the project() line of CMakeLists.txt.

usage: check_version.py ROOT

No other source has it, and the newest entry of CHANGELOG.md is of it. Results of measurements and
the pages name the version that was measured: they are not looked at.
"""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_budgets  # noqa: E402

PLACE = "CMakeLists.txt"
PROJECT = re.compile(r"^project\(flce VERSION (\d+\.\d+\.\d+) ", re.MULTILINE)
ENTRY = re.compile(r"^## ([\d.]*\d)", re.MULTILINE)
MORE_SOURCES = (".in", ".toml", ".json", ".map")


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def second_places(root, version):
    """Lines that hold the version, but for the one of PLACE; the number of files looked at."""
    word = re.compile(rf"(?<![\w.]){re.escape(version)}(?![\w.])")
    suffixes = check_budgets.SUFFIXES + MORE_SOURCES
    faults, count = [], 0
    for path in check_budgets.sources(root, suffixes):
        count += 1
        text = PROJECT.sub("", read(root, path)) if path == PLACE else read(root, path)
        faults += [
            f"{path}:{number}: the version, which {PLACE} alone says"
            for number, line in enumerate(text.splitlines(), 1)
            if word.search(line)
        ]
    return faults, count


def check(root):
    """All faults as text, and the number of files looked at."""
    found = PROJECT.findall(read(root, PLACE))
    if len(found) != 1:
        return [f"{PLACE}: {len(found)} lines 'project(flce VERSION X.Y.Z ...', 1 expected"], 0
    faults, count = second_places(root, found[0])
    newest = ENTRY.search(read(root, "CHANGELOG.md"))
    if not newest or newest[1] != found[0]:
        faults.append(f"CHANGELOG.md: its newest entry is not of {found[0]}")
    return faults, count


def main():
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        sys.exit(__doc__)
    faults, count = check(sys.argv[1])
    print("\n".join(faults) or f"version: in one of {count} files, and newest in CHANGELOG.md")
    sys.exit(1 if faults or count == 0 else 0)


if __name__ == "__main__":
    main()
