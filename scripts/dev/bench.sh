# SPDX-License-Identifier: Apache-2.0
# Sourced by ./dev: `bench cpu` times ours against other libraries and writes the tables from it;
# `bench train` trains a model in PyTorch, with ours and without.

bench_usage='bench: usage: ./dev bench cpu [--quick] [--torch] [--no-kernels]
                  ./dev bench cpu --bundle DIR
                  ./dev bench cpu --map [--flce PATH]
                  ./dev bench cuda [--quick | --map] [--out DIR] [--flce PATH]
                  ./dev bench peers [run|features|list] [--help]
                  ./dev bench train [ARGS]'

bench() {
  local quick='' torch='' kernels=1 bundle=''
  if [[ ${1:-} == cuda ]]; then
    bench_cuda "${@:2}"
    return
  fi
  if [[ ${1:-} == peers ]]; then
    bench_peers "${@:2}"
    return
  fi
  if [[ ${1:-} == train ]]; then
    bench_train "${@:2}"
    return
  fi
  [[ ${1:-} == cpu ]] || die "$bench_usage"
  shift
  if [[ ${1:-} == --map ]]; then
    bench_cpu_map "${@:2}"
    return
  fi
  while (($#)); do
    case $1 in
      --quick) quick=1 && shift ;;
      --torch) torch=1 && shift ;;
      --no-kernels) kernels='' && shift ;;
      --bundle) bundle=${2:?"--bundle needs a folder"} && shift 2 ;;
      *) die "$bench_usage" ;;
    esac
  done
  setup build
  (setup bench) || echo "==> the rivals whose libraries are missing are left out"
  build bench
  if [[ $bundle ]]; then
    step "copy the programs to $bundle" bench_bundle "$bundle"
    return
  fi
  local csv=$root/build/bench/quick.csv
  if [[ ! $quick ]]; then
    mkdir -p "$root/bench/results/cpu"
    csv=$root/bench/results/cpu/$(python3 "$root/bench/results.py" slug).csv
  fi
  if [[ $torch ]]; then install_torch; fi
  if [[ $quick ]]; then bench_quick; else bench_all; fi
  if [[ $kernels && -x $root/build/bench/bin/bench_kernels ]]; then bench_kernels; fi
  show "tables" python3 "$root/bench/report.py" --print "$csv"
  if [[ ! $quick ]]; then step "tables into docs/measured.md" python3 "$root/bench/report.py"; fi
  echo "==> rows in ${csv#"$root/"}"
}

# The map of docs/decide.md, by the built program alone.
bench_cpu_map() {
  local flce=$root/build/release/bin/flce device=cpu
  [[ ${1:-} != --flce ]] || flce=${2:?"--flce needs the built program"}
  [[ -x $flce ]] || die "bench cpu: no program at $flce; './dev build' makes it, or --flce PATH"
  bench_map "$root/bench/results/cpu-map/$(python3 "$root/bench/results.py" slug).csv"
}

rivals() {  # rivals WHAT ARGS...
  show "$1" "$root/build/bench/bin/bench_rivals" --csv "$csv" "${@:2}"
}

# oneDNN reads its limit once in a process, so the variant without AMX gets one of its own.
rivals_without_amx() {
  grep -q amx_bf16 /proc/cpuinfo || return 0
  rivals "bf16, oneDNN without AMX" --dtype bf16 --systems fused,onednn \
    --onednn-isa AVX512_CORE_BF16 "$@"
}

rival_torch() {
  local python=$root/build/torch-venv/bin/python
  [[ -x $python ]] || python=python3
  if ! "$python" -c 'import torch' 2>/dev/null; then
    echo "==> PyTorch: not installed, left out (./dev bench cpu --torch installs it)"
    return
  fi
  show "PyTorch" "$python" "$root/bench/cpu/rival_torch.py" --csv "$csv" \
    --lib "$root/build/bench/lib/libflce.so" "$@"
}

# A built library and a Python with PyTorch; neither is made here. Rows in a folder of their own
# (--out) go into no table.
bench_train() {
  local rc=0
  package_python "$root/bench/train/train.py" "$@" || rc=$?
  [[ " $* " == *' --out'* ]] || python3 "$root/bench/report.py" || rc=1
  return "$rc"
}

bench_quick() {
  rivals "the small shape" --shape 512x256x8192 --dtype f32,bf16 --seconds 10
  rivals_without_amx --shape 512x256x8192 --seconds 5
  rival_torch --shape 512x256x8192 --seconds 5 --limit 2
}

# About 13 minutes on two cores with AVX2, half of it for the large head; PyTorch comes on top.
bench_all() {
  local dtype large=2048x2048x128256 small=512x256x8192,2048x1024x32000
  rivals "small and medium shapes" --shape "$small" --dtype f32,bf16 --seconds 30 --rounds 3-15
  rivals_without_amx --shape "$small" --seconds 30
  rivals "the large head" --shape "$large" --dtype f32,bf16 --systems fused,openblas,onednn \
    --seconds 60 --rounds 3-9
  rivals_without_amx --shape "$large" --seconds 60 --rounds 3-9
  for dtype in f32 bf16; do
    bench_scaling "$dtype"
  done
  rival_torch --shape "$small" --dtype f32,bf16 --seconds 45 --limit 10
}

bench_scaling() {  # bench_scaling DTYPE
  local together=(--together --systems fused --dtype "$1" --seconds 8 --rounds 3-9) threads
  rivals "growth with N, $1" "${together[@]}" --series scale_n \
    --shape 512x512x16384,1024x512x16384,2048x512x16384,4096x512x16384
  rivals "growth with V, $1" "${together[@]}" --series scale_v \
    --shape 1024x512x8192,1024x512x16384,1024x512x32768,1024x512x65536
  rivals "growth with H, $1" "${together[@]}" --series scale_h \
    --shape 1024x256x16384,1024x512x16384,1024x1024x16384,1024x2048x16384
  threads=$(python3 -c "
n = len(__import__('os').sched_getaffinity(0))
print(*sorted({2 ** i for i in range(n.bit_length()) if 2 ** i < n} | {n}), sep=',')")
  rivals "threads, $1" "${together[@]}" --series threads --shape 1024x512x32768 --threads "$threads"
}

bench_kernels() {
  show "kernels" "$root/build/bench/bin/bench_kernels" --benchmark_min_time=0.05
}

# The processor's build is what is timed; the wheel for graphics cards computes the same on it.
install_torch() {
  local venv=$root/build/torch-venv
  if [[ ! -x $venv/bin/python ]]; then step "python venv" python3 -m venv "$venv"; fi
  "$venv/bin/python" -c 'import torch' 2>/dev/null ||
    step "pip install torch (minutes)" "$venv/bin/python" -m pip install torch numpy
}

# What another machine needs beside its C library: the programs, their modules and libraries.
bench_bundle() {
  local bin=$root/build/bench/bin file
  mkdir -p "$1"
  for file in "$bin"/bench_rivals "$bin"/bench_kernels "$bin"/flce_rival_*.so; do
    [[ -e $file ]] || continue
    cp "$file" "$1/"
    ldd "$file" | awk '$3 ~ /^\// && $1 !~ /^(libc|libm|libdl|libpthread|librt)\.so/ {print $3}' |
      xargs -r cp -Lt "$1/"
  done
  strip --strip-unneeded "$1"/*
  ls -l "$1"
}
