# SPDX-License-Identifier: Apache-2.0
"""from_tvm: TVM's functions as programs. TVM prints them in TVMScript, which script.py runs; TVM itself is not imported."""

from __future__ import annotations

import ast
import sys
import traceback
from typing import Any, NoReturn

from narrows.program import _expressions
from narrows.program._function import PrimFunc
from narrows.program._types import DType
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


class _Promises(ast.NodeTransformer):
    """``align=8, offset_factor=1`` of a buffer: TVM may rely on them, and no program does."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if ast.unparse(node.func).lower().endswith("buffer"):
            node.keywords = [word for word in node.keywords if word.arg not in ("align", "offset_factor")]
        return self.generic_visit(node)


class _Numbers(ast.NodeTransformer):
    """An argument that is a number, ``n: T.int32``. Here each has a default, and goes by keyword."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        numbers = [argument for argument in node.args.args if argument.annotation is not None and _is_dtype(argument.annotation)]
        node.args.args = [argument for argument in node.args.args if argument not in numbers]
        node.args.kwonlyargs += numbers
        node.args.kw_defaults += [ast.Constant(0)] * len(numbers)
        return node


def _is_dtype(annotation: ast.expr) -> bool:
    from narrows.program import script

    kind, _, name = ast.unparse(annotation).partition(".")
    return kind == "T" and isinstance(vars(script).get(name), DType)


class _Blocks(ast.NodeTransformer):
    """Blocks of TVM that are none here. One that reduces to several values, as argmax, names them (``v: T.let[T.int32] = x``): its
    axes keep their order. One without axes that holds loops, as cumsum, becomes those loops, with a block for each store."""

    def __init__(self) -> None:
        self._loops: dict[str, str] = {}  # around, with the kind of axis of each
        self._opaque = ""  # the name of the block without axes that is around
        self._stores = 0  # in it

    def visit_For(self, node: ast.For) -> ast.AST:
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        is_free = isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) in ("T.parallel", "T.vectorized")
        around = self._loops
        self._loops = around | {target.id: "S" if is_free else "C" for target in targets if isinstance(target, ast.Name)}
        self.generic_visit(node)
        self._loops = around
        return node

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        what, name = self._described(node)
        if what not in ("T.block", "T.sblock") or name == "root":
            return self.generic_visit(node)
        parts = [part for statement in node.body for part in ast.walk(statement)]
        if any(isinstance(part, ast.AnnAssign) for part in parts):
            in_order: ast.With = _InOrder().visit(node)
            return in_order
        if not any(isinstance(part, ast.For) for part in parts) or any(_is_axis(part) for part in parts):
            return node
        self._opaque, self._stores = name, 0
        inside: ast.With = self.generic_visit(node)  # type: ignore[assignment]
        self._opaque = ""
        return inside.body

    @staticmethod
    def _described(node: ast.With) -> tuple[str, str]:
        call = node.items[0].context_expr
        if not isinstance(call, ast.Call) or not call.args or not isinstance(call.args[0], ast.Constant):
            return "", ""
        return ast.unparse(call.func), str(call.args[0].value)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if not self._opaque or not isinstance(node.targets[0], ast.Subscript):
            return node
        used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        loops = {name: kind for name, kind in self._loops.items() if name in used}
        axes = ", ".join(f"at_{name}" for name in loops)
        suffix = f"_{self._stores}" if self._stores else ""
        self._stores += 1
        lines = [f"with T.block({self._opaque + suffix!r}):"]
        if loops:
            lines.append(f" {axes} = T.axis.remap({''.join(loops.values())!r}, [{', '.join(loops)}])")
        block = ast.parse("\n".join([*lines, " pass"])).body[0]
        assert isinstance(block, ast.With)
        block.body[-1] = _Renamed({name: f"at_{name}" for name in loops}).visit(node)
        for part in ast.walk(block):
            ast.copy_location(part, node)
        return block


def _is_axis(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith("T.axis.")


class _InOrder(ast.NodeTransformer):
    """R axes as C axes."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if _is_axis(node) and isinstance(node.func, ast.Attribute):
            node.func.attr = {"reduce": "scan", "R": "C"}.get(node.func.attr, node.func.attr)
            if node.func.attr == "remap" and isinstance(node.args[0], ast.Constant):
                node.args[0].value = str(node.args[0].value).replace("R", "C")
        return self.generic_visit(node)


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._names.get(node.id, node.id)
        return node


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

    Functions of ``tvm.script.tir`` and of ``tvm.script.tirx`` are taken. A number among the arguments goes by keyword, and is 0 unless
    given. The loops are as TVM has them: it is a schedule that
    :class:`Schedule` goes on from, and ``build()`` puts the default one behind it. NotImplementedError names what a program has no
    word for, with TVM's line. ValueError: the program has no meaning, as where it reads out of bounds.
    """
    from narrows.program import ir, script

    text = _script(function)
    names: dict[str, Any] = {"T": script, "I": ir, "__name__": _FILE, "TypeVar": lambda name: script.Var(name, "int64")}
    implicit = _expressions.casts_indices.set(True)
    try:
        sizes = _Sizes()
        tree = ast.parse(text)
        for change in (sizes, _Numbers(), _Promises(), _Blocks(), _Conditions()):
            tree = change.visit(tree)
        ast.fix_missing_locations(tree)
        names |= {name: script.Var(name, "int64") for name in sizes.names}
        before = set(names)
        exec(compile(tree, _FILE, "exec"), names)
        found = [names[name] for name in names if name not in before and isinstance(names[name], (PrimFunc, IRModule))]
    except Exception as error:
        _refuse(text, error)
    finally:
        _expressions.casts_indices.reset(implicit)
    if len(found) != 1:
        raise NotImplementedError(f"from_tvm: TVM prints {len(found)} functions and modules; expected one")
    module: PrimFunc | IRModule = found[0]
    return module if isinstance(module, PrimFunc) or len(module) > 1 else module.only()
