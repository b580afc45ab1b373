# SPDX-License-Identifier: Apache-2.0
"""`narrows config`: what a C or C++ build needs to find the headers and libnarrows of this package."""

from __future__ import annotations

import argparse
import os
import shlex
import sys

from narrows import _narrows, _ops


def main(words: list[str]) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(
        prog="narrows config",
        description="Prints options for compilers and folders for build tools, one line for each option.",
        epilog="Example: cc main.c $(narrows config --cflags --libs) -o main. A plugin needs --cflags alone.",
    )
    parser.add_argument("--cflags", action="store_true", help="options for the compiler")
    parser.add_argument("--libs", action="store_true", help="options for the linker; the program finds libnarrows by its rpath")
    parser.add_argument("--cmake-dir", action="store_true", help="what Narrows_DIR is to be for CMake's find_package(Narrows)")
    parser.add_argument("--pkgconfig-dir", action="store_true", help="what PKG_CONFIG_PATH is to hold for pkg-config")
    parser.add_argument("--version", action="store_true", help="the version of the package")
    arguments = parser.parse_args(words)
    if not any(vars(arguments).values()):
        parser.error("expected an option: --cflags, --libs, --cmake-dir, --pkgconfig-dir or --version")
    libraries = os.path.join(os.path.dirname(__file__), "lib")
    try:
        if arguments.cflags:
            print(shlex.quote(f"-I{_ops.get_include()}"))
        if arguments.libs:
            print(shlex.quote(f"-L{libraries}"), shlex.quote(f"-Wl,-rpath,{libraries}"), "-lnarrows")
        if arguments.cmake_dir:
            print(_ops.cmake_dir())
        if arguments.pkgconfig_dir:
            print(os.path.join(os.path.dirname(os.path.dirname(_ops.cmake_dir())), "pkgconfig"))
        if arguments.version:
            print(_narrows.abi()[0])
    except FileNotFoundError as error:
        print(f"narrows config: {error}", file=sys.stderr)
        return 3
    return 0
