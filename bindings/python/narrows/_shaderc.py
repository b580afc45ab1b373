# SPDX-License-Identifier: Apache-2.0
"""Compiles a shader by libshaderc, for machines without glslc: ``python _shaderc.py INCLUDE [LIBRARY] SHADER`` prints the numbers of
its SPIR-V module, as ``glslc -mfmt=num`` does. A process of its own, so that a compiler that crashes or hangs is one that failed."""

import ctypes
import os
import pathlib
import struct
import sys

_NAMES = ["libshaderc.so.1", "libshaderc_shared.so.1"]  # Debian's, and that of the Vulkan SDK
_VULKAN, _VULKAN_1_2, _FOR_SPEED, _COMPUTE = 0, 1 << 22 | 2 << 12, 2, 2  # of shaderc.h
_Pointer, _Text, _Size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t


class _Included(ctypes.Structure):
    _fields_ = (("name", _Text), ("name_size", _Size), ("text", _Text), ("text_size", _Size), ("user_data", _Pointer))


_Include = ctypes.CFUNCTYPE(_Pointer, _Pointer, _Text, ctypes.c_int, _Text, _Size)
_Release = ctypes.CFUNCTYPE(None, _Pointer, _Pointer)


def _open(own):
    """The library that the vulkan backend opens for tensor programs."""
    named = os.environ.get("NARROWS_SHADERC")
    reasons = []
    for name in [named] if named else [*_NAMES, *own]:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            reasons.append(str(error))
    return sys.exit(f"no glslc is on PATH, and shaderc cannot be opened ({'; '.join(reasons)}); install glslc, or set GLSLC")


class _Shaderc:
    def __init__(self, library):
        self.library = library

    def __call__(self, name, result, *arguments):
        """Calls shaderc_NAME. The library of Narrows' own build has shaderc's functions behind one."""
        types = [type(a) for a in arguments]
        try:
            find = self.library.narrows_shaderc_function
        except AttributeError:
            function = getattr(self.library, f"shaderc_{name}")
            function.restype, function.argtypes = result, types
        else:
            find.restype, find.argtypes = _Pointer, [_Text]
            function = ctypes.CFUNCTYPE(result, *types)(find(f"shaderc_{name}".encode()))
        return function(*arguments)


def _compile(shaderc, shader, folder):
    kept = []  # what is included, while it is read

    @_Include
    def include(_, wanted, kind, asking, depth):
        beside = [os.path.dirname(os.fsdecode(asking))] if kind == 0 else []
        paths = [pathlib.Path(f, os.fsdecode(wanted)) for f in (*beside, folder)]
        path = next((p for p in paths if p.is_file()), None)
        name, text = (b"", b"there is no such file") if path is None else (os.fsencode(path), path.read_bytes())
        kept.append(_Included(name, len(name), text, len(text), None))
        return ctypes.addressof(kept[-1])

    release = _Release(lambda *_: None)
    options = _Pointer(shaderc("compile_options_initialize", _Pointer))
    shaderc("compile_options_set_target_env", None, options, ctypes.c_int(_VULKAN), ctypes.c_uint32(_VULKAN_1_2))
    shaderc("compile_options_set_optimization_level", None, options, ctypes.c_int(_FOR_SPEED))
    shaderc("compile_options_set_include_callbacks", None, options, include, release, _Pointer())
    compiler = _Pointer(shaderc("compiler_initialize", _Pointer))
    text = shader.read_bytes()
    words = (_Text(text), _Size(len(text)), ctypes.c_int(_COMPUTE), _Text(os.fsencode(shader)), _Text(b"main"))
    result = _Pointer(shaderc("compile_into_spv", _Pointer, compiler, *words, options))
    if shaderc("result_get_compilation_status", ctypes.c_int, result) != 0:
        sys.exit(shaderc("result_get_error_message", _Text, result).decode(errors="replace"))
    return ctypes.string_at(shaderc("result_get_bytes", _Pointer, result), shaderc("result_get_length", _Size, result))


if __name__ == "__main__":
    folder, *own, shader = sys.argv[1:]
    code = _compile(_Shaderc(_open(own)), pathlib.Path(shader), folder)
    print(*struct.unpack(f"={len(code) // 4}I", code), sep=",\n")
