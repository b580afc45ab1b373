# SPDX-License-Identifier: Apache-2.0
"""new_op.py -- what scripts/new_op.py makes of an op with params and of its gradient, in a copy of the tree: they are in every place that
ops.py knows, and the layout that it gives tests/abi is the compiler's. Standard library only.

usage: new_op.py --compiler CC --dlpack INCLUDE
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = (
    "abi",
    "backends/cpu/ops",
    "backends/cuda",
    "backends/vulkan",
    "benchmarks",
    "bindings/python/narrows",
    "core/ops",
    "docs",
    "tests",
    "tools",
)
FIELDS = ("factor:float64", "axis:int32", "keep_size:int32", "count:int64")
REFUSED = {  # the arguments, and words of the error
    ("Scale",): "the name is 'Scale'",
    ("conv1d",): "core/ops/ops.inc has it already",
    ("scale", "--params", "factor"): "expected each FIELD:TYPE once",
    ("scale", "--params", "factor:float32"): "TYPE one of int32, int64, float64",
    ("scale", "--params", "axis:int32", "factor:float64"): "factor at byte 4; expected a multiple of 8",
    ("scale", "--params", "axis:int32"): "4 bytes; expected a multiple of 8",
}


def new_op(root, *arguments):
    command = [sys.executable, ROOT / "scripts/new_op.py", *arguments, "--root", root]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def made(root, *arguments):
    result = new_op(root, *arguments)
    if result.returncode != 0:
        sys.exit(f"new_op.py {' '.join(arguments)}: {result.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--dlpack", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name in FOLDERS:
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "CHANGELOG.md", root)
        for wrong, words in REFUSED.items():
            result = new_op(root, *wrong)
            if result.returncode == 0 or words not in result.stderr:
                sys.exit(f"new_op.py {' '.join(wrong)}: '{result.stderr}'; expected '{words}'")
        made(root, "scale", "--params", *FIELDS)
        made(root, "scale_backward")
        made(root, "halve")
        for check in ((), ("--notices",)):
            subprocess.run([sys.executable, ROOT / "tests/tools/ops.py", "--root", root, *check], check=True)
        includes = [f"-I{root / 'abi/include'}", "-isystem", arguments.dlpack]
        compile_ = [arguments.compiler, "-fsyntax-only", "-Wall", "-Wextra", "-Wpadded", "-Werror", "-std=c99", *includes]
        subprocess.run([*compile_, "-x", "c", root / "tests/abi/golden.c"], check=True)
        left = [f"{f.relative_to(root)}: {word}" for f in root.rglob("*scale*") for word in words_left(f)]
        if left:
            sys.exit("words of the templates are left:\n" + "\n".join(left))
        lacking = [f"{f.relative_to(root)}: {name}" for f in root.glob("backends/**/*scale*") for name in lacking_headers(f)]
        if lacking:
            sys.exit("headers that are not there:\n" + "\n".join(lacking))


def lacking_headers(file):
    """What a source includes of the tree and is not there: not every backend is compiled where this runs."""
    if file.suffix not in (".cpp", ".cu", ".h"):
        return []
    folders = [ROOT / "backends", ROOT / "bindings/cpp/include", ROOT / "abi/include"]
    names = re.findall(r'^#include [<"]((?:common|narrows)/[^>"]+)', file.read_text(), re.MULTILINE)
    return [name for name in names if not any((folder / name).exists() for folder in folders)]


def words_left(file):
    words = "OPNAME", "FORWARD", "PARAMSSIZE", "FIELDNAME", "CAMEL", "// with", "// each"
    return [word for word in words if file.is_file() and word.encode() in file.read_bytes()]


if __name__ == "__main__":
    main()
