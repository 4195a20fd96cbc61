#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of label `gpu` that lie beside this script (a bundle of ./dev build cuda) or in a
# build folder, several at once; one line each with its time and verdict, a table last. Needs
# nothing but what is there, a driver, and cuBLASLt where the dynamic linker finds it.
set -euo pipefail

usage='usage: gpu-test [--quick] [--sanitizers] [--dir DIR] [--jobs N]
  --quick        the operation in short, calls, refusals and services only
  --sanitizers   in place of the tests: memcheck, racecheck, initcheck and synccheck of
                 compute-sanitizer on a few of them
  --dir DIR      where bin, lib and gpu-tests.txt are (default: beside this script)
  --jobs N       tests at once (default 4)'

die() {
  printf 'gpu-test: %s\n' "$*" >&2
  exit 2
}

dir=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")") jobs=4 quick='' sanitizers=''
while (($#)); do
  case $1 in
    --quick) quick=1 && shift ;;
    --sanitizers) sanitizers=1 && shift ;;
    --dir) dir=${2:?"--dir needs a folder"} && shift 2 ;;
    --jobs) jobs=${2:?"--jobs needs a number"} && shift 2 ;;
    -h | --help) echo "$usage" && exit ;;
    *) die "unknown argument '$1'; $usage" ;;
  esac
done
dir=$(readlink -f -- "$dir")
[[ $jobs =~ ^[1-9][0-9]*$ ]] || die "--jobs needs a number from 1 on, not '$jobs'"
[[ -r $dir/gpu-tests.txt ]] ||
  die "$dir has no gpu-tests.txt; './dev build cuda' makes such a folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/verdicts"

# The program of that name, or the one that holds the tests of all of them.
program() {
  local file=$dir/bin/$1
  [[ -x $file ]] || file=$dir/bin/test_gpu_all
  [[ -x $file ]] || die "$dir/bin has neither $1 nor test_gpu_all"
  echo "$file"
}

# run_one NAME COMMAND...: waits for it; a line on the terminal and one in $work/verdicts.
run_one() {
  local name=$1 log=$work/$1.log begin=$EPOCHREALTIME rc=0 verdict
  shift
  "$@" >"$log" 2>&1 </dev/null || rc=$?
  case $rc in
    0)
      verdict=passed
      if grep -q ' 0 tests from 0 test suites ran' "$log"; then
        rc=1 verdict="FAILED: no test of that name"
      fi
      ! grep -q '^\[  SKIPPED \]' "$log" || verdict+=", $(skipped_in "$log") skipped"
      ;;
    77) verdict="skipped: $(sed -n 's/^skipped, //p' "$log" | head -n 1)" ;;
    *) verdict="FAILED (exit status $rc)" ;;
  esac
  printf '%-34s %7.1f s  %s\n' "$name" "$(since "$begin")" "$verdict"
  # At once: whoever stops this script has seen why.
  [[ $verdict != FAILED* ]] || sed "s/^/$name: /" <(tail -n 60 "$log")
  printf '%s\t%s\n' "$name" "$verdict" >>"$work/verdicts"
}

since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }'; }
skipped_in() { sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$1" | tail -n 1; }

# in_turn NAME COMMAND...: the same, beside at most `jobs` others.
in_turn() {
  while (($(jobs -rp | wc -l) >= jobs)); do wait -n || true; done
  run_one "$@" &
}

is_quick() { [[ $1 =~ ^gpu_(op_wants|op_upstream|op_inputs|refusals|services|calls)$ ]]; }

# The tests of one part: `false` those that may run beside others, `true` those that run alone.
run_tests() {
  local alone=${1^^} name file shard shards is_alone filter
  while read -r name file shard shards is_alone filter; do
    [[ $is_alone == "$alone" ]] || continue
    [[ ! $quick ]] || is_quick "$name" || continue
    if [[ $quick && $name == gpu_calls ]]; then filter='Gpu/GpuCalls.*'; fi
    in_turn "$name" env FLCE_TEST_DEVICE=cuda FLCE_CLI="$dir/bin/flce" \
      GTEST_TOTAL_SHARDS="$shards" GTEST_SHARD_INDEX="$shard" "$(program "$file")" \
      --gtest_brief=1 "--gtest_filter=$filter"
    [[ $alone == FALSE ]] || wait
  done <"$dir/gpu-tests.txt"
  wait
}

# What a card newer than the build would do: the kernels compiled from PTX by the driver. Of
# libflce_cuda.so there is a second one with PTX alone; a program finds it from its own folder.
run_ptx() {
  local pair file
  if [[ ! -r $dir/lib/ptx/libflce_cuda.so ]]; then
    echo "gpu_ptx: $dir/lib/ptx/libflce_cuda.so is not there; './dev build cuda' makes it"
    return
  fi
  mkdir -p "$work/ptx/bin" "$work/ptx/lib"
  cp "$dir/lib/ptx/libflce_cuda.so" "$work/ptx/lib/"
  for pair in 'test_op_wants=Op/WantsTest.*' 'test_op_ignored=Op/Ignored.*' \
    'test_op_eager=Op/Eager.*' 'test_gpu_rows=Gpu/GpuRows.*'; do
    file=${pair%%=*}
    ln -s "$(program "$file")" "$work/ptx/bin/$file"
    in_turn "gpu_ptx_${file#test_}" env FLCE_TEST_DEVICE=cuda FLCE_TEST_ROUTE=portable \
      CUDA_CACHE_DISABLE=1 \
      "$work/ptx/bin/$file" --gtest_brief=1 "--gtest_filter=${pair#*=}"
  done
  wait
}

# The front end for PyTorch, with the PyTorch that is there.
run_torch() {
  local tests=$dir/tests/python
  # A build folder lies in the repository.
  [[ -d $tests ]] || tests=$dir/../../tests/python
  if ! python3 -c 'import pytest, torch' 2>/dev/null; then
    echo "gpu_torch: python3 has no torch or no pytest; its tests are left out"
    return
  fi
  in_turn gpu_torch env FLCE_LIBRARY="$dir/lib/libflce.so" PYTHONDONTWRITEBYTECODE=1 \
    python3 -m pytest -q -m gpu -p no:cacheprovider "$tests"/test_{,hf_}gpu.py
  wait
}

# The front end for JAX, with the JAX that is there; its tests compare with PyTorch.
run_jax() {
  local tests=$dir/tests/python
  [[ -d $tests ]] || tests=$dir/../../tests/python
  if ! python3 -c 'import jax, pytest, torch' 2>/dev/null; then
    echo "gpu_jax: python3 has no jax, no torch or no pytest; its tests are left out"
    return
  fi
  in_turn gpu_jax env FLCE_LIBRARY="$dir/lib/libflce.so" PYTHONDONTWRITEBYTECODE=1 \
    python3 -m pytest -q -m gpu -p no:cacheprovider "$tests"/test_jax_gpu.py
  wait
}

sanitizer() {
  command -v compute-sanitizer || {
    local here=/usr/local/cuda/bin/compute-sanitizer
    [[ -x $here ]] && echo $here
  }
}

# Runs initcheck's command. Some of cuBLASLt's kernels (cutlass) read past the end of odd rows and
# use nothing of it; any other read of memory that nobody has written is an error.
judge_reads() {
  local rc=0 out
  out=$(mktemp "$work/initcheck.XXXXXX")
  "$@" >"$out" 2>&1 || rc=$?
  grep -v '^=========' "$out" || true
  awk '
    /Uninitialized .* read/ {
      getline at
      kind = at ~ /cutlass/ ? "cutlass" : "ours"
      ++count[kind]
    }
    kind == "ours" && count["ours"] <= 5 { print; print at; kind = "" }
    END {
      printf "%d reads of our own, %d of cutlass kernels\n", count["ours"], count["cutlass"]
      exit count["ours"] > 0 ? 9 : 0
    }' "$out" || rc=9
  return $rc
}

# run_under TOOL FILTERS...: each filter is PROGRAM=GTEST_FILTER. Without canaries around the memory
# the tool sees its true ends, and the workspace comes to the call as it was allocated.
run_under() {
  local tool=$1 options=(--tool "$1" --error-exitcode 9 --print-limit 20) judge=() pair file
  shift
  if [[ $tool == initcheck ]]; then
    options=(--tool initcheck --print-limit 0 --show-backtrace no) judge=(judge_reads)
  fi
  # These two are about our kernels alone, and slow.
  if [[ $tool == racecheck || $tool == synccheck ]] && [[ $name_option ]]; then
    options+=("$name_option" kns=flce)
  fi
  for pair in "$@"; do
    file=${pair%%=*}
    in_turn "${tool}_${file#test_}" "${judge[@]}" env FLCE_TEST_DEVICE=cuda FLCE_TEST_CANARIES=off \
      "$sanitizer" "${options[@]}" "$(program "$file")" --gtest_brief=1 \
      "--gtest_filter=${pair#*=}"
  done
}

run_sanitizers() {
  local sanitizer name_option short long
  sanitizer=$(sanitizer) ||
    die "compute-sanitizer is neither on the PATH nor in /usr/local/cuda/bin"
  # The option has had two names.
  name_option=$("$sanitizer" --help 2>&1 | grep -oE -e '--kernel-(regex|name)\b' | head -n 1) ||
    true
  short=('test_op_shapes=*/Shapes.SmallestSizes/*bf16:*/Shapes.SmallestSizes/recompute_f32'
    'test_op_wants=*/WantsTest.OptionalOutputs*:*/WantsTest.AccumulatesIntoEitherType/*_f16'
    'test_op_ignored=*/Ignored.PoisonNeverComesOut/*_bf16:*/Ignored.LogitsAt*/*_f32'
    'test_op_inputs=*/InputsTest.GapsBetween*/*_bf16:*/InputsTest.VectorsOfStrideTwo/*_f16'
    'test_op_eager=*/Eager.MakesOnlyWhatIsWanted/*bf16:*/Eager.MakesOnlyWhatIsWanted/*f32')
  # Racecheck and synccheck of CUDA 13.0 end in an error of their own beside cuBLASLt's 16-bit
  # kernels for compute capability 9.0, which products of this size take.
  local calls_16bit='test_gpu_calls=*/GpuCalls.C027*_bf16'
  local calls_f32='test_gpu_calls=*/GpuCalls.C027*_f32'
  # Rows long enough for a cluster of blocks.
  local clusters='test_gpu_rows=*/GpuRows.RowsInTurn/fused_*'
  long=("${short[@]:1}" "$calls_16bit"
    'test_op_shapes=*/Shapes.RaggedSizes/*_bf16:*/Shapes.RaggedSizes/*_f16'
    'test_op_edges=*/Edges.FewerTokensThanAPanel/*_f32' 'test_cases=Cases.C036*:Cases.C027*'
    'test_gpu_rows=*/GpuRows.EveryWidthWithEveryOption/*_bf16')
  if [[ $quick ]]; then long=("${short[@]}"); fi
  run_under memcheck "${long[@]}"
  # Initcheck does not see what those kernels write.
  run_under initcheck "${short[@]}" "$calls_f32"
  run_under racecheck "${short[@]}" "$calls_f32" "$clusters"
  run_under synccheck "${short[@]}" "$calls_f32" "$clusters"
  wait
}

if ! nvidia-smi -L 2>/dev/null; then
  echo "gpu-test: nvidia-smi finds no NVIDIA GPU on this machine; nothing to run" >&2
  exit 1
fi
begin=$EPOCHREALTIME
if [[ $sanitizers ]]; then
  run_sanitizers
else
  run_tests false
  [[ $quick ]] || run_ptx
  run_torch
  run_jax
  run_tests true
fi

failed=$(awk -F'\t' '$2 ~ /^FAILED/ { print $1 }' "$work/verdicts")
passed=$(awk -F'\t' '$2 ~ /^passed/' "$work/verdicts" | wc -l)
printf '\n%-10s %4d\n%-10s %4d\n%-10s %4d\n%-10s %6.1f s\n' passed "$passed" \
  skipped "$(awk -F'\t' '$2 ~ /^skipped/' "$work/verdicts" | wc -l)" \
  failed "$(wc -w <<<"$failed")" time "$(since "$begin")"
[[ -z $failed ]] || printf 'failed: %s\n' "$(tr '\n' ' ' <<<"$failed")"
((passed > 0)) || echo "nothing passed; the lines above say why"
[[ -z $failed ]] && ((passed > 0))
