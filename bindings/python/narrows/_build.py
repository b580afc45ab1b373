# SPDX-License-Identifier: Apache-2.0
"""Plugins from source: compiled once for each content and compiler, then loaded."""

import contextlib
import hashlib
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterable, Mapping

from narrows import _errors, _hip, _narrows, _ops

_FLAGS = ["-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-z,nodelete"]
_NVCC_FLAGS = ["-O3", "-shared", "-Xcompiler=-fPIC,-fvisibility=hidden", "-Xlinker=-z,nodelete"]
_GLSLC_FLAGS = ["--target-env=vulkan1.2", "-O", "-mfmt=num"]
_SUFFIXES = {".c": "CC", ".cc": "CXX", ".cpp": "CXX", ".cxx": "CXX", ".cu": "NVCC", ".comp": "GLSLC"}
_COMPILERS = {"CC": "cc", "CXX": "c++", "NVCC": "nvcc", "HIPCC": "hipcc", "GLSLC": "glslc"}
_QUERY = re.compile(r"narrows_plugin_query|NARROWS_(CUDA_|VULKAN_)?PLUGIN\s*\(")  # what makes a text a plugin


_SECONDS = 600.0  # for a compiler, unless NARROWS_COMPILE_SECONDS says


def _cache():
    if base := os.environ.get("NARROWS_CACHE_DIR"):
        return pathlib.Path(base).absolute() / "plugins"
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "narrows"


def _compiler(kind):
    """The command of a compiler, by the environment's CC, CXX, NVCC, HIPCC or GLSLC; RuntimeError: it is not there."""
    command = shlex.split(os.environ.get(kind, "")) or [_COMPILERS[kind]]
    if shutil.which(command[0]) is None:
        what = ", which compiles CUDA sources for AMD's GPUs" if kind == "HIPCC" else ""
        raise RuntimeError(f"no compiler '{command[0]}' on PATH{what}; set {kind}")
    return [*_hip.COMPILER, *command] if kind == "HIPCC" else command


def _seconds():
    try:
        seconds = float(os.environ.get("NARROWS_COMPILE_SECONDS", ""))
    except ValueError:
        return _SECONDS
    return seconds if seconds > 0 else _SECONDS


def _end(process):
    """With what it has started itself, which may hold its pipes open."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _run(command, check=True):
    """Runs a compiler and returns what it prints; RuntimeError with its words, and how it ended."""
    shown = shlex.join(map(str, command))
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, text=True, start_new_session=True)
    except OSError as error:
        raise RuntimeError(f"{shown}\nit cannot be started: {error.strerror}") from None
    with process:
        try:
            out, err = process.communicate(timeout=_seconds())
        except subprocess.TimeoutExpired:
            _end(process)
            raise RuntimeError(f"{shown}\nit was ended after {_seconds():g} s (NARROWS_COMPILE_SECONDS)") from None
        except BaseException:
            _end(process)
            raise
    if check and process.returncode != 0:
        raise RuntimeError(f"{shown}\n{_how(process.returncode)}\n{err}{out}")
    return out


def _how(status):
    return f"exit status {status}" if status > 0 else f"it was ended by {signal.Signals(-status).name}"


def _prerequisites(rule):
    """The paths behind the ':' of a rule for make. A backslash stands in front of white space and '#', and those in front of white space
    are written twice; '$$' is '$'; all else is itself."""
    paths = re.split(r":\s", rule.replace("\\\n", " "), maxsplit=1)[-1]
    words = re.findall(r"(?:\\[\s#]|\S)+", paths)
    words = [re.sub(r"(\\*)\\(?=\s)", lambda m: m[1][len(m[1]) // 2 :], word) for word in words]
    return [word.replace("\\#", "#").replace("$$", "$") for word in words]


def _content(command, file):
    """The source and every header that it includes, but for the compiler's and the system's own."""
    command = [*command, "-MM", file]
    paths = [pathlib.Path(path) for path in _prerequisites(_run(command))]
    if not paths:
        raise RuntimeError(f"{shlex.join(map(str, command))}\nit prints no list of headers; expected a compiler")
    unread = [path for path in paths if not path.is_file()]
    if unread:  # a compiler that leaves tabs as they are, or writes '/' for a backslash
        raise RuntimeError(
            f"build: {file}: the compiler names {str(unread[0])!r}, which is no file, among the headers that it includes"
        )
    return b"".join(path.name.encode() + b"\0" + path.read_bytes() + b"\0" for path in paths)


class _Plain:
    """Paths for nvcc or hipcc, which hand them to a shell: a folder with a sign of the shell's has a link without."""

    def __init__(self, folder, compiler):
        self.folder, self.compiler, self.links = pathlib.Path(folder), compiler, {}

    def __call__(self, path):
        path = pathlib.Path(path).absolute()
        if not set(str(path)) & set('$`"\\'):
            return path
        if set(path.name) & set('$`"\\'):
            raise ValueError(f'build: {path}; {self.compiler} takes no file with one of $ ` " \\ in its name')
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
        raise ValueError(f"build: {_shown(unknown) or 'no source'}; expected sources that end in {', '.join(_SUFFIXES)}")
    if all(f.suffix == ".comp" for f in files):
        raise ValueError(f"build: {_shown(files)}; expected a source in C++ beside shaders, with NARROWS_VULKAN_PLUGIN")
    for f in files:
        if not f.is_file():
            raise FileNotFoundError(f"build: {str(f)!r} {'is no file' if f.exists() else 'does not exist'}")
    return files


def _shown(files):
    return ", ".join(repr(str(f)) for f in files)


def _shader_command(include):
    """What compiles the shader whose path follows, and prints its module: glslc, else the library that the vulkan backend opens."""
    if "GLSLC" in os.environ or shutil.which(_COMPILERS["GLSLC"]):
        return [*_compiler("GLSLC"), *_GLSLC_FLAGS, "-I", include, "-o", "-"]
    backends = [pathlib.Path(b["path"]) for b in _narrows.backends() if b["name"] == "vulkan"]
    own = [path.with_name("libnarrows_shaderc.so") for path in backends]  # where the distribution's cannot be opened
    return [sys.executable, "-I", pathlib.Path(__file__).with_name("_shaderc.py"), include, *own]


def _write_words(shader, folder):
    """Compiles times.comp into times.comp.h: ``constexpr uint32_t times[]``, its SPIR-V module."""
    name = shader.stem
    if not name.isidentifier():
        raise ValueError(f"build: {shader}; expected a shader whose name is an identifier, as times.comp")
    words = _run([*_shader_command(_ops.get_include()), shader.absolute()])
    header = folder / f"{shader.name}.h"
    header.write_text(f"#include <cstdint>\nconstexpr std::uint32_t {name}[] = {{\n{words}}};\n")


def build(files, name=None, flags=(), verbose=False):
    """Compiles C, C++ or CUDA sources into a plugin and returns its path; what was compiled before, with the same
    headers and compiler, is not compiled again.

    ``files``: one or several paths, of which one holds ``narrows_plugin_query``. A shader ``times.comp`` in GLSL becomes a header
    ``times.comp.h`` with its SPIR-V module, ``constexpr uint32_t times[]``, which sources in C++ include. ``name``: the file becomes
    ``narrows_<name>.so``, by default named as the first source. ``flags``: more of the compiler's, not of glslc's. The compilers are
    CC, CXX, NVCC, HIPCC and GLSLC of the environment, else cc, c++, nvcc, hipcc, glslc. Where there is no glslc, libshaderc compiles
    shaders. Paths may hold spaces, $ and :.

    hipcc compiles the sources in CUDA where backends serve AMD's GPUs and none serves NVIDIA's, for the GPUs that are there. Where the
    environment sets NVCC or HIPCC, that one does. ``flags=["--offload-arch=gfx90a"]`` names other GPUs.

    RuntimeError: there is no compiler, or it fails, or takes longer than NARROWS_COMPILE_SECONDS (600); the message holds its own words.
    FileNotFoundError: a source does not exist. OSError: the cache folder, NARROWS_CACHE_DIR, cannot be written.

        >>> import narrows
        >>> narrows.build("my_op.rs")
        Traceback (most recent call last):
        ...
        ValueError: build: 'my_op.rs'; expected sources that end in .c, .cc, .cpp, .cxx, .cu, .comp
    """
    files = _checked(files, name, flags)
    shaders, files = [f for f in files if f.suffix == ".comp"], [f for f in files if f.suffix != ".comp"]
    kinds = {_SUFFIXES[f.suffix] for f in files}
    first = next(k for k in ("NVCC", "CXX", "CC") if k in kinds)
    kind = "HIPCC" if first == "NVCC" and _hip.is_meant() else first
    command = _compiler(kind)
    own, includes = _NVCC_FLAGS if kind == "NVCC" else _FLAGS, [_ops.get_include()]
    last: list[str] = []  # behind all other flags
    if kind == "HIPCC":  # it is told what nvcc knows: the runtime's header, which is one of those with CUDA's names
        own, last = [*own, "-include", "cuda_runtime.h", *_hip.targets(flags)], ["-x", "hip"]
        includes.append(f"{includes[0]}/narrows/hip")
    # nvcc 13.0 aborts in C++20's headers of g++ 12; it takes plugin.hpp, designated initializers included, as C++17 too.
    standard = {"CXX": ["-std=c++20"], "NVCC": ["-std=c++17"], "HIPCC": ["-std=c++17"], "CC": ["-std=c11"]}[kind]
    version = _run([*command, "--version"], check=False)
    digest = hashlib.sha256(repr((command, version, standard, [*own, *includes, *flags], _narrows.abi())).encode())
    with tempfile.TemporaryDirectory() as folder:
        # Absolute, so that no name is taken for an option.
        path = _Plain(folder, _COMPILERS[kind]) if kind in ("NVCC", "HIPCC") else pathlib.Path.absolute
        command = [*command, *standard, *own, *(f"-I{path(pathlib.Path(i))}" for i in includes), *flags]
        for shader in shaders:
            _write_words(shader, pathlib.Path(folder))
        command += [*([f"-I{folder}"] if shaders else []), *last]
        sources = [path(f) for f in files]
        for f in sources:  # of hipcc, which compiles a source for each GPU and for the host, the host's
            digest.update(_content([*command, "--cuda-host-only"] if kind == "HIPCC" else command, f))
        library = _cache() / digest.hexdigest()[:24] / f"narrows_{name or files[0].stem}.so"
        if not library.exists():
            _compile([*command, *sources], library, path, verbose)
    return str(library)


def _compile(command, library, path, verbose):
    with _kept_in(library.parent):
        library.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(dir=library.parent)
    with folder as made_in:
        made = pathlib.Path(made_in) / "made.so"
        command = [*command, "-o", path(made)]
        if verbose:
            print(shlex.join(map(str, command)))
        _run(command)
        if not made.is_file():
            raise RuntimeError(f"{shlex.join(map(str, command))}\nexited with status 0 but wrote no file; expected a compiler")
        with _kept_in(library.parent):
            os.replace(made, library)  # whoever builds the same at the same time gets a whole file


@contextlib.contextmanager
def _kept_in(folder):
    try:
        yield
    except OSError as error:
        words = (
            f"build: plugins cannot be kept in {folder}: {error.strerror}; set NARROWS_CACHE_DIR to a folder that can be written"
        )
        raise type(error)(error.errno, words) from None


def load_inline(
    name,
    cpp_sources="",
    cuda_sources="",
    flags=(),
    verbose=False,
    *,
    vulkan_sources="",
    shaders=types.MappingProxyType({}),
    headers=types.MappingProxyType({}),
):
    '''Compiles plugins from source text, loads them, and returns their ops by their short names.

    ``cpp_sources``, ``cuda_sources`` and ``vulkan_sources``: a text or several. Those in CUDA serve AMD's GPUs too: see :func:`build`.
    Those for C++ and those for CUDA together are one plugin, of which one text holds ``narrows_plugin_query``, or ``NARROWS_PLUGIN`` of
    ``<narrows/plugin.hpp>``; where both hold one, they are two. ``vulkan_sources`` is C++ with ``NARROWS_VULKAN_PLUGIN`` of ``<narrows/plugin_vulkan.hpp>``, a plugin of its own, and
    ``shaders`` its shaders: ``{"times": GLSL}``, of which :func:`build` makes ``times.comp.h``. ``headers``: ``{"scale.h": text}``, for
    sources to include. So one declaration in a header serves three devices: ``examples/three_devices.py``.

    Of several versions of an op the short name is the newest's. Where the same name, or another, brings an op again, op objects that
    were made before raise RuntimeError; programs that torch or JAX compiled call ops by name and compute what the new one does. Errors:
    those of :func:`build` and ``narrows.load``; ValueError: ops of two vendors have one short name, or an op has no vendor.

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
    cpp, cuda, vulkan = (
        _texts(argument, given)
        for argument, given in (("cpp_sources", cpp_sources), ("cuda_sources", cuda_sources), ("vulkan_sources", vulkan_sources))
    )
    shaders, headers = _named_texts("shaders", shaders), _named_texts("headers", headers)
    if shaders and not vulkan:
        raise ValueError(f"load_inline: shaders has {', '.join(shaders)}, and vulkan_sources nothing that runs them")
    if not (cpp or cuda or vulkan):
        raise ValueError("load_inline: no source; expected cpp_sources, cuda_sources or vulkan_sources")
    cpp, cuda, vulkan = [(".cpp", t) for t in cpp], [(".cu", t) for t in cuda], [(".cpp", t) for t in vulkan]
    apart = all(any(_QUERY.search(text) for _, text in sources) for sources in (cpp, cuda))
    parts = [cpp, cuda] if apart else [cpp + cuda]
    groups: list = [(texts, {}) for texts in parts if texts]
    groups += [(vulkan, shaders)] if vulkan else []
    loaded = [_load_texts(name, texts, own, headers, flags, verbose) for texts, own in groups]
    if len({plugin for plugin, _ in loaded}) < len(loaded):
        raise ValueError(
            f"load_inline: {name}: two of its plugins are named {loaded[-1][0]!r}; expected a name for each device, as '{name}_cuda'"
        )
    names = [op for _, ops in loaded for op in ops]
    return _Loaded(**{key: _ops.op(full) for key, full in _short_names(name, names).items()})


class _Loaded(types.SimpleNamespace):
    """What load_inline gives: a plugin's ops by their short names."""

    def __getattr__(self, name):
        ops = vars(self)
        raise AttributeError(f"the plugin has no op '{name}'; it has {', '.join(ops)}{_errors.near(name, list(ops))}")


def _texts(argument, given):
    """Those of load_inline's sources that are not empty; TypeError."""
    if not isinstance(given, Iterable) or not all(isinstance(text, str) for text in given):
        raise TypeError(f"load_inline: {argument} = {given!r}; expected a text or several")
    return [text for text in ([given] if isinstance(given, str) else given) if text]


def _named_texts(argument, given):
    """Texts by name: shaders and headers; TypeError, ValueError."""
    if not isinstance(given, Mapping) or not all(isinstance(text, str) for pair in given.items() for text in pair):
        raise TypeError(f"load_inline: {argument} = {given!r}; expected a dict of texts by name")
    for name in given:
        if not re.fullmatch(r"[\w.+-]+", name) or name in (".", ".."):
            raise ValueError(f"load_inline: {argument} has {name!r}; expected the name of a file, without a folder")
    return dict(given)


def _load_texts(name, texts, shaders, headers, flags, verbose):
    """Compiles and loads one plugin; its name, and the full names of its ops."""
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        sources = {f"{name}_{i}{suffix}": text for i, (suffix, text) in enumerate(texts)}
        sources.update({f"{shader}.comp": text for shader, text in shaders.items()})
        for file, text in (*sources.items(), *headers.items()):
            (folder / file).write_text(text)
        library = build([folder / file for file in sources], name, flags, verbose)
    if not _comes_first(library):  # another with its ops may have come since
        _ops.load(library)
    backend = next(b for b in _narrows.backends() if b["path"] == library)
    usable = backend["status"] == "ok" and not backend["shadowed"]  # else the reason is another one
    left_out = backend["reason"] if usable else "" if backend["ops"] else "it has no op that this narrows knows"
    if left_out:  # an op without a vendor is taken for a built-in one
        raise ValueError(f"load_inline: {name}: {left_out}; expected ops that are named like 'vendor.name/1'")
    return backend["name"], [op["name"] for op in backend["ops"]]


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
