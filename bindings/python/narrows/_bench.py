# SPDX-License-Identifier: Apache-2.0
"""Timing calls: the best of several rounds, so that other work on the machine counts least."""

import time


class Times(dict):
    """Seconds per call of each function, by name; shows them as a table, with ratios to the first."""

    def _rows(self):
        first = next(iter(self.values()), 1.0)
        return [(name, f"{seconds * 1e9:,.0f} ns", f"{seconds / first:.2f}") for name, seconds in self.items()]

    def __repr__(self):
        width = max((len(name) for name in self), default=0)
        return "\n".join(f"{name:{width}}  {seconds:>14}  {ratio:>6}" for name, seconds, ratio in self._rows())

    def _repr_html_(self):
        import html

        body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in self._rows())
        return f"<table><tr><th>call</th><th>time</th><th>ratio</th></tr>{body}</table>"


def bench(functions, *args, seconds=0.5, sync=None, **kwargs):
    """Times one function, or a dict of them, on the same arguments.

    A hundred short rounds of the functions alternate, ``seconds`` for each function in all; the time of each is that of its best round. ``sync`` is called
    after a round: ``torch.cuda.synchronize`` for work on a GPU.

        >>> import numpy, narrows
        >>> x = numpy.ones(16, "float32")
        >>> times = narrows.bench({"numpy": numpy.add, "narrows": narrows.add}, x, x, seconds=0.01)
        >>> list(times)
        ['numpy', 'narrows']
    """
    functions = functions if isinstance(functions, dict) else {getattr(functions, "__name__", "call"): functions}
    rounds = {name: _calls_per_round(f, args, kwargs, sync, seconds / 200) for name, f in functions.items()}
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(100):
        for name, function in functions.items():
            best[name] = min(best[name], _round(function, args, kwargs, sync, rounds[name]))
    return Times(best)


def _round(function, args, kwargs, sync, calls):
    start = time.perf_counter()
    for _ in range(calls):
        function(*args, **kwargs)
    if sync is not None:
        sync()
    return (time.perf_counter() - start) / calls


def _calls_per_round(function, args, kwargs, sync, seconds):
    function(*args, **kwargs)
    return max(1, int(seconds / max(_round(function, args, kwargs, sync, 3), 1e-9)))
