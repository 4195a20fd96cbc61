# SPDX-License-Identifier: Apache-2.0
# Sourced by ./dev: `bench cuda` measures on a card what docs/measured.md shows of it. It needs a
# built tree (bin/flce and lib/*.so) and builds nothing. Each step is one `flce bench` that appends
# its rows to a file; one that fails is named at the end and stops no other.
#
# `bench cuda --map` and `bench cpu --map` fill the map of docs/decide.md instead: the same, with a
# file of their own that a second run goes on with.

bench_cuda_usage='bench: usage: ./dev bench cuda [--quick | --map] [--out DIR] [--flce PATH]'
bench_cuda_seconds=480  # for all steps together; what does not begin in time is left out
bench_cuda_longest=120  # for one

bench_cuda() {
  local quick='' map='' out='' flce=$root/build/release/bin/flce device=cuda
  while (($#)); do
    case $1 in
      --quick) quick=1 && shift ;;
      --map) map=1 && shift ;;
      --out) out=${2:?"--out needs a folder"} && shift 2 ;;
      --flce) flce=${2:?"--flce needs the built program"} && shift 2 ;;
      *) die "$bench_cuda_usage" ;;
    esac
  done
  [[ ! $quick || ! $map ]] || die "$bench_cuda_usage"
  [[ -x $flce ]] || die "bench cuda: no program at $flce; './dev build' makes it, or --flce PATH"
  if [[ $map ]]; then
    bench_map "${out:-$root/bench/results/$(card_slug)}/map.csv"
    return
  fi
  local is_kept=''
  if [[ ! $out ]]; then
    if [[ $quick ]]; then
      out=$root/build/bench/cuda-quick
    else
      out=$root/bench/results/$(card_slug) && is_kept=1
    fi
  fi
  mkdir -p "$out"
  rm -f "$out"/{headline,f32,sweep,memory,limits,small}.csv
  local failed=() start=$SECONDS
  if [[ $quick ]]; then bench_cuda_quick; else bench_cuda_all; fi
  bench_cuda_table "$out/headline.csv"
  echo "==> rows in $out, $((SECONDS - start)) s"
  if [[ $is_kept ]] && command -v python3 >/dev/null; then
    python3 "$root/bench/report.py" || failed+=("tables into docs/measured.md")
  fi
  ((${#failed[@]} == 0)) || die "bench cuda: failed or left out: $(printf '%s; ' "${failed[@]}")"
}

# "NVIDIA H200" -> h200, the folder of a card's results.
card_slug() {
  local name
  name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
  name=${name#NVIDIA }
  name=$(tr -cs 'a-z0-9\n' '-' <<<"${name,,}")
  name=${name%-}
  printf '%s\n' "${name:-unknown-card}"
}

card_step() {  # card_step WHAT FILE ARGS...
  local what=$1 file=$2 began=$SECONDS left rc=0
  shift 2
  left=$((bench_cuda_seconds - (SECONDS - start)))
  printf '==> %s\n' "$what"
  if ((left < 5)); then
    echo "left out: $bench_cuda_seconds seconds are over"
    failed+=("$what")
    return 0
  fi
  ((left < bench_cuda_longest)) || left=$bench_cuda_longest
  timeout "$left" "$flce" bench --device "$device" --csv "$out/$file.csv" --append "$@" || rc=$?
  ((rc == 0)) || failed+=("$what (exit status $rc)")
  printf '    %d s\n' $((SECONDS - began))
}

# All methods with times on random data, then errors on the two kinds that are hard.
card_headline() {  # card_headline SIZES ROUNDS
  local methods=naive,chunked,fused,recompute,forward,naive-eager,fused-liger data
  # Long enough to bring the card to the clock that its power limit leaves.
  card_step "$1 bf16" headline "n$1" bf16 --methods "$methods" --rounds "$2" --warm-seconds 8
  for data in peaked confident; do
    card_step "$1 bf16, errors on $data data" headline "n$1" bf16 --methods "$methods" \
      --rounds 0 --data "$data"
  done
}

card_small() {  # card_small ROUNDS
  card_step "GPT-2's small vocabulary" small --preset gpt2 --tokens 1024 --dtype bf16 \
    --methods naive,chunked,fused,recompute,forward,naive-eager,chunked-eager --rounds "$1"
}

bench_cuda_quick() {
  card_step "4096_h4096_v128256 bf16" headline n4096_h4096_v128256 bf16 --rounds 5 \
    --methods naive,fused,recompute,forward
  card_small 5
}

# Between three and eight minutes on an H200.
bench_cuda_all() {
  local llama=4096_h4096_v128256 long=16384_h4096_v128256 tokens
  card_headline "$llama" 15
  card_headline "$long" 9
  card_headline 8192_h2304_v256000 11
  card_small 21
  card_step "memory against chunks, Qwen3 with 4 x 4096 tokens" memory --set sweep \
    --preset qwen3-8b --tokens 16384 --dtype bf16 \
    --methods naive,naive-eager,chunked,chunked-eager,fused --chunks 1,2,4,8,16,32,64 \
    --rounds 0 --no-error --svg "$out/memory_vs_chunks.svg"
  card_step "time against the chunk" sweep --set sweep "n$long" bf16 --methods fused \
    --chunk-sizes 64,128,256,512,1024,2048,4096,8192,16384 --rounds 5 --no-error \
    --svg-time "$out/time_vs_chunk.svg"
  card_step "f32" f32 "n$llama" f32 --methods naive,fused,recompute,forward --rounds 5
  card_step "f32 by tf32 products" f32 "n$llama" f32 tf32 \
    --methods naive,fused,recompute,forward --rounds 7
  card_step "Qwen3 with 131072 tokens" limits --preset qwen3-8b --tokens 131072 --dtype bf16 \
    --methods fused,naive,naive-eager --chunk-sizes 1024 --rounds 3 --no-error \
    --no-floor
  for tokens in 65536 81920; do
    card_step "Llama-3 with $tokens tokens" limits --preset llama3-8b --tokens "$tokens" \
      --dtype bf16 --methods fused,naive,naive-eager --rounds 3 --no-error --no-floor
  done
}

# Does fusing pay? V/H by tokens, with H fixed: fused beside eager code and naive. Eager code holds
# 16 bytes a logit, so the last cell needs 121 GB; where it does not fit, its row says so. At most
# two minutes on an H200, three on two cores of a CPU.
bench_map() {  # bench_map FILE; uses $flce and $device
  local file=$1 hidden=2048 dtype=bf16 counts=(512 2048 8192 32768) ratio tokens shape
  local rounds=(--rounds 5 --warm-seconds 1 --no-floor) bench_cuda_seconds=120
  if [[ $device == cpu ]]; then
    hidden=512 dtype=f32 counts=(512 2048) rounds=(--rounds 3 --no-rss) bench_cuda_seconds=180
  fi
  mkdir -p "$(dirname "$file")"
  local failed=() start=$SECONDS out
  out=$(dirname "$file")
  for ratio in 4 8 16 32 64 111; do
    for tokens in "${counts[@]}"; do
      shape=${tokens}_h${hidden}_v$((ratio * hidden))
      if grep -qs "n$shape $dtype mean," "$file"; then
        echo "==> n$shape is there"
        continue
      fi
      card_step "n$shape, V/H $ratio" "$(basename "$file" .csv)" "n$shape" "$dtype" \
        --methods fused,naive,naive-eager --no-error "${rounds[@]}"
    done
  done
  echo "==> rows in $file, $((SECONDS - start)) s"
  if [[ $file == "$root"/* ]] && command -v python3 >/dev/null; then
    python3 "$root/bench/report.py" || failed+=("tables into docs/decide.md")
  fi
  ((${#failed[@]} == 0)) || die "bench: the same command goes on with what failed or was" \
    "left out: $(printf '%s; ' "${failed[@]}")"
}

# Of the columns that stand before any field that may be quoted.
bench_cuda_table() {
  [[ -s $1 ]] || return 0
  awk -F, '
    NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
    $at["data"] == "random" {
      if (!shown++) printf "%-20s %-5s %-12s %7s %10s %7s %9s %9s %9s\n", "N x H x V", "dtype",
        "method", "chunk", "median ms", "ratio", "extra GB", "err dX", "err dW"
      printf "%-20s %-5s %-12s %7s %10s %7s %9.3f %9.1e %9.1e\n", $at["shape"], $at["dtype"],
        $at["method"], $at["chunk"], $at["median_ms"], $at["ratio"], $at["extra_bytes"] / 1e9,
        $at["err_grad_hidden"], $at["err_grad_weight"]
    }' "$1"
}
