# SPDX-License-Identifier: Apache-2.0
"""``@I.ir_module``: a class of programs."""

from __future__ import annotations

from collections.abc import Iterator

from narrows.program._function import PrimFunc


class IRModule:
    """Programs by their names: ``module["mm_relu"]``."""

    def __init__(self, functions: dict[str, PrimFunc] | PrimFunc) -> None:
        self.functions = {functions.name: functions} if isinstance(functions, PrimFunc) else dict(functions)

    def __getitem__(self, name: str) -> PrimFunc:
        if name not in self.functions:
            raise KeyError(f"there is no program '{name}'; there are: {', '.join(self.functions)}")
        return self.functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def only(self) -> PrimFunc:
        """The one program, or the one named "main"."""
        if "main" in self.functions:
            return self.functions["main"]
        if len(self.functions) != 1:
            raise ValueError(
                f"the module has {len(self.functions)} programs: {', '.join(self.functions)}; choose one by module[name]"
            )
        return next(iter(self.functions.values()))

    def script(self) -> str:
        """The texts of all."""
        return "\n".join(function.text for function in self.functions.values())

    def show(self) -> None:
        """Prints the texts of all."""
        print(self.script())

    def __repr__(self) -> str:
        return self.script()


def ir_module(of: type) -> IRModule:
    """Makes a module of a class whose attributes are functions under @T.prim_func."""
    functions = {name: value for name, value in vars(of).items() if isinstance(value, PrimFunc)}
    if not functions:
        raise TypeError(f"class {of.__name__} holds no function under @T.prim_func")
    return IRModule(functions)
