# SPDX-License-Identifier: Apache-2.0
# Sourced by ./dev: `build cuda` builds the CUDA part with its tests and tools, and puts all that
# another machine needs to run them into build/bundle-cuda; `gpu-test` runs them here.

cuda_usage='build cuda: usage: ./dev build cuda [--arch 80|90a|all|LIST]'
bundle_limit_mib=45

build_cuda() {
  local architectures='80;90-real'
  while (($#)); do
    case $1 in
      --arch) architectures=${2:?"--arch needs architectures"} && shift 2 ;;
      --arch=*) architectures=${1#*=} && shift ;;
      *) die "build cuda: unknown argument '$1'; $cuda_usage" ;;
    esac
  done
  find_nvcc
  setup build
  xla_headers
  step "configure cuda" configure cuda "-DFLCE_CUDA_ARCHITECTURES=$architectures"
  step "compile cuda" compile cuda gpu_tests
  step "configure cuda, PTX alone" configure cuda-ptx
  step "compile cuda, PTX alone" compile cuda-ptx flce_cuda_run
  mkdir -p "$root/build/cuda/lib/ptx"
  cp "$root/build/cuda-ptx/lib/libflce_cuda.so" "$root/build/cuda/lib/ptx/"
  step "bundle" cuda_bundle "$root/build/bundle-cuda"
  echo "==> $(du -sm "$root/build/bundle-cuda" | cut -f1) MiB in build/bundle-cuda"
}

# nvcc comes with the system; it is often beside the PATH, not on it.
find_nvcc() {
  command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
  command -v nvcc >/dev/null ||
    die "build cuda: nvcc is neither on the PATH nor in /usr/local/cuda/bin; install the CUDA" \
      "toolkit 12.0 or newer (without it './dev build' builds the library for the CPU)"
}

# The command line, the tests in two programs, libraries and scripts, stripped; with the C++
# run-time library, which may be newer than the other machine's.
cuda_bundle() {
  local to=$1 from=$root/build/cuda file
  rm -rf "$to"
  mkdir -p "$to/bin" "$to/lib/ptx"
  cp "$from/gpu-tests.txt" "$root/THIRD_PARTY.txt" "$to/"
  cp "$from/bin/flce" "$from/bin/test_gpu_all" "$from/bin/test_cuda_doors" "$to/bin/"
  cp -a "$from"/lib/libflce*.so* "$to/lib/"
  cp "$from/lib/ptx/libflce_cuda.so" "$to/lib/ptx/"
  ldd "$to/bin/flce" | awk '$1 ~ /^(libstdc\+\+|libgcc_s)\./ {print $3}' | xargs cp -Lt "$to/lib"
  find "$to" -type f \( -perm -u+x -o -name '*.so*' \) -exec strip --strip-all {} +
  for file in "$root"/scripts/gpu/*.sh; do
    cp "$file" "$to/$(basename "$file" .sh)"
  done
  if [[ -d $root/bench/cuda ]]; then cp -r "$root/bench/cuda" "$to/cuda"; fi
  # The Python package and its tests, as they lie in the repository.
  (cd "$root" && git ls-files -z bindings/python tests/python tests/soak bench/torch bench/peers \
    bench/train 'bench/*.py') | (cd "$root" && xargs -0 cp --parents -t "$to")
  local mib
  mib=$(du -sm "$to" | cut -f1)
  ((mib <= bundle_limit_mib)) || {
    du -a "$to" | sort -n | tail -n 20
    echo "the bundle has $mib MiB, more than $bundle_limit_mib"
    return 1
  }
}

gpu_test() {
  local dir=$root/build/cuda
  [[ -r $dir/gpu-tests.txt ]] || dir=$root/build/bundle-cuda
  [[ -r $dir/gpu-tests.txt ]] ||
    die "gpu-test: neither build/cuda nor build/bundle-cuda is there; './dev build cuda' makes them"
  nvidia-smi -L >/dev/null 2>&1 ||
    die "gpu-test: nvidia-smi finds no NVIDIA GPU on this machine; copy build/bundle-cuda to one" \
      "that has it, and run bundle-cuda/gpu-test there"
  exec "$root/scripts/gpu/gpu-test.sh" --dir "$dir" "$@"
}
