# SPDX-License-Identifier: Apache-2.0
"""`python -m flce ...` and the script `flce`: the command line that comes with the package.

`doctor` is Python's own; everything else is the compiled program's.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from . import _abi


def main() -> NoReturn:
    """Runs the program in place of this process, so that signals and exit codes are its own."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["doctor"]:
        from .doctor import main as doctor

        sys.exit(doctor(arguments[1:]))
    try:
        path = _abi.find_program()
    except ImportError as error:
        sys.exit(f"flce: {error}")
    if path is None:
        sys.exit(
            "flce: this installation has no command line (it was built with FLCE_BUILD_TOOLS=OFF); "
            "reinstall without that, or use flce.plan in Python"
        )
    if not arguments or arguments == ["--help"]:
        print("Besides: flce doctor MODEL_OR_CONFIG --tokens N (flce doctor --help)\n", flush=True)
    os.execv(path, ["flce", *arguments])


if __name__ == "__main__":
    main()
