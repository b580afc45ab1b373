#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what is made from core/ops/elementwise_functions.toml, the one table of the element-wise functions.

scripts/functions.py           writes the files, and lists the places that lack a function
scripts/functions.py --check   fails if a file is not as it would be written, or a place lacks a function
"""

import pathlib
import re
import sys
import tomllib

import derivatives

ROOT = pathlib.Path(__file__).parent.parent
TABLE = "core/ops/elementwise_functions.toml"
LICENSE = "SPDX-License-Identifier: Apache-2.0"
MADE = f"Made by scripts/functions.py from {TABLE}"


KEYS = {
    *("number", "operands", "dtypes", "result", "cost"),
    *("range", "range_f64", "range_b", "error", "cancels", "subnormal"),
    *("formula", "gradients", "let", "derivatives", "own_second"),
    *("python", "does", "example", "prints", "onnx", "onnx_lacks"),
}


# Written by hand: (what, files, pattern of a function there, those that stand there in another way). {name}, {NAME} and {number} are
# the function's.
_OPERATORS = {
    "cast",
    "where",
    "add",
    "sub",
    "mul",
    "copysign",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
}
PLACES = (
    ("number", "abi/include/narrows/ops.h", r"^#define NW_EW_{NAME} {number}$", ()),
    ("line of tests/abi", "tests/abi/**/golden.c", r"^VALUE\(NW_EW_{NAME}, {number}\)", ()),
    ("cpu kernel", "backends/cpu/ops/elementwise/*.h", r"\{{NW_EW_{NAME},", {"cast"}),
    ("cuda kernel", "backends/cuda/ops/elementwise/*.h", r"\{{NW_EW_{NAME},", {"cast", "gt", "ge"}),
    ("vulkan kernel", "backends/vulkan/shaders/elementwise/*.glsl", r"case NW_EW_{NAME}:", {"where"}),
    ("name in cuda's programs", "backends/cuda/ops/program/source.cpp", r"\{{\"{name}\", ", _OPERATORS),
    ("name in vulkan's programs", "backends/vulkan/ops/program/source.cpp", r"\{{\"{name}\", ",
     _OPERATORS | {"relu", "reciprocal", "maximum", "minimum"}),
    ("reference", "tests/reference/elementwise.cpp", r"\{{{number}, \"{name}\", ", ()),
)  # fmt: skip
# Of those whose gradient is not 0.
GRADIENT_PLACES = (
    ("cpu gradient", "backends/cpu/ops/elementwise/elementwise_grad-inl.h", r"\(NW_EW_{NAME}, [01]\)", ()),
    ("cuda gradient", "backends/cuda/ops/elementwise/elementwise_gradients.h", r"\(NW_EW_{NAME}, [01],", {"cast"}),
    ("vulkan gradient", "backends/vulkan/shaders/elementwise/elementwise_gradients.glsl", r"NW_EW_{NAME}\b", {"where"}),
    ("reference of the gradient", "tests/reference/elementwise_gradient.cpp", r"^Partials {name}\(", ()),
)
ONNX_PLACE = (
    "row `onnx` or `onnx_lacks`, and no translation",
    "bindings/python/narrows/_onnx_functions.py",
    r"^    \"{name}\": ",
    {"cast"},
)


def lacking(rows):
    """A line for each place that lacks a function."""
    texts = {}
    lines = []
    for name, row in rows.items():
        places = list(PLACES)
        if set(row.get("gradients", ["0"])) != {"0"}:
            places += GRADIENT_PLACES
        if not {"onnx", "onnx_lacks"} & set(row):
            places.append(ONNX_PLACE)
        for what, files, pattern, others in places:
            if files not in texts:
                texts[files] = "\n".join(file.read_text(encoding="utf-8") for file in sorted(ROOT.glob(files)))
            sought = pattern.format(name=name, NAME=name.upper(), number=row["number"])
            if name not in others and not re.search(sought, texts[files], re.M):
                lines.append(f"{name}: no {what}; expected {sought} in {files}")
    return lines


def read_table():
    """{name: row}, in the order of their numbers. SystemExit: a row is wrong."""
    rows = tomllib.loads((ROOT / TABLE).read_text())
    for expected, (name, row) in enumerate(rows.items(), 1):
        if row["number"] != expected:
            sys.exit(f"{TABLE}: {name} has number {row['number']}; expected {expected}, as rows are in order")
        if unknown := set(row) - KEYS:
            sys.exit(f"{TABLE}: {name} has {sorted(unknown)}; expected {sorted(KEYS)}")
        if row["dtypes"] not in "FNBIA" or row["operands"] not in (1, 2, 3):
            sys.exit(
                f"{TABLE}: {name} has dtypes {row['dtypes']!r} and operands {row['operands']}; expected one of FNBIA, and 1 to 3"
            )
    return rows


def c_rows(rows):
    """The X macros that core and backends/common read."""
    lines = [
        f"// {LICENSE}",
        f"// {MADE}.",
        "// NARROWS_FUNCTION(number, name, operands, dtypes, result, has a gradient, cost)",
    ]
    for name, row in rows.items():
        facts = [str("gradients" in row).lower(), str(row.get("cost", 1))]
        cells = [f"NW_EW_{name.upper()}", name, str(row["operands"]), row["dtypes"], row.get("result", "operands"), *facts]
        lines.append(f"NARROWS_FUNCTION({', '.join(cells)})")
    return "\n".join(lines) + "\n"


def python_rows(rows):
    """The table of the Python package."""
    lines = [
        f"# {LICENSE}",
        f'"""{MADE}."""',
        "",
        "# name -> (the op's name of the function, operands, dtypes, what it gives, arguments, what they print)",
    ]
    lines += ["# fmt: off", "TABLE = {"]
    for name, row in rows.items():
        if "python" in row:
            cells = name, row["operands"], row["dtypes"], row["does"], row["example"], row["prints"]
            lines.append(f"    {quoted(row['python'])}: ({', '.join(map(quoted, cells))}),")
    lines += ["}", "", "# name of the op -> the operator of ONNX that is the function", "ONNX = {"]
    lines += [f"    {quoted(name)}: {quoted(row['onnx'])}," for name, row in rows.items() if "onnx" in row]
    lines += ["}", "", "# and why ONNX cannot say it", "ONNX_LACKS = {"]
    lines += [f"    {quoted(name)}: {quoted(row['onnx_lacks'])}," for name, row in rows.items() if "onnx_lacks" in row]
    return "\n".join([*lines, "}", "# fmt: on"]) + "\n"


def second_derivatives(rows):
    """Those that are derived from the first."""
    lines = [
        f"# {LICENSE}",
        f'"""{MADE}: second derivatives."""',
        "",
        "from narrows import _functions",
        "",
        "_F = _functions.public",
        "",
    ]
    lines += [
        "# name of the op -> (how many operands they take, {(i, j): the second derivative by operands i and j})",
        "# fmt: off",
    ]
    lines += ["SECOND = {"]
    for name, row in rows.items():
        if "derivatives" in row and "own_second" not in row and (found := derivatives.Second(rows, name).python()):
            cells = ", ".join(f"{places}: {text}" for places, text in found.items())
            lines.append(f"    {quoted(name)}: ({min(row['operands'], 2)}, {{{cells}}}),")
    return "\n".join([*lines, "}", "# fmt: on"]) + "\n"


def program_rules(rows):
    """The gradients of tensor programs."""
    lines = [f"// {LICENSE}", f"// {MADE}: a line of the table in derivative.cpp", "// for each function that has `derivatives`."]
    return "\n".join([*lines, *(derivatives.cpp_rule(n, row) for n, row in rows.items() if "derivatives" in row)]) + "\n"


def test_cases(rows):
    """What tests try a function on, and how exact it has to be."""
    lines = [f"// {LICENSE}", f"// {MADE}."]
    lines.append(
        "// NARROWS_CASE(name, range of a in f32: 2, in f64: 2, range of the others: 2, error, more in epsilons, in subnormals)"
    )
    for name, row in rows.items():
        a = row.get("range", [-1000, 1000])
        ranges = [*a, *row.get("range_f64", a), *row.get("range_b", row.get("range", [-10, 10]))]
        numbers = [row.get("error", "none"), row.get("cancels", 0), row.get("subnormal", 0)]
        lines.append(f"NARROWS_CASE({', '.join(map(str, [name, *ranges, *numbers]))})")
    return "\n".join(lines) + "\n"


def onnx_lacks(rows):
    """What ONNX cannot say, in docs/models.md."""
    lines = [f"| `{name}` | {row['onnx_lacks']} |" for name, row in rows.items() if "onnx_lacks" in row]
    return "\n".join(["", "| refused | because |", "|---|---|", *lines, "", ""])


def support(rows):
    """The rows of docs/support.md, as `narrows conform --support --backend cpu` prints them: functions with the same dtypes in one."""
    kinds = {"N": (4, 8, 0), "F": (4, 0, 0), "A": (4, 8, 1), "B": (0, 8, 1), "I": (0, 8, 0)}  # of floating point, integers, bool
    groups = [("elementwise", kinds[row["dtypes"]], name) for name, row in rows.items()]
    groups += [("elementwise_backward", (4 if "gradients" in row else 0, 0, 0), name) for name, row in rows.items()]
    found = {}
    for op, there, name in groups:
        found.setdefault((op, there), []).append(name)
    lines = []
    for (op, there), names in found.items():
        cells = [cell for have, of in zip(there, (4, 8, 1), strict=True) for cell in ["yes"] * have + [""] * (of - have)]
        lines.append(f"| `{op}` {' '.join(names)} |{''.join(f' {cell} |' if cell else ' |' for cell in cells)}\n")
    return "".join(lines)


def quoted(value):
    """A literal with double quotes, as ruff has it."""
    return str(value) if isinstance(value, int) else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


_TYPES = {"elu": "_Elu", "where": "_Where", "clip": "_Clip"}  # of those that take more than operands


def stub_rows(rows):
    """The functions' types."""
    of = lambda row: _TYPES.get(row["python"]) or ("_Unary", "_Binary", "_Ternary")[row["operands"] - 1]  # noqa: E731
    return "".join(f"{row['python']}: {of(row)}\n" for row in rows.values() if "python" in row)


def stub_names(rows):
    """The functions in __all__."""
    return "".join(f'    "{row["python"]}",\n' for row in rows.values() if "python" in row)


def docs_rows(rows):
    """Three tables: by the number of operands."""
    parts = []
    for operands, columns in ((1, ["gradient of a"]), (2, ["gradient of a", "gradient of b"]), (3, ["gradients of a; b; c"])):
        cells = [["no.", "function", "in Python", "out", "dtypes", *columns], ["---"] * (5 + len(columns))]
        for name, row in rows.items():
            if row["operands"] == operands:
                dtypes = f"{row['dtypes']} → bool" if row.get("result") == "bool" else row["dtypes"]
                dtypes = "a bool; b, c A" if name == "where" else dtypes
                names = [f"`{name}`", f"`{row.get('python', 'astype')}`"]
                cells.append([str(row["number"]), *names, row["formula"], dtypes, *row.get("gradients", ["\u2013"] * len(columns))])
        parts.append("\n".join("| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in cells))
    return "\n" + "\n\n".join(parts) + "\n\n"


def between(path, mark, text):
    """The file with this text between the two lines that name the mark."""
    return replaced(path, rf"(^[^\n]*\b{mark}: begin[^\n]*\n).*?(^[^\n]*\b{mark}: end)", text)


def replaced(path, pattern, text):
    """The file with this text for what is between the pattern's two groups."""
    new, count = re.subn(pattern, lambda m: m[1] + text + m[2], (ROOT / path).read_text(), flags=re.M | re.S)
    if count != 1:
        sys.exit(f"{path} has {count} places like '{pattern}'; expected 1")
    return new


def main():
    rows = read_table()
    stub = "bindings/python/narrows/__init__.pyi"
    made = {
        "core/ops/elementwise_functions.inc": c_rows(rows),
        "core/program/derivative_rules.inc": program_rules(rows),
        "tests/support/elementwise_cases.inc": test_cases(rows),
        "bindings/python/narrows/_function_table.py": python_rows(rows),
        "bindings/python/narrows/_second_derivatives.py": second_derivatives(rows),
        "README.md": replaced("README.md", r"(`elementwise` \()\d+( functions\))", str(len(rows))),
        "docs/ops.md": between("docs/ops.md", "functions", docs_rows(rows)),
        "docs/models.md": between("docs/models.md", "functions", onnx_lacks(rows)),
        "docs/support.md": replaced(
            "docs/support.md", r"(^\| `conv1d_backward` [^\n]*\n)(?:\| `elementwise[^\n]*\n)+()", support(rows)
        ),
        stub: between(stub, "functions", stub_rows(rows)),
    }
    names = re.sub(r'(?<=    "bench",\n).*?(?=    "astype",\n)', lambda m: stub_names(rows), made[stub], count=1, flags=re.S)
    made[stub] = names
    stale = [path for path, text in made.items() if not (ROOT / path).exists() or (ROOT / path).read_text() != text]
    if sys.argv[1:] == ["--check"]:
        if stale:
            sys.exit(f"not as scripts/functions.py writes it from {TABLE}: {', '.join(stale)}")
        if lines := lacking(rows):
            sys.exit("\n".join(lines))
        return
    for path in stale:
        (ROOT / path).write_text(made[path])
        print(path)
    for line in lacking(rows):
        print(f"to write: {line}")


if __name__ == "__main__":
    main()
