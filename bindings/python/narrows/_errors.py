# SPDX-License-Identifier: Apache-2.0
"""Errors in the words of the function that was called: its name, its arguments' names, and the name that a mistyped one is near to.

Nothing here runs in a call that succeeds.
"""

from narrows import _programs

# Whose one argument is a text of ours. Others' own classes stay as they are.
PLAIN = (ValueError, TypeError, NotImplementedError, RuntimeError, MemoryError)

# What functions call the operands of their op.
OPERANDS = {"astype": {"a": "x"}, "clip": {"a": "x", "b": "min", "c": "max"}}

NO_ARRAY = "no input is an array; expected an array among them, as numpy.asarray(x) gives"


def of_op(error, op):
    """Makes an error of a call say op.__name__, narrows.add, where it says the op's own name, elementwise."""
    if _programs.is_program(op.op):
        rename(error, op.op, op.__name__)
        _explain_absent(error, op)
        return
    arguments = OPERANDS.get(op.__name__)
    for was in (f"{op.op}: {op.params.get('function')}", op.op, op.__name__):
        if rename(error, was, op.__name__, arguments):
            return


def _explain_absent(error, op):
    """Of a program's tensor that was meant as an output alone."""
    for name in op.inputs:
        absent = f"{op.__name__}: {name} is absent (NULL); expected a tensor"
        if name in op.outputs and error.args == (absent,):
            error.args = (
                f"{op.__name__}: {name} is read before it is stored, so it is an input, too, and it is absent; expected a tensor, "
                "or a program that stores it first: a reduction by T.init()",
            )


def rename(error, was, called, arguments=None):
    """Makes an error that begins with the name of one function begin with another's, and names its arguments. Whether it does."""
    text = error.args[0] if type(error) in PLAIN and len(error.args) == 1 and isinstance(error.args[0], str) else ""
    if not any(text.startswith(was + behind) for behind in (": ", " takes ", " has no argument ")):
        return False
    rest = text.removeprefix(was)
    error.args = (called + (_renamed(rest, arguments) if arguments else rest),)
    return True


def _renamed(text, arguments):
    """The text with other names of arguments. `a` is one only where a verb or a mark follows; else it is the article."""
    import re

    name = r"(?<!['\w.])(?:a(?=[:;,]| (?:has|have|is|of shape|lives|on|and|overlaps|=)|$)|b|c|out_dtype)(?:_real|_int)?(?!['\w])"
    return re.sub(name, lambda found: arguments.get(found[0].removesuffix("_real").removesuffix("_int"), found[0]), text)


def unexpected(function, named):
    """The TypeError for keywords that the function does not have."""
    import inspect

    known = [p.name for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    name = min(named)
    return TypeError(f"{function.__name__} has no argument '{name}'{near(name, known) or '; it has ' + ', '.join(known)}")


def with_near_names(function):
    """The function, whose refusal of a keyword names the nearest that it has. For functions that are called seldom."""
    import functools

    @functools.wraps(function)
    def call(*given, **named):
        try:
            return function(*given, **named)
        except TypeError as error:
            inside = error.__traceback__ is not None and error.__traceback__.tb_next is not None
            if inside or "unexpected keyword argument" not in str(error):
                raise
        import inspect

        raise unexpected(function, named.keys() - inspect.signature(function).parameters.keys())

    return call


def attribute(module: str, name: str, known: list[str], others: dict[str, str] | None = None) -> AttributeError:
    """The AttributeError for what a module does not have."""
    nearest = "" if name.startswith("_") else near(name, known, others)
    return AttributeError(f"module '{module}' has no attribute '{name}'{nearest}")


def near(name: str, known: list[str], others: dict[str, str] | None = None) -> str:
    """; did you mean '…'?, or nothing where no known name is near. `others`: names that people know known ones by."""
    import difflib

    spelled = {k.lower(): k for k in known}
    found = (others or {}).get(name.lower()) or spelled.get(
        next(iter(difflib.get_close_matches(name.lower(), spelled, 1, cutoff=0.65)), "")
    )
    return f"; did you mean '{found}'?" if found in known else ""
