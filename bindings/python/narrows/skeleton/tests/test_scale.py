# SPDX-License-Identifier: Apache-2.0
import narrows
import narrows.testing
import numpy as np
import pytest

import my_ops


def reference(x, factor=1.0):
    return factor * x


def test_scale():
    narrows.testing.check_op(my_ops.scale, reference, shapes=[(), (3,), (5, 7)], params=[{}, {"factor": -2.5}])


@pytest.mark.parametrize("device", ["cuda", "vulkan"])
def test_scale_on_a_gpu(device):
    if not any(b["name"] == f"my_ops_{device}" and b["status"] == "ok" for b in narrows.info()["backends"]):
        pytest.skip(f"my_ops_{device} was not built, or has no device")
    x = np.arange(1000, dtype="float32")
    np.testing.assert_array_equal(my_ops.scale(x, factor=3.0, device=device), 3 * x)
