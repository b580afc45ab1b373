# python-gpu: the package with the cuda backend, and its tests, on an NVIDIA GPU
# SPDX-License-Identifier: Apache-2.0
parts python cuda

# The tests of `python` with the cuda backend, on an NVIDIA GPU; torch, JAX and CuPy use it where .deps/pyenv has those built for CUDA.
check() {
  begin python-gpu 7
  require build python
  fetch_dlpack
  fetch_cuda
  fetch_python_tools
  CONFIGURE_OPTIONS=("-DNARROWS_CUDA_ARCHITECTURES=$(cuda_architectures)" -DNARROWS_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$PYENV/bin/python")
  build cuda narrows_command narrows_cpu narrows_cuda narrows_python narrows_conformance_tests
  step gpu
  logged python-gpu.log env PYTHONPATH="$NARROWS_ROOT/build/cuda/python:$NARROWS_ROOT/tests/python" "$PYENV/bin/python" -c \
    'import narrows, present, sys; print(narrows.info()); sys.exit(None if present.GPU else "the cuda backend finds no NVIDIA GPU here")'
  done_with "$(grep -m 1 -o 'cuda:0[^,]*' "$LOG/python-gpu.log")"
  PYTHON_PRESET=cuda
  test_python -n 1 "$@" # one process: several would share the GPU's memory
}
