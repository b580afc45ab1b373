# SPDX-License-Identifier: Apache-2.0
"""Types of what narrows/__init__.py holds; tests/python/test_functions.py compares the names."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from types import SimpleNamespace
from typing import Any, NoReturn, Protocol, SupportsIndex, TypedDict, TypeVar, final, overload

from typing_extensions import disjoint_base

from narrows import _narrows as _narrows
from narrows import jax as jax
from narrows import program as program
from narrows import testing as testing
from narrows import torch as torch
from narrows._ops import ops as ops

_Array = TypeVar("_Array")  # of torch, JAX, CuPy, NumPy, narrows.Tensor, or any producer of DLPack

__version__: str
__all__ = [
    "Device",
    "Op",
    "Stream",
    "Tensor",
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "astype",
    "atan",
    "atan2",
    "atanh",
    "bench",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "build",
    "cbrt",
    "ceil",
    "clip",
    "cmake_dir",
    "conv1d",
    "copysign",
    "cos",
    "cosh",
    "devices",
    "divide",
    "elu",
    "empty",
    "equal",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "fma",
    "fmod",
    "from_dlpack",
    "from_tvm_ffi",
    "gelu",
    "gelu_tanh",
    "get_include",
    "get_num_threads",
    "greater",
    "greater_equal",
    "hypot",
    "info",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "lltm",
    "load",
    "load_inline",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "not_equal",
    "op",
    "ops",
    "pow",
    "reciprocal",
    "relu",
    "remainder",
    "round",
    "rsqrt",
    "set_num_threads",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinc",
    "sinh",
    "softplus",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "to_tvm_ffi",
    "trunc",
    "where",
]

class _DeviceInfo(TypedDict):
    name: str
    arch: str
    uuid: str
    total_memory: int

class _ListedDevice(_DeviceInfo):
    device: str

class _ListedOp(TypedDict):
    name: str
    kernels: list[str]

class _LoadedBackend(TypedDict):
    name: str
    version: str
    path: str
    status: str
    reason: str
    device_type: int
    device_count: int
    shadowed: bool
    ops: list[_ListedOp]

class _Distribution(TypedDict):
    name: str
    version: str

class _Backend(_LoadedBackend):
    devices: list[_ListedDevice]
    distribution: _Distribution | None

class _Info(TypedDict):  # which a notebook shows as a table
    version: str
    abi: int
    backends: list[_Backend]

class Device:
    id: int
    type: int
    def __init__(self, type: str | int | Device, id: int | None = None) -> None: ...
    @property
    def info(self) -> _DeviceInfo: ...

class Stream:
    device: Device
    handle: int
    def __init__(self, device: str | Device = "cpu") -> None: ...
    def sync(self) -> None: ...
    def wait(self, other: Stream | int) -> None: ...
    def __del__(self) -> None: ...

@disjoint_base
class Tensor:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def device(self) -> Device: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def data_ptr(self) -> int: ...
    @property
    def stream(self) -> int: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def contiguous(self) -> bool: ...
    def to(self, device: str | Device, stream: Stream | int | None = None) -> Tensor: ...
    def numpy(self) -> Any: ...
    def _copy_from(self, source: Any, /) -> None: ...
    def view(self, dtype: Any, /) -> Tensor: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any: ...
    def __jax_array__(self) -> Any: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def __bool__(self) -> NoReturn: ...

@final
class Op:
    __name__: str
    __signature__: Any
    _lower_precision: bool
    _operands: int
    _otherwise: Any
    _recorder: Any
    def __new__(cls, name: str, **params: Any) -> Op: ...
    def __call__(
        self,
        *inputs: Any,
        out: Any = None,
        device: str | Device | None = None,
        stream: Stream | int | None = None,
        backend: str | None = None,
        kernel: str | None = None,
        deterministic: bool = False,
        **params: Any,
    ) -> Any: ...
    def bind(self, **params: Any) -> Op: ...
    def source(self, /, backend: str = "cpu") -> str: ...
    def _bind_operands(self, inputs: Sequence[Any], dtype: Any) -> tuple[Op, list[Any]]: ...
    def _number(self, input: int, value: Any, dtype: Any, /) -> float: ...
    def _run(self, inputs: tuple[Any, ...], wanted: int, plain: bool = False, shapes: tuple[Any, ...] | None = None, /) -> Any: ...
    def _forward(self, inputs: tuple[Any, ...], /) -> tuple[tuple[Any, ...], tuple[Any, ...]]: ...
    def _checked(self, inputs: tuple[Any, ...], out: Any = None, /) -> list[Any]: ...
    def _infer(self, inputs: Sequence[tuple[str, tuple[int, ...]] | None], device_type: int = 1) -> list[Any]: ...
    def _capturable(self, inputs: Sequence[tuple[str, tuple[int, ...]] | None], wanted: int, device_type: int) -> bool: ...
    @property
    def op(self) -> str: ...
    @property
    def params(self) -> dict[str, Any]: ...
    @property
    def fields(self) -> tuple[tuple[str, str, int, tuple[str, ...] | None, Any], ...]: ...
    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def outputs(self) -> tuple[str, ...]: ...
    @property
    def min_inputs(self) -> int: ...
    @property
    def num_aux(self) -> int: ...
    @property
    def shape_rule(self) -> str | None: ...
    @property
    def batch(self) -> str | None: ...
    @property
    def backward(self) -> str | None: ...
    @property
    def saved(self) -> int: ...
    @property
    def flags(self) -> int: ...
    @property
    def blob(self) -> bytes: ...

# What a call of a function takes beside its operands. The first operand that is an array says what the result is.
class _Unary(Protocol):
    def __call__(
        self,
        a: _Array,
        *,
        out: Any = None,
        device: str | Device | None = None,
        stream: Stream | int | None = None,
        backend: str | None = None,
        kernel: str | None = None,
        deterministic: bool = False,
    ) -> _Array: ...

class _Clip(Protocol):
    @overload
    def __call__(
        self,
        x: float,
        /,
        min: float | None,
        max: _Array,
        *,
        out: Any = None,
        device: str | Device | None = None,
        stream: Stream | int | None = None,
        backend: str | None = None,
        kernel: str | None = None,
        deterministic: bool = False,
    ) -> _Array: ...
    @overload
    def __call__(
        self,
        x: float,
        /,
        min: _Array,
        max: Any = None,
        *,
        out: Any = None,
        device: str | Device | None = None,
        stream: Stream | int | None = None,
        backend: str | None = None,
        kernel: str | None = None,
        deterministic: bool = False,
    ) -> _Array: ...
    @overload
    def __call__(
        self,
        x: _Array,
        /,
        min: Any = None,
        max: Any = None,
        *,
        out: Any = None,
        device: str | Device | None = None,
        stream: Stream | int | None = None,
        backend: str | None = None,
        kernel: str | None = None,
        deterministic: bool = False,
    ) -> _Array: ...

class _Elu(Protocol):
    def __call__(
        self,
        a: _Array,
        *,
        alpha: float = 1.0,
        out: Any = None,
        device: str | Device | None = None,
        stream: Stream | int | None = None,
        backend: str | None = None,
        kernel: str | None = None,
        deterministic: bool = False,
    ) -> _Array: ...

class _Binary(Protocol):
    @overload
    def __call__(
        self,
        a: float,
        b: _Array,
        *,
        out: Any = None,
        device: str | Device | None = None,
        stream: Stream | int | None = None,
        backend: str | None = None,
        kernel: str | None = None,
        deterministic: bool = False,
    ) -> _Array: ...
    @overload
    def __call__(
        self,
        a: _Array,
        b: Any,
        *,
        out: Any = None,
        device: str | Device | None = None,
        stream: Stream | int | None = None,
        backend: str | None = None,
        kernel: str | None = None,
        deterministic: bool = False,
    ) -> _Array: ...

class _Ternary(Protocol):
    @overload
    def __call__(
        self,
        a: float,
        b: float,
        c: _Array,
        *,
        out: Any = None,
        device: str | Device | None = None,
        stream: Stream | int | None = None,
        backend: str | None = None,
        kernel: str | None = None,
        deterministic: bool = False,
    ) -> _Array: ...
    @overload
    def __call__(
        self,
        a: float,
        b: _Array,
        c: Any,
        *,
        out: Any = None,
        device: str | Device | None = None,
        stream: Stream | int | None = None,
        backend: str | None = None,
        kernel: str | None = None,
        deterministic: bool = False,
    ) -> _Array: ...
    @overload
    def __call__(
        self,
        a: _Array,
        b: Any,
        c: Any,
        *,
        out: Any = None,
        device: str | Device | None = None,
        stream: Stream | int | None = None,
        backend: str | None = None,
        kernel: str | None = None,
        deterministic: bool = False,
    ) -> _Array: ...

class _Where(Protocol):
    def __call__(
        self,
        a: _Array,
        b: Any,
        c: Any,
        *,
        out: Any = None,
        device: str | Device | None = None,
        stream: Stream | int | None = None,
        backend: str | None = None,
        kernel: str | None = None,
        deterministic: bool = False,
    ) -> _Array: ...

def op(name: str, **params: Any) -> Op: ...
def load(path: str | PathLike[str]) -> None: ...
def info() -> _Info: ...
def devices() -> list[Device]: ...
def get_include() -> str: ...
def cmake_dir() -> str: ...
def get_num_threads() -> int: ...
def set_num_threads(num_threads: SupportsIndex, /) -> None: ...
def empty(
    shape: int | Sequence[int], dtype: Any = "float32", device: str | Device = "cpu", stream: Stream | int | None = None
) -> Tensor: ...
def from_dlpack(x: Any, device: str | Device | None = None, copy: bool | None = None) -> Tensor: ...
def conv1d(
    x: _Array,
    w: _Array,
    bias: _Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    out: _Array | None = None,
    device: str | Device | None = None,
    stream: Stream | int | None = None,
    backend: str | None = None,
    kernel: str | None = None,
    deterministic: bool = False,
) -> _Array: ...
def lltm(
    input: _Array,
    weights: _Array,
    bias: _Array,
    old_h: _Array,
    old_cell: _Array,
    *,
    out: Sequence[_Array] | None = None,
    device: str | Device | None = None,
    stream: Stream | int | None = None,
    backend: str | None = None,
    kernel: str | None = None,
    deterministic: bool = False,
) -> tuple[_Array, _Array]: ...
def astype(x: _Array, dtype: Any, *, out: _Array | None = None, device: str | Device | None = None) -> _Array: ...
def build(
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    name: str | None = None,
    flags: Sequence[str] = (),
    verbose: bool = False,
) -> str: ...
def load_inline(
    name: str,
    cpp_sources: str | Sequence[str] = "",
    cuda_sources: str | Sequence[str] = "",
    flags: Sequence[str] = (),
    verbose: bool = False,
    *,
    vulkan_sources: str | Sequence[str] = "",
    shaders: Mapping[str, str] = ...,
    headers: Mapping[str, str] = ...,
) -> SimpleNamespace: ...
def bench(
    functions: Callable[..., Any] | Mapping[str, Callable[..., Any]],
    *args: Any,
    seconds: float = 0.5,
    sync: Callable[[], Any] | None = None,
    **kwargs: Any,
) -> dict[str, float]: ...
def from_tvm_ffi(function: Any, outputs: Callable[..., Any] | None = None) -> Callable[..., Any]: ...
def to_tvm_ffi(op: str | Op, **params: Any) -> Any: ...

# functions: begin, made by scripts/functions.py
negative: _Unary
abs: _Unary
sign: _Unary
square: _Unary
sqrt: _Unary
rsqrt: _Unary
cbrt: _Unary
exp: _Unary
exp2: _Unary
expm1: _Unary
log: _Unary
log2: _Unary
log10: _Unary
log1p: _Unary
sin: _Unary
cos: _Unary
tan: _Unary
asin: _Unary
acos: _Unary
atan: _Unary
sinh: _Unary
cosh: _Unary
tanh: _Unary
asinh: _Unary
acosh: _Unary
atanh: _Unary
sigmoid: _Unary
relu: _Unary
elu: _Elu
gelu: _Unary
gelu_tanh: _Unary
silu: _Unary
softplus: _Unary
erf: _Unary
erfc: _Unary
floor: _Unary
ceil: _Unary
round: _Unary
trunc: _Unary
reciprocal: _Unary
logical_not: _Unary
bitwise_invert: _Unary
isnan: _Unary
isinf: _Unary
isfinite: _Unary
add: _Binary
subtract: _Binary
multiply: _Binary
divide: _Binary
pow: _Binary
atan2: _Binary
hypot: _Binary
maximum: _Binary
minimum: _Binary
fmod: _Binary
remainder: _Binary
copysign: _Binary
logaddexp: _Binary
equal: _Binary
not_equal: _Binary
less: _Binary
less_equal: _Binary
greater: _Binary
greater_equal: _Binary
logical_and: _Binary
logical_or: _Binary
logical_xor: _Binary
bitwise_and: _Binary
bitwise_or: _Binary
bitwise_xor: _Binary
bitwise_left_shift: _Binary
bitwise_right_shift: _Binary
fma: _Ternary
where: _Where
clip: _Clip
sinc: _Unary
# functions: end
