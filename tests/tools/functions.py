# SPDX-License-Identifier: Apache-2.0
"""functions.py -- scripts/functions.py names each place that lacks an element-wise function. Standard library only."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import functions

NEW = {"number": 1000, "operands": 1, "dtypes": "F", "gradients": ["3a\u00b2"]}


def main():
    found = functions.lacking({"nowhere": NEW})
    places = [*functions.PLACES, *functions.GRADIENT_PLACES, functions.ONNX_PLACE]
    unnamed = [what for what, *_ in places if not any(line.startswith(f"nowhere: no {what};") for line in found)]
    if unnamed or len(found) != len(places):
        sys.exit(f"a function that is nowhere is not missed as {unnamed}: {found}")
    constant = functions.lacking({"nowhere": NEW | {"gradients": ["0"], "onnx": "Nowhere"}})
    if len(constant) != len(functions.PLACES):
        sys.exit(f"a function whose gradient is 0 is missed in {constant}")
    print(f"{len(places)} places")


if __name__ == "__main__":
    main()
