# SPDX-License-Identifier: Apache-2.0
"""`narrows new NAME`: a package with an op, which builds, passes its tests and is found by Narrows when it is installed."""

from __future__ import annotations

import argparse
import keyword
import os
import pathlib
import re
import sys

_SKELETON = pathlib.Path(__file__).parent / "skeleton"
_DOTTED = {"github", "gitignore"}  # their names begin with a dot in the package that is written


def package_of(name: str) -> str:
    """The name of the Python package and of the plugin; ValueError: there is none."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*([-_.]+[A-Za-z0-9]+)*", name):
        raise ValueError(f"NAME = {name!r}; expected letters and digits, with '-', '_' or '.' between, and a letter first")
    package = re.sub(r"[-_.]+", "_", name).lower()
    if keyword.iskeyword(package) or package in sys.stdlib_module_names or package == "narrows":
        raise ValueError(f"NAME = {name!r}; expected one that is no module or word of Python's, and not narrows")
    return package


def write(name: str, folder: pathlib.Path) -> list[str]:
    """Writes the package into the folder, which is made; the paths of its files. ValueError, FileExistsError, OSError."""
    package = package_of(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists; expected a new or an empty folder")
    written = []
    for source in sorted(p for p in _SKELETON.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        parts = ["." + p if p in _DOTTED else p.replace("my_ops", package) for p in source.relative_to(_SKELETON).parts]
        target = folder.joinpath(*parts)
        lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
        text = "".join(line for line in lines if "SPDX-License-Identifier" not in line)  # the license is the author's to choose
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.replace("my_ops", package).replace("my-ops", name), encoding="utf-8")
        written.append(str(target.relative_to(folder)))
    return written


def main(words: list[str]) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="narrows new", description="Writes the skeleton of a package that brings an op.")
    parser.add_argument("name", metavar="NAME", help="what pip is to call it: my-ops")
    parser.add_argument("--into", metavar="FOLDER", help="the folder that is made; NAME unless given")
    arguments = parser.parse_args(words)
    folder = pathlib.Path(arguments.into or arguments.name)
    try:
        written = write(arguments.name, folder)
    except (ValueError, FileExistsError) as error:
        print(f"narrows new: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"narrows new: {error.filename or folder}: {os.strerror(error.errno or 0)}", file=sys.stderr)
        return 4
    print(*(f"  {folder}/{path}" for path in written), f"Next: cd {folder} && pip install '.[test]' && pytest tests", sep="\n")
    return 0
