#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds a built-in op that compiles, runs on every backend and has its tests, with the formula y = x; CONTRIBUTING.md says how to go on.

scripts/new_op.py NAME                            makes the files of scripts/templates/op and adds the lines of the lists
scripts/new_op.py NAME --params FIELD:TYPE ...    and the struct nw_NAME_params of these fields: int32, int64 or float64
scripts/new_op.py NAME --root DIR                 in another tree

NAME_backward has the params of the op NAME, if that has some.
"""

import argparse
import itertools
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / "scripts" / "templates" / "op"
HEADER = "abi/include/narrows/ops.h"
DTYPES = ["yes"] * 4 + [""] * 9  # f32, f64, f16, bf16 of the table in docs/support.md

SECTION = """
## OPNAME

`y = x`. One input, `x`, of any shape; one output, `y`, of the same shape.

Dtypes: f32, f64, f16, bf16; both tensors the same. NaN goes through.
  // with params
| field | type | range | meaning |  // with params
|---|---|---|---|  // with params
| `FIELDNAME` | SHORT | any | nothing reads it |  // each field
"""
# The type of a field: in C, in docs/ops.md, its DLPack code and its bytes.
TYPES = {
    "int32": ("int32_t", "i32", "kDLInt", 4),
    "int64": ("int64_t", "i64", "kDLInt", 8),
    "float64": ("double", "f64", "kDLFloat", 8),
}
STRUCT = """
/** Params of `OPNAME`: `y = x`, for `x` and `y` of one shape. */
typedef struct nw_OPNAME_params {
  /** Any number: nothing reads it. */  // each field
  CTYPE FIELDNAME;  // each field
} nw_OPNAME_params;
"""
GOLDEN = """\
/* ops.h */

FIELD(nw_OPNAME_params, FIELDNAME, OFFSET, CTYPE)  // each field

"""
# file: (a line that is there once, what is put before it)
BEFORE = {
    "tools/probe.cpp": (
        "};  // kQuestions",
        '    {"OPNAME", [](const SupportQuery& q, DLDataType type) { return q.ask("OPNAME", {Imagined{type, kShape}}, {}); }},\n',
    ),
    "benchmarks/cpu_cases.py": ("}  # LATER", '    "OPNAME": ("narrows.ops.OPNAME(a)", "a.clone()", "a"),\n'),
}
# file: a pattern of the lines of a list, and the line that is put behind the last of them
BEHIND = {
    **dict.fromkeys(
        ("core/ops/ops.inc", "backends/cuda/ops.inc", "backends/vulkan/ops.inc"), (r"^NARROWS_OP\(.*\n", "NARROWS_OP(OPNAME)\n")
    ),
    "docs/ops.md": (
        r"^\| \[`.*\n",
        "| [`OPNAME`](#OPNAME) | none | |  // without params\n| [`OPNAME`](#OPNAME) | `nw_FORWARD_params` | |  // with params\n",
    ),
    "docs/support.md": (r"^\| `.*\n", f"| `OPNAME` | {' | '.join(DTYPES)} |\n".replace("|  |", "| |").replace("|  |", "| |")),
    "CHANGELOG.md": (r"\A.*?^### Added\n\n(?:#### [^\n]*\n\n)?(?:- [^\n]*\n)*", "- The op `OPNAME`: `y = x`.\n"),
    "tests/conformance/mutants/faults.txt": (
        r"(?s)\A.*\Z",
        "\n# ---- OPNAME ----\nnaive  | OPNAME.first_unwritten | OPNAME: every layout of x and of y\n",
    ),
}


def camel_case(name):
    return "".join(word.capitalize() for word in name.split("_"))


class Op:
    """Its name, and {field: type} of its params."""

    def __init__(self, name, fields):
        self.name, self.fields = name, fields

    def size(self):
        return sum(TYPES[kind][3] for kind in self.fields.values())

    def text(self, template):
        """The template's text for this op. A line that ends in '// with params' or '// without params' is there if that is so, and one
        that ends in '// each field' once for each: such lines beside each other are one group. Tests of a gradient have the tag of the op whose gradient it is."""
        marked = [
            re.fullmatch(r"(.*?)(?: +// (with params|without params|each field))?", line).groups() for line in template.splitlines()
        ]
        lines = []
        for mark, group in itertools.groupby(marked, key=lambda line: line[1]):
            group = [line for line, _ in group]
            if mark == "each field":
                lines += [self.of_field(line, field) for field in self.fields for line in group]
            elif mark is None or (mark == "with params") == bool(self.fields):
                lines += group
        text = "\n".join(lines) + ("\n" if template.endswith("\n") else "")
        text = text.replace("PARAMSSIZE", "sizeof(nw_FORWARD_params)" if self.fields else "0")
        text = text.replace("OPCLASS", camel_case(self.name))
        return text.replace("OPNAME", self.name).replace("FORWARD", self.name.removesuffix("_backward"))

    def of_field(self, line, field):
        c_type, short, code, size = TYPES[self.fields[field]]
        before = list(self.fields)[: list(self.fields).index(field)]
        offset = sum(TYPES[self.fields[name]][3] for name in before)
        words = {"CTYPE": c_type, "SHORT": short, "CODE": code, "BITS": str(8 * size), "OFFSET": str(offset)}
        words |= {"FIELDNAME": field, "CAMEL": camel_case(field)}
        return re.sub("|".join(words), lambda m: words[m[0]], line)


def read_fields(root, name, given):
    """The fields of the params: those that are given, or those of the op whose gradient this is."""
    fields = dict(field.split(":", 1) for field in given if ":" in field)
    wrong = [f for f in given if not re.fullmatch(rf"[a-z][a-z0-9_]*:({'|'.join(TYPES)})", f)]
    if wrong or len(fields) < len(given):
        sys.exit(f"scripts/new_op.py: --params has {wrong or given}; expected each FIELD:TYPE once, TYPE one of {', '.join(TYPES)}")
    offset = 0
    for field, kind in fields.items():
        size = TYPES[kind][3]
        if offset % size:
            sys.exit(
                f"scripts/new_op.py: --params has {field} at byte {offset}; expected a multiple of {size}, as there is no padding"
            )
        offset += size
    if offset % 8:
        sys.exit(f"scripts/new_op.py: --params are {offset} bytes; expected a multiple of 8: one more int32")
    struct = f"nw_{name.removesuffix('_backward')}_params"
    known = re.search(rf"typedef struct {struct} \{{(.*?)^\}} {struct};", (root / HEADER).read_text(encoding="utf-8"), re.S | re.M)
    if known is None:
        return fields
    if fields or not name.endswith("_backward"):
        sys.exit(f"scripts/new_op.py: {HEADER} has {struct}; expected no --params")
    types = {c_type: kind for kind, (c_type, *_) in TYPES.items()}
    return {field: types[c_type] for c_type, field in re.findall(r"^  (\w+) (\w+);", known[1], re.M)}


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


def add_params(root, op):
    """The struct, and what tests/abi fixes of it."""
    change(root, HEADER, lambda text: put_behind(text, r"^\} nw_\w+_params;\n", op.text(STRUCT)))
    golden = lambda text: put_before(text, "/* Now: exact sizes of what may grow. */", op.text(GOLDEN))  # noqa: E731
    size = f"SIZE(nw_{op.name}_params, {op.size()})\n"
    change(root, "tests/abi/golden.c", lambda text: put_behind(golden(text), r"^SIZE\(nw_\w+_params, \d+\)\n", size))


def add(root, op, has_own_params):
    print("made")
    for template in sorted(file for file in TEMPLATES.rglob("*OPNAME.*")):
        path = template.relative_to(TEMPLATES).as_posix().replace("OPNAME", op.name)
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if (root / path).exists():
            sys.exit(f"scripts/new_op.py: {path} exists; expected no such file")
        (root / path).write_text(op.text(template.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"  {path}")
    print("changed")
    if has_own_params:
        add_params(root, op)
    for path, (line, more) in BEFORE.items():
        change(root, path, lambda text, line=line, more=more: put_before(text, line, op.text(more)))
    for path, (pattern, more) in BEHIND.items():
        change(root, path, lambda text, pattern=pattern, more=more: put_behind(text, pattern, op.text(more)))
    change(root, "docs/ops.md", lambda text: text + op.text(SECTION))
    subprocess.run([sys.executable, root / "tests/fuzz/make_seeds.py"], check=True)
    print("  tests/fuzz/seeds")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--params", nargs="+", default=[], metavar="FIELD:TYPE")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, metavar="DIR")
    arguments = parser.parse_args()
    root, name = arguments.root, arguments.name
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        sys.exit(f"scripts/new_op.py: the name is '{name}'; expected lower_case: a to z, 0 to 9 and single underscores")
    if f"NARROWS_OP({name})" in (root / "core/ops/ops.inc").read_text(encoding="utf-8"):
        sys.exit(f"scripts/new_op.py: the name is '{name}'; core/ops/ops.inc has it already")
    add(root, Op(name, read_fields(root, name, arguments.params)), bool(arguments.params))
    print("now: ./run format, and CONTRIBUTING.md, 'Add an op', which says what to write in each of these")


if __name__ == "__main__":
    main()
