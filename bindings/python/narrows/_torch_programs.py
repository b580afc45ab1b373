# SPDX-License-Identifier: Apache-2.0
"""torch: a call of a tensor program is ``torch.ops.narrows.program``, which takes the program itself: what docs/programs.md, "In saved
models", has. So a process that loads a saved model needs nothing else. Its kernels are those of the op that the program is.
"""

from typing import Any

import torch

from narrows import _programs, _torch_ops

_SCHEMA = (
    "program(Tensor[] tensors, str program, *, SymInt[] integers=[], float[] reals=[], int present=-1, int wanted=-1) -> Tensor[]"
)


class Program(_torch_ops._Registered):
    """A program as an op. Where torch's dispatcher sees a call of it, that is a call of ``program``."""

    is_listed = True

    def defined(self):
        """The op of torch: that of all programs."""
        return _Call(self)

    def node(self, inputs, params) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """The call as a graph has it: torch's op, its arguments, and those by name."""
        inputs = self.filled(inputs)
        present = sum(1 << i for i, x in enumerate(inputs) if x is not None)
        named = self.numbers({n: v for n, v in params.items() if n != "wanted" and v is not None})
        if present != (1 << len(inputs)) - 1:
            named["present"] = present
        if "wanted" in params:
            named["wanted"] = params["wanted"]
        return _program, ([x for x in inputs if x is not None], _programs.saved(self.op.op)), named

    def numbers(self, given) -> dict[str, Any]:
        """Values of params, those that are not given too, as the op of torch takes them."""
        if not given:
            return {}
        every = {**self.op.params, **given}
        split: dict[str, list[Any]] = {"integers": [], "reals": []}
        for name, kind, *_ in self.op.fields:
            split["reals" if kind == "float" else "integers"].append(every[name])
        return {name: values for name, values in split.items() if values}

    def named(self, integers, reals):
        """The same, by the names of the params."""
        found = {}
        for argument, values, is_float in (("integers", integers, False), ("reals", reals, True)):
            fields = [(name, kind) for name, kind, *_ in self.op.fields if (kind == "float") == is_float]
            if values:  # AOTInductor gives None for an empty list
                _require_count(self, argument, values, len(fields), "one for each param of that kind, or none for the defaults")
                found.update({name: bool(v) if kind == "bool" else v for (name, kind), v in zip(fields, values, strict=True)})
        return found


class _Call:
    """Called as an op of torch: with the inputs, None where one is absent, and the params by name."""

    def __init__(self, reg):
        self.reg = reg

    def __call__(self, *inputs, **params):
        op, arguments, named = self.reg.node(inputs, params)
        return self.reg.as_returned(tuple(op(*arguments, **named)))

    def redispatch(self, keyset, *inputs, **params):
        """As OpOverload has it."""
        op, arguments, named = self.reg.node(inputs, params)
        return self.reg.as_returned(tuple(op.redispatch(keyset, *arguments, **named)))


def of(program) -> Program:
    """The op of what a graph has."""
    found: Any = _torch_ops.registered(_programs.op_of(program))
    return found


def _require_count(reg, argument, given, count, meaning):
    if len(given) != count:
        raise ValueError(f"{reg.op.op}: {argument} has {len(given)} values; expected {count}, {meaning}")


def op():
    """torch's op of all programs."""
    return _program


def unpacked(reg, tensors, integers=(), reals=(), present=-1, wanted=-1):
    """The inputs, None where one is absent, and the params by name, of a call of ``program``."""
    places = [i for i in range(len(reg.inputs)) if present >> i & 1]
    _require_count(reg, "tensors", tensors, len(places), "one for each input that is present")
    given = dict(zip(places, tensors, strict=True))
    params = reg.named(integers, reals)
    if reg.masked:
        params["wanted"] = wanted
    return [given.get(i) for i in range(len(reg.inputs))], params


def _forwarded(method, keyset, tensors, program, integers=(), reals=(), present=-1, wanted=-1):
    """A kernel of ``program``: that of the op."""
    reg = of(program)
    inputs, params = unpacked(reg, tensors, integers, reals, present, wanted)
    outputs = getattr(reg, method)(*keyset, *inputs, **params)
    return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)


def _kernel(method):
    return lambda *arguments, **named: _forwarded(method, (), *arguments, **named)


def _with_keyset(keyset, *arguments, **named):
    return _forwarded("differentiable", (keyset,), *arguments, **named)


_program: Any = _torch_ops.define(
    "program",
    _SCHEMA,
    run=_kernel("run"),
    differentiable=_with_keyset,
    transformed=_kernel("transformed"),
    fake=_kernel("fake"),
)
