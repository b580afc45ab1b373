# onnxruntime: builds the ops for ONNX Runtime, whose headers it fetches where there are none, and runs their tests
# SPDX-License-Identifier: Apache-2.0
parts python chroot

readonly ORT_FETCHED=$DEPS/onnxruntime

# Of Debian 13: an operator that was built with its headers runs in every later ONNX Runtime.
fetch_onnxruntime_headers() {
  local folder
  step headers
  if has_header onnxruntime/onnxruntime_c_api.h; then
    done_with "onnxruntime_c_api.h is there"
    return
  fi
  CONFIGURE_OPTIONS+=("-DONNXRUNTIME_INCLUDE_DIR=$ORT_FETCHED/usr/include/onnxruntime")
  if [ ! -f "$ORT_FETCHED/usr/include/onnxruntime/onnxruntime_c_api.h" ]; then
    folder=$(mktemp -d)
    chmod 755 "$folder"  # apt downloads as a user of its own
    mkdir -p "$folder/sources" "$folder/lists/partial"
    debian_sources "$folder/sources" trixie
    retried download_headers "$folder" "$folder/sources"/narrows.* >"$LOG/onnxruntime.log" 2>&1 ||
      fail "the headers of ONNX Runtime cannot be had; the whole log is $LOG/onnxruntime.log" 3
    rm -rf -- "$ORT_FETCHED" && mkdir -p "$ORT_FETCHED"
    dpkg-deb -x "$folder"/libonnxruntime-dev_*.deb "$ORT_FETCHED"
    rm -rf -- "$folder"
  fi
  done_with "of Debian's libonnxruntime-dev, in .deps/onnxruntime"
}

# download_headers FOLDER SOURCES
download_headers() {
  local options=(-o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=${2%/*}" -o "Dir::State::Lists=$1/lists"
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
  (cd -- "$1" && as_root apt-get -q "${options[@]}" update && apt-get -q "${options[@]}" download libonnxruntime-dev)
}

check() {
  begin onnxruntime 7
  require build python
  fetch_dlpack
  fetch_python_tools
  CONFIGURE_OPTIONS=(-DNARROWS_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$PYENV/bin/python" -DNARROWS_BUILD_ONNXRUNTIME=ON)
  fetch_onnxruntime_headers
  build cpu narrows_command narrows_cpu narrows_python narrows_onnxruntime
  fetch_lint_tools
  (cd -- "$NARROWS_ROOT" && clang_tidy cpu '^bindings/onnxruntime/.*\.cpp$')
  export NARROWS_ONNXRUNTIME=$NARROWS_ROOT/build/cpu/lib/libnarrows_onnxruntime.so
  test_python test_onnxruntime.py "$@"
}
