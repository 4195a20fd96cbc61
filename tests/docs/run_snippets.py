#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the `flce` commands of the pages, in an empty folder, as a reader would.

usage: run_snippets.py ROOT FLCE

Of docs/decide.md all, of the README those that need no file and little time. A command for a card
is run with no card in sight: then its words must be right and the card alone be missing.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile

FENCE = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ALL = ("plan", "bench", "verify", "info")
PAGES = {"docs/decide.md": ALL, "README.md": ("plan", "verify"), "README.ko.md": ("plan", "verify")}
NO_CARD = "device 'cuda': "
LONGEST = 120  # seconds


def commands(text, kinds):
    """(line number, words) of each command that is to be run."""
    for block in FENCE.finditer(text):
        first = text.count("\n", 0, block.start(1)) + 1
        for number, line in enumerate(block[1].split("\n"), first):
            words = shlex.split(line, comments=True)
            needs_file = any(word in ("--config", "--input") for word in words)
            if words[:1] == ["flce"] and words[1] in kinds and not needs_file:
                yield number, words


def fault_of(flce, words, folder):
    """None, or what went wrong."""
    is_for_card = "cuda" in words
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="") if is_for_card else None
    done = subprocess.run(
        [flce, *words[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST,
    )
    if is_for_card:
        return (
            None
            if NO_CARD in done.stderr
            else f"no word of the missing card: {done.stderr.strip()}"
        )
    if done.returncode:
        return f"exit status {done.returncode}: {done.stderr.strip()}"
    for option in ("--svg", "--svg-time", "--csv"):
        if option in words and not os.path.exists(
            os.path.join(folder, words[words.index(option) + 1])
        ):
            return f"{option} wrote nothing"
    return None


def run(root, flce):
    """Faults as 'page:line: text', and the number of commands."""
    faults, count = [], 0
    for page, kinds in PAGES.items():
        with open(os.path.join(root, page), encoding="utf-8") as file:
            text = file.read()
        for number, words in commands(text, kinds):
            count += 1
            with tempfile.TemporaryDirectory() as folder:
                fault = fault_of(flce, words, folder)
            if fault:
                faults.append(f"{page}:{number}: {' '.join(words)}: {fault}")
    return faults, count


def main():
    if len(sys.argv) != 3 or not os.path.isdir(sys.argv[1]):
        sys.exit(__doc__)
    faults, count = run(sys.argv[1], os.path.abspath(sys.argv[2]))
    print("\n".join(faults) or f"snippets: {count} commands ran")
    sys.exit(1 if faults or count == 0 else 0)


if __name__ == "__main__":
    main()
