# SPDX-License-Identifier: Apache-2.0
"""NVTX ranges by op name, as a tool sees them that NVTX_INJECTION64_PATH names. Each test has a process of its own."""

import os
import shutil
import subprocess
import sys

import pytest

TOOL = """
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
typedef void (*function)(void);
struct callbacks { size_t size; int (*table)(int module, function*** table, unsigned* size); };
static int depth;
static int push(const char* message) { fprintf(stderr, "push %s\\n", message); return depth++; }
static int pop(void) { fprintf(stderr, "pop\\n"); return --depth; }
int InitializeInjectionNvtx2(const void* (*get)(uint32_t)) {
  const struct callbacks* callbacks = get(1);
  function** table;
  unsigned size;
  if (!callbacks || callbacks->size < sizeof *callbacks || get(99)) return 0;
  for (int module = 1; module < 7; ++module) {
    if (!callbacks->table(module, &table, &size)) return 0;
    for (unsigned i = 1; i < size; ++i) *table[i] = 0;
  }
  if (callbacks->table(7, &table, &size) || !callbacks->table(1, &table, &size) || size != 16) return 0;
  *table[9] = (function)push;
  *table[11] = (function)pop;
  return RESULT;
}
"""
PROGRAM = """
import numpy, narrows
x = numpy.ones(4, "float32")
narrows.multiply(x, 2)
narrows.conv1d(x, x[:2])
try:
    narrows.conv1d(x, x, out=numpy.ones(9, "float32"))
except ValueError:
    pass
narrows.astype(x, "int8")
"""


@pytest.fixture(scope="module")
def tool(tmp_path_factory):
    compiler = os.environ.get("CC") or shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler is here to make the tool with")

    def make(result):
        folder = tmp_path_factory.mktemp("nvtx")
        (folder / "tool.c").write_text(TOOL)
        made = folder / "tool.so"
        subprocess.run([compiler, "-shared", "-fPIC", f"-DRESULT={result}", "-o", made, folder / "tool.c"], check=True)
        return str(made)

    return make


def run(path):
    """What the program writes to stderr."""
    variables = {**os.environ, "NVTX_INJECTION64_PATH": path}
    result = subprocess.run([sys.executable, "-c", PROGRAM], env=variables, capture_output=True, text=True, check=True)
    return result.stderr.splitlines()


def test_each_launch_is_a_range(tool):
    expected = ["narrows::elementwise(mul)", "narrows::conv1d", "narrows::elementwise(cast, int8)"]
    assert run(tool(1)) == [line for name in expected for line in (f"push {name}", "pop")]


def test_a_tool_that_refuses_is_told_of(tool):
    (line,) = run(tool(0))
    assert "NVTX_INJECTION64_PATH" in line and "InitializeInjectionNvtx2 gives 0" in line


def test_a_tool_that_cannot_be_loaded_is_told_of():
    (line,) = run("/no/such/tool.so")
    assert "NVTX_INJECTION64_PATH=/no/such/tool.so: it cannot be loaded" in line


def test_nothing_listens_without_a_tool():
    assert run("") == []
