#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what is made from core/ops/elementwise_functions.toml, the one table of the element-wise functions.

scripts/functions.py           writes the files
scripts/functions.py --check   fails if one of them is not as it would be written
"""

import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).parent.parent
TABLE = "core/ops/elementwise_functions.toml"
MADE = f"Made by scripts/functions.py from {TABLE}"


def read_table():
    """{name: row}, in the order of their numbers. SystemExit: a row is wrong."""
    rows = tomllib.loads((ROOT / TABLE).read_text())
    known = {"number", "operands", "dtypes", "result", "costly", "formula", "gradients", "python", "does", "example", "prints"}
    for expected, (name, row) in enumerate(rows.items(), 1):
        if row["number"] != expected:
            sys.exit(f"{TABLE}: {name} has number {row['number']}; expected {expected}, as rows are in order")
        if unknown := set(row) - known:
            sys.exit(f"{TABLE}: {name} has {sorted(unknown)}; expected {sorted(known)}")
        if row["dtypes"] not in "FNBIA" or row["operands"] not in (1, 2, 3):
            sys.exit(
                f"{TABLE}: {name} has dtypes {row['dtypes']!r} and operands {row['operands']}; expected one of FNBIA, and 1 to 3"
            )
    return rows


def c_rows(rows):
    """The X macros that core and backends/common read."""
    lines = [f"// {MADE}.", "// NARROWS_FUNCTION(number, name, operands, dtypes, result, has a gradient, is costly)"]
    for name, row in rows.items():
        flags = [str(flag).lower() for flag in ("gradients" in row, row.get("costly", False))]
        cells = [f"NW_EW_{name.upper()}", name, str(row["operands"]), row["dtypes"], row.get("result", "operands"), *flags]
        lines.append(f"NARROWS_FUNCTION({', '.join(cells)})")
    return "\n".join(lines) + "\n"


def python_rows(rows):
    """The table of the Python package."""
    lines = [
        f'"""{MADE}."""',
        "",
        "# name -> (the op's name of the function, operands, dtypes, what it gives, arguments, what they print)",
    ]
    lines += ["# fmt: off", "TABLE = {"]
    for name, row in rows.items():
        if "python" in row:
            cells = name, row["operands"], row["dtypes"], row["does"], row["example"], row["prints"]
            lines.append(f"    {quoted(row['python'])}: ({', '.join(map(quoted, cells))}),")
    return "\n".join([*lines, "}", "# fmt: on"]) + "\n"


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
        cells = [["no.", "function", "out", "dtypes", *columns], ["---"] * (4 + len(columns))]
        for name, row in rows.items():
            if row["operands"] == operands:
                dtypes = f"{row['dtypes']} → bool" if row.get("result") == "bool" else row["dtypes"]
                dtypes = "a bool; b, c A" if name == "where" else dtypes
                cells.append(
                    [str(row["number"]), f"`{name}`", row["formula"], dtypes, *row.get("gradients", ["\u2013"] * len(columns))]
                )
        parts.append("\n".join("| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in cells))
    return "\n" + "\n\n".join(parts) + "\n\n"


def between(path, mark, text):
    """The file with this text between the two lines that name the mark."""
    old = (ROOT / path).read_text()
    new, count = re.subn(
        rf"(^[^\n]*\b{mark}: begin[^\n]*\n).*?(^[^\n]*\b{mark}: end)", lambda m: m[1] + text + m[2], old, flags=re.M | re.S
    )
    if count != 1:
        sys.exit(f"{path} has {count} parts '{mark}: begin' to '{mark}: end'; expected 1")
    return new


def main():
    rows = read_table()
    made = {
        "core/ops/elementwise_functions.inc": c_rows(rows),
        "bindings/python/narrows/_function_table.py": python_rows(rows),
        "docs/ops.md": between("docs/ops.md", "functions", docs_rows(rows)),
        "bindings/python/narrows/__init__.pyi": between("bindings/python/narrows/__init__.pyi", "functions", stub_rows(rows)),
    }
    stub = made["bindings/python/narrows/__init__.pyi"]
    names = re.sub(r'(?<=    "bench",\n).*?(?=    "astype",\n)', lambda m: stub_names(rows), stub, count=1, flags=re.S)
    made["bindings/python/narrows/__init__.pyi"] = names
    stale = [path for path, text in made.items() if not (ROOT / path).exists() or (ROOT / path).read_text() != text]
    if sys.argv[1:] == ["--check"]:
        if stale:
            sys.exit(f"not as scripts/functions.py writes it from {TABLE}: {', '.join(stale)}")
        return
    for path in stale:
        (ROOT / path).write_text(made[path])
        print(path)


if __name__ == "__main__":
    main()
