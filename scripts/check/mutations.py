# SPDX-License-Identifier: Apache-2.0
"""mutations.py -- the changes that `./run check mutate` can make in a C++ source, and how one is drawn.

tree-sitter parses each file as it stands, without the preprocessor: Highway includes a kernel once for each target, and no header
of kernels compiles alone. Comments, texts, template brackets and declarations are left alone. The number of lines stays as it is,
so that the objects of all other code are the same.
"""

import bisect
import collections
import dataclasses
import hashlib
import itertools
import re

import tree_sitter
import tree_sitter_cpp

OPERATORS = {
    "+": ["-"], "-": ["+"], "*": ["+"], "/": ["*"], "%": ["/"], "<<": [">>"], ">>": ["<<"], "&": ["|"], "|": ["&"], "^": ["&"],
    "<": ["<=", ">"], "<=": ["<", ">"], ">": [">=", "<"], ">=": [">", "<"], "==": ["!="], "!=": ["=="], "&&": ["||"], "||": ["&&"],
    "+=": ["-="], "-=": ["+="], "*=": ["/="], "/=": ["*="], "|=": ["&="], "&=": ["|="], "^=": ["|="], "<<=": [">>="], ">>=": ["<<="],
    "++": ["--"], "--": ["++"],
}  # fmt: skip
# Functions that are taken for one another: Highway's, and the standard library's.
FUNCTIONS = {
    "Add": "Sub", "Sub": "Add", "Mul": "Add", "Div": "Mul", "MulAdd": "MulSub", "MulSub": "MulAdd", "NegMulAdd": "MulAdd",
    "Min": "Max", "Max": "Min", "And": "Or", "Or": "And", "Xor": "Or", "AndNot": "And", "Eq": "Ne", "Ne": "Eq", "Lt": "Le",
    "Le": "Lt", "Gt": "Ge", "Ge": "Gt", "AllTrue": "AllFalse", "AllFalse": "AllTrue", "ShiftLeft": "ShiftRight",
    "ShiftRight": "ShiftLeft", "Floor": "Ceil", "Round": "Trunc", "min": "max", "max": "min", "min_element": "max_element",
    "any_of": "all_of", "all_of": "any_of", "none_of": "any_of", "floor": "ceil", "ceil": "floor", "lower_bound": "upper_bound",
}  # fmt: skip
# Their operands may be exchanged without a difference.
SYMMETRIC = {"Add", "Mul", "Min", "Max", "And", "Or", "Xor", "Eq", "Ne", "min", "max", "swap"}
# Of their arguments those from the text on are wording.
MESSAGES = {"fail", "refuse", "format", "log", "snprintf", "printf"}
SPEED_ALONE = {"HWY_UNROLL", "reserve"}  # no result shows a change of them
# What there is nothing to change in.
LEFT_ALONE = {
    "comment", "string_literal", "raw_string_literal", "concatenated_string", "char_literal", "preproc_include", "preproc_def",
    "preproc_function_def", "static_assert_declaration", "alignas_qualifier", "template_parameter_list", "template_argument_list",
    "enumerator", "attribute_declaration",
}  # fmt: skip
IN_A_BODY = {
    "compound_statement",
    "if_statement",
    "else_clause",
    "for_statement",
    "for_range_loop",
    "while_statement",
    "case_statement",
}
# Macros that say how a function is compiled: a parser without the preprocessor takes them for types.
ATTRIBUTES = re.compile(rb"\b(?:HWY_(?:INLINE|NOINLINE|API|ATTR|RESTRICT|FLATTEN|MAYBE_UNUSED))\b")


@dataclasses.dataclass(frozen=True)
class Change:
    """`old` becomes `new` at `column` of the `nth` line of the file that reads `text`. That stays right where lines above come
    and go; `line` is for the reader."""

    file: str
    line: int
    text: str
    nth: int
    column: int
    old: str
    new: str

    @property
    def key(self):
        return self.file, self.text, self.nth, self.column, self.old, self.new

    def __str__(self):
        old, new = (" ".join(s.split()) for s in (self.old, self.new))
        return f"{self.file}:{self.line}:{self.column}  {old}  ->  {new or '(nothing)'}"


class Source:
    """A file, and the changes that can be made in it."""

    def __init__(self, file, data):
        self.file, self.data = file, data
        self.lines = data.decode().split("\n")
        self.starts = [0]
        for line in data.split(b"\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)
        self._nth, seen = [], collections.Counter()
        for line in self.lines:
            self._nth.append(seen[line.strip()])
            seen[line.strip()] += 1

    def changes(self):
        """By line, each line's in the order of their columns."""
        blank = ATTRIBUTES.sub(lambda match: b" " * len(match.group()), self.data)
        tree = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language())).parse(blank)
        found = collections.defaultdict(dict)
        for node in _nodes(tree.root_node, self.data):
            for begin, end, new in _replacements(node, self.data):
                change = self._change(begin, end, new)
                found[change.line].setdefault(change.key, change)
        return {line: sorted(found[line].values(), key=lambda change: (change.column, change.key)) for line in sorted(found)}

    def _change(self, begin, end, new):
        line = bisect.bisect_right(self.starts, begin) - 1
        text = self.lines[line].strip()
        indent = len(self.lines[line]) - len(self.lines[line].lstrip())
        column = len(self.data[self.starts[line] : begin].decode()) - indent
        old = self.data[begin:end].decode()
        return Change(self.file, line + 1, text, self._nth[line], column, old, new)

    def find(self, change):
        """Where `change` is now: its line's index, or None where that line is gone or reads otherwise."""
        for index, line in enumerate(self.lines):
            if line.strip() == change.text and self._nth[index] == change.nth:
                begin = self._offset(index, change)
                return index if self.data[begin:].startswith(change.old.encode()) else None
        return None

    def _offset(self, index, change):
        line = self.lines[index]
        return self.starts[index] + len(line[: len(line) - len(line.lstrip()) + change.column].encode())

    def changed(self, change):
        """The file with the change in it: as many lines as before."""
        begin = self._offset(self.find(change), change)
        new = change.new + "\n" * (change.old.count("\n") - change.new.count("\n"))
        return self.data[:begin] + new.encode() + self.data[begin + len(change.old.encode()) :]


def _nodes(node, data):
    if node.type in LEFT_ALONE or _name(node.child_by_field_name("function"), data) in SPEED_ALONE:
        return
    yield node
    condition = node.child_by_field_name("condition") if node.type in ("preproc_if", "preproc_elif") else None
    message = node.type == "argument_list" and _name(node.prev_sibling, data) in MESSAGES
    for child in node.children:
        if message and child.type in ("string_literal", "concatenated_string"):
            return
        if child != condition:
            yield from _nodes(child, data)


def _name(function, data):
    """Of what is called: Add of hn::Add, ShiftLeft of hn::ShiftLeft<4>."""
    node = _name_node(function)
    return data[node.start_byte : node.end_byte].decode() if node else ""


def _name_node(function):
    while function is not None and function.child_by_field_name("name") is not None:
        function = function.child_by_field_name("name")
    return function


def _replacements(node, data):
    """(begin, end, new text) of each change of this very node."""
    make = _MAKERS.get(node.type)
    if make is None:
        return
    for target, new in make(node, lambda n: data[n.start_byte : n.end_byte].decode()):
        yield target.start_byte, target.end_byte, new


def _operator(node, text):
    operator = node.child_by_field_name("operator")
    if node.type == "unary_expression":
        if text(operator) in "!-~":
            yield operator, ""
    elif not (
        node.type == "update_expression" and node.parent.type == "for_statement"
    ):  # a loop backwards is a crash, or never ends
        for new in OPERATORS.get(text(operator), []):
            yield operator, new


def _condition(node, text):
    condition = node.child_by_field_name("condition")
    if condition is not None and condition.type == "condition_clause":
        condition = condition.child_by_field_name("value")
    if condition is not None and condition.type != "declaration" and node.type != "for_statement":
        yield condition, f"!({text(condition)})"
    if node.type == "conditional_expression":
        yes, no = node.child_by_field_name("consequence"), node.child_by_field_name("alternative")
        if not {yes.type, no.type} & LEFT_ALONE and "\n" not in text(no):
            yield yes, text(no)


def _number(node, text):
    value = text(node)
    hexadecimal = "0x" in value.lower()
    if re.search("[.p]" if hexadecimal else "[.e]", value.lower()):  # of floating point
        yield node, f"({value} * 2)" if re.search("[1-9]", value) else "1.0"
        return
    yield node, f"({value} + 1)"
    plain = value.rstrip("uUlL")
    if plain != "0":
        yield node, "0" if plain == "1" else f"({value} - 1)"


def _boolean(node, text):
    yield node, {"true": "false", "false": "true"}[text(node)]


def _statement(node, text):
    if node.child_count > 1 and node.parent.type in IN_A_BODY:
        yield node, ";"


def _jump(node, text):
    yield node, {"break;": "continue;", "continue;": "break;"}.get(text(node), ";")


def _call(node, text):
    function, arguments = _name_node(node.child_by_field_name("function")), node.child_by_field_name("arguments")
    if function is None or arguments is None:
        return
    name = text(function)
    if name in FUNCTIONS:
        yield function, FUNCTIONS[name]
    if name in SYMMETRIC or name in MESSAGES or name.isupper():  # a macro
        return
    values = [child for child in arguments.named_children if child.type != "comment"]
    for a, b in itertools.pairwise(values):
        if text(a) != text(b) and not {a.type, b.type} & LEFT_ALONE and a.start_point[0] == b.end_point[0]:
            between = text(_Span(a.end_byte, b.start_byte))
            yield _Span(a.start_byte, b.end_byte), text(b) + between + text(a)


@dataclasses.dataclass
class _Span:
    start_byte: int
    end_byte: int


_MAKERS = {
    "binary_expression": _operator, "unary_expression": _operator, "update_expression": _operator, "assignment_expression": _operator,
    "if_statement": _condition, "while_statement": _condition, "conditional_expression": _condition, "number_literal": _number,
    "true": _boolean, "false": _boolean, "expression_statement": _statement, "break_statement": _jump, "continue_statement": _jump,
    "call_expression": _call,
}  # fmt: skip


def drawn(sources, seed):
    """Changes in the order of this seed: of each line that can be changed, one. A line's place in the order is a hash of the seed
    and of the line, so that the order of all others is the same when a line is edited."""
    order = []
    for source in sources:
        for line, changes in source.changes().items():
            place = hashlib.sha256(f"{seed}\0{source.file}\0{changes[0].text}\0{changes[0].nth}".encode()).digest()
            order.append((place, source.file, line, changes[int.from_bytes(place[-8:], "little") % len(changes)]))
    return [change for *_, change in sorted(order, key=lambda item: item[:3])]
