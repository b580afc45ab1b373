# SPDX-License-Identifier: Apache-2.0
"""mutate.py -- changes the product's own lines at random, one at a time, and sees whether a test notices. `./run check mutate` runs it.

The tree itself is never changed: a copy in build/mutate is, and that is built and tested. tests/mutation/record.jsonl has a line
for each change that was tried; the README beside it says how to read it. A change of the record is not tried again, so a run goes
on where it was broken off. A change whose line is gone or reads otherwise leaves the record when it is next written.
"""

import argparse
import collections
import contextlib
import dataclasses
import fnmatch
import hashlib
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

from mutations import Change, Source, drawn

VERDICTS = ("caught", "survived", "equivalent", "uncompiled", "unseen")
COUNTED = ("caught", "survived", "equivalent")
RECORD = "tests/mutation/record.jsonl"
SUFFIXES = (".cpp", ".h", ".hpp")
# What may be changed.
SETS = {"core": "core/*", "common": "backends/common/*", "cpu": "backends/cpu/*"}
CONFORM = ("narrows-conform", "--backend", "cpu", "--environment")  # and the tier
CALLS = "[bad]~[large],[refusal]~[large],[memory],[calls]~[large]~[threads],[plugin]"
CPU_PROGRAM = "test_cpu_program ~[export]"  # without what is about exported plugins, which takes longer than all the rest
OF_OP = ["[{op}]~[large]~[trap]", "[{op}][large],[{op}][trap]", CALLS, "test_cpu"]
OF_BACKEND = ["test_cpu", CALLS, "[lltm]~[large]", "[conv1d]", "[elementwise]"]
# Which tests are about a file, by the first entry that fits: programs, maybe with a pattern, or patterns of the conformance suite. They run in this
# order, up to the first that fails.
TESTS = [
    ("core/program/*", ["test_program", "test_program_schedule", "test_program_api", "test_program_adjoint", CPU_PROGRAM]),
    ("core/program*", ["test_program_api", CPU_PROGRAM, "test_core"]),
    ("backends/*/program*", [CPU_PROGRAM, "test_program_api", "test_program_adjoint", "test_cpu_program [export]"]),
    ("core/ops/{op}.cpp", ["test_core", "[{op}][bad],[{op}][refusal]", CALLS, "[{op}]~[large]~[bad]~[refusal]"]),
    ("core/*", ["test_core", "test_abi", CALLS]),
    ("backends/common/*{op}*", ["test_common", *OF_OP]),
    ("backends/common/*", ["test_common", *OF_BACKEND]),
    ("backends/*/*{op}*", OF_OP),
    ("backends/cpu/ops/gemm/*", ["[lltm]~[large]", "[conv1d]", "[lltm][large]"]),
    ("backends/*", OF_BACKEND),
]
LIST = (pathlib.Path(__file__).parents[2] / "core/ops/ops.inc").read_text(encoding="utf-8")
OPS = tuple(op for op in re.findall(r"^NARROWS_OP\((\w+)\)", LIST, re.M) if not op.endswith("_backward"))
PROGRAMS = ("test_core", "test_abi", "test_common", "test_cpu")  # their targets have their names
PROGRAMS += ("test_program", "test_program_schedule", "test_program_api", "test_program_adjoint", "test_cpu_program")
LIBRARIES = {
    "narrows_core": "lib/libnarrows.so",
    "narrows_program": "lib/libnarrows_program.so",
    "narrows_cpu": "lib/narrows/backends/narrows_cpu.so",
}
TARGETS = (*LIBRARIES, "narrows_conformance_tests", *PROGRAMS)
BUILD_SECONDS, TEST_SECONDS = 3600, 900  # what takes longer does not end
TIMES_LONGER, SECONDS_MORE = 4, 30  # nor what takes so much longer than where it passed
MEMORY = 4 << 30  # bytes that a test may ask for


def tests_of(file, tier):
    """The commands about a file."""
    for pattern, commands in TESTS:
        for op in OPS if "{op}" in pattern else ("",):
            if fnmatch.fnmatch(file, pattern.replace("{op}", op)):
                return [command_of(name.format(op=op), tier) for name in commands]
    raise ValueError(f"no test is about {file}")


def command_of(name, tier):
    words = name.split(" ")
    return tuple(words) if words[0] in PROGRAMS else (*CONFORM, tier, shown(name))


def target_of(command):
    return command[0] if command[0] in PROGRAMS else "narrows_conformance_tests"


def shown(pattern):
    """Of a pattern of Catch2 what is not hidden: no benchmarks, and nothing that takes gigabytes."""
    return ",".join(part + "~[.]" for part in pattern.split(","))


# ---- the record ----


@dataclasses.dataclass
class Entry:
    change: Change
    verdict: str
    note: str = ""  # by which test, or why

    def line(self):
        fields = {**dataclasses.asdict(self.change), "verdict": self.verdict}
        if self.note:
            fields["by" if self.verdict == "caught" else "why"] = self.note
        return json.dumps(fields, ensure_ascii=False)

    @staticmethod
    def of(line):
        fields = json.loads(line)
        note = fields.pop("by", "") or fields.pop("why", "")
        verdict = fields.pop("verdict")
        entry = Entry(Change(**fields), verdict, note)
        if verdict not in VERDICTS or (verdict in ("caught", "equivalent") and not note):
            raise ValueError(
                f"{RECORD}: expected one of {', '.join(VERDICTS)}, the first with `by` and equivalent with `why`: {line}"
            )
        return entry


class Record:
    """What was tried, as far as the sources still have it."""

    def __init__(self, path, sources):
        self.path, self.sources = path, sources
        self.entries, self.gone = {}, 0
        for line in path.read_text().splitlines() if path.exists() else []:
            self.put(Entry.of(line))

    def put(self, entry):
        source = self.sources.get(entry.change.file)
        index = source.find(entry.change) if source else None
        if index is None:
            self.gone += 1
        else:
            self.entries[entry.change.key] = dataclasses.replace(entry, change=dataclasses.replace(entry.change, line=index + 1))

    def save(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        order = sorted(self.entries.values(), key=lambda entry: (entry.change.file, entry.change.line, entry.change.key))
        new = self.path.with_suffix(".new")
        new.write_text("".join(entry.line() + "\n" for entry in order))
        new.replace(self.path)

    def counts(self):
        return collections.Counter(entry.verdict for entry in self.entries.values())


def show(record):
    """What the record says of them all; the survivors by name."""
    counts = record.counts()
    judged = counts["caught"] + counts["survived"]
    tried = sum(counts[verdict] for verdict in COUNTED)
    print(f"  {tried} points: {counts['caught']} caught, {counts['survived']} survived, {counts['equivalent']} equivalent", end="")
    print(f"; {counts['uncompiled']} more did not compile, {counts['unseen']} are unseen here; {record.gone} are gone")
    if judged:
        print(f"  {100 * counts['caught'] / judged:.1f} % of those that are not equivalent were caught")
    for entry in record.entries.values():
        if entry.verdict == "survived":
            print(f"  survived  {entry.change}")


# ---- the copy ----


class Copy:
    """The tree in build/mutate, and its build."""

    def __init__(self, root, tier, log):
        self.root, self.tree, self.tier, self.log = root, root / "build/mutate", tier, log
        self.build_folder = self.tree / "build/cpu"
        self.times = self.tree / "seconds.json"  # by command: the most that it took where it passed
        self.seconds = json.loads(self.times.read_text()) if self.times.exists() else {}

    def refresh(self):
        """Files as in the tree; those that are alike keep their time, so that they are not built again."""
        listed = subprocess.run(
            ["git", "-C", self.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True,
            check=True,
        ).stdout
        files = {name for name in os.fsdecode(listed).split("\0") if name and (self.root / name).is_file()}
        manifest = self.tree / "files.txt"
        for name in set(manifest.read_text().splitlines() if manifest.exists() else []) - files:
            (self.tree / name).unlink(missing_ok=True)
        for name in files:
            old, new = self.tree / name, self.root / name
            if not old.exists() or old.read_bytes() != new.read_bytes():
                old.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(new, old)
                shutil.copymode(new, old)
        manifest.write_text("\n".join(sorted(files)))
        if not (self.tree / ".deps").exists():
            (self.tree / ".deps").symlink_to(self.root / ".deps")

    def configure(self):
        options = [
            "-DNARROWS_BUILD_TESTS=ON",
            "-DCMAKE_PROJECT_INCLUDE=scripts/check/mutate.cmake",
            f"-DNARROWS_MUTATE_TIER={self.tier}",
            "-DCMAKE_LINK_DEPENDS_NO_SHARED=ON",  # a changed libnarrows is no reason to link the tests again
            *(f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX") if shutil.which("ccache")),
        ]
        return self._logged(["cmake", "-S", self.tree, "--preset", "cpu", *options])

    def build(self, targets, seconds=None):
        return self._logged(
            ["cmake", "--build", self.build_folder, "--parallel", str(os.cpu_count()), "--target", *targets], seconds
        )

    def _logged(self, command, seconds=None):
        environment = {"CCACHE_BASEDIR": str(self.root), "CCACHE_NOHASHDIR": "1", **os.environ}
        with self.log.open("ab") as log:
            return run(command, log, environment, seconds) == 0

    def artifacts(self):
        """A hash of what a change can differ in."""
        return [hashlib.sha256((self.build_folder / name).read_bytes()).hexdigest() for name in LIBRARIES.values()]

    def write(self, file, data):
        (self.tree / file).write_bytes(data)

    def test(self, command, output):
        """0, the status of a test that failed, or None: not done in time."""
        start, name = time.monotonic(), " ".join(command)
        with output.open("wb") as log:
            status = run(
                [self.build_folder / "bin" / command[0], *command[1:], "--abort"], log, os.environ, self.limit(command), MEMORY
            )
        if status == 0:
            self.seconds[name] = max(self.seconds.get(name, 0), time.monotonic() - start)
            self.times.write_text(json.dumps(self.seconds, indent=1))
        return status

    def limit(self, command):
        known = self.seconds.get(" ".join(command))
        return TEST_SECONDS if known is None else TIMES_LONGER * known + SECONDS_MORE


def run(command, log, environment, seconds=None, memory=None):
    """The exit status, negative for a signal; None: all of its processes were ended after so many seconds."""

    def limit():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if memory:
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))

    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True, preexec_fn=limit
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        for ending in (signal.SIGTERM, signal.SIGKILL):  # ninja ends its compilers when it is asked to
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                if process.poll() is None:
                    os.killpg(process.pid, ending)
                    process.wait(5)


def failed_test(text):
    """The test that Catch2 says has failed; a test that warns has the same heading."""
    headings = re.findall(r"^-{79}\n(.+)\n(?:.*\n)*?-{79}\n", text.partition(": FAILED:")[0], re.MULTILINE)
    return headings[-1] if ": FAILED:" in text and headings else ""


def one_test(command, test):
    """The command for a test alone, by the first line of its name; the command itself where nothing names a test."""
    if not test:
        return command
    pattern = re.sub(r"([\\,\[\]*])", r"\\\1", test) + "*"
    return (*command[:-1], pattern) if command[0] == CONFORM[0] else (command[0], pattern)


# ---- a point ----


class Judge:
    """Builds and tests one change after the other."""

    def __init__(self, copy, sources):
        self.copy, self.sources = copy, sources
        self.output = copy.tree / "test.log"
        self.passing = set()  # commands that were seen to pass: on the tree as it is, or in spite of a change
        if not copy.build(TARGETS):
            sys.exit(f"mutate: the tree does not build as it is; the log is {copy.log}")
        self.original = copy.artifacts()

    def judge(self, change):
        """An entry, or None: the test that failed fails without the change, too."""
        source = self.sources[change.file]
        self.copy.write(change.file, source.changed(change))
        try:
            entry, failed = self._changed(change)
        finally:
            self.copy.write(change.file, source.data)  # and is built with the next change
        return entry if not failed or self.passing & set(failed) or self._passes(failed[-1]) else None

    def _changed(self, change):
        """The entry, and what failed: a command, and the same for the one test."""
        if not self.copy.build(LIBRARIES, BUILD_SECONDS):
            return Entry(change, "uncompiled"), ()
        if self.copy.artifacts() == self.original:
            if change.file.startswith("backends/"):  # it may be of another tier, or of GPUs alone
                return Entry(change, "unseen"), ()
            return Entry(change, "equivalent", "the compiler makes the same code of it"), ()
        for command in tests_of(change.file, self.copy.tier):
            if not self.copy.build([target_of(command)], BUILD_SECONDS):
                return Entry(change, "uncompiled"), ()
            status = self.copy.test(command, self.output)
            if status == 0:
                self.passing.add(command)
                continue
            test = "" if status is None else failed_test(self.output.read_text(errors="replace"))
            how = " does not end" if status is None else f" ends by signal {-status}" if status < 0 else ""
            return Entry(change, "caught", f"{command[0]}: {test or command[-1]}{how}"), (command, one_test(command, test))
        return Entry(change, "survived"), ()

    def _passes(self, command):
        self.copy.build([*LIBRARIES, target_of(command)])
        if self.copy.test(command, self.output) == 0:
            self.passing.add(command)
        return command in self.passing


# ---- the command ----


def sources_in(root, sets, files):
    found = {}
    for path in sorted(path for name in sets for path in root.glob(SETS[name].replace("/*", "/**/*"))):
        name = path.relative_to(root).as_posix()
        if path.suffix in SUFFIXES and (not files or any(fnmatch.fnmatch(name, pattern) for pattern in files)):
            found[name] = Source(name, path.read_bytes())
    return found


def points(order, record, again, count):
    """Those of the order that are still to be tried, while fewer than `count` are: the record's that count are among them."""
    tried = 0
    for change in order:
        entry = record.entries.get(change.key)
        if entry is None or entry.verdict == again:
            entry = yield change
        tried += entry is not None and entry.verdict in COUNTED
        if tried >= count:
            return


def try_points(arguments, record, sources, judge):
    """Each verdict is in the record as soon as it is there."""
    end = time.monotonic() + arguments.seconds if arguments.seconds else None
    chosen = points(drawn(sources.values(), arguments.seed), record, arguments.again, arguments.points)
    change = next(chosen, None)
    while change is not None and (end is None or time.monotonic() < end):
        start = time.monotonic()
        entry = judge.judge(change)
        if entry is not None:
            record.put(entry)
            record.save()
        verdict, note = (
            (entry.verdict, entry.note) if entry else ("undecided", "the test that failed fails without the change, too")
        )
        print(f"  {verdict:10} {change}  {note}  ({time.monotonic() - start:.0f} s)", flush=True)
        try:
            change = chosen.send(entry)
        except StopIteration:
            return
    if change is not None:
        print(f"  broken off after {arguments.seconds} s: fewer than {arguments.points} points of seed {arguments.seed} were tried")


def parse(words):
    parser = argparse.ArgumentParser(
        prog="./run check mutate --", description="Changes the product's lines at random; which change does no test notice?"
    )
    parser.add_argument("--seed", default="1", help="which changes: any word; the same one draws the same changes")
    parser.add_argument("--points", type=int, default=10, help="so many that compile, those of the record included")
    parser.add_argument("--seconds", type=int, help="begin no further point after so many")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="folders; all of them if not given")
    parser.add_argument("--files", nargs="+", default=[], metavar="PATTERN", help="of these files alone, as 'core/plan_*'")
    parser.add_argument("--again", choices=VERDICTS, help="try those again that the record has with this verdict")
    parser.add_argument("--report", action="store_true", help="only say what the record has")
    return parser.parse_args(words)


def main(root, words):
    arguments = parse(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("mutate: ended by a signal"))  # which ends what it started, too
    root = pathlib.Path(root)
    everything = sources_in(root, SETS, [])
    record = Record(root / RECORD, everything)
    if not arguments.report:
        tier = "avx2" if re.search(r"\bavx2\b", pathlib.Path("/proc/cpuinfo").read_text()) else "baseline"
        copy = Copy(root, tier, root / "build/log/mutate.log")
        copy.refresh()
        if not copy.configure():
            sys.exit(f"mutate: cmake fails; the log is {copy.log}")
        chosen = sources_in(root, arguments.sets, arguments.files)
        try_points(arguments, record, chosen, Judge(copy, everything))
    show(record)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
