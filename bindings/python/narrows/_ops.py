# SPDX-License-Identifier: Apache-2.0
"""Ops by name, plugins, and what is there."""

from __future__ import annotations

import os

from narrows import _narrows, _programs

TYPE_CHECKING = False  # typing's own is True for type checkers alone too, but importing typing takes as long as all of narrows
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# What every op takes by keyword beside its own params.
CALL_WORDS = {"out": None, "device": None, "stream": None, "backend": None, "kernel": None, "deterministic": False}

_known: dict = {}  # an op is made once, so that a compiler may remember its identity
_named: list = []  # those with a name of their own: narrows.add
_fresh: dict = {}  # those that go when their users let go of them, as weak references by their ids
_listeners: list = []  # told of every op
_load_hooks: list = []  # called when a plugin has been loaded


def op(name, **params):
    """The op of that name with these values of its parameters; callable.

        >>> import numpy, narrows
        >>> every_second = narrows.op("conv1d", stride=2)
        >>> every_second(numpy.ones(7, "float32"), numpy.ones(3, "float32"))
        array([3., 3., 3.], dtype=float32)

    A call takes the inputs in their order or by name, and parameters by keyword; and

    - ``out``: the output, or a tuple or list of them, which is returned, as a tuple where there are several; else they are new arrays of the
      first input's framework
    - ``device``: of NumPy inputs: where to compute; they are copied there, and the result back
    - ``stream``: a :class:`narrows.Stream` or native handle; else the framework's current one
    - ``backend``, ``kernel``: a plugin's and a kernel variant's name; ``deterministic``: refuse what may vary

    Without a version, ``vendor.name`` is the newest that is present. ValueError: no such op.
    """
    made = _narrows.Op(_newest(name), **params)
    kept = _known.setdefault(made, made)
    if kept is made:
        for listener in _listeners:
            listener(made)
    return kept


def signature_of(op):
    """The inspect.Signature that an op's declaration gives."""
    import inspect

    both, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    last = max((i for i, name in enumerate(op.inputs) if not name.endswith("?")), default=-1)
    parameters = [
        inspect.Parameter(name.rstrip("?"), both, default=None if i > last else inspect.Parameter.empty)
        for i, name in enumerate(op.inputs)
    ]
    parameters += [inspect.Parameter(name, keyword, default=value) for name, value in op.params.items()]
    taken = {p.name for p in parameters}
    parameters += [inspect.Parameter(name, keyword, default=value) for name, value in CALL_WORDS.items() if name not in taken]
    return inspect.Signature(parameters)


def doc_of(op):
    """The docstring that an op's declaration gives."""
    named = lambda names: ", ".join(n[:-1] + " (may be absent)" if n.endswith("?") else n for n in names)  # noqa: E731
    main = len(op.outputs) - op.num_aux
    lines = [
        f"The op {op.op}, as its declaration has it.",
        "",
        f"Inputs: {named(op.inputs)}.",
        f"Outputs: {named(op.outputs[:main])}.",
    ]
    for name, kind, lanes, values, initial in op.fields:
        kind = "one of " + ", ".join(map(repr, values)) if values is not None else kind if lanes == 1 else f"{lanes} of {kind}"
        lines.append(f"{name}: {kind}; {initial!r} unless given.")
    lines.append(f"Shapes: {op.shape_rule or 'the backend says them'}.")
    if op.batch:
        lines.append(f"A batch of calls is one call along: {'every axis' if op.batch == '*' else op.batch}.")
    lines.append(f"Gradients: {f'by {op.backward}' if op.backward else 'none'}.")
    lines.append("``out``, ``device``, ``stream``, ``backend``, ``kernel`` and ``deterministic`` are those of :func:`narrows.op`.")
    return "\n".join(lines)


def without_shape(op, j):
    """What the library says of an output that no call may leave out, where the rule gives it no shape."""
    name = op.outputs[j]
    return (
        f"{op.op}: {name} has no shape, because the input that gives it is absent; expected that input: "
        f"{name} is declared without '?'"
    )


def without_saved(op, backward, i):
    """Of a gradient that is wanted, where the backward op is not given the input that has its shape."""
    gradient, name = backward.outputs[i].rstrip("?"), op.inputs[i].rstrip("?")
    return f"{backward.op}: {gradient} has no shape, because {name} is absent; expected {name} among what {op.op} saves"


def listen(function):
    """Calls function(op) for every op, those made until now and those to come."""
    for made in [*_known.values(), *_named, *(reference() for reference in list(_fresh.values()))]:
        if made is not None:
            function(made)
    _listeners.append(function)


def on_load(function):
    """Calls function() whenever a plugin has been loaded."""
    _load_hooks.append(function)


def remember(made):
    """Takes an op that was made elsewhere under a name of its own."""
    _named.append(made)
    for listener in _listeners:
        listener(made)
    return made


def fresh(name: str) -> _narrows.Op:
    """An op that does not remember how those before it ran: each op of a program that is built is one."""
    return introduced(_narrows.Op(name))


def introduced(made: _narrows.Op) -> _narrows.Op:
    """The op, which the listeners are told of; it goes when its users let go of it."""
    import weakref

    key = id(made)
    _fresh[key] = weakref.ref(made, lambda _: _fresh.pop(key, None))
    for listener in _listeners:
        listener(made)
    return made


def names():
    """The names of all ops that a usable backend has, and of the programs that were built or loaded, sorted."""
    programs = filter(_programs.is_program, _narrows.declared())
    usable = (b for b in _narrows.backends() if b["status"] == "ok" and not b["shadowed"])
    return sorted({*programs, *(o["name"] for b in usable for o in b["ops"])})


def undeclared():
    """What is said of a plugin's op that is not there: where plugins were looked for, and which files were refused."""
    try:
        return str(_narrows.Op(".").op)
    except ValueError as error:
        return str(error).partition("; ")[2]


def device_types(name):
    """DLPack's numbers of the devices for which a usable backend has the op, in search order."""
    usable = (b for b in _narrows.backends() if b["status"] == "ok" and not b["shadowed"])
    return tuple(dict.fromkeys(b["device_type"] for b in usable if any(o["name"] == name for o in b["ops"])))


def _newest(name):
    if not isinstance(name, str):
        raise TypeError(f"an op's name is {name!r}; expected a string")
    if "." not in name or "/" in name:
        return name
    versions = [n for n in names() if n.rpartition("/")[0] == name]
    return max(versions, key=lambda n: int(n.rpartition("/")[2])) if versions else name


class _Namespace:
    """The ops ``prefix.*``. What was asked for is kept as an attribute, until a plugin is loaded."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = self._prefix + name
        if any(n.startswith(full + ".") for n in names()):
            found: Any = _namespaces.setdefault(full, _Namespace(full + "."))
        else:
            try:
                found = op(full)
            except (ValueError, NotImplementedError) as error:
                raise AttributeError(str(error)) from None
        setattr(self, name, found)
        return found

    def __dir__(self) -> list[str]:
        rest = (n[len(self._prefix) :] for n in names() if n.startswith(self._prefix))
        return sorted({n.partition("/")[0].partition(".")[0] for n in rest})

    def __repr__(self) -> str:
        return f"<narrows.ops{'.' + self._prefix[:-1] if self._prefix else ''}: {', '.join(dir(self))}>"


class _Ops(_Namespace):
    """Every op: ``narrows.ops.conv1d``, ``narrows.ops.vendor.name``, ``narrows.ops["vendor.name/1"]``.

    AttributeError or KeyError: no such op.

        >>> import narrows
        >>> narrows.ops["lltm"] is narrows.ops.lltm
        True
        >>> "conv1d" in narrows.ops, len(narrows.ops) > 5
        (True, True)
    """

    def __getitem__(self, name: str) -> _narrows.Op:
        try:
            return op(name)
        except (ValueError, NotImplementedError) as error:
            raise KeyError(str(error)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(names())

    def __len__(self) -> int:
        return len(names())


ops: _Ops = _Ops()
_namespaces: dict[str, _Namespace] = {}


def fill():
    """Makes every op an attribute now, for a compiler that looks at attributes and calls no __getattr__."""
    for space in [ops, *_namespaces.values()]:
        for name in set(dir(space)) - {"program"}:  # a program that is built is an op of its user's
            found = getattr(space, name)
            if isinstance(found, _Namespace):
                for inner in dir(found):
                    getattr(found, inner)


def load(path):
    """Loads a plugin ahead of those present; its ops are in ``narrows.ops``.

    ValueError or NotImplementedError: the file was refused; RuntimeError: a library that it needs is missing.

        >>> import narrows
        >>> narrows.load("/no/such/plugin.so")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        ValueError: /no/such/plugin.so: ...
    """
    _narrows.load(os.path.realpath(path))
    for space in [ops, *_namespaces.values()]:
        for known in set(vars(space)) - {"_prefix"}:
            vars(space).pop(known, None)
    if _listeners:
        fill()
    for hook in _load_hooks:
        hook()


class Info(dict):
    """What :func:`info` gives: a dict that a notebook shows as a table."""

    def _rows(self):
        for b in self["backends"]:
            where = ", ".join(f"{d['device']} {d['name']}, {d['arch']}" for d in b["devices"]) or b["reason"] or b["status"]
            if b["distribution"]:
                where += f", from {b['distribution']['name']} {b['distribution']['version']}"
            yield b["name"] or os.path.basename(b["path"]), b["version"], b["status"], len(b["ops"]), where

    def __repr__(self):
        lines = [f"narrows {self['version']}, ABI {self['abi']}"]
        lines += [f"  {name} {version}  {status}  {count} ops  {where}" for name, version, status, count, where in self._rows()]
        return "\n".join(lines)

    def _repr_html_(self):
        import html

        head = "".join(f"<th>{h}</th>" for h in ("backend", "version", "status", "ops", "devices"))
        body = "".join("<tr>" + "".join(f"<td>{html.escape(str(c))}</td>" for c in row) + "</tr>" for row in self._rows())
        return f"<table><caption>narrows {self['version']}</caption><tr>{head}</tr>{body}</table>"


def info():
    """Version, backends, their devices and ops, as data. ``distribution``: the installed package that brings a plugin, or None.

    >>> import narrows
    >>> [b["status"] for b in narrows.info()["backends"] if b["name"] == "cpu"]
    ['ok']
    """
    from narrows import _installed
    from narrows._device import Device

    def devices_of(b):
        found = (Device(b["device_type"], i) for i in range(b["device_count"] if b["status"] == "ok" else 0))
        return [{"device": str(d), **d.info} for d in found]

    _installed.ask_first()
    packages = {f.path: f for f in _installed.found()}

    def distribution_of(path):
        f = packages.get(path)
        return {"name": f.name, "version": f.version} if f is not None and f.name else None

    version, abi = _narrows.abi()
    backends = _narrows.backends()
    listed = {b["path"] for b in backends}
    backends += [_left_out(f) for f in _installed.found() if f.reason and f.path not in listed]
    told = [{**b, "devices": devices_of(b), "distribution": distribution_of(b["path"])} for b in backends]
    return Info(version=version, abi=abi, backends=told)


def _left_out(f):
    """An installed plugin that the runtime was not given, as it lists others."""
    return {
        "name": "",
        "version": "",
        "path": f.path,
        "status": "failed",
        "reason": f.reason,
        "device_type": 0,
        "device_count": 0,
        "shadowed": False,
        "ops": [],
    }


def get_include():
    """The folder of the C headers: a plugin is compiled with ``-I`` and this.

    >>> import os, narrows
    >>> {"narrows.h", "plugin.h", "plugin.hpp"} <= set(os.listdir(os.path.join(narrows.get_include(), "narrows")))
    True
    """
    return os.path.join(os.path.dirname(__file__), "include")


def cmake_dir():
    """The folder by which CMake finds this package's headers and libnarrows: ``Narrows_DIR`` of ``find_package(Narrows)``.

    FileNotFoundError: the package was built without it.

    >>> import os, narrows
    >>> os.path.exists(os.path.join(narrows.cmake_dir(), "NarrowsConfig.cmake"))
    True
    """
    folder = os.path.join(os.path.dirname(__file__), "lib", "cmake", "Narrows")
    if not os.path.exists(os.path.join(folder, "NarrowsConfig.cmake")):
        raise FileNotFoundError(f"{folder} has no NarrowsConfig.cmake; expected a package that was built by pip")
    return folder
