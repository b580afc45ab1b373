#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""spoil.py -- copies sources so that each fault of faults.txt can be switched on in them, by NARROWS_TEST_FAULT (spoilt.h).

  spoil.py ROOT OUT          writes OUT/<file> for each file of the table
  spoil.py --files cpu|gpu   prints the names of those that are built with the plugin for CPUs, or for GPUs

A text that the product no longer has is an error: its line of the table goes, or is mended.
"""

import pathlib
import re
import sys
from typing import NamedTuple

TABLE = pathlib.Path(__file__).with_name("faults.txt")


class Fault(NamedTuple):
    name: str
    what: str
    file: str
    after: str  # the old text is the first one behind this line; "": the only one of the file
    old: str
    new: str
    on_gpu: bool
    tests: str  # of test_cpu_program or test_hip_program; "": a fault of schedules


def read_table() -> list[Fault]:
    text = re.sub(r"^#.*\n", "", TABLE.read_text(), flags=re.MULTILINE)
    form = re.compile(r"\[(\w+)\] (.+)\n(\S+)\n(?:@ (.+)\n)?- (.+)\n\+ (.+)(?:\n! (gpu: )?(.+))?")
    out = []
    for block in filter(None, (part.strip() for part in re.split(r"\n\s*\n", text))):
        match = form.fullmatch(block)
        if match is None:
            sys.exit(f"{TABLE.name}: cannot read\n{block}")
        name, what, file, after, old, new, gpu, tests = match.groups()
        out.append(Fault(name, what, file, after or "", old, new, gpu is not None, tests or ""))
    return out


def place_of(source: str, fault: Fault) -> int:
    begin = 0
    if fault.after:
        if source.count(fault.after) != 1:
            sys.exit(
                f"{TABLE.name}: [{fault.name}] '{fault.after}' stands {source.count(fault.after)} times in {fault.file}; expected 1"
            )
        begin = source.index(fault.after)
    elif source.count(fault.old) != 1:
        sys.exit(f"{TABLE.name}: [{fault.name}] '{fault.old}' stands {source.count(fault.old)} times in {fault.file}; expected 1")
    at = source.find(fault.old, begin)
    if at < 0:
        sys.exit(f"{TABLE.name}: [{fault.name}] '{fault.old}' is not behind '{fault.after}' in {fault.file}")
    return at


def switched(fault: Fault, inner: str) -> str:
    """The old text, or the new one. Faults of one text are within each other."""
    for ending in (" ||", ""):
        if fault.old.endswith(ending):
            old, new = inner.removesuffix(ending), fault.new.removesuffix(ending)
            break
    if new.startswith("{"):  # what an object is made of
        kinds = [re.search(r"Axis::Kind::\w+", text)[0] for text in (old, new)]
        return old.replace(kinds[0], f'(::narrows::test::spoilt("{fault.name}") ? {kinds[1]} : {kinds[0]})')
    return f'(::narrows::test::spoilt("{fault.name}") ? ({new}) : ({old})){ending}'


def spoil(source: str, faults: list[Fault]) -> str:
    places: dict[int, list[Fault]] = {}
    for fault in faults:
        places.setdefault(place_of(source, fault), []).append(fault)
    for at in sorted(places, reverse=True):
        old = inner = places[at][0].old
        for fault in places[at]:
            if fault.old != old:
                sys.exit(f"{TABLE.name}: [{fault.name}] and [{places[at][0].name}] begin at one place with two texts")
            inner = switched(fault, inner)
        source = source[:at] + inner + source[at + len(old) :]
    return source


def main() -> None:
    table = read_table()
    if sys.argv[1] == "--files":
        print("\n".join(sorted({fault.file for fault in table if fault.on_gpu == (sys.argv[2] == "gpu")})))
        return
    root, out = map(pathlib.Path, sys.argv[1:])
    for file in sorted({fault.file for fault in table}):
        text = f'#line 1 "{file}"\n' + spoil((root / file).read_text(), [fault for fault in table if fault.file == file])
        target = out / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


if __name__ == "__main__":
    main()
