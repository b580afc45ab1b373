# SPDX-License-Identifier: Apache-2.0
"""Ops for Narrows, of arrays of torch, JAX, CuPy and NumPy.

>>> import numpy, my_ops
>>> my_ops.scale(numpy.ones(3, "float32"), factor=2.0)
array([2., 2., 2.], dtype=float32)
"""

import narrows

__all__ = ["scale"]

scale = narrows.op("my_ops.scale")
