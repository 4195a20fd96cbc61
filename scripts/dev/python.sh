# SPDX-License-Identifier: Apache-2.0
# Sourced by ./dev: `test_python` runs the tests of the Python package against the release build, in
# a virtual environment of its own (build/venv), or with the Python that FLCE_PYTHON names; `wheel`
# builds one; `soak` runs random training steps.

test_python() {
  local wheel='' packages='' python=${FLCE_PYTHON:-}
  if [[ ${1:-} == --wheel ]]; then wheel=1 && shift; fi
  if [[ ${1:-} == --packages ]]; then packages=1 && shift; fi
  setup python
  if [[ $packages ]]; then
    step "packages for the Python tests" python_packages "$root/build/venv/bin/python"
    return
  fi
  step "configure release" configure release
  step "compile release, library and command line" compile_for_python
  if [[ -z $python ]]; then
    python=$root/build/venv/bin/python
    step "packages for the Python tests" python_packages "$python"
  fi
  show "pytest" "$python" -m pytest -q "$root/tests/python" --rootdir "$root" -c \
    "$root/pyproject.toml" "$@"
  [[ ! $wheel ]] || step "wheel, installed and used" try_wheel
}

# package_python ARGS...: a Python with PyTorch that finds the package of this tree and, unless
# FLCE_LIBRARY names one, the newest library of its builds.
package_python() {
  local python=${FLCE_PYTHON:-$root/build/venv/bin/python}
  [[ -x $python ]] || python=$(command -v "$python" || command -v python3)
  PYTHONPATH=$root/bindings/python${PYTHONPATH:+:$PYTHONPATH} "$python" "$@"
}

# soak [ARGS]: builds nothing, so that a machine with a card and a bundle can run it.
soak() {
  show "random training steps" package_python "$root/tests/soak/soak.py" "$@"
}

compile_for_python() {
  cmake --build "$root/build/release" --parallel "$jobs" --target python_tests
}

# What the extra `test` of pyproject.toml lists; nothing is fetched when it is there.
python_packages() {
  local python=$1 list=$root/build/python-packages.txt
  [[ -x $python ]] || python3 -m venv "$root/build/venv"
  "$python" - "$root/pyproject.toml" >"$list" <<'PY'
import sys

try:
    import tomllib
except ImportError:
    from pip._vendor import tomli as tomllib

with open(sys.argv[1], "rb") as file:
    project = tomllib.load(file)["project"]
print("\n".join(project["optional-dependencies"]["test"]))
PY
  "$python" -m pip install --disable-pip-version-check --quiet --requirement "$list"
}

# wheel [--cpu]: into build/dist, and says its name and size.
wheel() {
  local cuda=AUTO made
  case ${1:-} in
    '') ;;
    --cpu) cuda=OFF ;;
    *) die "wheel: unknown argument '$1'; known: --cpu" ;;
  esac
  setup python
  step "build the wheel" build_wheel "$cuda"
  made=("$root"/build/dist/*.whl)
  echo "${made[0]#"$root/"}, $(stat -c %s "${made[0]}" | numfmt --to=si)B"
}

# The one wheel of build/dist, whose name says that it serves every Python.
build_wheel() {  # build_wheel AUTO|OFF, for FLCE_CUDA
  local dist=$root/build/dist venv=$root/build/wheel/venv
  rm -rf "$dist" "$venv"
  python3 -m venv "$venv"
  CMAKE_BUILD_PARALLEL_LEVEL=$jobs "$venv/bin/python" -m pip wheel "$root" --no-deps \
    --wheel-dir "$dist" -C cmake.define.FLCE_CUDA="$1" -C build-dir="$root/build/wheel/build"
  [[ $(ls "$dist") == flce-*-py3-none-linux_*.whl ]]
}

# A wheel for the CPU, in an environment without torch and numpy, and then with JAX alone.
try_wheel() {
  local venv=$root/build/wheel/venv
  build_wheel OFF
  "$venv/bin/python" -m pip install --no-index "$root"/build/dist/*.whl
  cd /
  "$venv/bin/flce" info
  "$venv/bin/python" -m flce info
  [[ $("$venv/bin/flce" doctor llama3-8b --tokens 16384 --memory 230GB) == *'memory? Yes.'* ]]
  "$venv/bin/python" -c '
import sys
import flce
plan = flce.plan(tokens=4096, hidden=4096, vocab=128256, dtype="bf16", budget="4GiB")
assert plan.method == "fused" and 0 < plan.extra_bytes <= 4 << 30, plan
assert not {"torch", "numpy"} & set(sys.modules)
try:
    import flce.torch
except ImportError as error:
    assert "pip install torch" in str(error), error
else:
    raise AssertionError("flce.torch was imported without torch")
'
  "$venv/bin/python" -m pip install --disable-pip-version-check --quiet jax
  "$venv/bin/python" "$root/examples/jax/minimal.py"
}
