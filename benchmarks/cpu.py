# SPDX-License-Identifier: Apache-2.0
"""The cpu backend beside torch's CPU build and a copy: ./run bench, or

    PYTHONPATH=build/cpu/python python3 benchmarks/cpu.py [--filter WORDS] [--quick]

Each configuration (threads, instruction set) has a worker of its own, because both libraries choose once; case by case the workers take turns. Results are
merged into a JSON file, so that parts may be measured one after another; the table is of all that is in it."""

import argparse
import contextlib
import ctypes
import dataclasses
import json
import mmap
import os
import pathlib
import platform
import queue
import shlex
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
    "avx512_bf16": {"NARROWS_CPU_TARGET": "avx512_bf16", "ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"},
    "avx512": {"NARROWS_CPU_TARGET": "avx512", "ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    "avx2": {"NARROWS_CPU_TARGET": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "sse4": {"NARROWS_CPU_TARGET": "sse4", "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "neon": {"NARROWS_CPU_TARGET": "neon"},
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

    def __init__(self, threads):
        size = max(128 << 20, harness.last_level_cache())
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
    arch = narrows.devices()[0].info["arch"].split(",")[0]
    print(
        json.dumps({"arch": arch, "torch": torch.backends.cpu.get_cpu_capability(), "torch_version": torch.__version__}),
        file=channel,
        flush=True,
    )
    for line in sys.stdin:
        request = json.loads(line)
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
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return {"cpu": model, "cores": len(PINNED), "system": platform.system(), "date": time.strftime("%Y-%m-%d")}


def all_names():
    import cpu_cases

    return [(c.name, c.family) for c in cpu_cases.cases()]


def fits(name, family, wanted):
    """Has it all words of one of the alternatives? Words of several parts stand in quotation marks."""
    return any(all(word in f"{name}\n{family}" for word in shlex.split(words)) for words in wanted.split("|"))


def chosen(options):
    """Every so-many-th of them is a part: slow ones stand together."""
    part, parts = map(int, options.part.split("/"))
    return [name for name, family in all_names() if fits(name, family, options.filter)][part - 1 :: parts]


def numbers(text):
    return [int(t) for t in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(prog="./run bench --", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--filter", default="", help="""cases whose name or family has all of these words; '"add f32 4 K" | LLTM f64'""")
    add("--threads", type=numbers, default=sorted({1, len(PINNED)}), help="1,2: on each of these (default: on one, and on all)")
    add("--isa", default="native", help="avx512,avx2,sse4: each of these tiers (default: what each library chooses)")
    add("--quick", action="store_true", help="a fifth of the time for each row")
    add("--tries", type=int, default=3, help="how often a row is measured if other processes disturb it (default: 3)")
    add("--part", default="1/1", help="2/5: the second of five parts of the cases")
    add("--json", default=str(ROOT / "build/bench/cpu.json"), help="the results join this file (default: %(default)s)")
    add("--list", action="store_true", help="the names of the cases, and nothing else")
    add("--report", action="store_true", help="measure nothing: the table of all that is in the file")
    add("--write", metavar="PAGE", default=str(ROOT / "build/bench/performance.md"),
        help="all that is in the file goes into this page, between its markers, and a picture beside it (default: %(default)s)")  # fmt: skip
    add("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.isa.split(",")) - set(TIERS)
    return options if not unknown else parser.error(f"--isa {','.join(unknown)}; expected some of {', '.join(TIERS)}")


def progress(text):
    """On a terminal one line that changes, else one for each row."""
    print(f"\r\033[K{text}"[: 3 + 130] if sys.stdout.isatty() else text, end="" if sys.stdout.isatty() else "\n", flush=True)


def run(options):
    """Returns the rows, failed ones included; the good ones are in the file."""
    names = chosen(options)
    effort = dataclasses.replace(harness.QUICK if options.quick else harness.Effort(), tries=options.tries)
    if not names:
        raise SystemExit(f"no case has all of these words: '{options.filter}'")
    workers = [Worker(threads, isa) for isa in options.isa.split(",") for threads in options.threads]
    arch = {w.isa: [w.about["arch"], w.about["torch"]] for w in workers}
    rows, order, of = [], [name for name, _ in all_names()], {"commit": harness.commit(), "date": time.strftime("%Y-%m-%d")}
    for name in names:
        new = [{**w.row(name, effort), **of} for w in workers]
        for row in new:
            progress(report.live(row))
        rows += new
        results = harness.load(options.json)
        known = results["machine"].get("arch", {})
        about = {**machine(), "torch": workers[0].about["torch_version"], "arch": {**known, **arch}}
        good = [r for r in new if "failed" not in r]
        harness.save(options.json, harness.merge(results, good, about, order))
    progress("")
    return rows


def main():
    options = parse()
    if options.worker:
        return worker(options.worker)
    if options.list:
        return print(*chosen(options), sep="\n")
    rows = [] if options.report else run(options)
    failed = [row for row in rows if "failed" in row]
    results = harness.load(options.json)
    shown = [r for r in results["rows"] if options.report or harness.key(r) in {harness.key(row) for row in rows}]
    print(report.table({**results, "rows": shown}))
    for row in failed:
        print(report.live(row))
    if results["rows"]:
        report.write(results, options.write)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
