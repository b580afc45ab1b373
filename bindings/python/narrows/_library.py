# SPDX-License-Identifier: Apache-2.0
"""Why the extension module could not be imported: another libnarrows than the package's own."""

import ctypes
import os
import pathlib

NAME = "libnarrows.so.1"  # the loader gives a process one library of a name


def loaded():
    """(path, version) of the libnarrows that this process has; None: there is none."""
    try:
        library = ctypes.CDLL(NAME, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None
    version = "of an unknown version"
    if hasattr(library, "nw_version"):
        library.nw_version.restype = ctypes.c_char_p
        version = (library.nw_version() or b"").decode()
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    paths = [line.split(maxsplit=5)[5] for line in lines if os.path.basename(line).startswith("libnarrows.so")]
    return (paths or ["of an unknown file"])[0], version


def explained(error):
    """The ImportError, with the library that this process has in the place of the package's own, if it has another."""
    own = pathlib.Path(__file__).parent / "lib" / NAME
    found = loaded()
    if found is None or (own.exists() and os.path.exists(found[0]) and own.samefile(found[0])):
        return error
    return ImportError(f"narrows: this process has libnarrows {found[1]}, {found[0]}; expected {own}, the package's own ({error})")
