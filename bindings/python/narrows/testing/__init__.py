# SPDX-License-Identifier: Apache-2.0
"""Tests for an op of one's own: :func:`check_op` beside a reference, in every framework that is installed; :func:`conform`.

It needs NumPy, and takes torch, JAX, ml_dtypes and hypothesis where they are installed. docs/guides/test_op.md has examples.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from narrows import _errors, _narrows
from narrows.testing import _arguments, _compare, _device, _numpy
from narrows.testing._run import Report, Run
from narrows.testing._subject import SIZES, Case, Subject

__all__ = ["Report", "check_op", "conform"]


def __getattr__(name: str) -> Any:
    raise _errors.attribute(__name__, name, __dir__())


def __dir__() -> list[str]:
    return [*__all__, "__doc__"]


def check_op(
    op: Any,
    reference: Callable[..., Any],
    shapes: Sequence[Any],
    dtypes: Any = "float32",
    params: Any = None,
    *,
    devices: Any = "cpu",
    refused: Sequence[Mapping[str, Any]] = (),
    values: Any = (-2.0, 2.0),
    out_dtypes: Any = None,
    ulps: Any = None,
    per_element: bool | None = None,
    gradients: bool | None = None,
    strided: bool = False,
    sizes: Sequence[int] = SIZES,
    examples: int = 25,
    only: str | None = None,
    seed: int = 0,
) -> Report:
    """Compares an op with a reference in NumPy or torch; AssertionError with every kind of check that fails.

    ``op``: an op or its name. ``reference(*inputs, **params)``: takes NumPy's arrays, or torch's tensors where it refuses those; floats
    come as float64. ``shapes``: calls, each a shape for every input, None where one is absent; of an op that takes one input the shape alone.
    ``dtypes``: names, for all inputs, or tuples of one for each. ``params``: a dict or several; the reference is given the same.

    - ``devices``: where it is checked: "cpu", "cuda", "vulkan:1", or several. On other devices than the CPU values, sizes, memory,
      layouts and gradients are, without frameworks. ValueError: the device is not here.
    - ``refused``: params that the op has to refuse
    - ``values``: the range of what inputs hold, or a dict of ranges or functions of a random generator and a shape, by input
    - ``out_dtypes``: what outputs have to be: a name, one for each, or a function of the inputs' dtypes. Unless given: of the reference's
      kind, and floats as the first floating-point input
    - ``ulps``: the tolerance, a number or a dict by dtype; unless given 32 for float32 and float64, 4 for float16 and bfloat16. They are
      units in the last place of the largest number in the call, or, with ``per_element``, of each element. Element-wise ops
      (``.batch = "*"``) are judged per element. Gradients have 4 times the tolerance, second ones 8 times.
    - ``gradients``: whether they are checked; unless given, where the op declares a backward
    - ``strided``: a layout that the op declines (NotImplementedError) fails
    - ``sizes``: what takes the place of each extent of the first shapes; the op may refuse it, and the reference may fail
    - ``examples``: how many calls hypothesis tries for each dtype, if it is installed
    - ``only``: one check or kind of checks, as a failure names it; the environment's NARROWS_TEST_ONLY is the same
    - ``seed``: of the inputs' values

    Returns what was checked and what was left out, as for a framework that is not installed.

        >>> import numpy, narrows, narrows.testing
        >>> report = narrows.testing.check_op(narrows.tanh, numpy.tanh, [(3, 5)], only="sizes")
        elementwise: 30 checks passed
          sizes: 30
        >>> report.passed["sizes"]
        30
    """
    _arguments.check_flag("strided", strided)
    _arguments.check_count("examples", examples)
    if only is not None and not isinstance(only, str):
        raise TypeError(f"check_op: only = {only!r}; expected a kind of check, or a check as a failure names it")
    subject = Subject(op, reference, values, out_dtypes, ulps, per_element, seed)
    sizes, refused = _arguments.sizes(sizes), _arguments.dicts("refused", refused)
    _arguments.check_params(subject.op, "refused", refused)
    if gradients is not None:
        _arguments.check_flag("gradients", gradients)
    if gradients and subject.op.backward is None:
        raise ValueError(f"check_op: gradients = {gradients}; expected False: {subject.op.op} declares no backward")
    run = Run(subject.op, only if only is not None else os.environ.get("NARROWS_TEST_ONLY"))
    cases = subject.cases(dtypes, shapes, params)
    subject.find_framework(cases[0])
    wants_gradients = subject.op.backward is not None if gradients is None else gradients
    for device in _device.named(devices):
        if str(device) == "cpu":
            _check_on_cpu(run, subject, cases, sizes, wants_gradients, strided, refused, examples)
        else:
            _device.check(run, subject, cases, sizes, wants_gradients, strided, device)
            _device.check_refused(run, subject, cases[0], refused, device)
    report = run.end()
    print(report)
    return report


def _check_on_cpu(
    run: Run,
    subject: Subject,
    cases: Sequence[Case],
    sizes: Sequence[int],
    gradients: bool,
    strided: bool,
    refused: Sequence[Mapping[str, Any]],
    examples: int,
) -> None:
    _numpy.check(run, subject, cases, sizes, gradients, strided)
    _numpy.check_refused(run, subject, cases[0], refused)
    if _is_installed("hypothesis"):
        from narrows.testing import _examples

        _examples.check(run, subject, cases, examples)
    else:
        run.leave_out("counterexamples that are made small: hypothesis is not installed")
    framework_cases = _without_bfloat16(run, cases)
    if _is_installed("torch"):
        from narrows.testing import _torch

        _torch.check(run, subject, framework_cases, gradients, strided)
    else:
        run.leave_out("torch, and all gradients but JAX's: it is not installed")
    if _is_installed("jax"):
        from narrows.testing import _jax

        _jax.check(run, subject, framework_cases, gradients)
    else:
        run.leave_out("JAX: it is not installed")


def _is_installed(name: str) -> bool:
    return name in sys.modules or importlib.util.find_spec(name) is not None


def _without_bfloat16(run: Run, cases: Sequence[Case]) -> list[Case]:
    return [case for case in cases if all(_compare.numpy_dtype(d) is not None for d in case.dtypes)]


def conform(plugin: Any, *patterns: str, timeout: float = 60) -> str:
    """Runs ``narrows conform`` on a plugin: a path, or an op whose plugin it is. AssertionError with the verdict where it fails.

    ``patterns``: the tests to run, as the command takes them; all by default. ``timeout``: seconds without a sign of life until a test has
    failed. Returns the verdict's text. RuntimeError: this package has no suite.
    """
    path = _path_of(plugin)
    command = [sys.executable, "-m", "narrows", "conform", "--plugin", path, "--timeout", str(timeout), *patterns]
    paths = [str(pathlib.Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode == 1:
        raise AssertionError(f"narrows conform --plugin {path}\n{done.stdout}{done.stderr}")
    if done.returncode != 0:
        raise RuntimeError(f"narrows conform --plugin {path}: {done.stderr.strip()}")
    return done.stdout


def _path_of(plugin: Any) -> str:
    if not isinstance(plugin, _narrows.Op):
        return os.path.realpath(plugin)
    for backend in _narrows.backends():
        if backend["status"] == "ok" and not backend["shadowed"] and any(o["name"] == plugin.op for o in backend["ops"]):
            return backend["path"]
    raise ValueError(f"conform: no plugin that is loaded has {plugin.op}")
