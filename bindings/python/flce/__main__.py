# SPDX-License-Identifier: Apache-2.0
"""`python -m flce ...` and the script `flce`: the command line that comes with the package.

`doctor` is Python's own; everything else is the compiled program's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn


def program_path() -> Path | None:
    """The compiled program: the wheel's, or the one of the source tree's builds."""
    from . import _abi

    library = _abi.library().path
    for place in (library.parents[1] / "bin" / "flce", Path(__file__).parent / "bin" / "flce"):
        if place.is_file():
            return place
    return None


def main() -> NoReturn:
    """Runs the program in place of this process, so that signals and exit codes are its own."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["doctor"]:
        from .doctor import main as doctor

        sys.exit(doctor(arguments[1:]))
    program = program_path()
    if program is None:
        sys.exit(
            "flce: this installation has no command line (it was built with FLCE_BUILD_CLI=OFF); "
            "reinstall without that, or use flce.plan in Python"
        )
    if not arguments or arguments == ["--help"]:
        print("Besides: flce doctor MODEL_OR_CONFIG --tokens N (flce doctor --help)\n", flush=True)
    os.execv(program, ["flce", *arguments])


if __name__ == "__main__":
    main()
