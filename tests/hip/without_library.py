# SPDX-License-Identifier: Apache-2.0
"""Copies a plugin and lets the copy need libabsent64 instead of libamdhip64: without_library.py PLUGIN COPY."""

import pathlib
import sys

plugin = pathlib.Path(sys.argv[1]).read_bytes()
copy = plugin.replace(b"libamdhip64.so.", b"libabsent64.so.")
if copy == plugin:
    sys.exit(f"{sys.argv[1]} does not need libamdhip64")
pathlib.Path(sys.argv[2]).parent.mkdir(parents=True, exist_ok=True)
pathlib.Path(sys.argv[2]).write_bytes(copy)
