# SPDX-License-Identifier: Apache-2.0
"""Reads the derivatives of core/ops/elementwise_functions.toml, writes them in C++, and differentiates them once more for Python.

They are expressions in Python's syntax, of the operands a, b and c, the result `out`, its gradient `g`, what `let` of the row names, and
pi. Calls are of functions of the table; polynomial(z, p, q, ...) is p + q z + ... What has numbers alone is one number, by Python's math.
"""

import ast
import copy
import functools
import math
import operator

_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_COMPARISONS = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_ZERO, _ONE = ast.Constant(0), ast.Constant(1)


def _is(node, value):
    return isinstance(node, ast.Constant) and node.value == value


def _call(function, *arguments):
    return ast.Call(ast.Name(function), list(arguments), [])


def _binary(left, operation, right):
    """With what 0 and 1 make of it."""
    if isinstance(left, ast.Constant) and isinstance(right, ast.Constant):
        return ast.Constant(_ARITHMETIC[operation](left.value, right.value))
    if operation is ast.Add and _is(left, 0):
        return right
    if operation in (ast.Add, ast.Sub) and _is(right, 0):
        return left
    if operation is ast.Sub and _is(left, 0):
        return _minus(right)
    if operation is ast.Mult:
        left, right = (right, left) if isinstance(right, ast.Constant) and right.value in (-1, 0, 1) else (left, right)
        if isinstance(left, ast.Constant) and left.value in (-1, 0, 1):
            return _ZERO if left.value == 0 else right if left.value == 1 else _minus(right)
    if operation is ast.Div and (_is(left, 0) or _is(right, 1)):
        return left
    return ast.BinOp(left, operation(), right)


def _minus(node):
    if isinstance(node, ast.UnaryOp):
        return node.operand
    return ast.Constant(-node.value) if isinstance(node, ast.Constant) else ast.UnaryOp(ast.USub(), node)


class _Built(ast.NodeTransformer):
    """The same expression with other nodes for some names, and with numbers folded."""

    def __init__(self, names):
        self.names = names

    def visit_Name(self, node):
        return self.names.get(node.id, node)

    def visit_BinOp(self, node):
        return _binary(self.visit(node.left), type(node.op), self.visit(node.right))

    def visit_UnaryOp(self, node):
        return _minus(self.visit(node.operand))

    def visit_Call(self, node):
        function, arguments = node.func.id, [self.visit(a) for a in node.args]
        if function == "polynomial":
            z, *coefficients = arguments
            return functools.reduce(lambda sum, p: _binary(_binary(sum, ast.Mult, z), ast.Add, p), reversed(coefficients))
        if all(isinstance(a, ast.Constant) for a in arguments):
            return ast.Constant(getattr(math, function)(*(a.value for a in arguments)))
        return _call(function, *arguments)


def parse(text):
    return _Built({"pi": ast.Constant(math.pi)}).visit(ast.parse(text, mode="eval").body)


# ---- C++ for core/program/derivative.cpp ----


class _Cpp(ast.NodeTransformer):
    def visit_Name(self, node):
        return ast.Name(f"x.{node.id}") if node.id in ("a", "b", "c", "out", "g") else node

    def visit_Constant(self, node):
        return ast.Name(f"x.number({node.value!r})")

    def visit_Compare(self, node):
        return _call("f", ast.Constant(_COMPARISONS[type(node.ops[0])]), self.visit(node.left), self.visit(node.comparators[0]))

    def visit_BoolOp(self, node):
        name = "both" if isinstance(node.op, ast.And) else "either"
        return functools.reduce(functools.partial(_call, name), map(self.visit, node.values))

    def visit_Call(self, node):
        arguments = [self.visit(a) for a in node.args]
        return _call("where", *arguments) if node.func.id == "where" else _call("f", ast.Constant(node.func.id), *arguments)


def _cpp(text):
    return ast.unparse(_Cpp().visit(parse(text))).replace("'", '"')


def cpp_rule(name, row):
    """A line of derivative.cpp's table."""
    named = "".join(f"const ExprPtr {key} = {_cpp(text)}; " for key, text in row.get("let", {}).items())
    made = ", ".join("nullptr" if text == "0" else _cpp(text) for text in row["derivatives"])
    call = "const Call& x" if "x." in named + made else "const Call&"
    return f'{{"{name}", []({call}) {{ {named}return Gradients{{{made}}}; }}}},'


# ---- the second derivatives, for Python ----


class _Python(ast.NodeTransformer):
    """Functions by their name in the package, and conditions of arrays."""

    def __init__(self, rows):
        self.rows = rows

    def visit_BoolOp(self, node):
        operation = ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr()
        return functools.reduce(lambda a, b: ast.BinOp(a, operation, b), map(self.visit, node.values))

    def visit_Call(self, node):
        return ast.Call(_call("_F", ast.Constant(self.rows[node.func.id]["python"])), [self.visit(a) for a in node.args], [])


class Second:
    """Differentiates the derivatives of a row."""

    def __init__(self, rows, name):
        self.rows, self.row = rows, rows[name]
        self.operands = ("a", "b", "c")[: len(self.row["derivatives"])]
        self.let = {key: parse(text) for key, text in self.row.get("let", {}).items()}
        self.out = _call(name, *map(ast.Name, self.operands))

    def python(self):
        """{(i, j): a lambda's text} of the operands by which it is not 0."""
        found = {}
        for i, text in enumerate(self.row["derivatives"]):
            for j in range(i, len(self.operands)):
                node = self.inlined(self.by(self.operands[j], _Built({"g": _ONE}).visit(parse(text))))
                if not _is(node, 0):
                    node = ast.Constant(float(node.value)) if isinstance(node, ast.Constant) else copy.deepcopy(node)
                    formula = ast.unparse(_Python(self.rows).visit(node)).replace("'", '"')
                    found[i, j] = f"lambda {', '.join(self.operands[:2])}: {formula}"
        return found

    def inlined(self, node):
        for key in reversed(self.let):
            node = _Built({key: self.let[key]}).visit(node)
        return _Built({"out": self.out}).visit(node)

    def by(self, operand, node):
        """The derivative of an expression by an operand."""
        if isinstance(node, (ast.Constant, ast.Compare, ast.BoolOp)):
            return _ZERO
        if isinstance(node, ast.Name):
            if node.id in self.let:
                return self.by(operand, self.let[node.id])
            if node.id == "out":
                return _Built({"g": _ONE}).visit(parse(self.row["derivatives"][self.operands.index(operand)]))
            return _ONE if node.id == operand else _ZERO
        if isinstance(node, ast.UnaryOp):
            return _minus(self.by(operand, node.operand))
        if isinstance(node, ast.BinOp):
            return self.by_arithmetic(operand, node)
        return self.by_call(operand, node)

    def by_arithmetic(self, operand, node):
        left, right = self.by(operand, node.left), self.by(operand, node.right)
        if isinstance(node.op, (ast.Add, ast.Sub)):
            return _binary(left, type(node.op), right)
        if isinstance(node.op, ast.Mult):
            return _binary(_binary(left, ast.Mult, node.right), ast.Add, _binary(node.left, ast.Mult, right))
        change = (
            left if _is(right, 0) else _binary(left, ast.Sub, _binary(_binary(node.left, ast.Div, node.right), ast.Mult, right))
        )
        return _binary(change, ast.Div, node.right)

    def by_call(self, operand, node):
        changes = [self.by(operand, a) for a in node.args]
        if node.func.id == "where":
            return _ZERO if _is(changes[1], 0) and _is(changes[2], 0) else _call("where", node.args[0], *changes[1:])
        total, row = _ZERO, self.rows[node.func.id]
        let = {key: parse(text) for key, text in row.get("let", {}).items()}
        for text, change in zip(row["derivatives"], changes, strict=True):
            if not _is(change, 0):
                term = parse(text)
                for key in reversed(let):
                    term = _Built({key: let[key]}).visit(term)
                names = dict(zip(("a", "b", "c"), node.args, strict=False))
                total = _binary(total, ast.Add, _Built({**names, "out": node, "g": change}).visit(term))
        return total
