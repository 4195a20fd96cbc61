# SPDX-License-Identifier: Apache-2.0
# Sourced by ./dev: fetching headers of others from Python packages, for cutlass.sh and xla_ffi.sh.

# Never fails: the log says what went wrong.
try_fetch() {  # try_fetch FUNCTION, which gets a folder that is removed afterwards
  local work
  mkdir -p "$root/build/third_party"
  # A folder of its own until all is whole, because another ./dev may do the same.
  work=$(mktemp -d "$root/build/third_party/fetch.XXXXXX")
  "$1" "$work" || echo "not fetched"
  rm -rf "$work"
}

# One wheel with this checksum, into the folder.
fetch_wheel() {  # fetch_wheel FOLDER SHA256 PIP_ARGS...
  local folder=$1 sha256=$2 python=python3
  if ! python3 -m pip --version; then
    python3 -m venv "$folder/venv" && python=$folder/venv/bin/python || return 1
  fi
  "$python" -m pip download --disable-pip-version-check --retries 1 --timeout 20 --no-deps \
    --only-binary :all: --dest "$folder" "${@:3}" || return 1
  echo "$sha256  $(echo "$folder"/*.whl)" | sha256sum --check
}
