# SPDX-License-Identifier: Apache-2.0
"""The narrows command, as `narrows` and as `python -m narrows`."""

import os
import pathlib
import sys


def main() -> None:
    """Becomes the command that the package carries."""
    words = sys.argv[1:]
    command = pathlib.Path(__file__).parent / "bin" / "narrows"
    if not command.exists():
        sys.exit(f"narrows: this package was built without the command ({command})")
    if words[:1] == ["info"]:
        from narrows import _installed

        words += _installed.options(_installed.find())
    os.execv(command, ["narrows", *words])


if __name__ == "__main__":
    main()
