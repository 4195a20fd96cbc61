# SPDX-License-Identifier: Apache-2.0
# Sourced by ./dev: `bench peers` puts other systems beside ours (bench/peers), in the Python that
# has them: FLCE_PYTHON, else build/venv, else python3. It builds and installs nothing.

bench_peers() {
  local python=${FLCE_PYTHON:-$root/build/venv/bin/python}
  [[ -x $python ]] || python=python3
  "$python" -c 'import torch' 2>/dev/null ||
    die "bench peers: $python has no PyTorch; FLCE_PYTHON names another Python"
  "$python" "$root/bench/peers" "$@" || die "bench peers: ended with status $?"
  step "tables into docs/peers.md" python3 "$root/bench/report.py"
}
