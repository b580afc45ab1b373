# SPDX-License-Identifier: Apache-2.0
"""The table that torch.onnx.export(dynamo=True) turns our ops into ONNX's with: narrows.torch.onnx_table() returns ``TABLE``.

Operators of opset 18 alone. What they cannot say with the values of docs/ops.md is refused while the model is exported.
float16 and bfloat16 are computed in float32 and rounded once, as the ops are.
"""

import importlib
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from narrows import _onnx_functions

try:
    _onnxscript: Any = importlib.import_module("onnxscript")
except ImportError as error:
    raise ImportError("narrows.torch.onnx_table: onnxscript is missing; pip install onnxscript", name="onnxscript") from error
_ir: Any = importlib.import_module("onnxscript.ir")
op: Any = _onnxscript.opset18

if TYPE_CHECKING:
    Tensor = Any
else:
    Tensor = TypeVar("Tensor")  # torch takes what is annotated so for an input

_TYPES = {
    "float16": "FLOAT16",
    "bfloat16": "BFLOAT16",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "bool": "BOOL",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_TYPES = {name: _ir.DataType[onnx] for name, onnx in _TYPES.items()}
_DTYPES = {onnx: name for name, onnx in _TYPES.items()}
_HALF = ("float16", "bfloat16")


class Operators:
    """ONNX's operators, and constants of the dtype that is computed in."""

    def __init__(self, dtype):
        self.dtype = dtype
        self.is_float, self.is_bool = dtype.startswith("float"), dtype == "bool"
        self.is_signed = self.is_float or dtype.startswith("int")
        self.digits = 24 if dtype == "float32" else 53  # of a float, in bits
        self.bits = int("".join(filter(str.isdigit, dtype)) or 8)

    def __getattr__(self, name):
        return getattr(op, name)

    def constant(self, value):
        """A 0-d tensor of the dtype."""
        return self.of(value, self.dtype)

    def of(self, value, dtype):
        """A 0-d tensor of any dtype."""
        return op.Constant(value=_ir.tensor(value, dtype=_TYPES[dtype]))

    def cast(self, x, dtype):
        return op.Cast(x, to=int(_TYPES[dtype]))


def _dtype_of(name, x):
    """Of an input of the op."""
    if x.dtype not in _DTYPES:
        raise NotImplementedError(f"{name}: an operand has dtype {x.dtype}; expected one of {', '.join(_TYPES)}")
    return _DTYPES[x.dtype]


def _computed_in(dtype):
    return "float32" if dtype in _HALF else dtype


def _raised(x, dtype):
    """What is computed with: float32 for 16 bits."""
    return op.Cast(x, to=int(_TYPES["float32"])) if x is not None and dtype in _HALF else x


def _rounded(y, dtype):
    """The result in its dtype."""
    return op.Cast(y, to=int(_TYPES[dtype])) if dtype in _HALF else y


# ---- elementwise ----


def elementwise(
    a: Tensor,
    b: Tensor = None,
    c: Tensor = None,
    *,
    function: str = "",
    out_dtype: str = "",
    alpha: float = 1.0,
    b_real: float = 0.0,
    b_int: int = 0,
    c_real: float = 0.0,
    c_int: int = 0,
):
    """torch.ops.narrows.elementwise."""
    name = f"elementwise {function}"
    given = [x for x in (a, b, c) if x is not None]
    dtype = _dtype_of(name, given[-1])  # where's condition is not what it computes with
    operators = Operators(_computed_in(dtype))
    translation = _onnx_functions.find(function, operators)
    count = _onnx_functions.operands_of(function)
    numbers = {1: (b_real, b_int), 2: (c_real, c_int)}
    operands = [
        _operand(operators, x, dtype, numbers.get(i, (0.0, 0))) if i or function != "where" else x  # the condition
        for i, x in enumerate((a, b, c)[:count])
    ]
    options: dict[str, Any] = {}
    if function == "cast":
        options["to"] = out_dtype
    elif function == "elu":
        options["alpha"] = alpha
    elif function == "pow":
        options["exponent"] = b_int if b is None else None
    y = translation(operators, *operands, **options)
    return y if function == "cast" or _onnx_functions.gives_bool(function) else _rounded(y, dtype)


def _operand(operators, x, dtype, number):
    """A tensor, or the number that stands for it, rounded to the dtype; a number may be one that was computed of sizes."""
    if x is not None:
        return _raised(x, dtype)
    value = number[0 if operators.is_float else 1]
    if isinstance(value, _ir.Value):
        return _raised(op.Cast(value, to=int(_TYPES[dtype])), dtype)
    if operators.is_float:
        value = torch.tensor(value or 0.0, dtype=torch.float64).to(getattr(torch, dtype)).item()
    return operators.constant(value)


# ---- conv1d and lltm ----


def conv1d(
    x: Tensor,
    w: Tensor,
    bias: Tensor = None,
    *,
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
    pad_left: int = 0,
    pad_right: int = 0,
    padding_mode: str = "zeros",
):
    """torch.ops.narrows.conv1d; a Conv of three dimensions."""
    numbers = {"stride": stride, "dilation": dilation, "groups": groups, "pad_left": pad_left, "pad_right": pad_right}
    for name, value in numbers.items():
        if isinstance(value, _ir.Value):
            raise NotImplementedError(
                f"conv1d: {name} is made of sizes that the export leaves open; expected a number, as ONNX's Conv has"
            )
    dtype, rank = _dtype_of("conv1d", x), len(x.shape)
    added = op.Constant(value_ints=list(range(3 - rank))) if rank < 3 else None  # the axes of a batch, and of a channel
    x = _raised(x if added is None else op.Unsqueeze(x, added), dtype)
    w = _raised(w if len(w.shape) == 3 else op.Unsqueeze(w, op.Constant(value_ints=[0, 1])), dtype)
    y = op.Conv(
        x,
        w,
        _raised(bias, dtype),
        strides=[stride or 1],
        dilations=[dilation or 1],
        group=groups or 1,
        pads=[pad_left, pad_right],
    )
    y = _rounded(y, dtype)
    return y if added is None else op.Squeeze(y, added)


def lltm(input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor):
    """torch.ops.narrows.lltm: new_h, new_cell and gates."""
    dtype = _dtype_of("lltm", input)
    input, weights, bias, old_h, old_cell = (_raised(x, dtype) for x in (input, weights, bias, old_h, old_cell))
    gates = op.Add(op.MatMul(op.Concat(old_h, input, axis=1), op.Transpose(weights, perm=[1, 0])), bias)
    i, o, candidate = op.Split(gates, axis=1, num_outputs=3)
    new_cell = op.Add(old_cell, op.Mul(op.Elu(candidate), op.Sigmoid(i)))
    new_h = op.Mul(op.Tanh(new_cell), op.Sigmoid(o))
    return _rounded(new_h, dtype), _rounded(new_cell, dtype), gates


TABLE = {getattr(torch.ops.narrows, f.__name__).default: f for f in (elementwise, conv1d, lltm)}
