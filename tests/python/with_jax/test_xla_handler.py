# SPDX-License-Identifier: Apache-2.0
"""libnarrows_xla: its handlers and the structs of XLA's that they read."""

import ctypes
import pathlib
import subprocess

import pytest

pytest.importorskip("jax", reason="JAX is not installed; ./run check python installs it")
from narrows import _xla


def test_the_handlers_structs_are_jaxlibs():
    include = pathlib.Path(_xla.ffi().include_dir())
    source = pathlib.Path(__file__).parents[3] / "bindings" / "xla" / "src"
    pairs = {
        "CallFrame": ("XLA_FFI_CallFrame", "api ctx:context stage args:arguments rets:results attrs:attributes"),
        "Buffer": ("XLA_FFI_Buffer", "dtype data rank dims"),
        "Tensors": ("XLA_FFI_Args", "size types args:buffers"),
        "Attributes": ("XLA_FFI_Attrs", "size types names attrs:values"),
        "Array": ("XLA_FFI_Array", "dtype size data"),
        "Text": ("XLA_FFI_ByteSpan", "ptr:data len:size"),
        "Metadata": ("XLA_FFI_Metadata", "api_version:version traits"),
        "Version": ("XLA_FFI_Api_Version", "major_version:major minor_version:minor"),
        "ErrorCreate": ("XLA_FFI_Error_Create_Args", "message errc:code"),
        "StreamGet": ("XLA_FFI_Stream_Get_Args", "ctx:context stream"),
        "MemoryAllocate": ("XLA_FFI_DeviceMemory_Allocate_Args", "ctx:context size alignment data"),
        "MemoryFree": ("XLA_FFI_DeviceMemory_Free_Args", "ctx:context size data"),
        "OrdinalGet": ("XLA_FFI_DeviceOrdinal_Get_Args", "ctx:context device_ordinal:ordinal"),
        "Api": ("XLA_FFI_Api", "XLA_FFI_Error_Create:error_create XLA_FFI_Stream_Get:stream_get XLA_FFI_DeviceMemory_Allocate:memory_allocate "
                "XLA_FFI_DeviceMemory_Free:memory_free XLA_FFI_DeviceOrdinal_Get:ordinal_get"),
        "MetadataExtension": ("XLA_FFI_Metadata_Extension", "metadata"),
        "Extension": ("XLA_FFI_Extension_Base", "type next"),
    }  # fmt: skip
    header = (include / "xla" / "ffi" / "api" / "c_api.h").read_text()
    lines = []
    for ours, (theirs, fields) in pairs.items():
        for field in fields.split():
            their_name, _, our_name = field.partition(":")
            if theirs not in header or their_name not in header:  # an older jaxlib has no device ordinal
                continue
            lines.append(
                f"static_assert(offsetof(narrows::xla::{ours}, {our_name or their_name}) == offsetof({theirs}, {their_name}));"
            )
    assert len(lines) > 35
    text = '#include "xla/ffi/api/c_api.h"\n#include "xla_ffi.h"\n' + "\n".join(lines)
    command = ["c++", "-std=c++20", "-fsyntax-only", "-x", "c++", f"-I{include}", f"-I{source}", "-"]
    subprocess.run(command, input=text, text=True, check=True)
    wrong = text.replace("narrows::xla::Buffer, data)", "narrows::xla::Buffer, rank)")
    assert wrong != text and subprocess.run(command, input=wrong, text=True, capture_output=True).returncode != 0


def test_the_handler_answers_for_version_0_1_and_refuses_other_stages():
    handlers = ctypes.CDLL(_xla.library())

    class Metadata(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("version_size", ctypes.c_size_t), ("next", ctypes.c_void_p), ("major", ctypes.c_int), ("minor", ctypes.c_int), ("traits", ctypes.c_uint32)]  # fmt: skip

    class Extension(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("type", ctypes.c_int), ("next", ctypes.c_void_p), ("metadata", ctypes.c_void_p)]

    class Frame(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("extensions", ctypes.c_void_p), ("rest", ctypes.c_byte * 256)]

    names = {"cpu": 0, "cuda": 0, "cuda_capturable": 1, "rocm": 0, "rocm_capturable": 1}
    for name, traits in names.items():
        metadata = Metadata(major=9, minor=9, traits=9)
        extension = Extension(32, 1, None, ctypes.addressof(metadata))
        frame = Frame(ctypes.sizeof(Frame), ctypes.addressof(extension))
        handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)((f"nw_xla_{name}", handlers))
        assert handler(ctypes.addressof(frame)) is None
        assert (metadata.major, metadata.minor, metadata.traits) == (0, 1, traits)
