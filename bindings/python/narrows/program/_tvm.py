# SPDX-License-Identifier: Apache-2.0
"""from_tvm: TVM's functions as programs. TVM prints them in TVMScript, which script.py runs; TVM itself is not imported."""

from __future__ import annotations

import ast
import sys
import traceback
from typing import Any, NoReturn

from narrows.program._function import PrimFunc
from narrows.program.ir import IRModule

_FILE = "<TVMScript>"


def _script(function: Any) -> str:
    """What TVM prints of its object; a TypeError of anything else."""
    kind = type(function)
    is_tvm = kind.__module__.partition(".")[0] == "tvm" and kind.__name__ in ("PrimFunc", "IRModule", "Schedule")
    if not is_tvm:
        there = "" if "tvm" in sys.modules else "; TVM is not imported: pip install apache-tvm"
        raise TypeError(f"from_tvm: {function!r}; expected a PrimFunc, an IRModule or a Schedule of TVM{there}")
    return str((function.mod if kind.__name__ == "Schedule" else function).script())


class _Sizes(ast.NodeTransformer):
    """TVM prints a size in several ways: ``("n", 8)`` or ``(n, 8)`` in an argument's shape, ``n = T.int32()`` in the body, or
    ``n = TypeVar("n")`` above. Here each is a name that stands for the whole text."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        for argument in node.args.args:
            for call in ast.walk(argument):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "T.Buffer" and call.args:
                    call.args[0] = _Unquoted().visit(call.args[0])
                    self.names |= {part.id for part in ast.walk(call.args[0]) if isinstance(part, ast.Name) and part.id != "T"}
        node.body = [statement for statement in node.body if not self._defines_sizes(statement)]
        return node

    def _defines_sizes(self, statement: ast.stmt) -> bool:
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            return False
        target, value = statement.targets[0], statement.value
        named = target.elts if isinstance(target, ast.Tuple) else [target]
        values = value.elts if isinstance(value, ast.Tuple) else [value]
        return all(isinstance(each, ast.Name) and each.id in self.names for each in named) and all(
            ast.unparse(each).startswith(("T.int32(", "T.int64(")) for each in values
        )


class _Conditions(ast.NodeTransformer):
    """TVM prints ``a and b``, which Python would decide while the function runs: here it is ``T.And(a, b)``."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        return self._call("And" if isinstance(node.op, ast.And) else "Or", node.values)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return self._call("Not", [node.operand]) if isinstance(node.op, ast.Not) else node

    @staticmethod
    def _call(name: str, operands: list[ast.expr]) -> ast.Call:
        return ast.Call(ast.Attribute(ast.Name("T", ast.Load()), name, ast.Load()), operands, [])


class _Unquoted(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.parse(node.value, mode="eval").body if isinstance(node.value, str) else node


def _refuse(text: str, error: Exception) -> NoReturn:
    """Says which line of TVM's text it was."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _FILE and frame.lineno]
    number = lines[-1] if lines else getattr(error, "lineno", None)
    where = f"line {number}, '{text.splitlines()[number - 1].strip()}': " if number else ""
    kind = ValueError if isinstance(error, ValueError) else NotImplementedError
    raise kind(f"from_tvm: {where}{error}") from error


def from_tvm(function: Any) -> PrimFunc | IRModule:
    """A program of a PrimFunc of TVM; of a module or a schedule of TVM with several functions a module.

    Functions of ``tvm.script.tir`` and of ``tvm.script.tirx`` are taken. The loops are as TVM has them: it is a schedule that
    :class:`Schedule` goes on from, and ``build()`` puts the default one behind it. NotImplementedError names what a program has no
    word for, with TVM's line. ValueError: the program has no meaning, as where it reads out of bounds.
    """
    from narrows.program import ir, script

    text = _script(function)
    names: dict[str, Any] = {"T": script, "I": ir, "__name__": _FILE, "TypeVar": lambda name: script.Var(name, "int64")}
    try:
        sizes = _Sizes()
        tree = ast.fix_missing_locations(_Conditions().visit(sizes.visit(ast.parse(text))))
        names |= {name: script.Var(name, "int64") for name in sizes.names}
        before = set(names)
        exec(compile(tree, _FILE, "exec"), names)
        found = [names[name] for name in names if name not in before and isinstance(names[name], (PrimFunc, IRModule))]
    except Exception as error:
        _refuse(text, error)
    if len(found) != 1:
        raise NotImplementedError(f"from_tvm: TVM prints {len(found)} functions and modules; expected one")
    module: PrimFunc | IRModule = found[0]
    return module if isinstance(module, PrimFunc) or len(module) > 1 else module.only()
