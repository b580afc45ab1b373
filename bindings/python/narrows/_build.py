# SPDX-License-Identifier: Apache-2.0
"""Plugins from source: compiled once for each content and compiler, then loaded."""

import hashlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import types
from collections.abc import Iterable

from narrows import _narrows, _ops

_FLAGS = ["-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-z,nodelete"]
_NVCC_FLAGS = ["-O3", "-shared", "-Xcompiler=-fPIC,-fvisibility=hidden", "-Xlinker=-z,nodelete"]
_SUFFIXES = {".c": "CC", ".cc": "CXX", ".cpp": "CXX", ".cxx": "CXX", ".cu": "NVCC"}
_COMPILERS = {"CC": "cc", "CXX": "c++", "NVCC": "nvcc"}


def _cache():
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "narrows"


def _compiler(kind):
    """The command of a compiler, by the environment's CC, CXX or NVCC; RuntimeError: it is not there."""
    command = shlex.split(os.environ.get(kind, "")) or [_COMPILERS[kind]]
    if shutil.which(command[0]) is None:
        raise RuntimeError(f"no compiler '{command[0]}' on PATH; set {kind}")
    return command


def _run(command):
    """Runs a compiler and returns what it prints; RuntimeError with its words."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(map(str, command))}\n{done.stderr}{done.stdout}")
    return done.stdout


def _prerequisites(rule):
    """The paths behind the ':' of a rule for make. A backslash stands in front of white space and '#', and those in front of white space
    are written twice; '$$' is '$'; all else is itself."""
    paths = re.split(r":\s", rule.replace("\\\n", " "), maxsplit=1)[1]
    words = re.findall(r"(?:\\[\s#]|\S)+", paths)
    words = [re.sub(r"(\\*)\\(?=\s)", lambda m: m[1][len(m[1]) // 2 :], word) for word in words]
    return [word.replace("\\#", "#").replace("$$", "$") for word in words]


def _content(command, file):
    """The source and every header that it includes, but for the compiler's and the system's own."""
    paths = [pathlib.Path(path) for path in _prerequisites(_run([*command, "-MM", file]))]
    unread = [path for path in paths if not path.is_file()]
    if unread:  # a compiler that leaves tabs as they are, or writes '/' for a backslash
        raise RuntimeError(
            f"build: {file}: the compiler names {str(unread[0])!r}, which is no file, among the headers that it includes"
        )
    return b"".join(path.name.encode() + b"\0" + path.read_bytes() + b"\0" for path in paths)


class _Plain:
    """Paths for nvcc, which hands them to a shell between double quotes: a folder with a sign of the shell's has a link without."""

    def __init__(self, folder):
        self.folder, self.links = pathlib.Path(folder), {}

    def __call__(self, path):
        path = pathlib.Path(path).absolute()
        if not set(str(path)) & set('$`"\\'):
            return path
        if set(path.name) & set('$`"\\'):
            raise ValueError(f'build: {path}; nvcc takes no file with one of $ ` " \\ in its name')
        if path.parent not in self.links:
            self.links[path.parent] = self.folder / str(len(self.links))
            self.links[path.parent].symlink_to(path.parent)
        return self.links[path.parent] / path.name


def _checked(files, name, flags):
    """build's files as a list of paths; TypeError, ValueError."""
    if not isinstance(files, (str, os.PathLike, Iterable)):
        raise TypeError(f"build: files = {files!r}; expected a path or several")
    if isinstance(flags, str) or not isinstance(flags, Iterable):
        raise TypeError(f"build: flags = {flags!r}; expected a list of strings")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"build: name = {name!r}; expected a string")
    if name is not None and (not name or set(name) & {"/", os.sep, os.altsep, "\0"}):
        raise ValueError(f"build: name = {name!r}; expected part of a file's name, without a folder")
    files = [pathlib.Path(f) for f in ([files] if isinstance(files, (str, os.PathLike)) else files)]
    unknown = [f for f in files if f.suffix not in _SUFFIXES]
    if unknown or not files:
        raise ValueError(f"build: {unknown or files}; expected sources that end in {', '.join(_SUFFIXES)}")
    return files


def build(files, name=None, flags=(), verbose=False):
    """Compiles C, C++ or CUDA sources into a plugin and returns its path; what was compiled before, with the same
    headers and compiler, is not compiled again.

    ``files``: one or several paths, of which one holds ``narrows_plugin_query``. ``name``: the file becomes ``narrows_<name>.so``,
    by default named as the first source. ``flags``: more of the compiler's. The compilers are CC, CXX and NVCC of the environment,
    else cc, c++, nvcc. RuntimeError: there is no compiler, or it fails; the message holds its own words. Paths may hold spaces, $ and :.

        >>> import narrows
        >>> narrows.build("my_op.rs")
        Traceback (most recent call last):
        ...
        ValueError: build: [PosixPath('my_op.rs')]; expected sources that end in .c, .cc, .cpp, .cxx, .cu
    """
    files = _checked(files, name, flags)
    kinds = {_SUFFIXES[f.suffix] for f in files}
    kind = next(k for k in ("NVCC", "CXX", "CC") if k in kinds)
    command = _compiler(kind)
    own, include = _NVCC_FLAGS if kind == "NVCC" else _FLAGS, _ops.get_include()
    # nvcc 13.0 aborts in C++20's headers of g++ 12; it takes plugin.hpp, designated initializers included, as C++17 too.
    standard = {"CXX": ["-std=c++20"], "NVCC": ["-std=c++17"], "CC": ["-std=c11"]}[kind]
    version = subprocess.run([*command, "--version"], capture_output=True, text=True).stdout
    digest = hashlib.sha256(repr((command, version, standard, [*own, f"-I{include}", *flags], _narrows.abi())).encode())
    with tempfile.TemporaryDirectory() as folder:
        path = _Plain(folder) if kind == "NVCC" else pathlib.Path.absolute  # absolute, so that no name is taken for an option
        command = [*command, *standard, *own, f"-I{path(pathlib.Path(include))}", *flags]
        sources = [path(f) for f in files]
        for f in sources:
            digest.update(_content(command, f))
        library = _cache() / digest.hexdigest()[:24] / f"narrows_{name or files[0].stem}.so"
        if not library.exists():
            _compile([*command, *sources], library, path, verbose)
    return str(library)


def _compile(command, library, path, verbose):
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = pathlib.Path(folder) / "made.so"
        command = [*command, "-o", path(made)]
        if verbose:
            print(shlex.join(map(str, command)))
        _run(command)
        os.replace(made, library)  # whoever builds the same at the same time gets a whole file


def load_inline(name, cpp_sources="", cuda_sources="", flags=(), verbose=False):
    '''Compiles a plugin from source text, loads it, and returns its ops by their short names.

    ``cpp_sources`` and ``cuda_sources``: a text or several; together they are one plugin, of which one text holds
    ``narrows_plugin_query``, or ``NARROWS_PLUGIN`` of ``<narrows/plugin.hpp>``. Of several versions of an op the short name is the
    newest's. Where the same name, or another, brings an op again, op objects that were made before raise RuntimeError; programs that
    torch or JAX compiled call ops by name and compute what the new one does. Errors: those of :func:`build` and ``narrows.load``;
    ValueError: ops of two vendors have one short name, or an op has no vendor.

        >>> import numpy, narrows
        >>> source = """
        ... #include <narrows/plugin.hpp>
        ... void twice(const narrows::plugin::Launch& call) {
        ...   const float* x = call.input<float>(0);
        ...   float* y = call.output<float>(0);
        ...   call.parallel_for(call.size(0), [=](int64_t i) { y[i] = 2 * x[i]; });
        ... }
        ... NARROWS_PLUGIN("mine", {.name = "mine.twice/1", .inputs = {"x"}, .outputs = {"y"}, .kernel = twice})
        ... """
        >>> narrows.load_inline("mine", source).twice(numpy.ones(3, "float32"))
        array([2., 2., 2.], dtype=float32)
    '''
    if not isinstance(name, str):
        raise TypeError(f"load_inline: name = {name!r}; expected a string")
    if not name.isidentifier():
        raise ValueError(f"load_inline: name = {name!r}; expected an identifier")
    for argument, texts in (("cpp_sources", cpp_sources), ("cuda_sources", cuda_sources)):
        if not isinstance(texts, Iterable) or not all(isinstance(t, str) for t in texts):
            raise TypeError(f"load_inline: {argument} = {texts!r}; expected a text or several")
    texts = [(".cpp", t) for t in ([cpp_sources] if isinstance(cpp_sources, str) else cpp_sources) if t]
    texts += [(".cu", t) for t in ([cuda_sources] if isinstance(cuda_sources, str) else cuda_sources) if t]
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for i, (suffix, text) in enumerate(texts):
            files.append(pathlib.Path(folder) / f"{name}_{i}{suffix}")
            files[-1].write_text(text)
        library = build(files, name, flags, verbose)
    if not _comes_first(library):  # another with its ops may have come since
        _ops.load(library)
    backend = next(b for b in _narrows.backends() if b["path"] == library)
    usable = backend["status"] == "ok" and not backend["shadowed"]  # else the reason is another one
    left_out = backend["reason"] if usable else "" if backend["ops"] else "it has no op that this narrows knows"
    if left_out:  # an op without a vendor is taken for a built-in one
        raise ValueError(f"load_inline: {name}: {left_out}; expected ops that are named like 'vendor.name/1'")
    short = _short_names(name, [o["name"] for o in backend["ops"]])
    return types.SimpleNamespace(**{key: _ops.op(full) for key, full in short.items()})


def _comes_first(library):
    """Whether it is loaded, and calls of its ops are its own."""
    usable = [b for b in _narrows.backends() if b["status"] == "ok" and not b["shadowed"]]
    own = next((b for b in usable if b["path"] == library), None)
    if own is None:
        return False
    beside = [(b["path"], {o["name"] for o in b["ops"]}) for b in usable if b["device_type"] == own["device_type"]]
    return all(next(path for path, ops in beside if o["name"] in ops) == library for o in own["ops"])


def _short_names(name, full_names):
    """{short name: the newest of these ops that has it}; ValueError: ops of two vendors have it."""
    newest: dict = {}
    for full in full_names:
        unversioned, _, version = full.partition("/")  # one that core declares has no version
        short, this = unversioned.rpartition(".")[2], (int(version or 0), full)
        other = newest.get(short, this)
        if other[1].partition("/")[0] != unversioned:
            raise ValueError(
                f"load_inline: {name} has {other[1]} and {full}; expected ops whose short names differ, or narrows.build"
            )
        newest[short] = max(other, this)
    return {short: full for short, (_, full) in newest.items()}
