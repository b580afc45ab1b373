# SPDX-License-Identifier: Apache-2.0
import narrows
import numpy as np
import pytest

import my_ops


@pytest.mark.parametrize("shape", [(), (0,), (3,), (5, 7), (100_003,)])
@pytest.mark.parametrize("factor", [1.0, -2.5, 0.0])
def test_scale(shape, factor):
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    np.testing.assert_array_equal(my_ops.scale(x, factor=factor), np.float32(factor) * x)


def test_a_wrong_dtype_is_refused():
    with pytest.raises(NotImplementedError, match="expected float32"):
        my_ops.scale(np.ones(3))


@pytest.mark.skipif(not any(str(d).startswith("cuda") for d in narrows.devices()), reason="no GPU of NVIDIA's")
def test_scale_on_a_gpu():
    x = np.arange(1000, dtype="float32")
    np.testing.assert_array_equal(my_ops.scale(x, factor=3.0, device="cuda"), 3 * x)
