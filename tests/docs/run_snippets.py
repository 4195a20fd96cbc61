#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs what the pages show, in an empty folder, as a reader would.

usage: run_snippets.py ROOT FLCE        the `flce` commands
       run_snippets.py ROOT --python    each Python block of the README, by itself, with the Python
                                        that runs this (it needs torch and our package)

Of docs/decide.md all commands, of the others those that need no file and little time. A command for
a card is run with no card in sight: then its words must be right and the card alone be missing.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile

FENCE = r"^```{}\n(.*?)^```$"
READMES = ("README.md", "README.ko.md")
QUICK = ("plan", "verify")
PAGES = {"docs/decide.md": ("plan", "bench", "verify", "info"), "docs/command-line.md": QUICK,
         **dict.fromkeys(READMES, QUICK)}  # fmt: skip
NO_CARD = "device 'cuda': "
LONGEST = 120  # seconds


def blocks(text, language):
    """(number of the first line, source) of each block of code."""
    for block in re.finditer(FENCE.format(language), text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, block.start(1)) + 1, block[1]


def commands(text, kinds):
    """(line number, words) of each command that is to be run."""
    for first, source in blocks(text, "bash"):
        for number, line in enumerate(source.split("\n"), first):
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


def read(root, page):
    with open(os.path.join(root, page), encoding="utf-8") as file:
        return file.read()


def run_python(root):
    """As run(), of the Python blocks."""
    faults, count = [], 0
    for page in READMES:
        for number, source in blocks(read(root, page), "python"):
            count += 1
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(
                    [sys.executable, "-c", source],
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=LONGEST,
                )
            if done.returncode or not done.stdout:
                faults.append(f"{page}:{number}: printed nothing or failed: {done.stderr.strip()}")
    return faults, count


def run(root, flce):
    """Faults as 'page:line: text', and the number of commands."""
    faults, count = [], 0
    for page, kinds in PAGES.items():
        for number, words in commands(read(root, page), kinds):
            count += 1
            with tempfile.TemporaryDirectory() as folder:
                fault = fault_of(flce, words, folder)
            if fault:
                faults.append(f"{page}:{number}: {' '.join(words)}: {fault}")
    return faults, count


def main():
    if len(sys.argv) != 3 or not os.path.isdir(sys.argv[1]):
        sys.exit(__doc__)
    root, what = sys.argv[1:]
    faults, count = run_python(root) if what == "--python" else run(root, os.path.abspath(what))
    print("\n".join(faults) or f"snippets: {count} ran")
    sys.exit(1 if faults or count == 0 else 0)


if __name__ == "__main__":
    main()
