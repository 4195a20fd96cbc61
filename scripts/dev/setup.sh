# SPDX-License-Identifier: Apache-2.0
# Sourced by ./dev: `setup COMMAND` installs what a subcommand needs, and no more.

packages_of() {
  local build=(g++ cmake ninja-build git pkg-config python3
    libfmt-dev nlohmann-json3-dev libcli11-dev libgtest-dev libeigen3-dev $(cutlass_packages))
  case $1 in
    build | test | sanitize) echo "${build[@]}" ;;
    bench) echo "${build[@]}" libopenblas-dev libdnnl-dev libbenchmark-dev ;;
    demo) echo "${build[@]}" bible-kjv bible-kjv-text ;;
    python) echo "${build[@]}" python3-venv ;;
    style) echo git python3 python3-venv clang-format codespell ;;
    format) echo git clang-format ;;
    fuzz) echo "${build[@]}" clang libclang-rt-dev ;;
    cross) echo g++ cmake ninja-build libfmt-dev g++-aarch64-linux-gnu qemu-user ;;
    check) packages_of style && packages_of build ;;
    all) packages_of demo && packages_of check && packages_of fuzz && packages_of bench &&
      packages_of cross && packages_of python ;;
    *) return 1 ;;
  esac
}

install_packages() {
  local as_root=() apt=(apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      echo "not root, and no sudo here; as root: apt-get install $*"
      return 1
    fi
    as_root=(sudo)
  fi
  "${as_root[@]}" "${apt[@]}" update
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${apt[@]}" install -y \
    --no-install-recommends "$@"
}

setup() {
  install_missing "$@"
  case ${1:-all} in
    build | test | bench | demo | python | check | all) cutlass_headers ;;
  esac
  case ${1:-all} in
    python | check | all) xla_headers ;;
  esac
}

# Asks dpkg only, so that it works offline when nothing is missing.
install_missing() {
  local wanted missing=() package
  wanted=$(packages_of "${1:-all}") ||
    die "setup: unknown command '$1'; known: all, build, test, demo, check, sanitize, style," \
      "format, fuzz, bench, cross, python"
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "==> not a Debian system; this needs the likes of" $wanted
    return
  fi
  for package in $(printf '%s\n' $wanted | sort -u); do
    [[ $(dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null) == ?i* ]] ||
      missing+=("$package")
  done
  ((${#missing[@]} == 0)) || step "apt: ${missing[*]}" install_packages "${missing[@]}"
}
