# SPDX-License-Identifier: Apache-2.0
"""two_builds.py -- the same calls by two builds of Narrows, in turns: whether a change cost anything.

    python3 benchmarks/two_builds.py BEFORE NOW [--rounds 9] [--json FILE]

BEFORE and NOW: build folders that have python/narrows and bin/bench_dispatch (targets narrows_cpu, narrows_python, bench_dispatch).
One thread, torch's tensors, the processor's time. Each round asks both builds; a row has the medians and the ratio, now to before.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

ROWS = {
    "narrows.add, 16 elements": ("a = torch.rand(16); b = torch.rand(16)", "narrows.add(a, b)"),
    "add f32, 1 M": ("a = torch.rand(1 << 20); b = torch.rand(1 << 20); c = torch.empty(1 << 20)", "narrows.add(a, b, out=c)"),
    "gelu f32, 1 M": ("a = torch.randn(1 << 20); c = torch.empty(1 << 20)", "narrows.gelu(a, out=c)"),
    "exp f64, 1 M": ("a = torch.randn(1 << 20).double(); c = torch.empty_like(a)", "narrows.exp(a, out=c)"),
    "tanh f16, 1 M": ("a = torch.randn(1 << 20).half(); c = torch.empty_like(a)", "narrows.tanh(a, out=c)"),
    "conv1d f32, 64 to 64, K3, L4096": ("x = torch.randn(1, 64, 4096); w = torch.randn(64, 64, 3)", "narrows.conv1d(x, w)"),
    "conv1d f32, depthwise 256, K9": (
        "x = torch.randn(4, 256, 1024); w = torch.randn(256, 1, 9)",
        "narrows.conv1d(x, w, groups=256)",
    ),
    "conv1d bf16, 64 to 64, K3, L4096": (
        "x = torch.randn(1, 64, 4096).bfloat16(); w = torch.randn(64, 64, 3).bfloat16()",
        "narrows.conv1d(x, w)",
    ),
    "conv1d_backward f32, 64 to 64, K3": (
        "x = torch.randn(1, 64, 1024); w = torch.randn(64, 64, 3); y = torch.randn(1, 64, 1022)",
        "narrows.ops.conv1d_backward(y, x, w, None, None)",
    ),
    "lltm f32, B16 F32 S128": (
        "x = torch.randn(16, 32); w = torch.randn(384, 160); b = torch.randn(384); h = torch.randn(16, 128); s = torch.randn(16, 128)",
        "narrows.lltm(x, w, b, h, s)",
    ),
}


def answer():
    """What runs within a build: for each line of the input, the nanoseconds of a call of that row."""
    import time

    import torch

    import narrows

    torch.set_num_threads(1)
    names = {}
    for line in sys.stdin:
        prepare, call = ROWS[line.strip()]
        if line not in names:
            names[line] = {"torch": torch, "narrows": narrows}
            exec(prepare, names[line])
            names[line]["code"] = compile(f"for _ in range(count): {call}", line, "exec")
        space, count, spent = names[line], 1, 0.0
        while spent < 0.05:
            space["count"] = count
            begin = time.process_time()
            exec(space["code"], space)
            spent = time.process_time() - begin
            taken, count = spent / count, count * 2
        print(taken * 1e9, flush=True)


def dispatch(build):
    """Nanoseconds of nw_run with a cached plan."""
    printed = subprocess.run([build / "bin/bench_dispatch"], check=True, capture_output=True, text=True).stdout
    return float(re.search(r"nw_run, cached plan.* ([\d.]+) ns", printed)[1])


def measure(builds, rounds):
    environment = [{**os.environ, "PYTHONPATH": str(build / "python"), "NARROWS_NUM_THREADS": "1"} for build in builds]
    sides = [
        subprocess.Popen([sys.executable, __file__, "--answer"], env=e, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for e in environment
    ]

    def ask(side, row):
        side.stdin.write(row + "\n")
        side.stdin.flush()
        return float(side.stdout.readline())

    found = {}
    for row in ["nw_run, cached plan", *ROWS]:
        times = ([], [])
        for _ in range(rounds):
            for i, build in enumerate(builds):
                times[i].append(dispatch(build) if row.startswith("nw_run") else ask(sides[i], row))
        found[row] = [statistics.median(t) for t in times]
        before, now = found[row]
        print(f"{row:36s} {before:14,.0f} ns {now:14,.0f} ns  {now / before:.2f}", flush=True)
    for side in sides:
        side.communicate()
    return found


def main():
    if sys.argv[1:] == ["--answer"]:
        return answer()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path, metavar="BEFORE")
    parser.add_argument("now", type=pathlib.Path, metavar="NOW")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    for build in (options.before, options.now):
        if not (build / "python/narrows").is_dir():
            parser.error(f"{build} has no python/narrows; expected a build folder with the target narrows_python")
    found = measure([options.before.resolve(), options.now.resolve()], options.rounds)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return None


if __name__ == "__main__":
    sys.exit(main())
