# SPDX-License-Identifier: Apache-2.0
"""architectures.py -- whether a CUDA plugin has code for the GPUs that it was built for, and is no larger than a release may be.

usage: architectures.py PLUGIN ARCHITECTURE ...      as CMake names them: 80-real (code), 90-virtual (PTX), 90 (both), 90a

Fat binaries are read as nvcc writes them: a header of 16 bytes, then entries, each with a header that tells its kind, its sizes and
its architecture; what is compressed need not be unpacked for that.
"""

import pathlib
import re
import struct
import sys

MAGIC = (0xBA55ED50).to_bytes(4, "little")
PTX, CODE = 1, 2
SUFFIXES = {1 << 20: "a", 1 << 21: "f"}  # flags of an entry: for this architecture, or its family, alone
LARGEST = 100_000_000  # bytes


def entries(data: bytes) -> set[tuple[int, str]]:
    """Kind and architecture of all that is in the file."""
    found, at = set(), 0
    while (at := data.find(MAGIC, at)) >= 0:
        header_size, size = struct.unpack_from("<6xHQ", data, at)
        end = at + header_size + size
        if header_size != 16 or end > len(data):
            at += len(MAGIC)
            continue
        at += header_size
        while at < end:
            kind, entry_header, entry_size = struct.unpack_from("<H2xIQ", data, at)
            arch, flags = struct.unpack_from("<I8xQ", data, at + 28)
            found.add((kind, str(arch) + "".join(suffix for flag, suffix in SUFFIXES.items() if flags & flag)))
            at += entry_header + entry_size
    return found


def main() -> str:
    data = pathlib.Path(sys.argv[1]).read_bytes()
    found = entries(data)
    wanted = set()
    for word in sys.argv[2:]:
        match = re.fullmatch(r"(\d+[af]?)(-real|-virtual)?", word)
        if match is None:
            return f"cannot read the architecture '{word}'"
        wanted |= {(CODE, match[1])} if match[2] != "-virtual" else set()
        wanted |= {(PTX, match[1])} if match[2] != "-real" else set()
    names = {CODE: "sm_", PTX: "PTX for compute_"}
    print(f"{len(data) / 1e6:.1f} MB:", ", ".join(sorted(f"{names.get(kind, kind)}{arch}" for kind, arch in found)))
    if missing := wanted - found:
        return "no " + ", no ".join(f"{names[kind]}{arch}" for kind, arch in sorted(missing))
    return "" if len(data) < LARGEST else f"larger than {LARGEST / 1e6:.0f} MB"


if __name__ == "__main__":
    sys.exit(main() or 0)
