# SPDX-License-Identifier: Apache-2.0
import narrows
import narrows.testing
import pytest

import my_ops


def reference(x, factor=1.0):
    return factor * x


@pytest.mark.parametrize("device", ["cpu", "cuda", "vulkan"])
def test_scale(device):
    plugin = f"my_ops_{device}"
    if device != "cpu" and not any(b["name"] == plugin and b["status"] == "ok" for b in narrows.info()["backends"]):
        pytest.skip(f"{plugin} was not built, or has no device")
    narrows.testing.check_op(my_ops.scale, reference, shapes=[(), (3,), (5, 7)], params=[{}, {"factor": -2.5}], devices=device)
