#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What libflce.so and libflce_cuda.so show and need.

usage: check_exports.py LIBFLCE.SO INCLUDE/FLCE
       check_exports.py LIBFLCE_CUDA.SO

libflce.so exports every function that flce.h declares, names of namespace flce, and nothing else.
libflce_cuda.so exports the function that libflce.so asks for, the exception that passes between
them, and nothing else: the CUDA runtime in it must not meet another one in the process. Both need
the C and C++ run-time libraries and nothing else: cuBLASLt and the driver are loaded when they are
used, so that the library can be loaded where they are missing.
"""

import os
import re
import subprocess
import sys

NEEDED = re.compile(
    r"(libstdc\+\+|libc|libm|libgcc_s|libpthread|libdl|librt|ld-linux[\w-]*)\.so(\.\d+)*$"
)
CUDA_DECLARED = {"flce_cuda_library"}
CUDA_OURS = re.compile(r"(?:vtable|typeinfo|typeinfo name) for flce::Error$")
OURS = re.compile(r"(?:(?:vtable|typeinfo|typeinfo name) for )?flce::")


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def exported(library):
    for line in output("nm", "-D", "-C", "--defined-only", library).splitlines():
        name = line.split(maxsplit=2)[2]
        yield re.sub(r"@@?.*$", "", name)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    library = sys.argv[1]
    ours, declared = CUDA_OURS, CUDA_DECLARED
    if len(sys.argv) == 3:
        ours = OURS
        with open(os.path.join(sys.argv[2], "flce.h"), encoding="utf-8") as file:
            declared = set(re.findall(r"FLCE_C_API[^;]*?\b(flce_\w+)\(", file.read()))
    names = list(exported(library))
    faults = [
        f"exports '{name}', which is not ours"
        for name in names
        if name not in declared and not ours.match(name)
    ]
    faults += [
        f"does not export '{name}', which is declared" for name in sorted(declared - set(names))
    ]
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "-d", "-W", library))
    faults += [f"needs {name} at run time" for name in needed if not NEEDED.match(name)]
    if not declared:
        faults.append("no function of flce.h was found")
    for fault in faults:
        print(f"{os.path.basename(library)} {fault}")
    if not faults:
        print(f"{len(names)} names exported, {len(declared)} of them C; needs {', '.join(needed)}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
