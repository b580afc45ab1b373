#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds a built-in op that compiles, runs on the CPU and has its tests, with the formula y = x; CONTRIBUTING.md says how to go on.

scripts/new_op.py NAME               makes the files of scripts/templates/op and adds the lines of the lists
scripts/new_op.py NAME --root DIR    in another tree
"""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / "scripts" / "templates" / "op"
DTYPES = ["yes"] * 4 + [""] * 9  # f32, f64, f16, bf16 of the table in docs/support.md

SECTION = """
## OPNAME

`y = x`. One input, `x`, of any shape; one output, `y`, of the same shape.

Dtypes: f32, f64, f16, bf16; both tensors the same. No params. NaN goes through.
"""
# file: (a line that is there once, what is put before it)
BEFORE = {
    "tools/probe.cpp": (
        "};  // kQuestions",
        '    {"OPNAME", [](const Questioner& q, DLDataType type) { return q.ask("OPNAME", {Imagined{type, kShape}}, {}); }},\n',
    ),
    "benchmarks/cpu_cases.py": ("}  # LATER", '    "OPNAME": ("narrows.ops.OPNAME(a)", "a.clone()", "a"),\n'),
}
# file: a pattern of the lines of a list, and the line that is put behind the last of them
BEHIND = {
    "core/ops/ops.inc": (r"^NARROWS_OP\(.*\n", "NARROWS_OP(OPNAME)\n"),
    "docs/ops.md": (r"^\| \[`.*\n", "| [`OPNAME`](#OPNAME) | none | |\n"),
    "docs/support.md": (r"^\| `.*\n", f"| `OPNAME` | {' | '.join(DTYPES)} |\n".replace("|  |", "| |").replace("|  |", "| |")),
    "CHANGELOG.md": (r"\A.*?^### Added\n\n(?:- .*\n)*", "- The op `OPNAME`: `y = x`.\n"),
    "tests/conformance/mutants/faults.txt": (
        r"(?s)\A.*\Z",
        "\n# ---- OPNAME ----\nnaive  | OPNAME.first_unwritten | OPNAME: every layout of x and of y\n",
    ),
}


def named(text, name):
    """A template's text for that op. Tests of a gradient have the tag of the op whose gradient it is."""
    return text.replace("OPNAME", name).replace("FORWARD", name.removesuffix("_backward"))


def change(root, path, edit):
    file = root / path
    file.write_text(edit(file.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"  {path}")


def put_before(text, line, more):
    if text.count(f"\n{line}\n") != 1:
        sys.exit(f"scripts/new_op.py: the line '{line}' is there {text.count(f'{chr(10)}{line}{chr(10)}')} times; expected once")
    return text.replace(f"\n{line}\n", f"\n{more}{line}\n")


def put_behind(text, pattern, more):
    found = list(re.finditer(pattern, text, re.M | re.S if pattern.startswith(r"\A") else re.M))
    if not found:
        sys.exit(f"scripts/new_op.py: no line fits '{pattern}'; expected the lines of a list")
    end = found[-1].end()
    return text[:end] + more + text[end:]


def add(root, name):
    listed = (root / "core/ops/ops.inc").read_text(encoding="utf-8")
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        sys.exit(f"scripts/new_op.py: the name is '{name}'; expected lower_case: a to z, 0 to 9 and single underscores")
    if f"NARROWS_OP({name})" in listed:
        sys.exit(f"scripts/new_op.py: the name is '{name}'; core/ops/ops.inc has it already")
    print("made")
    for template in sorted(TEMPLATES.rglob("OPNAME*")) + sorted(TEMPLATES.rglob("naive_OPNAME*")):
        path = template.relative_to(TEMPLATES).as_posix().replace("OPNAME", name)
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if (root / path).exists():
            sys.exit(f"scripts/new_op.py: {path} exists; expected no such file")
        (root / path).write_text(named(template.read_text(encoding="utf-8"), name), encoding="utf-8")
        print(f"  {path}")
    print("changed")
    for path, (line, more) in BEFORE.items():
        change(root, path, lambda text, line=line, more=more: put_before(text, line, named(more, name)))
    for path, (pattern, more) in BEHIND.items():
        change(root, path, lambda text, pattern=pattern, more=more: put_behind(text, pattern, named(more, name)))
    change(root, "docs/ops.md", lambda text: text + named(SECTION, name))
    subprocess.run([sys.executable, root / "tests/fuzz/make_seeds.py"], check=True)
    print("  tests/fuzz/seeds")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, metavar="DIR")
    arguments = parser.parse_args()
    add(arguments.root, arguments.name)
    print("now: ./run format, and CONTRIBUTING.md, 'Add an op', which says what to write in each of these")


if __name__ == "__main__":
    main()
