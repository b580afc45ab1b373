# SPDX-License-Identifier: Apache-2.0
"""Values that hypothesis chooses, and makes as simple as it can where one fails."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from narrows.testing import _compare
from narrows.testing._compare import Mismatch
from narrows.testing._run import Run
from narrows.testing._subject import Case, Subject


def check(run: Run, subject: Subject, cases: Sequence[Case], count: int) -> None:
    for case in {c.dtypes: c for c in reversed(cases)}.values():
        if any(callable(v) for v in subject.ranges()):
            run.leave_out("hypothesis: values are given by a function")
        elif all(d != "bfloat16" for d in case.dtypes):
            run.check(f"examples: {case}", _search, subject, case, count)


def _elements(dtype: str, low: float, high: float) -> Any:
    if dtype == "bool":
        return st.booleans()
    if _compare.is_float(dtype):
        width: Any = {"float16": 16, "float32": 32, "float64": 64}[dtype]
        low, high = (float(np.dtype(dtype).type(end)) for end in (low, high))
        return st.floats(low, high, width=width)
    low = max(low, 0) if dtype.startswith("u") else low
    return st.integers(int(np.ceil(low)), max(int(np.floor(high)), int(np.ceil(low))))


def _search(subject: Subject, case: Case, count: int) -> None:
    strategies = [
        st.none() if shape is None else hnp.arrays(dtype, shape, elements=_elements(dtype, *values))
        for shape, dtype, values in zip(case.shapes, case.dtypes, subject.ranges(), strict=True)
    ]

    @settings(
        max_examples=max(count, 1),
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.data_too_large, HealthCheck.filter_too_much, HealthCheck.too_slow],
        phases=(Phase.generate, Phase.shrink),
        print_blob=False,
    )
    @given(st.tuples(*strategies))
    def holds(arrays: Any) -> None:
        arrays = [None if x is None else np.ascontiguousarray(x) for x in arrays]
        try:
            subject.compare(subject(arrays, case), arrays, subject.refer(arrays, case), case)
        except Mismatch as error:
            inputs = ", ".join(f"{name} = {x.tolist()}" for name, x in zip(subject.names, arrays, strict=True) if x is not None)
            raise Mismatch(f"{error}\n    of {inputs}") from None

    search: Any = holds
    try:
        search()
    except Mismatch as error:
        error.__notes__ = []
        raise
