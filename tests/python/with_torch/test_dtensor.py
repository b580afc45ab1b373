# SPDX-License-Identifier: Apache-2.0
"""torch: the ops on DTensors, in two processes by gloo and, where there are two NVIDIA GPUs, by NCCL; with NARROWS_TEST_SLOW=1 in four by
gloo too."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch", "2.11", reason="DTensors with these ops need torch 2.11")

import ranks

CASES = [
    "conv1d",
    "conv1d_groups",
    "conv1d_uneven",
    "element_wise",
    "params",
    "second_derivatives",
    "autocast",
    "lltm",
    "lltm_sequence",
]
CASES += ["plugins", "programs", "any_layout"]
SLOW = pytest.mark.skipif(os.environ.get("NARROWS_TEST_SLOW") != "1", reason="four processes: NARROWS_TEST_SLOW=1")


def test_rules_are_there_once_somebody_imports_dtensor():
    code = """
import sys, torch, narrows.torch
assert not any(m.startswith("torch.distributed.tensor") for m in sys.modules)
from torch.distributed.tensor import DTensor
assert torch.ops.narrows.conv1d.default in DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


@pytest.fixture(scope="module", params=ranks.BACKENDS)
def of_two(request, tmp_path_factory):
    environment = ranks.device_of(request.param)
    cases = [c for c in CASES if c != "plugins" or request.param == "gloo"]  # which are the CPU's
    return ranks.run("with_torch/dtensor_cases.py", tmp_path_factory.mktemp("two"), 2, *cases, **environment)


@pytest.mark.parametrize("case", CASES)
def test_dtensor(request, of_two, case):
    if case == "plugins" and "nccl" in request.node.callspec.id:
        pytest.skip("these plugins are the CPU's")
    ranks.check(of_two, case)


@pytest.fixture(scope="module")
def of_four(tmp_path_factory):
    return ranks.run("with_torch/dtensor_cases.py", tmp_path_factory.mktemp("four"), 4)


@SLOW
@pytest.mark.parametrize("case", [*CASES, "two_axes", "any_layout_of_two_axes"])
def test_dtensor_of_four(of_four, case):
    ranks.check(of_four, case)
