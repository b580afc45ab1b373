# SPDX-License-Identifier: Apache-2.0
"""Runs a function once a module has been imported, by whomever: narrows imports no framework, and still every op is there in torch."""

import sys

_waiting: dict[str, list] = {}


def imported(name, function):
    """Calls function() now if the module is there, else when its import has ended."""
    module = sys.modules.get(name)  # None too where it may not be imported
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        function()
    else:
        _waiting.setdefault(name, []).append(function)
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)


class _Finder:
    """Finds nothing itself: hands on what the others find, with the functions called behind the module's own code. Who only asks
    whether a module is there changes nothing."""

    def find_spec(self, name, path=None, target=None):
        if name not in _waiting:
            return None
        others = (f.find_spec for f in sys.meta_path if f is not self and hasattr(f, "find_spec"))
        spec = next((s for s in (find(name, path, target) for find in others) if s is not None), None)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            for function in _waiting.pop(name, ()):
                function()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_finder = _Finder()
