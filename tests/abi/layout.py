#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The layout of every struct of the ABI, by pahole from debug information, and its comparison with an older one.

  layout.py list    --compiler CC --headers INCLUDE --dlpack INCLUDE                 prints the listing
  layout.py compare --compiler CC --headers INCLUDE --dlpack INCLUDE --old FILE      every old line must still be there

--replace HEADER OLD NEW, for compare: edits a copy of the headers first; by this a test sees that the comparison can fail.
In NEW '@' stands for ';', at which CMake would split.
--old-headers INCLUDE instead of --old: the old listing is made from other headers.
Exit code: 0 all is there; 1 it is not; 2 the question makes no sense.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HEADERS = ("abi", "ops", "plugin", "narrows", "program", "vulkan")
FIELD = re.compile(r"^(?P<declaration>.*?);\s*/\*\s*(?P<offset>\d+)\s+(?P<size>\d+)\s*\*/$")
SIZE = re.compile(r"/\* size: (\d+),")


class NonsenseError(Exception):
    """The question cannot be answered; the message says why."""


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise NonsenseError(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


def one_spelling(declaration):
    """Versions of pahole differ in blanks only: 'const char  *   name' is 'const char* name'."""
    text = re.sub(r"\s+", " ", declaration).strip()
    text = re.sub(r" ?\* ?", "*", text)
    text = re.sub(r"\*(?=[\w(])", "* ", text)
    return re.sub(r"\(\* (?=\w)", "(*", text)


def parse(text):
    """{struct: (size, [(offset, size, declaration)])} of pahole's output."""
    structs = {}
    name, fields = None, []
    for line in map(str.strip, text.splitlines()):
        if match := re.match(r"struct (nw_\w+) \{", line):
            name, fields = match[1], []
        elif name and (match := FIELD.match(line)):
            fields.append((int(match["offset"]), int(match["size"]), one_spelling(match["declaration"])))
        elif name and (match := SIZE.match(line)):
            structs[name] = (int(match[1]), fields)
        elif line.startswith("}"):
            name = None
    return structs


def witness(structs):
    """A source with a function for each struct, so that debug information has every one of them. Params travel as void*, so no function
    of libnarrows names them: its own debug information, which abidiff reads, would not show that two of their fields changed places."""
    lines = [f"#include <narrows/{header}.h>" for header in HEADERS]
    lines += [f"void witness_{name}(const {name}* it) {{ (void)it; }}" for name in structs]
    return "\n".join(lines) + "\n"


def structs_of(compiler, headers, dlpack):
    """The structs by pahole; every one that the headers define must be among them."""
    text = "".join(path.read_text() for path in sorted(Path(headers, "narrows").glob("*.h")))
    defined = sorted(set(re.findall(r"typedef struct (nw_\w+) \{", text)))
    if not defined:
        raise NonsenseError(f"no struct is defined in {headers}")
    with tempfile.TemporaryDirectory() as folder:
        source, shared = Path(folder) / "witness.c", Path(folder) / "witness.so"
        source.write_text(witness(defined))
        run(compiler, "-std=c99", "-g", "-fPIC", "-shared", "-nostdlib", f"-I{headers}", "-isystem", dlpack, source, "-o", shared)
        structs = parse(run("pahole", shared))
    if absent := set(defined) - set(structs):
        raise NonsenseError(f"not listed by pahole: {', '.join(sorted(absent))}")
    for name, (size, fields) in structs.items():
        if not fields or sum(field[1] for field in fields) != size:
            raise NonsenseError(f"{name}: {size} bytes, and its fields are {fields}; this script no longer reads pahole's output")
    return structs


def listing(structs):
    lines = []
    for name, (size, fields) in sorted(structs.items()):
        lines.append(f"struct {name} {size}")
        lines += [f"  {offset} {field_size} {declaration}" for offset, field_size, declaration in fields]
    return "\n".join(lines) + "\n"


def parse_listing(text):
    structs = {}
    for line in text.splitlines():
        if match := re.fullmatch(r"struct (\w+) (\d+)", line):
            fields = []
            structs[match[1]] = (int(match[2]), fields)
        elif match := re.fullmatch(r"  (\d+) (\d+) (.+)", line):
            fields.append((int(match[1]), int(match[2]), match[3]))
        else:
            raise NonsenseError(f"not a line of a listing: {line!r}")
    return structs


def may_grow(name, fields):
    return name.endswith("_params") or fields[0][2] == "uint32_t struct_size"


def differences(old, new):
    for name, (old_size, old_fields) in old.items():
        if name not in new:
            yield f"struct {name} is gone"
            continue
        size, fields = new[name]
        for line in old_fields:
            if line not in fields:
                yield f"{name}: the line '{line[0]} {line[1]} {line[2]}' is gone"
        for line in fields:
            if line not in old_fields and line[0] < old_size:
                yield f"{name}: '{line[0]} {line[1]} {line[2]}' is new before the old end, {old_size}"
        if size < old_size:
            yield f"{name} has {size} bytes, and had {old_size}"
        if size > old_size and not may_grow(name, old_fields):
            yield f"{name} is frozen at {old_size} bytes, and has {size}"


def edited(headers, edits, folder):
    """A copy of the headers with each edit made, exactly once."""
    copy = Path(folder) / "include"
    shutil.copytree(headers, copy)
    for header, old, new in edits:
        path = copy / "narrows" / header
        text = path.read_text()
        if text.count(old) != 1:
            raise NonsenseError(f"{header} has '{old}' {text.count(old)} times; expected once")
        path.write_text(text.replace(old, new.replace("@", ";")))
    return copy


def compare(args):
    with tempfile.TemporaryDirectory() as folder:
        headers = edited(args.headers, args.replace, folder) if args.replace else args.headers
        new = structs_of(args.compiler, headers, args.dlpack)
    if args.old_headers:
        old = structs_of(args.compiler, args.old_headers, args.dlpack)
    else:
        old = parse_listing(Path(args.old).read_text())
    if not old:
        raise NonsenseError("the old listing is empty")
    found = list(differences(old, new))
    print("\n".join(found) or f"{len(old)} structs, {sum(len(fields) for _, fields in old.values())} fields: all still there")
    return 1 if found else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("list", "compare"))
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--headers", required=True)
    parser.add_argument("--dlpack", required=True)
    parser.add_argument("--old")
    parser.add_argument("--old-headers")
    parser.add_argument("--replace", nargs=3, action="append", default=[])
    args = parser.parse_args()
    if args.verb == "compare" and bool(args.old) == bool(args.old_headers):
        parser.error("compare takes --old or --old-headers")
    try:
        if args.verb == "compare":
            return compare(args)
        print(listing(structs_of(args.compiler, args.headers, args.dlpack)), end="")
        return 0
    except NonsenseError as error:
        print(f"layout.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
