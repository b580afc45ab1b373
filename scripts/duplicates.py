#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds lines that stand twice in the product; blank lines, indentation and the fields of a table (`.name = value,`) aside.

scripts/duplicates.py [LINES]   lists the places of LINES lines (20) or more, and fails if there are any
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIELD = re.compile(r"\.\w+ = .*,")
PRODUCT = re.compile(r"(core|backends|bindings|tools)/.*\.(cpp|h|hpp|c|cu|glsl|comp|py)")


def alike(texts, count):
    """Pairs of places, as file:line, from which `count` lines or more are the same. ``texts``: {file: its text}."""
    seen, pairs = {}, []
    for name, text in texts.items():
        lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
        lines = [(number, line) for number, line in lines if line and not FIELD.fullmatch(line)]
        was_alike = False
        for i in range(len(lines) - count + 1):
            place = f"{name}:{lines[i][0]}"
            first = seen.setdefault(tuple(line for _, line in lines[i : i + count]), place)
            if first != place and not was_alike:
                pairs.append((first, place))
            was_alike = first != place
    return pairs


def main(words):
    count = int(words[0]) if words else 20
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], check=True, capture_output=True, text=True).stdout.splitlines()
    texts = {name: (ROOT / name).read_text() for name in listed if PRODUCT.fullmatch(name) and (ROOT / name).exists()}
    pairs = alike(texts, count)
    for first, second in pairs:
        print(f"{second}: {count} lines or more are those of {first}; expected them in one place")
    return 1 if pairs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
