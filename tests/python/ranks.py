# SPDX-License-Identifier: Apache-2.0
"""Cases that run in several processes, the ranks: one start of them runs all cases of a module, and each test reads its own case.

A module of cases has CASES, {name: function}, and ends with ``ranks.main(CASES, begin)``. The ranks find each other by a file, so no port
is fixed. Where a case fails, the others are not run: the ranks are not at one place any more. With NARROWS_RANKS_DEVICE=cuda each rank has a GPU
of its own.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback

import pytest

HERE = pathlib.Path(__file__).parent
SECONDS = 420  # for all cases of a module; a run takes some tens on two cores
NOT_RUN = "not run: a case before it failed"
DEVICE = os.environ.get("NARROWS_RANKS_DEVICE", "cpu")  # of this process, where it is a rank
BACKENDS = {"gloo": "cpu", "nccl": "cuda"}  # what the ranks communicate by, and where their tensors are


def start(script, folder, world, *arguments, **environment):
    """The processes of the ranks. What they print is in rank<n>.log."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **environment}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), environment.get("PYTHONPATH")]))
    processes = []
    for rank in range(world):
        with open(folder / f"rank{rank}.log", "w") as log:
            command = [sys.executable, str(HERE / script), str(folder), str(rank), str(world), *arguments]
            processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment))
    return processes


def wait(processes, seconds=SECONDS):
    """The exit codes; a process that is not done in time is ended, with the code of SIGKILL."""
    until = time.monotonic() + seconds
    for process in processes:
        try:
            process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
    return [process.wait() for process in processes]


def run(script, folder, world, *arguments, **environment):
    """{case: what was wrong on each rank; None: nothing}."""
    codes = wait(start(script, folder, world, *arguments, **environment))
    found = [_report(folder, rank, code) for rank, code in enumerate(codes)]
    return {name: [report.get(name, NOT_RUN) for report in found] for report in found for name in report}


def _report(folder, rank, code):
    path = folder / f"rank{rank}.json"
    if path.exists():
        return json.loads(path.read_text())
    late = "too late" if code == -signal.SIGKILL else f"exit code {code}"
    return {"start": f"rank {rank}: {late}\n{(folder / f'rank{rank}.log').read_text()[-4000:]}"}


def device_of(backend):
    """The environment for run(); skips the test where two ranks would have no GPU of their own."""
    import narrows

    devices = [str(d["device"]) for b in narrows.info()["backends"] for d in b["devices"]]
    gpus = sum(device.startswith("cuda:") for device in devices)
    if backend == "nccl" and gpus < 2:
        pytest.skip(f"two ranks need two GPUs that narrows runs on; there are {gpus}")
    return {"NARROWS_RANKS_DEVICE": BACKENDS[backend]}


def check(reports, name):
    """Fails where the case failed on some rank."""
    wrong = reports.get("start") or reports.get(name, [NOT_RUN])
    assert not any(wrong), "\n".join(f"rank {rank}: {text}" for rank, text in enumerate(wrong) if text)


def main(cases, begin, end=lambda: None):
    """Of a process: begin(folder, rank, world) first."""
    folder, rank, world, *chosen = sys.argv[1:]
    begin(pathlib.Path(folder), int(rank), int(world))
    report = {}
    for name in chosen or cases:
        before = time.monotonic()
        try:
            cases[name]()
            report[name] = None
        except Exception:
            report[name] = traceback.format_exc()
        print(f"{name}: {time.monotonic() - before:.2f} s", flush=True)
        if report[name]:
            break
    pathlib.Path(folder, f"rank{rank}.json").write_text(json.dumps(report))
    if not any(report.values()):
        end()
    os._exit(0)  # a rank that waits for others at its end would wait for one that failed
