#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may include whom, and what the library may not call.

usage: check_layers.py ROOT

Every folder of sources is a room; RULES says which rooms or files each may include, so that data
flows one way. A wrong include is reported with its file, its line, both rooms and what would be
allowed. The library (src/) also never ends the process, never prints, and reads environment
variables in src/core/env.cpp alone.
"""

import os
import re
import sys

SUFFIXES = (".hpp", ".h", ".cpp", ".c", ".cuh", ".cu", ".inc")
SKIPPED_FOLDERS = {"build", "install", ".git", ".venv", ".cache", "__pycache__"}
INCLUDE_ROOTS = ("include", "src", "tools", "tests", "fuzz", "")

ANYTHING = ""  # the prefix of every path
PUBLIC = "include"

# Room -> what it may include besides itself: prefixes of paths. The longest matching room counts.
RULES = {
    "include": (),
    "src/core": (PUBLIC,),
    "src/math": ("include/flce/types.hpp", "src/core/int_math.hpp"),
    "src/backend": (PUBLIC, "src/core"),
    "src/kernels": ("include/flce/types.hpp", "src/math", "src/core/int_math.hpp"),
    "src/cpu": (PUBLIC, "src/core", "src/math", "src/backend"),
    "src/cuda": (PUBLIC, "src/core", "src/math", "src/backend", "src/kernels", "src/plan/caps.hpp"),
    "src/cuda/run": (
        PUBLIC,
        "src/core",
        "src/math",
        "src/backend",
        "src/cuda",
        "src/kernels",
        "src/plan/caps.hpp",
    ),
    "src/methods": (PUBLIC, "src/core", "src/backend"),
    "src/parallel": (PUBLIC, "src/core", "src/backend", "src/methods"),
    "src/plan": (PUBLIC, "src/core", "src/backend", "src/methods/method.hpp"),
    "src/api": (
        PUBLIC,
        "src/core",
        "src/math",
        "src/backend",
        "src/cpu",
        "src/cuda",
        "src/methods",
        "src/parallel",
        "src/plan",
    ),
    "tools/io": (PUBLIC, "tools"),
    "tools/flce": (PUBLIC, "tools"),
    "tools/flce/verify": (PUBLIC, "tools", "tests/oracle"),
    "tools/flce/bench": (PUBLIC, "tools", "tests/oracle"),
    "tests": (ANYTHING,),
    "tests/oracle": (),
    "tests/package": (PUBLIC,),
    "fuzz": (ANYTHING,),
    "bench": (PUBLIC, "src/cpu/kernels.hpp"),
    "bindings": (PUBLIC,),
    "examples": (PUBLIC,),
    "cmake": (),
}

# Headers of others that a room may include with <>; the standard library may be included anywhere.
THIRD_PARTY = {
    "include": (),
    "src/math": ("cuda", "math_constants.h"),
    "src/kernels": ("cuda", "cooperative_groups", "cub/", "cute/", "cutlass/"),
    "src/cuda": ("fmt/", "dlfcn.h"),
    "src/cuda/run": ("fmt/", "cuda", "cublasLt.h", "dlfcn.h"),
    "src": ("fmt/", "immintrin.h", "cpuid.h", "x86intrin.h"),
    "tools": ("fmt/", "CLI/", "nlohmann/", "Eigen/"),
    "tests/oracle": (),
    "tests/package": (),
    "tests": ("fmt/", "gtest/", "gmock/", "nlohmann/", "Eigen/"),
    "tests/scarce": ("gtest/", "dlfcn.h"),
    "fuzz": ("fmt/", "fuzzer/"),
    "examples": (),
    "bench": ("benchmark/", "cblas.h", "dlfcn.h", "dnnl.hpp", "omp.h"),
    "bindings": ("xla/",),
    "cmake": ("fmt/",),
}

# What counts as "the system": C++ headers have no dot and no slash; these are the C ones.
C_HEADERS = set(
    """assert.h complex.h ctype.h errno.h fcntl.h fenv.h float.h inttypes.h limits.h
math.h pthread.h sched.h signal.h spawn.h stdalign.h stdarg.h stdatomic.h stdbool.h stddef.h
stdint.h stdio.h stdlib.h stdnoreturn.h string.h threads.h time.h unistd.h""".split()
)
PORTABLE_C = {"stddef.h", "stdint.h"}  # all that the public headers need

FORBIDDEN_CALLS = re.compile(
    r"(?<![\w.>])(?:std::)?(?P<call>_?exit|_Exit|quick_exit|abort|terminate|v?f?printf|puts|fputs|"
    r"putchar|fputc|perror)\s*\(|\b(?P<stream>std::(?:cout|cerr|clog|wcout|wcerr|print|println))\b|"
    r"\bfmt::(?P<fmt>print|println)\s*\("
)
GETENV = re.compile(r"\b(?:secure_)?getenv\s*\(")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?P<open>[<"])(?P<name>[^>"]+)[>"]')


def sources(root):
    for folder, names, files in os.walk(root):
        relative = os.path.relpath(folder, root)
        names[:] = sorted(n for n in names if n not in SKIPPED_FOLDERS)
        for name in sorted(files):
            if name.endswith(SUFFIXES):
                yield os.path.normpath(os.path.join(relative, name)).replace(os.sep, "/")


def under(path, prefix):
    """Whether `path` is `prefix`, inside that folder, or one of the files prefix*.*"""
    if prefix == ANYTHING or path == prefix or path.startswith(prefix + "/"):
        return True
    return path.startswith(prefix) and "/" not in path[len(prefix) :] and prefix in FILE_PREFIXES


# tools/flce/verify means tools/flce/verify.cpp, verify_table.hpp, ...: a part of a folder.
FILE_PREFIXES = {"tools/flce/verify", "tools/flce/bench"}


def longest(path, table):
    rooms = [room for room in table if under(path, room)]
    return max(rooms, key=len) if rooms else None


def without_comments_and_strings(text):
    """Blanks comments, strings and characters; keeps the lines."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^\s()\\]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
        re.S,
    )
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def without_comments(text):
    return re.sub(
        r"//[^\n]*|/\*.*?\*/", lambda match: re.sub(r"[^\n]", " ", match.group()), text, flags=re.S
    )


def resolve(root, path, name):
    """The file of ours that an include means, or None."""
    beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
    candidates = [beside] + [os.path.normpath(os.path.join(base, name)) for base in INCLUDE_ROOTS]
    for candidate in candidates:
        if not candidate.startswith("..") and os.path.isfile(os.path.join(root, candidate)):
            return candidate.replace(os.sep, "/")
    return None


def is_system(name):
    return name in C_HEADERS or name.startswith("sys/") or not re.search(r"[./]", name)


def check_include(root, path, room, match):
    name = match["name"]
    target = None
    if match["open"] == '"' or name.startswith("flce/"):
        target = resolve(root, path, name)
        if target is None and match["open"] == '"':
            return f'"{name}" is no file of this repository'
    if target is not None:
        allowed = (room,) + RULES[room]
        other = longest(target, RULES) or os.path.dirname(target)
        # A room in this room is another one.
        if other == room or any(under(target, prefix) for prefix in RULES[room]):
            return None
        return f"room '{room}' must not include room '{other}' (\"{name}\"); allowed: " + ", ".join(
            allowed
        )
    if room == PUBLIC and name.endswith(".h") and name not in PORTABLE_C:
        return f"public headers include the standard library only, not <{name}>"
    if is_system(name):
        return None
    third_party = THIRD_PARTY[longest(path, THIRD_PARTY)]
    if name.startswith(third_party or ("\0",)):
        return None
    return f"room '{room}' must not include <{name}>; allowed besides the standard library: " + (
        ", ".join(third_party) or "nothing"
    )


def check_calls(path, number, line):
    match = FORBIDDEN_CALLS.search(line)
    if match:
        word = match["call"] or match["stream"] or "fmt::" + match["fmt"]
        yield f"'{word}': the library neither ends the process nor prints; throw flce::Error"
    if GETENV.search(line) and path != "src/core/env.cpp":
        yield "getenv: environment variables are read in src/core/env.cpp alone"


def check_file(root, path):
    room = longest(path, RULES)
    if room is None:
        yield 1, "this folder is no room; add it to RULES in tests/layers/check_layers.py"
        return
    with open(os.path.join(root, path), encoding="utf-8") as file:
        text = file.read()
    for number, line in enumerate(without_comments(text).split("\n"), 1):
        match = INCLUDE.match(line)
        fault = match and check_include(root, path, room, match)
        if fault:
            yield number, fault
    if path.startswith("src/"):
        for number, line in enumerate(without_comments_and_strings(text).split("\n"), 1):
            for fault in check_calls(path, number, line):
                yield number, fault


def check(root):
    """All faults as 'file:line: text', and the number of files looked at."""
    faults, count = [], 0
    for path in sources(root):
        count += 1
        faults += [f"{path}:{number}: {text}" for number, text in check_file(root, path)]
    return faults, count


def main():
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        sys.exit(__doc__)
    faults, count = check(sys.argv[1])
    print("\n".join(faults) if faults else f"layers: {count} files, no wrong include or call")
    sys.exit(1 if faults or count == 0 else 0)


if __name__ == "__main__":
    main()
