"""The cpu backend beside torch's CPU build and a copy: ./run bench, or

    PYTHONPATH=build/cpu/python python3 benchmarks/cpu.py [--filter WORDS] [--quick]

Each configuration (threads, instruction set) has a worker of its own, because both libraries choose once; case by case the workers take turns. Results are
merged into a JSON file, so that parts may be measured one after another; the table is of all that is in it."""

import argparse
import contextlib
import ctypes
import json
import mmap
import os
import pathlib
import platform
import queue
import subprocess
import sys
import threading
import time

import harness
import report

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent

# What each library reads, so that all of them stay within a tier. torch's plain build is x86-64's baseline; MKL and oneDNN are inside torch.
TIERS = {
    "native": {},
    "avx512": {"NARROWS_CPU_TARGET": "avx512", "ATEN_CPU_CAPABILITY": "avx512"},
    "avx2": {"NARROWS_CPU_TARGET": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "sse4": {"NARROWS_CPU_TARGET": "sse4", "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "baseline": {"NARROWS_CPU_TARGET": "baseline", "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
}  # fmt: skip


# ---- a worker: one number of threads, one instruction set ----


def compiled_copy():
    """stream_copy.c as a library; each worker may be the first, so it is put in place whole."""
    source, library = HERE / "stream_copy.c", ROOT / "build/bench/stream_copy.so"
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        library.parent.mkdir(parents=True, exist_ok=True)
        own = library.with_suffix(f".{os.getpid()}")
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", source, "-o", own], check=True)
        own.replace(library)
    function = ctypes.CDLL(str(library)).stream_copy
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t], None
    return function  # ctypes releases the GIL around it


class Copy:
    """The floor: bytes per second that stream_copy reads and writes, each thread its share, all at once. Neither library takes part in it."""

    def __init__(self, threads, size=128 << 20):
        self.copy, self.share = compiled_copy(), size // threads // 64 * 64
        self.nbytes = 2 * self.share * threads
        self.buffers = [mmap.mmap(-1, size) for _ in range(2)]
        self.to, self.source = (ctypes.addressof(ctypes.c_char.from_buffer(b)) for b in self.buffers)
        ctypes.memset(self.source, 1, size)
        self.work, self.done = queue.SimpleQueue(), queue.SimpleQueue()
        self.helpers = [threading.Thread(target=self._serve, daemon=True) for _ in range(threads - 1)]
        for helper in self.helpers:
            helper.start()

    def _serve(self):
        while True:
            self._part(self.work.get())
            self.done.put(None)

    def _part(self, i):
        self.copy(self.to + i * self.share, self.source + i * self.share, self.share)

    def __call__(self):
        for i, _ in enumerate(self.helpers, start=1):
            self.work.put(i)
        self._part(0)
        for _ in self.helpers:
            self.done.get()


def tids():
    return {int(t) for t in os.listdir("/proc/self/task")}


def pin(start):
    """Starts threads and pins them to the cores after the caller's, in turn: a scheduler that puts two of one team on a core costs milliseconds."""
    before, cores = tids(), sorted(PINNED)
    result = start()
    for i, tid in enumerate(sorted(tids() - before)):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(tid, {cores[(i + 1) % len(cores)]})
    return result


PINNED = os.sched_getaffinity(0)


def worker(threads):
    """Reads the names of cases, writes their rows."""
    import torch

    import narrows

    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is not an answer
    torch.set_num_threads(threads)
    large = torch.zeros(4 << 20)
    pin(lambda: torch.neg(large, out=large))
    pin(lambda: narrows.negative(large, out=large))
    copy = pin(lambda: Copy(threads))
    os.sched_setaffinity(0, {min(PINNED)})
    import cpu_cases

    cases = {c.name: c for c in cpu_cases.cases()}
    arch = narrows.devices()[0].info["arch"]
    print(
        json.dumps({"arch": arch, "torch": torch.backends.cpu.get_cpu_capability(), "torch_version": torch.__version__}),
        file=channel,
        flush=True,
    )
    for line in sys.stdin:
        request = json.loads(line)
        torch.set_grad_enabled("backward" in request["name"])
        try:
            row = harness.run_case(cases[request["name"]], harness.Effort(**request["effort"]), copy)
        except Exception as error:
            row = {"name": request["name"], "failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(row), file=channel, flush=True)


class Worker:
    def __init__(self, threads, isa):
        self.threads, self.isa = threads, isa
        environment = {**os.environ, **TIERS[isa], "NARROWS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen([sys.executable, __file__, "--worker", str(threads)], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
        self.about = json.loads(self.process.stdout.readline() or "{}")
        if not self.about:
            raise SystemExit(f"the worker for {isa}, {threads} threads ended before it began; what it said is above")

    def row(self, name, effort):
        self.process.stdin.write(json.dumps({"name": name, "effort": vars(effort)}) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"the worker for {self.isa}, {self.threads} threads ended in '{name}'")
        return {**json.loads(answer), "threads": self.threads, "isa": self.isa}


# ---- the command ----


def machine():
    model = next(
        (line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine()
    )
    return {"cpu": model, "cores": len(PINNED), "system": platform.system(), "date": time.strftime("%Y-%m-%d")}


def chosen(options):
    import cpu_cases

    words = options.filter.split()
    found = [c.name for c in cpu_cases.cases() if all(w in f"{c.name} | {c.family}" for w in words)]
    part, parts = map(int, options.part.split("/"))
    return [name for i, name in enumerate(found) if i * parts // len(found) == part - 1]


def numbers(text):
    return [int(t) for t in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(prog="./run bench --", description=__doc__.splitlines()[0])
    parser.add_argument("--filter", default="", help="cases whose name or family has all of these words")
    parser.add_argument(
        "--threads", type=numbers, default=sorted({1, len(PINNED)}), help="1,2: each of these numbers (default: one and all)"
    )
    parser.add_argument(
        "--isa", default="native", help="avx512,avx2,sse4,baseline: each of these tiers (default: what each library chooses)"
    )
    parser.add_argument("--quick", action="store_true", help="a quarter of the time for each row")
    parser.add_argument("--part", default="1/1", help="2/5: the second fifth of the cases")
    parser.add_argument(
        "--json", default=str(ROOT / "build/bench/cpu.json"), help="results are merged into this file (default: %(default)s)"
    )
    parser.add_argument("--list", action="store_true", help="the names of the cases")
    parser.add_argument("--report", action="store_true", help="measure nothing: the table of what is in the file")
    parser.add_argument(
        "--write", metavar="FILE", help="write the table into FILE, between its two markers, and a picture beside it"
    )
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def run(options):
    names, effort = chosen(options), harness.QUICK if options.quick else harness.Effort()
    if not names:
        raise SystemExit(f"no case has all of these words: '{options.filter}'")
    workers = [Worker(threads, isa) for isa in options.isa.split(",") for threads in options.threads]
    about = {
        **machine(),
        "torch": workers[0].about["torch_version"],
        "arch": {w.isa: [w.about["arch"], w.about["torch"]] for w in workers},
    }
    failures = 0
    for name in names:
        rows = [w.row(name, effort) for w in workers]
        for row in rows:
            failures += report.live(row, max(options.threads))
        results = harness.load(options.json)
        about["arch"] = {**results["machine"].get("arch", {}), **about["arch"]}
        harness.save(options.json, harness.merge(results, [r for r in rows if "failed" not in r], about))
    return failures


def main():
    options = parse()
    if options.worker:
        return worker(options.worker)
    if options.list:
        return print(*chosen(options), sep="\n")
    failures = 0 if options.report else run(options)
    results = harness.load(options.json)
    if options.report:
        print(report.table(results))
    print(report.summary(results))
    if options.write:
        report.write(results, options.write)
    return sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
