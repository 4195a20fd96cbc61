# SPDX-License-Identifier: Apache-2.0
# Sourced by ./dev: `style` looks at the sources without building them, `format` rewrites them.

# The files that git tracks or would track, by pattern, one a line; all files in a plain archive.
sources() {
  if git -C "$root" rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git -C "$root" ls-files --cached --others --exclude-standard --deduplicate -- "$@"
  else
    (cd "$root" && find . -type d \( -name build -o -name .git \) -prune -o -type f -print |
      sed 's|^\./||' | grep -E "$(printf '%s\n' "$@" | sed 's/\./\\./g; s/\*/.*/g; s/$/$/' |
        paste -sd '|')")
  fi | while read -r file; do
    [[ ! -f $root/$file ]] || printf '%s\n' "$file"
  done
}

# The formatter is pinned: Debian 12's clang-format 14. Another version formats differently.
clang_format() {
  local tool=clang-format
  command -v clang-format-14 >/dev/null && tool=clang-format-14
  "$tool" --version | grep -q 'version 14\.' ||
    echo "note: $("$tool" --version); the sources are formatted with version 14"
  (cd "$root" && sources '*.hpp' '*.h' '*.cpp' '*.c' '*.cuh' '*.cu' | xargs -d '\n' "$tool" "$@")
}

# Binary and generated test inputs are no prose.
spelling() {
  (cd "$root" && sources '*' | grep -vE '^(LICENSE$|fuzz/corpus/|tests/.*\.(npy|safetensors)$)' |
    xargs -d '\n' codespell --ignore-words scripts/dev/codespell-ignore.txt)
}

check_format() {
  local faults
  faults=$(clang_format --dry-run -Werror --ferror-limit=1 2>&1 | grep -E '^note:|^[^ ].*: error:' |
    sed -E 's/^([^:]+:[0-9]+):.*/\1: not formatted; .\/dev format does it/' || true)
  echo "$faults"
  ! grep -qv '^note:' <<<"$faults" || [[ -z $faults ]]
}

# Ruff is pinned likewise; Debian 12 has none, so it comes from pip, into a place of its own.
ruff_version=0.14.6

ruff() { (cd "$root" && "$root/build/ruff/bin/ruff" "$@"); }

has_ruff() { [[ $(ruff --version 2>/dev/null) == "ruff $ruff_version" ]]; }

get_ruff() {
  has_ruff && return
  python3 -m venv "$root/build/ruff" &&
    "$root/build/ruff/bin/pip" install --disable-pip-version-check --quiet "ruff==$ruff_version" &&
    has_ruff
}

check_python() {
  ruff check --quiet && ruff format --quiet --check ||
    { echo "not as ruff wants it; ./dev format formats" && return 1; }
}

style() {
  setup style
  step "format" check_format
  if (get_ruff) >/dev/null 2>&1; then
    step "Python" check_python
  else
    echo "==> no ruff $ruff_version, and none to be had: the Python files are not checked"
  fi
  step "spelling" spelling
  step "layers" python3 "$root/tests/layers/check_layers.py" "$root"
  step "budgets" python3 "$root/tests/layers/check_budgets.py" "$root"
  step "version" python3 "$root/tests/layers/check_version.py" "$root"
  step "links and paths in the docs" python3 "$root/tests/docs/check_docs.py" "$root"
  step "README.ko.md beside README.md" python3 "$root/tests/docs/check_translation.py" "$root"
  step "generated tables" python3 "$root/bench/report.py" --check
}

format() {
  setup format
  step "clang-format -i" clang_format -i
  ! has_ruff || step "ruff format" ruff format
}
