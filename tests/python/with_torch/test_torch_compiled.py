# SPDX-License-Identifier: Apache-2.0
"""torch.compile by Inductor: the values of what it computes itself, our kernels called straight, gradients, sizes, caches."""

import importlib.metadata
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import narrows  # noqa: E402
import narrows.torch  # noqa: E402
from narrows import _functions  # noqa: E402
from torch_inputs import DEVICES, cells, on_device, pairs  # noqa: E402

HERE = pathlib.Path(__file__).parents[1]
inductor = pytest.importorskip("torch._inductor.utils", reason="this torch has no Inductor")
if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    pytest.skip("before torch 2.10 Inductor calls the ops by torch's dispatcher", allow_module_level=True)


@pytest.fixture(autouse=True, params=DEVICES)
def device(request):
    torch._dynamo.reset()
    yield from on_device(request.param)


def compiled_code(call, *inputs, **how):
    """The results of the compiled call, and the code that Inductor made of it."""
    results, code = inductor.run_and_get_code(torch.compile(call, fullgraph=True, **how), *inputs)
    return results, "\n".join(code)


# ---- values: those of our kernels, to the bit ----


def views(tensors):
    """The same with all elements but one: as they are, and every second one of a tensor twice as long."""
    tensors = [x[:-1].clone() for x in tensors]
    return tensors, [torch.stack([x, x.flip(0)], 1)[:, 0] for x in tensors]


def assert_same_bits(ours, expected, name):
    """NaN is NaN, whatever its bits; maximum and minimum do not say which zero they give."""
    assert (ours.dtype, ours.shape) == (expected.dtype, expected.shape), name
    as_bits = lambda x: x.view([torch.uint8, torch.int16, torch.int32, torch.int64][x.element_size().bit_length() - 1])  # noqa: E731
    same = as_bits(ours) == as_bits(expected)
    if ours.is_floating_point():
        same |= (ours != ours) & (expected != expected)
        same |= (ours == 0) & (expected == 0) if name in ("maximum", "minimum", "clip") else torch.zeros_like(same)
    assert same.all(), f"{name}: {ours[~same][:4]}; expected {expected[~same][:4]}"


def all_functions(dtype):
    """{name: a call of three tensors and a bool one}, of every function that takes the dtype."""
    kinds = "FNA" if dtype.is_floating_point else "BA" if dtype == torch.bool else "NBIA"
    call = lambda f, n: lambda a, b, c, condition: f(*(a, b, c)[:n])  # noqa: E731
    found = {name: call(getattr(narrows, name), row[1]) for name, row in _functions.TABLE.items() if row[2] in kinds}
    found["where"] = lambda a, b, c, condition: narrows.where(condition, a, b)
    if dtype != torch.bool:
        found["add a number"] = lambda a, b, c, condition: narrows.add(a, 3)
        found["subtract from zero"] = lambda a, b, c, condition: narrows.subtract(0, a)
        found["truth of truths"] = lambda a, b, c, condition: narrows.logical_or(narrows.less(a, b), narrows.equal(a, c))
        found["where it is less"] = lambda a, b, c, condition: narrows.where(narrows.less(a, b), c, 0)
    return found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "bool"])
def test_values_are_those_of_our_kernels(dtype):
    tensors = pairs(getattr(torch, dtype))
    condition = (torch.arange(len(tensors[0])) % 5).to(torch.uint8).view(torch.bool)  # any byte but 0 is true
    calls = all_functions(tensors[0].dtype)
    compiled = torch.compile(lambda *inputs: [f(*inputs) for f in calls.values()], fullgraph=True, dynamic=False)
    for inputs in views((*tensors, condition))[: 2 if dtype == "float32" else 1]:  # each is compiled anew
        for name, ours in zip(calls, compiled(*inputs), strict=True):
            assert_same_bits(ours, calls[name](*inputs), name)


CHAINS = {
    "the zero of a negated difference": lambda a, b, c: narrows.negative(narrows.subtract(a, b)),
    "each sum is rounded": lambda a, b, c: narrows.subtract(narrows.add(a, b), a),
    "so is each product": lambda a, b, c: narrows.add(narrows.multiply(a, b), c),
    "and each quotient": lambda a, b, c: narrows.multiply(narrows.divide(a, b), b),
    "a zero that relu gives": lambda a, b, c: narrows.add(narrows.relu(a), b),
    "a zero that where gives": lambda a, b, c: narrows.add(narrows.where(narrows.greater(a, 0.5), 0.0, c), b),
    "a zero that torch gives": lambda a, b, c: narrows.add(a, torch.zeros_like(a)),
    "the sign of a pole": lambda a, b, c: narrows.reciprocal(narrows.negative(narrows.subtract(a, b))),
    "a number is rounded": lambda a, b, c: narrows.multiply(narrows.add(a, 0.1), 1e300),
    "a bound": lambda a, b, c: narrows.clip(narrows.square(a), min=narrows.abs(b)),
    "torch's own between": lambda a, b, c: narrows.sqrt(torch.abs(narrows.subtract(a, b))),
    "our kernel between": lambda a, b, c: narrows.add(narrows.exp(narrows.multiply(a, 0.5)), b),
}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_values_of_chains(dtype):
    tensors = pairs(getattr(torch, dtype))
    compiled = torch.compile(lambda *inputs: [f(*inputs) for f in CHAINS.values()], fullgraph=True, dynamic=False)
    for name, ours in zip(CHAINS, compiled(*tensors), strict=True):
        assert_same_bits(ours, CHAINS[name](*tensors), name)


def test_what_is_exact_of_16_bits_fuses():
    a, b, c = pairs(torch.bfloat16)
    call = lambda a, b, c: narrows.where(narrows.less(narrows.negative(a), b), narrows.negative(c), narrows.abs(b))  # noqa: E731
    results, code = compiled_code(call, a, b, c)
    assert "narrows_bound" not in code
    assert_same_bits(results, call(a, b, c), "a chain of bfloat16")


# ---- what the code is ----


def test_a_chain_is_one_kernel():
    a, b = torch.randn(2, 5, 7)
    call = lambda a, b: narrows.clip(torch.sin(narrows.add(narrows.abs(a), b[0])), -0.5, narrows.maximum(a, b))  # noqa: E731
    results, code = compiled_code(call, a, b)
    assert "narrows" not in code.replace("narrows.elementwise", "")  # which a comment names
    torch.testing.assert_close(results, call(a, b))


def test_graphs_and_code_name_each_op():
    """With what the user annotated, and in comments of the code that Inductor makes."""
    graphs = []

    def call(x, w):
        with torch.fx.traceback.annotate({"part": "head"}):
            return narrows.exp(narrows.add(narrows.conv1d(x, w), 1))

    inputs = torch.randn(1, 2, 8), torch.randn(3, 2, 3)
    torch.compile(call, backend=lambda graph, _: graphs.append(graph) or graph, fullgraph=True)(*inputs)
    nodes = [n for n in graphs[0].graph.nodes if n.op == "call_function"]
    assert [n.name for n in nodes] == ["conv1d_default", "add", "exp"]
    assert all(
        n.meta["custom"] == {"part": "head"} and "def call" not in n.stack_trace and __file__ in n.stack_trace for n in nodes
    )
    torch._dynamo.reset()
    _, code = compiled_code(call, *inputs)
    assert "Original ATen: [narrows.conv1d]" in code and "[narrows.elementwise]" in code


def test_our_kernels_are_called_straight(scale_plugin, device):
    x, w, cell = torch.randn(2, 3, 9), torch.randn(4, 3, 3), cells()
    scale = scale_plugin.scale if device == "cpu" else (lambda x, factor: narrows.add(x, factor))  # the plugin is for the CPU

    def call(x, w, *cell):
        return narrows.conv1d(x, w, padding=1), narrows.exp(narrows.lltm(*cell)[0]), scale(x, factor=3.0)

    results, code = compiled_code(call, x, w, *cell)
    assert "= torch.ops.narrows." not in code
    assert code.count("= narrows_bound(") == 3 + (device == "cpu")
    torch.testing.assert_close(results, call(x, w, *cell))


def test_without_a_grad_mode_and_beside_a_mode():
    """Who looks on by a dispatch mode sees the ops that compiled code calls."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            seen.append(str(function))
            return function(*arguments, **(keywords or {}))

    from narrows._torch_inductor import bound

    x, w = torch.randn(1, 2, 9), torch.randn(3, 2, 3)
    conv1d = bound("conv1d", {"stride": 2})
    cell = bound("lltm", {})
    backward = bound("conv1d_backward", {"stride": 2, "wanted": 0b10})
    y = conv1d(x, w)
    torch.testing.assert_close(y, narrows.conv1d(x, w, stride=2))
    (grad,) = backward(y, x, w)
    with Watch():
        assert torch.equal(conv1d(x, w), y) and torch.equal(backward(y, x, w)[0], grad)
        cell(*cells())
    assert [name for name in seen if name.startswith("narrows.")] == [
        "narrows.conv1d.default",
        "narrows.conv1d_backward.default",
        "narrows.lltm.default",
    ]


def test_gradients_and_sizes():
    """One graph for every length, with gradients through what Inductor computes and what our kernels do."""
    call = lambda x, w, b: narrows.multiply(narrows.tanh(narrows.conv1d(x, w, padding=1)), narrows.add(b, 1)).sum()  # noqa: E731
    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor")
    compiled = torch.compile(call, backend=counter, fullgraph=True, dynamic=True)
    for n in (9, 12, 17):
        inputs = [torch.randn(*s, requires_grad=True) for s in ((2, 3, n), (4, 3, 3), (4, 1))]
        ours, expected = compiled(*inputs), call(*inputs)
        torch.testing.assert_close(ours, expected)
        torch.testing.assert_close(*[torch.autograd.grad(y, inputs) for y in (ours, expected)])
    assert counter.frame_count == 1


# ---- the switch ----

SWITCH = """
import torch, narrows
from torch._inductor.utils import run_and_get_code
x = torch.arange(3.0)
y, code = run_and_get_code(torch.compile(lambda x: narrows.add(x, x)), x)
print(torch.equal(y, x + x), "narrows_bound" in code[0], torch._dynamo.utils.counters["inductor"]["fxgraph_cache_hit"])
"""


def test_the_switch_keeps_our_kernels(tmp_path):
    """Nor does Inductor's cache bring back what was compiled with the other setting."""
    shown = []
    for fuse in ("1", "0"):
        env = {**os.environ, "NARROWS_TORCH_FUSE": fuse, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
        shown.append(subprocess.run([sys.executable, "-c", SWITCH], env=env, capture_output=True, text=True, check=True).stdout)
    assert shown == ["True False 0\n", "True True 0\n"]


# ---- a real network ----


def silero_vad():
    spec = importlib.util.spec_from_file_location("silero_example", HERE.parents[1] / "examples" / "silero_vad.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_silero_vad(device):
    example = silero_vad()
    try:
        model = example.package_model()
    except ImportError as error:
        pytest.skip(str(error))
    ours, theirs = example.SileroVAD(model).to(device), model._model.to(device)
    compiled, exact = torch.compile(ours, fullgraph=True), example.SileroVAD(model).double().to(device)
    with torch.no_grad():
        for batch in (1, 3):
            samples, state = torch.randn(batch, example.CHUNK + example.CONTEXT) / 8, torch.randn(2, batch, example.STATE) / 4
            expected, _ = theirs(samples, state)  # the package's own state is up to 4e-6 from that of float64
            _, exact_state = exact(samples.double(), state.double())
            for network in (ours, compiled):
                speech, state_after = network(samples, state)
                torch.testing.assert_close(speech, expected, rtol=0, atol=1e-6)
                torch.testing.assert_close(state_after.double(), exact_state, rtol=0, atol=2e-6)
        if device == "cpu":
            recording = example.recording(None)
            chunks = recording[: len(recording) // example.CHUNK * example.CHUNK].view(-1, 1, example.CHUNK)
            expected = torch.cat([model(chunk, example.RATE) for chunk in chunks])[:, 0]
            for network in (ours, compiled):
                torch.testing.assert_close(example.probabilities(network, recording), expected, rtol=0, atol=1e-6)


def test_silero_vad_says_that_the_package_is_missing(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(ImportError, match="silero-vad is not installed; pip install"):
        silero_vad().package_model()
