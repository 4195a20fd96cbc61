# SPDX-License-Identifier: Apache-2.0
# Sourced by ./dev: `xla_headers` fetches the three headers of XLA's foreign function interface,
# with which flce.jax's part in C++ is compiled, into build/third_party, where cmake/xla_ffi.cmake
# looks for them (it names the folder, too, and says why this version). Without them all else is
# built.

xla_version=0.5.3
# The headers are the same in every wheel of a version; this is the smallest one.
xla_wheel=(--platform macosx_11_0_arm64 --python-version 3.11 --implementation cp --abi cp311
  "jaxlib==$xla_version")
xla_sha256=b62bd8b29e5a4f9bfaa57c8daf6e04820b2c994f448f3dec602d64255545e9f2
xla_dir=$root/build/third_party/xla-ffi-$xla_version

# Nobody names other headers, and they have not been fetched yet.
wants_xla() { [[ ! ${FLCE_XLA_FFI_DIR:-} && ! -r $xla_dir/include/xla/ffi/api/ffi.h ]]; }

xla_headers() {
  wants_xla || return 0
  step "XLA's headers, of jaxlib $xla_version" try_fetch fetch_xla
  ! wants_xla ||
    echo "==> XLA's headers were not fetched (the log in build/log says why): this build will be" \
      "without flce.jax; FLCE_XLA_FFI_DIR names headers that are there already"
}

fetch_xla() {  # fetch_xla WORK
  local work=$1 wheel
  fetch_wheel "$work" "$xla_sha256" "${xla_wheel[@]}" || return 1
  wheel=$(echo "$work"/*.whl)
  python3 -m zipfile -e "$wheel" "$work/wheel" &&
    mkdir -p "$work/xla/include/xla/ffi" &&
    mv "$work/wheel/jaxlib/include/xla/ffi/api" "$work/xla/include/xla/ffi/" &&
    mv "$work"/wheel/*.dist-info/LICENSE.txt "$work/xla/" &&
    mv -T "$work/xla" "$xla_dir"
}
