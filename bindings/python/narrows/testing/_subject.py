# SPDX-License-Identifier: Apache-2.0
"""What is checked: an op, the calls that its author gave, and what the author's reference says of each."""

import dataclasses
import inspect
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from narrows import _narrows, _ops
from narrows.testing import _arguments, _compare
from narrows.testing._compare import Mismatch, is_float

Shape = tuple[int, ...] | None  # None: the input is absent
_STEP, _SECOND_STEP = 2.0**-17, 2.0**-10  # of finite differences in float64
_PER_INPUT = 24  # derivatives that are looked at by finite differences, spread over an input
SIZES = (0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 130)  # around the widths of vectors
LARGE = 1 << 17  # elements: more than one thread has work


@dataclasses.dataclass(frozen=True)
class Case:
    """One call: a dtype and a shape for each input, and params."""

    dtypes: tuple[str, ...]
    shapes: tuple[Shape, ...]
    params: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        alike = len(set(self.dtypes)) == 1
        tensors = [
            "absent" if s is None else str(s) if alike else f"{d} {s}" for d, s in zip(self.dtypes, self.shapes, strict=True)
        ]
        text = (self.dtypes[0] + " " if alike else "") + ", ".join(tensors)
        return text + "".join(f"; {name} = {value!r}" for name, value in self.params)

    def replaced(self, **what: Any) -> "Case":
        return dataclasses.replace(self, **what)

    def resized(self, old: int, new: int) -> "Case":
        """Every extent that is ``old`` becomes ``new``."""
        shapes = tuple(None if s is None else tuple(new if n == old else n for n in s) for s in self.shapes)
        return self.replaced(shapes=shapes)

    def extents(self) -> list[int]:
        return sorted({n for s in self.shapes if s is not None for n in s})


class Subject:
    """The op with its reference, its values and its tolerance."""

    device_type = 1  # DLPack's number of what the op runs on: the CPU

    def __init__(
        self, op: Any, reference: Callable[..., Any], values: Any, out_dtypes: Any, ulps: Any, per_element: Any, seed: int
    ):
        self.op = _ops.op(op) if isinstance(op, str) else op
        if not isinstance(self.op, _narrows.Op):
            raise TypeError(f"check_op: op = {op!r}; expected an op of narrows or its name")
        if not callable(reference):
            raise TypeError(f"check_op: reference = {reference!r}; expected a function")
        self.reference, self.seed = reference, seed
        self.names = [name.rstrip("?") for name in self.op.inputs]
        self.out_names = [name.rstrip("?") for name in self.op.outputs[: len(self.op.outputs) - self.op.num_aux]]
        self._values = _arguments.values(self.names, values)
        _arguments.check_out_dtypes(self.out_names, out_dtypes)
        _arguments.check_ulps(ulps)
        _arguments.check_count("seed", seed)
        if per_element is not None:
            _arguments.check_flag("per_element", per_element)
        self._out_dtypes, self._ulps = out_dtypes, ulps
        self.per_element = self.op.batch == "*" if per_element is None else bool(per_element)
        self._expected: dict[Any, Any] = {}

    def __call__(self, arrays: Sequence[Any], case: Case, **how: Any) -> list[Any]:
        """The op on these arrays; its main outputs as a list."""
        given = list(arrays)
        while given and given[-1] is None:
            given.pop()
        made = self.op(*given, **dict(case.params), **how)
        return list(made) if isinstance(made, (tuple, list)) else [made]

    # ---- what the author gave ----

    def cases(self, dtypes: Any, shapes: Any, params: Any) -> list[Case]:
        made_dtypes, made_shapes = _arguments.dtypes(self.op, dtypes), _arguments.shapes(self.op, shapes)
        made_params = _arguments.dicts("params", {} if params is None else params) or [{}]
        _arguments.check_params(self.op, "params", made_params)
        if not (made_dtypes and made_shapes):
            raise ValueError(f"check_op: {'shapes' if made_dtypes else 'dtypes'} is empty; expected at least one")
        return [Case(d, s, tuple(p.items())) for d in made_dtypes for s in made_shapes for p in made_params]

    def rng(self, case: Case, what: str = "") -> Any:
        return np.random.default_rng([self.seed, zlib.crc32(f"{case} {what}".encode())])

    def arrays(self, case: Case, what: str = "") -> list[Any]:
        """The inputs, C-contiguous; None where one is absent."""
        rng = self.rng(case, what)
        return [
            None if shape is None else self._filled(rng, values, shape, dtype)
            for values, shape, dtype in zip(self.ranges(), case.shapes, case.dtypes, strict=True)
        ]

    def ranges(self) -> list[Any]:
        """Of each input: (low, high), or a function."""
        return [self._values.get(name, (-2.0, 2.0)) for name in self.names]

    def _filled(self, rng: Any, values: Any, shape: Any, dtype: str) -> Any:
        numpy_dtype = _compare.numpy_dtype(dtype)
        if callable(values):
            made = np.asarray(values(rng, shape)).astype(numpy_dtype)
            if made.shape != shape:
                raise ValueError(f"check_op: values gives an array of shape {made.shape}; expected {shape}")
            return np.ascontiguousarray(made)
        low, high = values
        if dtype == "bool":
            return rng.integers(0, 2, shape).astype(bool)
        if is_float(dtype):
            return rng.uniform(low, high, shape).astype(numpy_dtype)
        low = max(low, 0) if dtype.startswith("u") else low
        return rng.integers(int(np.ceil(low)), max(int(np.floor(high)), int(np.ceil(low))), shape, endpoint=True).astype(dtype)

    # ---- what the reference says ----

    def refer(self, arrays: Sequence[Any], case: Case) -> list[Any]:
        """The reference's outputs, of floats in float64."""
        lifted = [None if x is None else _compare.exact(x).copy() for x in arrays]
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as of the mean of nothing
            made = self._of_reference(lifted, dict(case.params))
        if len(made) != len(self.out_names):
            raise ValueError(f"check_op: the reference gives {len(made)} outputs; expected {', '.join(self.out_names)}")
        return made

    def _of_reference(self, lifted: list[Any], params: dict[str, Any]) -> list[Any]:
        while lifted and lifted[-1] is None:
            lifted = lifted[:-1]
        if self.in_torch:
            import torch

            made = self.reference(*(None if x is None else torch.from_numpy(np.ascontiguousarray(x)) for x in lifted), **params)
        else:
            made = self.reference(*lifted, **params)
        outputs = list(made) if isinstance(made, (tuple, list)) else [made]
        outputs = [y.detach().numpy() if self.in_torch and y is not None else y for y in outputs]
        for y, declared in zip(outputs, self.op.outputs, strict=False):
            _arguments.check_array(y, declared.rstrip("?") if len(outputs) > 1 else "", declared.endswith("?"))
        return [None if y is None else np.asarray(y) for y in outputs]

    in_torch = False  # the reference takes torch's tensors; see find_framework

    def find_framework(self, case: Case) -> None:
        """NumPy, unless the reference refuses its arrays and takes torch's tensors."""
        arrays = self.arrays(case)
        try:
            self.refer(arrays, case)
        except (TypeError, AttributeError) as error:
            self.in_torch = True
            try:
                self.refer(arrays, case)
            except Exception:
                raise error from None

    def expected(self, case: Case, what: str = "") -> list[Any]:
        """Those of arrays(case, what), remembered."""
        key = (case, what)
        if key not in self._expected:
            self._expected[key] = self.refer(self.arrays(case, what), case)
        return self._expected[key]

    def takes_param(self, name: str) -> bool:
        """Whether the reference has an argument of that name."""
        try:
            parameters = inspect.signature(self.reference).parameters.values()
        except (TypeError, ValueError):
            return True
        return any(p.name == name or p.kind is p.VAR_KEYWORD for p in parameters)

    def out_dtype(self, case: Case, output: int, expected: Any) -> tuple[str, ...]:
        """The dtypes that an output may have: the one that was said, else one of the kind of the reference's, and of floats that of the
        first floating-point input."""
        said: Any = self._out_dtypes(*case.dtypes) if callable(self._out_dtypes) else self._out_dtypes
        if said is not None:
            return (said if isinstance(said, str) else said[output],)
        kind = np.asarray(expected).dtype.kind
        if kind == "f":
            floats = [d for d, s in zip(case.dtypes, case.shapes, strict=True) if s is not None and is_float(d)]
            return (floats[0],) if floats else tuple(filter(is_float, _compare.DTYPES))
        return ("bool",) if kind == "b" else tuple(d for d in _compare.DTYPES if "int" in d)

    # ---- comparisons ----

    def ulps(self, dtype: str) -> float:
        chosen = self._ulps.get(dtype) if isinstance(self._ulps, Mapping) else self._ulps
        return float(_compare.ULPS.get(dtype, 0) if chosen is None else chosen)

    def compare(self, got: Sequence[Any], arrays: Sequence[Any], expected: Sequence[Any], case: Case, tolerance: float = 1) -> None:
        """Outputs as NumPy arrays beside the reference's. ``tolerance``: a factor."""
        scale = 0.0 if self.per_element else _compare.largest(*(None if x is None else _compare.exact(x) for x in arrays))
        for j, (name, y, want) in enumerate(zip(self.out_names, got, expected, strict=True)):
            if want is None or y is None:
                if (want is None) != (y is None):
                    raise Mismatch(
                        f"output {name} is "
                        + ("absent, but the reference has it" if y is None else "present, but the reference has none")
                    )
                continue
            dtype, may_be = np.asarray(y).dtype.name, self.out_dtype(case, j, want)
            if dtype not in may_be:
                raise Mismatch(f"output {name} has dtype {dtype}; expected {' or '.join(may_be)}")
            own = 0.0 if self.per_element else max(scale, _compare.largest(want))
            _compare.close(f"output {name}", y, want, dtype, tolerance * self.ulps(dtype), own)

    # ---- derivatives of the reference ----

    def weights(self, case: Case, expected: Sequence[Any]) -> list[Any]:
        """What the outputs' gradients are, of the case's dtype; None of an output that is no float."""
        rng = self.rng(case, "weights")
        dtype = _compare.numpy_dtype(next(filter(is_float, case.dtypes)))
        return [
            rng.uniform(-1, 1, y.shape).astype(dtype) if y is not None and np.asarray(y).dtype.kind == "f" else None
            for y in expected
        ]

    def directions(self, case: Case) -> list[Any]:
        """A direction for each input that is a float, for second derivatives."""
        rng = self.rng(case, "directions")
        return [
            rng.uniform(-1, 1, s).astype(_compare.numpy_dtype(d)) if s is not None and is_float(d) else None
            for s, d in zip(case.shapes, case.dtypes, strict=True)
        ]

    def _loss(self, lifted: Sequence[Any], case: Case, weights: Sequence[Any]) -> float:
        made = self.refer(lifted, case)
        return float(sum((_compare.exact(w) * y).sum() for w, y in zip(weights, made, strict=True) if w is not None))

    def _slope(self, lifted: Sequence[Any], case: Case, weights: Sequence[Any], directions: Sequence[Any]) -> float:
        """The loss's derivative along the directions."""
        sides = [
            self._loss(
                [x if v is None else x + s * _SECOND_STEP * _compare.exact(v) for x, v in zip(lifted, directions, strict=True)],
                case,
                weights,
            )
            for s in (-1, 1)
        ]
        return (sides[1] - sides[0]) / (2 * _SECOND_STEP)

    def derivatives(self, case: Case, arrays: Sequence[Any], weights: Sequence[Any], directions: Any = None) -> Any:
        """For each input that is a float: (places, derivatives there) of sum(weights * outputs) or, with directions, of its slope along
        them. By torch's autograd where the reference is torch's, else by finite differences at some places."""
        if self.in_torch:
            return self._by_autograd(case, arrays, weights, directions)
        lifted = [None if x is None else _compare.exact(x) for x in arrays]
        step = _STEP if directions is None else _SECOND_STEP
        found: list[Any] = []
        for i, x in enumerate(lifted):
            if x is None or x.dtype.kind != "f":
                found.append(None)
                continue
            places = np.unique(np.linspace(0, max(x.size - 1, 0), min(x.size, _PER_INPUT)).astype(int))
            slopes = []
            for place in places:
                sides = []
                for s in (-1, 1):
                    moved = x.copy()
                    moved.reshape(-1)[place] += s * step
                    inputs = [*lifted[:i], moved, *lifted[i + 1 :]]
                    sides.append(
                        self._loss(inputs, case, weights) if directions is None else self._slope(inputs, case, weights, directions)
                    )
                slopes.append((sides[1] - sides[0]) / (2 * step))
            found.append((places, np.array(slopes)))
        return found

    def _by_autograd(self, case: Case, arrays: Sequence[Any], weights: Sequence[Any], directions: Any) -> Any:
        import torch

        tensors = [None if x is None else torch.from_numpy(np.ascontiguousarray(_compare.exact(x))) for x in arrays]
        wanted = [t for t in tensors if t is not None and t.dtype is torch.float64]
        for t in wanted:
            t.requires_grad_()
        given = tensors
        while given and given[-1] is None:
            given = given[:-1]
        made = self.reference(*given, **dict(case.params))
        outputs = list(made) if isinstance(made, (tuple, list)) else [made]
        loss: Any = sum(
            (torch.from_numpy(_compare.exact(w)) * y).sum() for w, y in zip(weights, outputs, strict=True) if w is not None
        )
        gradients: Sequence[Any] = torch.autograd.grad(loss, wanted, create_graph=directions is not None, allow_unused=True)
        if directions is not None:
            along = [torch.from_numpy(_compare.exact(v)) for v in directions if v is not None]
            slope = sum((g * v).sum() for g, v in zip(gradients, along, strict=True) if g is not None)
            gradients = (
                torch.autograd.grad(slope, wanted, allow_unused=True)
                if torch.is_tensor(slope) and slope.requires_grad
                else [None] * len(wanted)
            )
        found = iter(gradients)
        result: list[Any] = []
        for tensor in tensors:
            if tensor is None or tensor.dtype is not torch.float64:
                result.append(None)
                continue
            g = next(found)
            whole = np.zeros(tensor.numel()) if g is None else g.detach().numpy().reshape(-1)
            result.append((np.arange(tensor.numel()), whole))
        return result

    def compare_derivatives(self, got: Sequence[Any], expected: Sequence[Any], case: Case, order: int) -> None:
        """Gradients as NumPy arrays (None: zero) beside derivatives(). Sums and products of the op's own rounding: four times the
        tolerance of values; and what finite differences are off by."""
        scale = max(1.0, _compare.largest(*(None if e is None else e[1] for e in expected)))
        differences = 0.0 if self.in_torch else (1e-7 if order == 1 else 1e-4) * scale
        for name, dtype, g, e in zip(self.names, case.dtypes, got, expected, strict=True):
            if e is None:
                continue
            places, slopes = e
            flat = np.zeros(len(places)) if g is None else _compare.exact(g).reshape(-1)[places]
            said = "the reference's is" if self.in_torch else "finite differences of the reference give"
            usable = np.isfinite(slopes)
            shape = case.shapes[self.names.index(name)] or ()
            _compare.close(
                f"the {'second ' if order == 2 else ''}gradient of {name}",
                flat[usable],
                slopes[usable],
                dtype,
                4 * order * self.ulps(dtype),
                scale,
                differences,
                said,
                np.unravel_index(places[usable], shape) if shape else (),
            )

    def compare_tangents(
        self, got: Sequence[Any], arrays: Sequence[Any], weights: Sequence[Any], directions: Sequence[Any], case: Case
    ) -> None:
        """The slope's gradient by the outputs' gradients, which is how the outputs change along the directions, beside finite
        differences of the reference."""
        sides = []
        for s in (-1, 1):
            pairs = zip(arrays, directions, strict=True)
            moved = [x if v is None else _compare.exact(x) + s * _STEP * _compare.exact(v) for x, v in pairs]
            sides.append(self.refer(moved, case))
        dtype = next(filter(is_float, case.dtypes))
        floats = [j for j, w in enumerate(weights) if w is not None]
        for j, tangent in zip(floats, got, strict=True):
            expected = (sides[1][j] - sides[0][j]) / (2 * _STEP)
            scale = max(1.0, _compare.largest(expected))
            _compare.close(
                f"the derivative of the gradient of {self.out_names[j]}",
                np.zeros(expected.shape) if tangent is None else tangent,
                expected,
                dtype,
                8 * self.ulps(dtype),
                scale,
                1e-7 * scale,
                "finite differences of the reference give",
            )


def derived(cases: Sequence[Case], sizes: Sequence[int]) -> Iterator[Case]:
    """The first call of each dtype with other sizes: what an author forgets."""
    for dtypes in dict.fromkeys(case.dtypes for case in cases):
        first = next(case for case in cases if case.dtypes == dtypes)
        for old in first.extents():
            for new in sizes:
                if new != old:
                    yield first.resized(old, new)


def large(case: Case) -> Case | None:
    """A call with so many elements that several threads have work: its longest extent grows. None: it has none."""
    longest = max(case.extents(), default=0)
    if longest < 2:
        return None
    shape = next(s for s in case.shapes if s is not None and longest in s)
    rest = int(np.prod([n for n in shape if n != longest])) or 1
    return case.resized(longest, int((LARGE / rest) ** (1 / shape.count(longest))) + 1)
