# SPDX-License-Identifier: Apache-2.0
"""Models that torch loads. One that calls an op, or gives it an argument, that this narrows does not have is refused, with words that say
where plugins were looked for. torch's own name no folder, and of an exported model it drops such an argument."""

import functools
import json
import re
import zipfile
from typing import Any

import torch

from narrows import _narrows, _ops, _programs, _torch_library, _when

_OF_SCRIPT = re.compile(r"Unknown builtin op: narrows::(\w+)|narrows::(\w+)\([^\n]*\n(?:Unknown k|K)eyword argument '?(\w+)")


def missing(name):
    """Why torch.ops.narrows has no op of that name."""
    return (
        f"torch.ops.narrows has no op '{name}': it is none of narrows {_narrows.abi()[0]}, and {_ops.undeclared()}; "
        "narrows.load loads others"
    )


def _unknown(name, argument):
    return (
        f"the model gives narrows::{name} an argument '{argument}'; narrows {_narrows.abi()[0]} has none of that name; "
        "expected a later narrows, or a model that was saved by this one"
    )


def _calls(document):
    """(op, {name: argument}) of each call of ours in a JSON document of torch's."""
    if isinstance(document, dict):
        called = re.fullmatch(r"(?:torch\.ops\.narrows\.|narrows::)(\w+)(?:\.\w+)?", str(document.get("target")))
        if called:
            yield called[1], {given["name"]: given.get("arg") for given in document.get("inputs", ())}
        document = list(document.values())
    for part in document if isinstance(document, list) else ():
        yield from _calls(part)


def _refusal(file: Any):
    """Why an exported model or an AOTInductor package cannot be loaded, if it is one. A file object is left where it was."""
    if file is None:
        return None
    start = file.tell() if hasattr(file, "seek") else None
    try:
        return _lacking(file) if zipfile.is_zipfile(file) else None
    finally:
        if start is not None:
            file.seek(start)


def _lacking(file):
    """What this narrows does not have of the calls in it."""
    with zipfile.ZipFile(file) as archive:
        texts = [archive.read(name) for name in archive.namelist() if name.endswith(".json")]
    for name, given in (call for text in texts if b"narrows" in text for call in _calls(json.loads(text))):
        if not _torch_library.has(name):
            return missing(name)
        known = {a.name for a in getattr(torch.ops.narrows, name).default._schema.arguments}
        for argument in given:
            if argument not in known:
                return _unknown(name, argument)
        if name == "program" and isinstance(given.get("program"), dict):
            refusal = _unusable(given["program"].get("as_string"))
            if refusal is not None:
                return refusal
    return None


def _unusable(program):
    """Why a program that a model carries cannot be loaded, which it is here."""
    try:
        _programs.op_of(program)
    except (ValueError, RuntimeError) as error:
        return f"the model has a tensor program that cannot be loaded: {error}"
    return None


def _checked(load):
    """Of an archive whose calls can be read before it is loaded."""

    @functools.wraps(load)
    def loaded(*args, **kwargs):
        refusal = _refusal(args[0] if args else kwargs.get("f", kwargs.get("path")))
        if refusal is not None:
            raise RuntimeError(refusal)
        return load(*args, **kwargs)

    return loaded


def _explained(load):
    """Of TorchScript, which torch refuses itself."""

    @functools.wraps(load)
    def loaded(*args, **kwargs):
        try:
            return load(*args, **kwargs)
        except RuntimeError as error:
            found = _OF_SCRIPT.search(str(error))
            if found is None:
                raise
            raise RuntimeError(missing(found[1]) if found[1] else _unknown(found[2], found[3])) from error

    return loaded


def watch():
    """Puts these checks around torch's functions that load models."""
    torch.jit.load = _explained(torch.jit.load)
    torch.export.load = _checked(torch.export.load)

    def compiled():
        torch._inductor.aoti_load_package = _checked(torch._inductor.aoti_load_package)

    _when.imported("torch._inductor", compiled)
