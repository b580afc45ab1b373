# SPDX-License-Identifier: Apache-2.0
"""narrows.testing judged: a correct plugin passes, and each planted fault is caught by the check that is about it. Where the
declaration alone tells of the fault, narrows conform catches it too."""

import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import narrows
import narrows.testing
from narrows.testing import _device, _run, _subject

# y = factor * x, its backward, and the backward of that: of float32 and float64, refused unless factor > 0. Each fault takes the
# place of a part.
SOURCE = """
#include <narrows/plugin.hpp>
#include <cmath>
using namespace narrows::plugin;
struct Params { double factor; };

template <class T> const T* read(const Launch& call, uint32_t i) {
  return call.has_input(i) ? reinterpret_cast<const T*>(call.input<char>(i)) : nullptr;
}
template <class T> T* write(const Launch& call, uint32_t i) { return reinterpret_cast<T*>(call.output<char>(i)); }

template <class T> void forward_of(const Launch& call) {
  const T factor = static_cast<T>(call.params<Params>().factor), *x = read<T>(call, 0);
  T* const y = write<T>(call, 0);
  const int64_t n = call.size(0), rank = call.out(0).ndim;
  [[maybe_unused]] const bool is_f32 = call.in(0).dtype.bits == 32;
  [[maybe_unused]] const double* const wide = read<double>(call, 0);
  %(before)s
  call.parallel_for(%(count)s, [=](int64_t i) { y[i] = %(value)s; });
}
template <class T> void backward_of(const Launch& call) {  // grad_y?, x, y? -> grad_x
  const T factor = static_cast<T>(call.params<Params>().factor), *g = read<T>(call, 0);
  T* const grad = write<T>(call, 0);
  call.parallel_for(call.size(0), [=](int64_t i) { grad[i] = g == nullptr ? 0 : %(slope)s * g[i]; });
}
template <class T> void second_of(const Launch& call) {  // grad_grad_x?, grad_y?, x, y?, grad_x? -> grad_grad_y?, grad_x?, grad_y?
  const T factor = static_cast<T>(call.params<Params>().factor), *g = read<T>(call, 0);
  for (uint32_t j = 0; j < 3; ++j) {
    if (!call.has_output(j)) continue;
    T* const out = write<T>(call, j);
    call.parallel_for(call.size(j), [=](int64_t i) { out[i] = j != 0 || g == nullptr ? 0 : %(second)s * g[i]; });
  }
}
void forward(const Launch& call) { %(is_f32)s ? forward_of<float>(call) : forward_of<double>(call); }
void backward(const Launch& call) { call.in(1).dtype.bits == 32 ? backward_of<float>(call) : backward_of<double>(call); }
void second(const Launch& call) { call.in(2).dtype.bits == 32 ? second_of<float>(call) : second_of<double>(call); }

void check(const Signature& call) {
  const double factor = call.params<Params>().factor;
  if (%(wrong_params)s) throw std::invalid_argument("factor is " + std::to_string(factor) + "; expected more than 0");
}

const std::vector<nw_param> kParams = {field("factor", &Params::factor, 2.0)};
const std::vector<DLDataType> kFloats = {dtype<float>(), dtype<double>()};
const std::vector<Op> kOps = {
    {.name = "planted.%(name)s/1", .inputs = {"x"}, .outputs = {"y%(out_dtype)s"}, .kernel = forward, .params = kParams,
     .params_size = sizeof(Params), .dtypes = kFloats, .backward = "planted.%(name)s_backward/1", .saved = 1, .flags = %(flags)s,
     .check = check},
    {.name = "planted.%(name)s_backward/1", .inputs = {"grad_y?", "x", "y?"}, .outputs = {"grad_x?"}, .kernel = backward,
     .params = kParams, .params_size = sizeof(Params), .dtypes = kFloats,
     .backward = "planted.%(name)s_second/1", .saved = 2, .check = check},
    {.name = "planted.%(name)s_second/1", .inputs = {"grad_grad_x?", "grad_y?", "x", "y?", "grad_x?"},
     .outputs = {"grad_grad_y?", "grad_of_x?", "grad_of_y?"}, .kernel = second,
     .params = kParams, .params_size = sizeof(Params), .dtypes = kFloats, .check = check}};
%(plugin)s
"""

PLUGIN = """
extern "C" __attribute__((visibility("default"))) const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) {
  static const Plugin* const plugin = new Plugin("planted_%(name)s", kOps);
  return plugin->table(host_major, error);
}
"""

# A plugin that lets plan() see contiguous tensors, whatever the strides are.
STRIDES_IGNORED = """
int32_t (*inner)(void*, const nw_sig*, void**, nw_plan_info*, nw_error*);
struct Loose : Plugin {
  Loose() : Plugin("planted_%(name)s", kOps) {
    inner = table_.plan;
    table_.plan = [](void* self, const nw_sig* sig, void** plan, nw_plan_info* info, nw_error* error) {
      std::vector<nw_tensor_sig> tensors(sig->tensors, sig->tensors + sig->num_inputs + sig->num_outputs);
      std::vector<std::vector<int64_t>> strides;
      for (nw_tensor_sig& t : tensors) {
        strides.emplace_back(std::max(t.ndim, 0));
        for (int64_t d = t.ndim, n = 1; d-- > 0; n *= t.shape[d]) {
          if (t.strides[d] < 0) return inner(self, sig, plan, info, error);
          strides.back()[d] = n;
        }
        t.strides = strides.back().data();
      }
      nw_sig seen = *sig;
      seen.tensors = tensors.data();
      return inner(self, &seen, plan, info, error);
    };
  }
};
extern "C" __attribute__((visibility("default"))) const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) {
  static const Plugin* const plugin = new Loose;
  return plugin->table(host_major, error);
}
"""

CORRECT = {
    "before": "",
    "count": "n",
    "value": "factor * x[i]",
    "slope": "factor",
    "second": "factor",
    "is_f32": "call.in(0).dtype.bits == 32",
    "wrong_params": "!(factor > 0)",
    "flags": "NW_OP_BATCHABLE",
    "out_dtype": "",
    "plugin": PLUGIN,
}
WRITES, LAYOUT = "own: every op has calls*", "own: any layout*"
BACKWARD, GUARD = "own: the backward op is the derivative*", "own: loads and stores past*"
# name: (what is wrong, the kinds of check_op that catch it, words of the failure, the test of narrows conform that does, or None)
FAULTS = {
    "dtype": ({"is_f32": "true"}, {"values", "writes"}, "output y[", WRITES),
    "strides": ({"plugin": STRIDES_IGNORED}, {"layouts"}, "layouts: numpy, transposed; float32 (3, 5)", LAYOUT),
    "tail": ({"count": "n / 4 * 4"}, {"writes", "sizes"}, "into memory whose bytes were", WRITES),
    "gradient": ({"slope": "1"}, {"gradient"}, "the gradient of x[", BACKWARD),
    "second": ({"second": "1"}, {"second gradient"}, "the derivative of the gradient of y[", BACKWARD),
    "params": ({"wrong_params": "false"}, {"params", "refused"}, "reference raises ValueError: factor", None),
    "nan": (
        {"wrong_params": "false", "value": "std::sqrt(factor) * std::sqrt(factor) * x[i]"},
        {"params", "refused"},
        "gives NaN; expected that factor = -1.0 is refused, or listed in params",
        None,
    ),
    "out_dtype": (
        {"out_dtype": ": f32", "is_f32": "true", "value": "factor * static_cast<float>(is_f32 ? x[i] : wide[i])"},
        {"values"},
        "output y has dtype float32; expected float64",
        None,
    ),
    "reads": ({"before": "if (n != 0) static_cast<void>(*const_cast<const volatile T*>(x + n));"}, {"guard"}, "SIGSEGV", GUARD),
    "neighbour": ({"value": "factor * x[i] + (i + 1 == n && !(x[n] == 0) ? 1 : 0)"}, {"neighbours", "guard"}, "SIGSEGV", GUARD),
    "writes": ({"before": "if (n != 0) y[n] = 0;"}, {"writes", "guard"}, "SIGSEGV", GUARD),
    "threads": (
        {"value": "factor * x[i] + (several ? 1 : 0)", "before": "const bool several = n > 9999 && call.usable_threads() > 1;"},
        {"threads"},
        "threads, and not by one",
        None,
    ),
    "large": ({"value": "factor * x[i] + (i > 65536 ? 1 : 0)"}, {"large"}, "output y[", None),
    "scratch": (
        {"before": "static T scratch[1 << 18]; for (int64_t i = 0; i < n; ++i) scratch[i] = factor * x[i];", "value": "scratch[i]"},
        {"threads"},
        "in calls from several threads at once",
        None,
    ),
    "crash": ({"slope": "*static_cast<volatile T*>(nullptr)"}, {"gradient"}, "in a child process", None),
    "second_crash": ({"second": "*static_cast<volatile T*>(nullptr)"}, {"second gradient"}, "in a child process", None),
    "reads_gradient": ({"slope": "(static_cast<const volatile T*>(g)[i + 1] * 0 + factor)"}, {"gradient"}, "SIGSEGV", None),
    "throws": (
        {"slope": '(i == 0 ? throw std::runtime_error("no slope") : factor)'},
        {"gradient"},
        "in a child process, first byte at a page; float32 (3, 5); factor = 3.0\n    RuntimeError: planted.throws_backward/1: no slope\n",
        None,
    ),
    "batch": ({"value": "factor * x[i] + (rank == 3 ? 1 : 0)"}, {"vmap"}, "output y[", "own: a batch of calls*"),
}


def planted(name, fault):
    parts = {**CORRECT, **fault, "name": name}
    parts["plugin"] = parts["plugin"] % parts
    return getattr(narrows.load_inline(f"planted_{name}", SOURCE % parts, flags=["-O1"]), name)


def reference(x, factor=2.0):
    if not factor > 0:
        raise ValueError("factor is wrong")
    return factor * x


def check(op, **how):
    arguments = {"dtypes": ["float32", "float64"], "params": [{"factor": 3.0}], "refused": [{"factor": -2.0}], "examples": 5}
    return narrows.testing.check_op(op, reference, [(3, 5)], **{**arguments, **how})


@pytest.fixture(scope="module")
def correct(own_cache):
    return planted("correct", {})


def test_a_correct_op_passes(correct, capsys):
    report = check(correct)
    assert {
        "guard",
        "large",
        "values",
        "writes",
        "sizes",
        "layouts",
        "neighbours",
        "threads",
        "dtypes",
        "params",
        "refused",
    } <= set(report.passed)
    assert f"{correct.op}: " in capsys.readouterr().out
    for framework, kinds in (("torch", ("gradient", "second gradient", "vmap", "compile")), ("jax", ("jit",))):
        try:
            __import__(framework)
        except ImportError:
            assert any(framework in what.lower() for what in report.left_out)
        else:
            assert all(report.passed[kind] for kind in kinds), report
    assert "PASSED" in narrows.testing.conform(correct, "[own]", "[plugin]")


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_caught(name, own_cache):
    fault, kinds, words, in_conform = FAULTS[name]
    if name == "threads" and narrows.get_num_threads() == 1:
        pytest.skip("the runtime has one thread")
    if name in ("gradient", "second", "batch"):
        pytest.importorskip("torch")
    op = planted(name, fault)
    said = {}
    for kind in kinds:  # each alone: after a crash nothing else is run
        with pytest.raises(AssertionError) as error:
            check(op, only=kind)
        said[kind] = str(error.value)
        assert said[kind].startswith(f"{op.op}: {kind}: ") and "factor = " in said[kind], said[kind]
    assert any(words in text for text in said.values()), said
    if in_conform is not None:
        with pytest.raises(AssertionError, match="with factor = "):
            narrows.testing.conform(op, in_conform)


@pytest.mark.parametrize("name", ["correct", "tail", "writes", "strides", "gradient", "large", "params"])
def test_checks_of_a_device_catch_faults_too(name, own_cache):
    """Those that devices= asks for, on the CPU: what differs on a GPU is where the memory is."""
    op = planted(name, FAULTS[name][0] if name in FAULTS else {})
    subject, cpu = _subject.Subject(op, reference, (-2.0, 2.0), None, None, None, 0), narrows.Device("cpu")
    cases = subject.cases(["float32", "float64"], [(3, 5)], None)

    def checked(only):
        run = _run.Run(op, only)
        _device.check(run, subject, cases, _subject.SIZES, True, False, cpu)
        _device.check_refused(run, subject, cases[0], [{"factor": -2.0}], cpu)
        return run.end()

    if name == "correct":
        kinds = {"values", "writes", "sizes", "layouts", "neighbours", "large", "gradient", "refused"}
        assert set(checked(None).passed) == kinds
        return
    for kind in {"writes": {"writes"}, "params": {"refused"}}.get(name, FAULTS[name][1]):  # alone: some faults break the heap
        with pytest.raises(AssertionError, match=re.escape(f"{op.op}: {kind}: cpu")):
            checked(kind)


def test_a_kernel_that_throws_fails_alone(own_cache):
    """Of a forward kernel, too; and other kinds of checks are run."""
    op = planted("throws_forward", {"before": 'if (n == 15) throw std::runtime_error("no fifteen");'})
    with pytest.raises(AssertionError, match=r"guard: .*\n    RuntimeError: planted\.throws_forward/1: no fifteen\n") as error:
        check(op)
    assert f"{op.op}: values: " in str(error.value)


def test_devices_that_are_not_here(correct):
    for devices, words in (("cuda:99", "devices has 'cuda:99'; here are cpu"), ([], "devices is empty"), ("x", "device 'x'")):
        with pytest.raises(ValueError, match=words):
            check(correct, devices=devices)


def test_the_line_that_repeats_a_failure(own_cache):
    """It names the check and the test, and by it that check alone is run."""
    op = planted("gradient", FAULTS["gradient"][0])
    pytest.importorskip("torch")
    with pytest.raises(AssertionError) as error:
        check(op)
    again = re.search(r"again: NARROWS_TEST_ONLY='(gradient: torch; [^']+)' python -m pytest '?(\S+::\w+)'?", str(error.value))
    assert again and again[2].endswith("test_the_line_that_repeats_a_failure"), str(error.value)
    with pytest.raises(AssertionError) as one:
        check(op, only=again[1])
    assert str(one.value).count(f"{op.op}: ") == 1
    assert re.search(
        r"the gradient of x\[\d+, \d+\] is \S+; finite differences of the reference give \S+, \S+ ulp apart", str(one.value)
    )


def test_only_is_from_the_environment_too(correct, monkeypatch):
    monkeypatch.setenv("NARROWS_TEST_ONLY", "values")
    assert set(check(correct).passed) == {"values"}
    with pytest.raises(ValueError, match="only = 'vaules'"):
        check(correct, only="vaules")


def test_the_worst_element_is_told(correct):
    with pytest.raises(AssertionError) as error:
        narrows.testing.check_op(correct, lambda x, factor=2.0: np.where(x == x.max(), 0, factor * x), [(3, 5)], only="values")
    assert re.search(r"output y\[\d, \d\] is \S+; the reference has 0.0, \S+ ulp apart \(32 allowed\); 1 of 15", str(error.value))


def test_tolerances(correct):
    """A reference that is two units off, of float32."""
    off = lambda x, factor=2.0: factor * x * (1 + 2.0**-22)  # noqa: E731
    check_ = lambda **how: narrows.testing.check_op(correct, off, [(3, 5)], only="values", **how)  # noqa: E731
    check_()
    check_(ulps={"float32": 5}, per_element=True)
    for how in ({"ulps": 0.5}, {"ulps": {"float32": 1}, "per_element": True}):
        with pytest.raises(AssertionError, match="allowed"):
            check_(**how)


def test_a_layout_may_be_declined_unless_it_may_not(correct):
    assert check(correct, only="layouts").declined["layouts"] > 0
    with pytest.raises(AssertionError, match="expected a C-contiguous tensor"):
        check(correct, only="layouts", strided=True)


def test_a_reference_in_torch(correct):
    torch = pytest.importorskip("torch")
    calls = []

    def of_torch(x, factor=2.0):
        calls.append(type(torch.mul(x, factor)))
        return torch.mul(x, factor)

    report = narrows.testing.check_op(correct, of_torch, [(3, 5)], ["float32", "float64"])
    assert set(calls) == {torch.Tensor} and report.passed["second gradient"] == 6  # of 2 dtypes, each with 2 in a child process


def test_broadcasting_and_built_in_ops():
    add = narrows.op("elementwise", function="add")
    report = narrows.testing.check_op(add, np.add, [((3, 5), (3, 5))], ["float32", "int32"], strided=True, gradients=False)
    assert report.passed["broadcasting"] > 10 and not report.declined["layouts"]
    with pytest.raises(AssertionError, match=r"values: numpy; int32 \(2,\), \(2,\)"):
        narrows.testing.check_op(add, lambda a, b: a + b + (a.dtype.kind == "i"), [((2,), (2,))], ["int32"], only="values")


def test_values_and_what_is_wrong_with_a_call(correct):
    seen = []

    def keep(x, factor=2.0):
        seen.append((x.min(initial=0), x.max(initial=0)))
        return factor * x

    narrows.testing.check_op(correct, keep, [(40,)], values={"x": (5, 6)}, only="values", gradients=False)
    assert all(5 <= high <= 6 for _, high in seen)
    narrows.testing.check_op(correct, keep, [(4,)], values={"x": lambda rng, shape: np.full(shape, 7)}, only="values")
    assert seen[-1][1] == 7
    for how, words in (
        ({"values": {"z": (0, 1)}}, r"values has \['z'\]; expected names of inputs: x"),
        ({"dtypes": "float31"}, "dtypes has 'float31'"),
        ({"shapes": [((3,), (4,))]}, "expected one for each of x"),
        ({"shapes": []}, "empty"),
    ):
        with pytest.raises(ValueError, match=words):
            narrows.testing.check_op(**{"op": correct, "reference": keep, "shapes": [(4,)], **how})


@pytest.mark.parametrize(
    "how, words",
    [
        ({"op": np.add}, f"op = {np.add!r}; expected an op of narrows or its name"),
        ({"reference": 3}, "reference = 3; expected a function"),
        ({"reference": lambda x: None}, "the reference returned None; expected an array"),
        ({"reference": lambda x: {"y": x}}, "the reference returned {'y': array("),
        ({"shapes": 3}, "shapes = 3; expected a list of shapes, as [(3,), (3, 4)]"),
        ({"shapes": [3]}, "shapes[0] = 3; expected a tuple, as (3,)"),
        ({"shapes": (3, 4)}, "shapes[0] = 3; expected a tuple, as (3,)"),
        ({"shapes": [(2.5,)]}, "shapes[0][0] = 2.5; expected a shape, as (3, 4)"),
        ({"shapes": [(3,), (-1,)]}, "shapes[1] = (-1,); expected extents of 0 or more"),
        ({"dtypes": np.float32}, f"dtypes = {np.float32!r}; expected names of dtypes, as 'float32'"),
        ({"dtypes": [3]}, "dtypes[0] = 3; expected the name of a dtype"),
        ({"dtypes": []}, "dtypes is empty; expected at least one"),
        ({"params": 3}, "params = 3; expected a dict, or several"),
        ({"params": [{}, 3]}, "params[1] = 3; expected a dict of params by name"),
        ({"params": {"faktor": 3}}, "params[0] = {'faktor': 3}; expected params of planted.correct/1: factor"),
        ({"refused": "factor"}, "refused = 'factor'; expected a dict, or several"),
        ({"refused": {"faktor": 3}}, "refused[0] = {'faktor': 3}; expected params of planted.correct/1: factor"),
        ({"devices": None}, "devices = None; expected a device or several, as 'cpu'"),
        ({"devices": [3]}, "devices[0] = 3; expected a device, as 'cpu'"),
        ({"values": 3}, "values = 3; expected (low, high), or a function of a random generator and a shape"),
        ({"values": {"x": (2, 1)}}, "values['x'] = (2, 1); expected finite numbers, the lower one first"),
        ({"out_dtypes": "f4"}, "out_dtypes has 'f4'; expected one of bool"),
        ({"out_dtypes": ["float32"] * 2}, "out_dtypes = ['float32', 'float32']; expected one for each of y"),
        ({"ulps": {"float32": "x"}}, "ulps['float32'] = 'x'; expected a number, or a dict of numbers by dtype"),
        ({"ulps": -1}, "ulps = -1; expected 0 or more"),
        ({"per_element": 3}, "per_element = 3; expected True or False"),
        ({"gradients": 3}, "gradients = 3; expected True or False"),
        ({"op": "planted.correct_second", "gradients": True}, "gradients = True; expected False: planted.correct_second/1"),
        ({"strided": "no"}, "strided = 'no'; expected True or False"),
        ({"sizes": 3}, "sizes = 3; expected numbers of 0 or more"),
        ({"sizes": [1, "a"]}, "sizes[1] = 'a'; expected an integer"),
        ({"examples": -1}, "examples = -1; expected 0 or more"),
        ({"only": 3}, "only = 3; expected a kind of check"),
        ({"seed": None}, "seed = None; expected an integer"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_is_wrong_with_an_argument(correct, how, words):
    with pytest.raises((TypeError, ValueError), match="^" + re.escape(f"check_op: {words}")):
        narrows.testing.check_op(**{"op": correct, "reference": lambda x: 2 * x, "shapes": [(4,)], **how})


def test_a_function_of_narrows_takes_the_shape_alone():
    report = narrows.testing.check_op(
        narrows.exp, np.exp, [(3,)], only="gradient: in a child process, last byte at a page; float32 (3,), absent, absent"
    )
    assert report.passed["gradient"] == 1


def test_frameworks_that_are_not_installed_are_said(correct):
    path = narrows.testing._path_of(correct)
    code = f"""
        import importlib.util, sys
        real = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: None if name in ("torch", "jax", "hypothesis") else real(name, *rest)
        import narrows, narrows.testing
        narrows.load({path!r})
        report = narrows.testing.check_op("planted.correct", lambda x, factor=2.0: factor * x, [(4,)])
        assert [what.partition(",")[0].partition(":")[0] for what in report.left_out] == [
            "counterexamples that are made small", "torch", "JAX"], report.left_out
        assert "torch" not in sys.modules and "jax" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_examples_by_hypothesis(own_cache):
    pytest.importorskip("hypothesis")
    op = planted("rare", {"value": "x[i] > 1.5 ? 0 : factor * x[i]"})
    with pytest.raises(AssertionError, match=r"of x = \[\["):
        check(op, only="examples", examples=200)
