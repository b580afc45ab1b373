# SPDX-License-Identifier: Apache-2.0
"""Puzzle 17 of MAX, a 1-D convolution: NumPy data to each device that is here, computed there, and back.

python3 examples/puzzle17.py
"""

import numpy as np

import narrows

x = np.arange(15, dtype=np.float32)
w = np.array([0, 1, 2, 3], dtype=np.float32)
expected = np.convolve(np.append(x, [0, 0, 0]), w[::-1], mode="valid")

for device in narrows.devices():
    y = narrows.conv1d(x, w, padding=(0, 3), device=device)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    print(f"{device}: {device.info['name']}, {device.info['arch']}")
    print(*(f"{value:g}" for value in y))
