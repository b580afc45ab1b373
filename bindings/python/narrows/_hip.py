# SPDX-License-Identifier: Apache-2.0
"""Sources in CUDA for AMD's GPUs: hipcc compiles them, by headers that have CUDA's names for HIP."""

import os

from narrows import _narrows

_CUDA, _ROCM = 2, 10  # DLPack's numbers of the devices
COMPILER = ("env", "HIP_PLATFORM=amd")  # in front of it: where hipcc sees nvcc it would compile for NVIDIA


def is_meant():
    """Whether sources in CUDA are for hipcc: HIPCC is set and NVCC is not, or, where neither is, AMD's GPUs alone are served."""
    if os.environ.get("NVCC") or os.environ.get("HIPCC"):
        return not os.environ.get("NVCC")
    served = {b["device_type"] for b in _usable()}
    return _ROCM in served and _CUDA not in served


def _usable():
    return [b for b in _narrows.backends() if b["status"] == "ok" and b["device_count"] > 0]


def targets(flags):
    """hipcc's flags for the GPUs that are here, unless the author's name some; RuntimeError: there are none."""
    if any(str(flag).startswith("--offload-arch") for flag in flags):
        return []
    counts = [b["device_count"] for b in _usable() if b["device_type"] == _ROCM]
    found = sorted({_narrows.device_info(_ROCM, i)["arch"] for i in range(max(counts, default=0))})
    if not found:
        raise RuntimeError(
            "build: hipcc: no backend serves an AMD GPU here; name those to compile for: flags=['--offload-arch=gfx90a']"
        )
    return [f"--offload-arch={name}" for name in found]
