# SPDX-License-Identifier: Apache-2.0
"""JAX over two processes, on the CPU of two devices each and of a GPU each where there are two; and over four, of one CPU device each."""

import os
import pathlib
import subprocess
import sys

import pytest

import ranks

jax = pytest.importorskip("jax")
if not hasattr(jax, "shard_map"):
    pytest.skip("this JAX has no jax.shard_map", allow_module_level=True)

SCRIPT = "with_jax/process_cases.py"
ENVIRONMENT = {
    "gloo": {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
    "nccl": {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_FLAGS": ""},
}
OF_FOUR = ["lltm_and_element_wise", "lltm_sequence", "programs", "halo"]  # the others have sizes that four do not divide
CASES = ["conv1d", "conv1d_groups", *OF_FOUR]
EXAMPLE = pathlib.Path(__file__).parents[3] / "examples" / "distributed_jax.py"


@pytest.fixture(scope="module", params=ranks.BACKENDS)
def of_two(request, tmp_path_factory):
    environment = {**ENVIRONMENT[request.param], **ranks.device_of(request.param)}
    return ranks.run(SCRIPT, tmp_path_factory.mktemp("two"), 2, **environment)


@pytest.mark.parametrize("case", CASES)
def test_processes(of_two, case):
    ranks.check(of_two, case)


@pytest.fixture(scope="module")
def of_four(tmp_path_factory):
    environment = {**ENVIRONMENT["gloo"], **ranks.device_of("gloo"), "XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
    return ranks.run(SCRIPT, tmp_path_factory.mktemp("four"), 4, *OF_FOUR, **environment)


@pytest.mark.parametrize("case", OF_FOUR)
def test_four_processes(of_four, case):
    ranks.check(of_four, case)


def test_the_example():
    done = subprocess.run(
        [sys.executable, EXAMPLE], capture_output=True, text=True, timeout=300, env={**os.environ, "XLA_FLAGS": ""}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("1024 bytes to each neighbour") == 2
