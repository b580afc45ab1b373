# SPDX-License-Identifier: Apache-2.0
"""ops.py -- every built-in op is in every place that has to know it: CONTRIBUTING.md, "Add an op". Standard library only.

usage: ops.py [--root DIR]       fails with the places that lack an op
       ops.py --notices          fails unless each place is missed where it lacks an op

The ops are those of core/ops/ops.inc, of which core makes builtins(); that the library has just them tests/tools/command.py says.
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = "core/ops/ops.inc"
PARAMS = "abi/include/narrows/ops.h"
# What is known of an op: the files, of which one has to have a match, and the pattern. {op}: its name; {forward}: that of the op
# whose gradient it is, or its own.
PLACES = {
    "contract": ("core/ops/*.cpp", r"declare\(\"{op}\""),
    "contract's function": ("core/ops/*.cpp", r"Contract& {op}_contract\(\) \{{"),
    "reference": ("tests/reference/*.h", r"\b{op}\("),
    "conformance test": ("tests/conformance/**/*.cpp", r"TEST_CASE\(\"{op}\b[^\n]*\[{forward}\]"),
    "test of bad input": ("tests/conformance/**/*.cpp", r"TEST_CASE\([^\n]*\[{forward}\][^\n]*\[(bad|refusal)\]"),
    "example of a call": ("tests/conformance/**/*.cpp", r"Maker\(\"{op}\"|\.op = \"{op}\""),
    "fault": ("tests/conformance/mutants/faults.txt", r"^naive +\| {op}\.\w+ \|"),
    "naive plugin": ("tests/conformance/mutants/naive_*.cpp", r"const Op {op} = \{{"),
    "cpu kernel": ("backends/cpu/ops/**/*.cpp", r"const Op {op} = \{{"),
    "cuda kernel": ("backends/cuda/ops/**/*.c*", r"const Op {op} = \{{"),
    "line in cuda's list": ("backends/cuda/ops.inc", r"^NARROWS_OP\({op}\)$"),
    "vulkan plan": ("backends/vulkan/ops/**/*.cpp", r"const Op {op} = \{{"),
    "line in vulkan's list": ("backends/vulkan/ops.inc", r"^NARROWS_OP\({op}\)$"),
    "fuzz oracle": ("tests/fuzz/**/*.cpp", r"const Oracle {op}_oracle\{{"),
    "fuzz seeds": ("tests/fuzz/seeds/tensors/{op}_0", r""),
    "probe question": ("tools/probe.cpp", r"\"{op}\""),
    "row of docs/ops.md": ("docs/ops.md", r"^\| .*\[`{op}`\]\(#{op}\)"),
    "section of docs/ops.md": ("docs/ops.md", r"^##+ {op}$"),
    "row of docs/support.md": ("docs/support.md", r"^\| `{op}`"),
    "benchmark row": ("benchmarks/cpu_cases.py", r"\b{forward}\b"),
}
# What an op with params of its own has besides. {params}: the struct.
PARAMS_PLACES = {
    "layout of its params": ("tests/abi/golden.c", r"^SIZE\({params}, \d+\)"),
    "params in docs/ops.md": ("docs/ops.md", r"^\| \[`{op}`\][^\n]*`{params}`"),
}
# What one with a function of the Python package has besides.
PYTHON = "bindings/python/narrows/_functions.py"
PYTHON_PLACES = {
    "name in narrows": ("bindings/python/narrows/_functions.py", r"^OPS = \([^)]*\"{op}\""),
    "name in the stub": ("bindings/python/narrows/__init__.pyi", r"^    \"{op}\",$"),
    "type in the stub": ("bindings/python/narrows/__init__.pyi", r"^def {op}\("),
}
# Where the functions of elementwise stand for it.
ELSEWHERE = {
    ("elementwise", "benchmark row"): r"narrows\.\{function\}",
    ("elementwise_backward", "benchmark row"): r"narrows\.\{function\}",
    ("elementwise_backward", "reference"): r"\(\*gradient\)\(",
}


class Tree:
    """The files, each read once."""

    def __init__(self, root):
        self.root, self.texts = root, {}

    def files(self, pattern):
        return sorted(self.root.glob(pattern))

    def text(self, file):
        if file not in self.texts:
            self.texts[file] = file.read_bytes().decode("utf-8", "replace")
        return self.texts[file]

    def has(self, files, pattern):
        return any(re.search(pattern, self.text(file), re.M) for file in self.files(files))


def ops(tree):
    return re.findall(r"^NARROWS_OP\((\w+)\)$", tree.text(tree.root / LIST), re.M)


def places(tree, op):
    """(place, files, pattern) of each that has to know the op."""
    forward, params = op.removesuffix("_backward"), f"nw_{op}_params"
    known = dict(PLACES)
    if op == forward and re.search(rf"\}} {params};", tree.text(tree.root / PARAMS)):
        known |= PARAMS_PLACES
    if op == forward and tree.has(PYTHON, rf"^def {op}\("):
        known |= PYTHON_PLACES
    for place, (files, pattern) in known.items():
        pattern = ELSEWHERE.get((op, place), pattern.format(op=op, forward=forward, params=params))
        yield place, files.format(op=op), pattern


def missing(tree, names):
    """A line for each place that lacks an op of these names."""
    return [
        f"{op}: no {place}; expected {pattern or 'a file'} in {files}"
        for op in names
        for place, files, pattern in places(tree, op)
        if not tree.has(files, pattern)
    ]


def unnoticed(tree, names):
    """A line for each place whose loss nobody would notice: the op's lines are taken out of it, and it has to be missed."""
    out = []
    for op in names:
        for place, files, pattern in places(tree, op):
            poorer = Tree(tree.root)
            poorer.texts = dict(tree.texts)
            for file in tree.files(files):
                poorer.texts[file] = re.sub(pattern, "", tree.text(file), flags=re.M) if pattern else tree.text(file)
            if not pattern:
                poorer.files = lambda which, gone=files, all_files=poorer.files: [] if which == gone else all_files(which)
            if not any(line.startswith(f"{op}: no {place};") for line in missing(poorer, [op])):
                out.append(f"{op}: the {place} can be taken away, and is not missed")
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, metavar="DIR")
    parser.add_argument("--notices", action="store_true")
    arguments = parser.parse_args()
    tree = Tree(arguments.root)
    if not ops(tree):
        sys.exit(f"{LIST} has no line NARROWS_OP(name)")
    if wrong := (unnoticed if arguments.notices else missing)(tree, ops(tree)):
        sys.exit("\n".join(wrong))
    print(f"{len(ops(tree))} ops in {sum(len(list(places(tree, op))) for op in ops(tree))} places")


if __name__ == "__main__":
    main()
