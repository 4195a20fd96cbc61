# SPDX-License-Identifier: Apache-2.0
# Sourced by ./dev: `fuzz SECONDS` runs every libFuzzer target for that long on top of the corpus in
# fuzz/corpus/<reader>; 0 replays the corpus and stops. What is found stays in build/fuzz.

fuzz() {
  local seconds=${1:-60} target name
  [[ $seconds =~ ^[0-9]+$ ]] || die "fuzz: '$seconds' is no number of seconds"
  build_preset fuzz
  for target in "$root"/build/fuzz/bin/fuzz_*; do
    [[ -x $target ]] || die "fuzz: no target was built"
    name=${target##*/fuzz_}
    step "fuzz $name $([[ $seconds == 0 ]] && echo corpus || echo "$seconds s")" \
      fuzz_one "$target" "$name" "$seconds"
  done
}

fuzz_one() {  # fuzz_one TARGET NAME SECONDS
  local seeds=$root/fuzz/corpus/$2 found=$root/build/fuzz/found/$2
  local limits=(-timeout=10 -rss_limit_mb=2048 "-artifact_prefix=$found/crash-")
  mkdir -p "$found/corpus"
  [[ -n $(ls -A "$seeds") ]]
  if (($3 == 0)); then
    "$1" "${limits[@]}" -runs=0 "$seeds"
  else
    "$1" "${limits[@]}" -max_total_time="$3" -print_final_stats=1 "$found/corpus" "$seeds"
  fi
}
