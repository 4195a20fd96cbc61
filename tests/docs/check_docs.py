#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every *.md: relative links, their anchors, and paths of this repository in backticks; and
that the C++ of README.md is the example that is compiled and run.

usage: check_docs.py ROOT

A path in backticks counts when its first part is a folder of ours ('src/core/check.hpp') or when it
starts with './'; one with '<', '*' or '...' is a pattern and one under build/ is made later.
"""

import glob
import os
import re
import sys
import urllib.parse

SKIPPED_FOLDERS = {"build", "install", ".git", ".venv", ".cache", "__pycache__"}
ROOMS = (
    "src",
    "include",
    "tools",
    "tests",
    "docs",
    "examples",
    "cmake",
    "fuzz",
    "bench",
    "bindings",
    "scripts",
    ".ci",
)
EXAMPLE = "examples/cpp/loss_and_grads.cpp"
FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
LINK = re.compile(
    r"!?\[[^\]\[]*(?:\[[^\]]*\][^\]\[]*)*\]"  # [text], perhaps with [brackets]
    r"\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)"
)
REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?(\S+?)>?(?:\s+\"[^\"]*\")?\s*$")
BACKTICKS = re.compile(r"(`+)(.+?)\1")
PATH = re.compile(r"(?:\./)?[\w.\-]+(?:/[\w.\-+]+)*/?(?::\d+)?$")


def pages(root):
    for folder, names, files in os.walk(root):
        names[:] = sorted(n for n in names if n not in SKIPPED_FOLDERS)
        for name in sorted(files):
            if name.endswith(".md"):
                yield os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")


def prose(text):
    """(line number, line) outside fenced blocks."""
    fence = None
    for number, line in enumerate(text.split("\n"), 1):
        match = FENCE.match(line)
        if fence:
            if match and match[1].startswith(fence):
                fence = None
        elif match:
            fence = match[1]
        else:
            yield number, line


def slug(heading):
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().rstrip("#").strip())
    text = re.sub(r"[^\w\- ]", "", text.replace("`", "").lower())
    return text.replace(" ", "-")


def anchors(path):
    found, seen = set(), {}
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for _, line in prose(text):
        match = re.match(r"^ {0,3}#{1,6}\s+(.*)$", line)
        if match:
            name = slug(match[1])
            count = seen.get(name, 0)
            seen[name] = count + 1
            found.add(f"{name}-{count}" if count else name)
        found.update(re.findall(r"<a\s+(?:id|name)=\"([^\"]+)\"", line))
    return found


def check_link(root, page, link):
    if re.match(r"^[a-zA-Z][a-zA-Z0-9+.\-]*:", link):
        return None  # another place on the net; not ours to check
    path, _, anchor = link.partition("#")
    path = urllib.parse.unquote(path)
    base = root if path.startswith("/") else os.path.join(root, os.path.dirname(page))
    target = (
        os.path.normpath(os.path.join(base, path.lstrip("/"))) if path else os.path.join(root, page)
    )
    if not os.path.exists(target):
        return f"link to '{link}': there is no such file"
    if os.path.relpath(target, root).startswith(".."):
        return f"link to '{link}' leaves the repository"
    if anchor and target.endswith(".md") and anchor not in anchors(target):
        near = ", ".join(sorted(anchors(target))) or "none"
        return f"link to '{link}': no such heading; the anchors there: {near}"
    return None


def check_path(root, word):
    if not PATH.match(word) or "..." in word:
        return None
    path = re.sub(r":\d+$", "", word)
    path = path[2:] if path.startswith("./") else path
    first = path.split("/")[0]
    if not word.startswith("./") and (first not in ROOMS or "/" not in path):
        return None
    if first == "build" or os.path.exists(os.path.join(root, path)):
        return None
    # `src/cpu/gemm` may stand for gemm.hpp and gemm.cpp.
    if glob.glob(os.path.join(glob.escape(os.path.join(root, path.rstrip("/"))) + ".*")):
        return None
    return f"`{word}`: there is no such file or folder"


def check_page(root, page):
    with open(os.path.join(root, page), encoding="utf-8") as file:
        text = file.read()
    for number, line in prose(text):
        plain = BACKTICKS.sub(lambda match: "`" + "x" * len(match[2]) + "`", line)
        links = LINK.findall(plain) + REFERENCE.findall(plain)
        for fault in (check_link(root, page, link) for link in links):
            if fault:
                yield number, fault
        for _, code in BACKTICKS.findall(line):
            words = code.split()
            fault = words and check_path(root, words[0])
            if fault:
                yield number, fault


def example_fault(root):
    """None where the README shows the example from its first #include on; nor without a README."""
    page, example = (os.path.join(root, name) for name in ("README.md", EXAMPLE))
    if not os.path.exists(page):
        return None
    with open(page, encoding="utf-8") as file:
        shown = re.findall(r"^```cpp\n(.*?)^```$", file.read(), re.M | re.S)
    with open(example, encoding="utf-8") as file:
        program = file.read()
    program = program[re.search(r"^#include", program, re.M).start() :]
    return None if shown == [program] else f"README.md: its C++ is not that of {EXAMPLE}"


def check(root):
    """All faults as 'file:line: text', and the number of pages looked at."""
    faults, count = [], 0
    for page in pages(root):
        count += 1
        faults += [f"{page}:{number}: {text}" for number, text in check_page(root, page)]
    faults += filter(None, [example_fault(root)])
    return faults, count


def main():
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        sys.exit(__doc__)
    faults, count = check(sys.argv[1])
    print("\n".join(faults) or f"docs: {count} pages, every link and path leads somewhere")
    sys.exit(1 if faults or count == 0 else 0)


if __name__ == "__main__":
    main()
