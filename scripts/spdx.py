#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every source names its license in its first three lines.

scripts/spdx.py          fails at a source that does not
scripts/spdx.py --add    adds the line
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINE = "SPDX-License-Identifier: Apache-2.0"
SOURCES = re.compile(r"\.(c|h|cpp|hpp|cu|inc|comp|glsl|py|pyi|sh|cmake|toml|ya?ml)$|(^|/)(CMakeLists\.txt|run)$")
# Headers of a release are kept as they were published.
EXCEPT = re.compile(r"^tests/abi/releases/0")


def sources():
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    )
    return [n for n in listed.stdout.splitlines() if SOURCES.search(n) and not EXCEPT.search(n) and (ROOT / n).exists()]


def with_line(name, text):
    """The text with the license line: first, but after what has to be first."""
    if re.search(r"\.(py|pyi|sh|cmake|txt|toml|ya?ml)$|(^|/)run$", name):
        line = f"# {LINE}\n"
    elif text.startswith("/*") or name.endswith(".c"):
        line = f"/* {LINE} */\n"
    else:
        line = f"// {LINE}\n"
    # `./run check` lists the first line of scripts/check/*.sh.
    after = 1 if text.startswith("#!") or (name.startswith("scripts/check/") and name.endswith(".sh")) else 0
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:after], line, *lines[after:]])


def main():
    missing = [n for n in sources() if not any(LINE in line for line in (ROOT / n).read_text().splitlines()[:3])]
    if "--add" in sys.argv:
        for name in missing:
            path = ROOT / name
            path.write_text(with_line(name, path.read_text()))
    elif missing:
        sys.exit("without a license line, which scripts/spdx.py --add writes:\n  " + "\n  ".join(missing))


main()
