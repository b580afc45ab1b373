#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the ABI of a minor version to come, so that old and new meet in a test before there is a new: matrix.cmake builds it.

  next.py INCLUDE CORE OUT

OUT/include/narrows: the headers of INCLUDE with something appended to everything that may grow: two fields to each struct, a slot
to nw_plugin, an elementwise function, two flags, the minor version. NW_EW_NEXT tells a source that it is compiled against them.
OUT/core: those sources of CORE that have to know of it, so that libnarrows accepts the new function and flags and fills in fields.
"""

import re
import sys
from pathlib import Path

GROWING_TAIL = """
  uint64_t next_number;
  const char* next_text;
"""
PARAMS_TAIL = """
  int64_t next_int; /* 0: neutral */
  double next_real;
"""
PLUGIN_TAIL = "  int32_t (*next_slot)(void* self);\n"
FEWEST_STRUCTS = 11  # that may grow, in ABI 1.0

# (file, pattern, replacement), each of which must apply once. What they put in is what matrix/sides.h expects.
CORE = (
    (
        "ops/elementwise.cpp",
        r"(#include \"core/ops/elementwise_functions\.inc\"\n)",
        r'\1    {"next", NW_EW_NEXT, 1, kNumeric, Result::operands_dtype, true},\n',
    ),
    ("contract.cpp", r"\{NW_DETERMINISTIC\}", "{NW_DETERMINISTIC | NW_NEXT_FLAG}"),
    ("contract.cpp", r"kOpFlags = NW_OP_INPLACE", "kOpFlags = NW_OP_NEXT_FLAG | NW_OP_INPLACE"),
    ("signature.cpp", r"(  sig_\.struct_size = sizeof sig_;\n)", r"\1  sig_.next_number = 42;\n"),
    ("runtime.cpp", r"(  host_\.struct_size = sizeof host_;\n)", r"\1  host_.next_number = 43;\n"),
    ("api.cpp", r"(  info\.status = backend\.status\(\);\n)", r"\1  info.next_number = 44;\n"),
)


def substitute(text, pattern, replacement, where, count=1):
    text, found = re.subn(pattern, replacement, text)
    if found != count:
        sys.exit(f"next.py: '{pattern}' is in {where} {found} times; expected {count}. It has changed, so this script has to.")
    return text


def largest(text, prefix):
    return max(int(value) for value in re.findall(rf"#define {prefix}\w+ (\d+)", text))


def grow_structs(text):
    """The text with every struct that may grow grown, and how many those are."""
    grown = 0

    def grow(match):
        nonlocal grown
        name, body = match[1], match[2]
        if name.endswith("_params"):
            tail = PARAMS_TAIL
        elif re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL).lstrip().startswith("uint32_t struct_size;"):
            tail = GROWING_TAIL + (PLUGIN_TAIL if name == "nw_plugin" else "")
        else:
            return match[0]
        grown += 1
        return f"typedef struct {name} {{{body}{tail}}} {name};"

    text = re.sub(r"typedef struct (nw_\w+) \{(.*?)\} \1;", grow, text, flags=re.DOTALL)
    return text, grown


def append_constants(header, text):
    if header == "ops.h":
        number = largest(text, "NW_EW_") + 1
        return substitute(text, r"\n#endif\n$", f"\n#define NW_EW_NEXT {number} /* a + 100 */\n\n#endif\n", header)
    if header == "abi.h":
        minor = int(re.search(r"#define NW_ABI_MINOR (\d+)", text)[1])
        text = substitute(text, rf"#define NW_ABI_MINOR {minor}", f"#define NW_ABI_MINOR {minor + 1}", header)
        flag = "#define NW_DETERMINISTIC 1"
        text = substitute(text, flag, f"#define NW_NEXT_FLAG {1 << 30}\n{flag}", header)
        flag = "#define NW_OP_BATCHABLE 2"
        text = substitute(text, flag, f"#define NW_OP_NEXT_FLAG {1 << 30}\n{flag}", header)
    return text


def main(include, core, out):
    headers, sources = Path(out, "include", "narrows"), Path(out, "core")
    headers.mkdir(parents=True, exist_ok=True)
    grown = 0
    for path in sorted(Path(include, "narrows").glob("*.h")):
        text, count = grow_structs(path.read_text())
        grown += count
        (headers / path.name).write_text(append_constants(path.name, text))
    if grown < FEWEST_STRUCTS:
        sys.exit(f"next.py: {grown} structs grew; expected {FEWEST_STRUCTS} or more. It no longer reads the headers.")
    texts = {name: Path(core, name).read_text() for name, _, _ in CORE}
    for name, pattern, replacement in CORE:
        texts[name] = substitute(texts[name], pattern, replacement, name)
    for name, text in texts.items():
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_text(text)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
