# SPDX-License-Identifier: Apache-2.0
"""`narrows hub NAME --plugin FILE`: a plugin in the layout of Hugging Face's kernels, which its `get_kernel` and `get_local_kernel` load."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import sys

from narrows import _build, _narrows, _ops

_CPU = 1  # DLPack's number
_ABI = "torch-stable-abi28"  # of torch 2.8, the oldest that narrows knows: a plugin needs nothing of torch

_MODULE = '''"""{title}"""

import pathlib

try:
    import narrows
except ImportError as error:
    raise ImportError("{name}: narrows is missing; expected the Python package narrows {minor}", name="narrows") from error

narrows.load(pathlib.Path(__file__).parent / "{file}")
{ops}

__all__ = {names!r}
'''


def write(name: str, plugin: pathlib.Path, folder: pathlib.Path, license: str, version: int) -> list[str]:
    """Writes the build variant for this machine into the folder; the paths of its files. ValueError: it cannot be."""
    if not re.fullmatch(r"[a-z][a-z0-9-]*[a-z0-9]", name):
        raise ValueError(f"NAME = {name!r}; expected lower-case letters, digits and '-', a letter first and no '-' last")
    if version < 1:
        raise ValueError(f"--version {version}; expected 1 or more")
    ops = _ops_of(plugin)
    variant = folder / "build" / f"{_ABI}-cpu-{platform.machine()}-linux"
    if variant.exists():
        raise ValueError(f"{variant} exists; expected a folder without it")
    variant.mkdir(parents=True)
    shutil.copyfile(plugin, variant / plugin.name)
    lines = [f"{short} = narrows.op({full!r})" for short, full in ops.items()]
    text = _MODULE.format(
        title=f"{name}: ops of a plugin for Narrows.",
        name=name,
        minor=".".join(_narrows.abi()[0].split(".")[:2]) + " or newer",
        file=plugin.name,
        ops="\n".join(lines),
        names=sorted(ops),
    )
    (variant / "__init__.py").write_text(text, encoding="utf-8")
    digest = hashlib.sha256(plugin.read_bytes() + text.encode()).hexdigest()[:12]
    identifier = f"_{name.replace('-', '_')}_{digest}"
    metadata = {
        "id": identifier,
        "name": name,
        "version": version,
        "license": license,
        "python-depends": [],
        "backend": {"type": "cpu"},
    }
    (variant / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")
    return [str(path) for path in sorted(variant.iterdir())]


def _ops_of(plugin: pathlib.Path) -> dict[str, str]:
    """{short name: name} of the plugin's own ops, without those that only differentiate others. ValueError: it has none."""
    path = os.path.realpath(plugin)
    try:
        _ops.load(path)
    except Exception as error:
        raise ValueError(f"--plugin {plugin}: {error}") from None
    found = next(b for b in _narrows.backends() if b["path"] == path)
    if found["device_type"] != _CPU:
        raise ValueError(f"--plugin {plugin}: it is for another device; expected a plugin for the CPU")
    own = [o["name"] for o in found["ops"] if "." in o["name"]]
    backward = {_ops.op(name).backward for name in own}
    ops = _build._short_names(found["name"], [name for name in own if name not in backward])
    if not ops:
        raise ValueError(f"--plugin {plugin}: it has no op of its own; expected ops that are named like 'vendor.name/1'")
    return ops


def main(words: list[str]) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(
        prog="narrows hub", description="Writes a plugin for the CPU as a build variant of Hugging Face's kernels."
    )
    parser.add_argument("name", metavar="NAME", help="the kernel's name: my-ops")
    parser.add_argument("--plugin", metavar="FILE", type=pathlib.Path, required=True, help="narrows_*.so")
    parser.add_argument("--license", metavar="NAME", required=True, help="the kernel's license, by its SPDX name")
    parser.add_argument("--version", metavar="N", type=int, default=1, help="the kernel's version; 1 unless given")
    parser.add_argument("--into", metavar="FOLDER", type=pathlib.Path, help="the repository's folder; NAME unless given")
    arguments = parser.parse_args(words)
    folder = arguments.into or pathlib.Path(arguments.name)
    try:
        written = write(arguments.name, arguments.plugin, folder, arguments.license, arguments.version)
    except ValueError as error:
        print(f"narrows hub: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"narrows hub: {error.filename or folder}: {os.strerror(error.errno or 0)}", file=sys.stderr)
        return 4
    print(*(f"  {path}" for path in written), sep="\n")
    return 0
