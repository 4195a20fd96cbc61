# SPDX-License-Identifier: Apache-2.0
# Sourced by ./dev: `cutlass_headers` fetches CUTLASS's headers, with which the kernels for Hopper
# cards are compiled, into build/third_party, where cmake/cutlass.cmake looks for them (it names the
# folder, too). Without them all else is built.

cutlass_version=4.2.0
cutlass_package=nvidia-cutlass==4.2.0.0
cutlass_sha256=f9599ada45c7bcb6bf53f7d3f0a7d154183e53451c01bfa59eecd37dd4a693f6
cutlass_dir=$root/build/third_party/cutlass-$cutlass_version

# nvcc is there, nobody names other headers, and they have not been fetched yet.
wants_cutlass() {
  [[ ! ${FLCE_CUTLASS_DIR:-} && ! -r $cutlass_dir/include/cutlass/cutlass.h ]] &&
    { [[ ${CUDACXX:-} ]] || command -v nvcc >/dev/null; }
}

# What fetching needs and this machine lacks: pip, or a virtual environment, which has one.
cutlass_packages() {
  ! wants_cutlass || python3 -m pip --version >/dev/null 2>&1 ||
    python3 -c 'import ensurepip' 2>/dev/null || echo python3-venv
}

cutlass_headers() {
  wants_cutlass || return 0
  step "CUTLASS $cutlass_version, its headers" try_fetch fetch_cutlass
  ! wants_cutlass ||
    echo "==> CUTLASS was not fetched (the log in build/log says why): this build will be without" \
      "the Hopper kernels; FLCE_CUTLASS_DIR names headers that are there already"
}

fetch_cutlass() {  # fetch_cutlass WORK
  local work=$1 wheel
  fetch_wheel "$work" "$cutlass_sha256" "$cutlass_package" || return 1
  wheel=$(echo "$work"/*.whl)
  python3 -m zipfile -e "$wheel" "$work/wheel" &&
    mkdir "$work/cutlass" &&
    mv "$work/wheel/cutlass_library/source/include" "$work/cutlass/include" &&
    mv "$work"/wheel/*.dist-info/licenses/LICENSE.txt "$work/cutlass/" &&
    mv -T "$work/cutlass" "$cutlass_dir"
}
