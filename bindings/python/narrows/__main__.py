# SPDX-License-Identifier: Apache-2.0
"""The narrows command, as `narrows` and as `python -m narrows`: `new`, `config` and `hub` are Python's, the rest is the binary's."""

import os
import pathlib
import sys


def main() -> None:
    """Runs what is Python's, or becomes the command that the package carries."""
    words = sys.argv[1:]
    if words[:1] == ["new"]:
        from narrows import _new

        sys.exit(_new.main(words[1:]))
    if words[:1] == ["config"]:
        from narrows import _config

        sys.exit(_config.main(words[1:]))
    if words[:1] == ["hub"]:
        from narrows import _hub

        sys.exit(_hub.main(words[1:]))
    command = pathlib.Path(__file__).parent / "bin" / "narrows"
    if not command.exists():
        sys.exit(f"narrows: this package was built without the command ({command})")
    if words[:1] == ["info"]:
        from narrows import _installed

        words += _installed.options(_installed.find())
    os.execv(command, ["narrows", *words])


if __name__ == "__main__":
    main()
