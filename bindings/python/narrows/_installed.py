# SPDX-License-Identifier: Apache-2.0
"""Plugins that installed packages bring: found when the process first needs a runtime, and loaded behind all others.

A distribution brings plugins in one of two ways:

- an entry point of the group ``narrows.plugins``. Its value is a package, whose files ``narrows_*.so`` are the plugins; or
  ``package:function``, a function that returns paths
- files ``narrows_*.so`` in the folder ``narrows_plugins`` of site-packages

Narrows' own backends that are wheels of their own (``BACKENDS``) come before all others, and fit one minor version of narrows.

NARROWS_PLUGIN_AUTOLOAD=0 turns it off.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock  # threading, collections and importlib.metadata take longer to import than all of this takes to run

from narrows import _narrows

TYPE_CHECKING = False  # as in _ops.py
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


class Found:
    """A plugin file and the distribution that brings it ("" where none says so). reason: why it is not loaded, or ""; path is then the
    plugin's, or that of the distribution whose entry point is at fault."""

    __slots__ = ("name", "path", "reason", "version")

    def __init__(self, path: str, name: str = "", version: str = "", reason: str = "") -> None:
        self.path, self.name, self.version, self.reason = path, name, version, reason


GROUP, FOLDER = "narrows.plugins", "narrows_plugins"
BACKENDS = ("narrows-cuda", "narrows-hip", "narrows-vulkan")

_lock = RLock()
_state = "new"  # then "loading", "loaded"
_found: list[Found] = []
_crashes: dict[str, str] = {}  # why, by path: of those that were asked in another process


def load() -> bool:
    """Loads them all, once in a process. False: this is a call from within."""
    global _state
    with _lock:
        if _state != "new":
            return _state == "loaded"
        _state = "loading"
        try:
            _found.extend(_load(f) for f in find())
        finally:
            _state = "loaded"
        return True


def found() -> list[Found]:
    """All that were found, those that are not loaded too."""
    load()
    return list(_found)


def ask_first() -> None:
    """Asks each plugin what it is in another process, so that one that crashes is not loaded into this one."""
    with _lock:
        if _state != "new":
            return
        candidates = [f for f in find() if not f.reason]
        command = os.path.join(os.path.dirname(__file__), "bin", "narrows")
        if not candidates or not os.path.exists(command):
            return
        import json
        import subprocess

        done = subprocess.run([command, "info", "--json", *options(candidates)], capture_output=True, text=True)
        try:
            listed = json.loads(done.stdout)["plugins"]
        except ValueError:
            return  # its own trouble: no plugin is to blame
        _crashes.update({b["path"]: b["reason"] for b in listed if b["verdict"] == "crashed"})


def options(plugins: Iterable[Found]) -> list[str]:
    """Them, as the command takes them."""
    return [word for f in plugins for word in ("--installed", f.path, f.name, f.version, f.reason)]


def find() -> list[Found]:
    """What the packages on sys.path bring: Narrows' own backends, then the others in the order of sys.path and of names.
    Nothing is loaded."""
    if os.environ.get("NARROWS_PLUGIN_AUTOLOAD") == "0":
        return []
    all_found: list[Found] = []
    distributions: set[str] = set()
    for folder in _folders():
        all_found += _of_folder(folder, distributions)
    first: dict[str, Found] = {}
    for f in all_found:  # by an entry point and from narrows_plugins
        first.setdefault(f.path + f.reason, f)
    return sorted((_fitting(f) for f in first.values()), key=lambda f: f.name not in BACKENDS)


def _fitting(f: Found) -> Found:
    """The same; refused if it is a backend that was built for another minor version of narrows."""
    here = _narrows.abi()[0]
    if f.name in BACKENDS and not f.reason and _minor(f.version) != _minor(here):
        f.reason = (
            f"{f.name} {f.version} was built for narrows {_minor(f.version)}, and this is narrows {here}; "
            f"expected {f.name} {_minor(here)}: pip install '{f.name}=={_minor(here)}.*', "
            f"or pip install ./backends/{f.name.partition('-')[2]} in a checkout of Narrows {here}"
        )
    return f


def _minor(version: str) -> str:
    """ "1.2" of "1.2.3"."""
    return ".".join(version.split(".")[:2])


def _folders() -> list[str]:
    """Those of sys.path, but for the working directory: there anybody may have put a file."""
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # it was deleted
        here = ""
    absolute = dict.fromkeys(p for p in sys.path if isinstance(p, str) and os.path.isabs(p))
    return [p for p in absolute if os.path.realpath(p) != here]


def _of_folder(folder: str, distributions: set[str]) -> list[Found]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:  # a zip file, or none
        return []
    out: list[Found] = []
    plugins = os.path.join(folder, FOLDER)
    files = _files(plugins) if FOLDER in names else []
    owners: dict[str, tuple[str, str]] = {}
    for name in names:
        if not name.endswith((".dist-info", ".egg-info")):
            continue
        path = os.path.join(folder, name)
        if GROUP.encode() in _read(os.path.join(path, "entry_points.txt")):
            distribution = _Distribution(path)
            if distribution.name not in distributions:  # else one that sys.path has earlier
                distributions.add(distribution.name)
                out += distribution.plugins()
        if files and FOLDER.encode() in (record := _read(os.path.join(path, "RECORD"))):
            distribution = _Distribution(path)
            lines = {line.partition(",")[0] for line in record.decode(errors="replace").splitlines()}
            owners |= {f: (distribution.name, distribution.version) for f in files if f"{FOLDER}/{os.path.basename(f)}" in lines}
    return out + [Found(os.path.realpath(f), *owners.get(f, ())) for f in files]


def _files(folder: str) -> list[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [os.path.join(folder, n) for n in names if n.startswith("narrows_") and n.endswith(".so")]


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


class _Distribution:
    def __init__(self, path: str) -> None:
        import importlib.metadata

        self._metadata = importlib.metadata.Distribution.at(path)
        self._path = path
        self.name, _, self.version = os.path.basename(path).rpartition(".")[0].partition("-")
        try:
            self.name = self._metadata.metadata["Name"] or self.name
            self.version = self._metadata.metadata["Version"] or self.version
        except Exception:  # without a METADATA that can be read the folder's name says both
            pass

    def plugins(self) -> list[Found]:
        out: list[Found] = []
        try:
            points = sorted(p for p in self._metadata.entry_points if p.group == GROUP)
        except Exception as error:
            return [Found(self._path, self.name, self.version, f"its entry_points.txt cannot be read: {error}")]
        for point in points:
            try:
                paths, reason = _paths_of(point), ""
            except Exception as error:
                paths, reason = [], f"raised {type(error).__name__}: {error}"
            except SystemExit as error:
                paths, reason = [], f"raised SystemExit: {error}"
            if not paths and not reason:
                reason = "brings no file narrows_*.so"
            out += [Found(os.path.realpath(p), self.name, self.version) for p in paths]
            if reason:
                text = f"the entry point '{point.name} = {point.value}' of {GROUP} {reason}"
                out.append(Found(self._path, self.name, self.version, text))
        return out


def _paths_of(point: Any) -> list[str]:
    """The plugin files of an entry point; a package is not imported for it."""
    import importlib.util

    if point.attr:
        paths = point.load()()
        if isinstance(paths, (str, os.PathLike)):
            paths = [paths]
        return [os.fspath(p) for p in paths]
    spec = importlib.util.find_spec(point.module)
    if spec is None:
        raise ModuleNotFoundError(f"no package '{point.module}'")
    if spec.submodule_search_locations is None:
        raise ImportError(f"'{point.module}' is a module; expected a package, or package:function")
    return [f for folder in dict.fromkeys(spec.submodule_search_locations) for f in _files(folder)]


def _load(f: Found) -> Found:
    """Loads one; the same, with the reason why it is not."""
    if not f.reason and f.path in _crashes:
        f.reason = _crashes[f.path]
    if not f.reason:
        try:
            _narrows.load(f.path, True)
            return f
        except Exception as error:  # which the runtime lists too
            f.reason = str(error)
    _warn(f"{_named(f)}: {f.reason}")
    return f


def _named(f: Found) -> str:
    return f"{f.name} {f.version}" if f.name else f.path


def _warn(text: str) -> None:
    print(f"narrows: warning: {text}", file=sys.stderr)
