# SPDX-License-Identifier: Apache-2.0
"""torch: models over several processes, by gloo and, where there are two NVIDIA GPUs, by NCCL; with NARROWS_TEST_SLOW=1
torch.compile and four processes too."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch", "2.11", reason="DTensors with these ops need torch 2.11")

import ranks

SCRIPT = "with_torch/parallel_cases.py"
CASES = ["filters_then_channels", "groups", "states", "states_over_steps", "refusals", "ddp", "fsdp", "checkpoints"]
SLOW = pytest.mark.skipif(os.environ.get("NARROWS_TEST_SLOW") != "1", reason="minutes: NARROWS_TEST_SLOW=1")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder of two processes, in which their checkpoints are."""
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def of_two(saved):
    return ranks.run(SCRIPT, saved, 2, *CASES)


@pytest.mark.parametrize("case", CASES)
def test_models(of_two, case):
    ranks.check(of_two, case)


@pytest.fixture(scope="module")
def by_nccl(tmp_path_factory):
    environment = ranks.device_of("nccl")
    return ranks.run(SCRIPT, tmp_path_factory.mktemp("nccl"), 2, *CASES, **environment)


@pytest.mark.parametrize("case", CASES)
def test_models_by_nccl(by_nccl, case):
    ranks.check(by_nccl, case)


@SLOW
@pytest.mark.parametrize("backend", ranks.BACKENDS)
def test_compiled(tmp_path, backend):
    environment = ranks.device_of(backend)
    ranks.check(ranks.run(SCRIPT, tmp_path, 2, "compiled", **environment), "compiled")


@pytest.fixture(scope="module")
def of_four(of_two, saved, tmp_path_factory):
    return ranks.run(SCRIPT, tmp_path_factory.mktemp("four"), 4, *CASES, "resharded", NARROWS_SAVED=str(saved))


@SLOW
@pytest.mark.parametrize("case", [*CASES, "resharded"])
def test_models_of_four(of_four, case):
    ranks.check(of_four, case)


@pytest.mark.parametrize("how", ["dies", "is late"])
def test_a_process_that_is_missed_is_the_engines_error(tmp_path, how):
    """The others get torch's error, and end: no call of ours waits for them."""
    first, second = ranks.start("with_torch/missing_rank.py", tmp_path, 2, how)
    (code,) = ranks.wait([first], 300)
    second.kill()  # the late one
    second.wait()
    log = (tmp_path / "rank0.log").read_text()
    assert code == 0, log
    assert "narrows was called" in log and ("Connection" in log or "Timed out" in log or "timeout" in log), log


def test_the_example():
    """It compares loss and gradients with one device itself."""
    example = pathlib.Path(__file__).parents[3] / "examples" / "distributed_torch.py"
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert list(lines) == ["batch", "batch, FSDP2", "channels and states"]
    assert lines["batch"].endswith("6 x all_reduce (12336 bytes)"), lines["batch"]
    assert "4 x all_gather_into_tensor (768 bytes)" in lines["channels and states"], lines["channels and states"]
