# SPDX-License-Identifier: Apache-2.0
"""Other fused linear cross-entropies beside ours: `python bench/peers --help`, docs/peers.md."""

import sys
from pathlib import Path

# The folder is run as a program: its parent, not itself, is where `peers` and `results` are found.
sys.path[0] = str(Path(__file__).resolve().parents[1])
sys.dont_write_bytecode = True

from peers import command_line  # noqa: E402

if __name__ == "__main__":
    sys.exit(command_line.main())
