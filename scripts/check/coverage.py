# SPDX-License-Identifier: Apache-2.0
"""coverage.py FOLDER ACCEPTED EXPORT: which branches of core the tests took. FOLDER is the checkout, EXPORT what `llvm-cov export` wrote.

A branch is one outcome, true or false, of one condition in the source; of a function that is made from a template several times, all
count as one. ACCEPTED lists the branches that nothing takes, one a line, each with its reason; "at times": it depends on the threads.

- `core/elf.cpp` `fstat(file.fd, &status) != 0` true: an open file can always be asked
- `core/thread_pool.cpp` `!state.compare_exchange_weak(s, s + 1)` true, at times: two workers enter a job at the same moment

Prints a table of the files. Fails where a branch is neither taken nor listed, where a listed one is taken or is gone, and below LIMIT.
"""

import collections
import json
import pathlib
import re
import sys

LIMIT = 95  # percent of all branches, those listed included
LINE = re.compile(r"^- `([^`]+)` `([^`]+)` (true|false)(, at times)?: \S")


def condition(lines, begin_line, begin_column, end_line, end_column):
    """The text of a condition, as if it stood on one line."""
    text = lines[begin_line - 1 : end_line]
    text[-1] = text[-1][: end_column - 1]
    text[0] = text[0][begin_column - 1 :]
    return " ".join(" ".join(text).split())


def branches(file, source):
    """The times that each branch was taken, by its place, condition and outcome."""
    counts = collections.Counter()
    for begin_line, begin_column, end_line, end_column, taken, not_taken, *_ in file["branches"]:
        text = condition(source, begin_line, begin_column, end_line, end_column)
        counts[begin_line, begin_column, text, "true"] += taken
        counts[begin_line, begin_column, text, "false"] += not_taken
    return counts


def accepted(path):
    """How often each (file, condition, outcome) is listed; and which of them may be taken."""
    listed, at_times = collections.Counter(), set()
    for line in path.read_text().splitlines():
        if line.startswith("- "):
            match = LINE.match(line)
            if not match:
                sys.exit(f"{path.name}: expected - `file` `condition` true|false[, at times]: reason, and found {line}")
            listed[match.group(1, 2, 3)] += 1
            if match.group(4):
                at_times.add(match.group(1, 2, 3))
    return listed, at_times


def percent(part, whole):
    return f"{100 * part / whole if whole else 100:5.1f} %"


def main(folder, accepted_path, export):
    folder, accepted_path = pathlib.Path(folder), pathlib.Path(accepted_path)
    files = json.loads(pathlib.Path(export).read_text())["data"][0]["files"]
    known, untaken, total, lines_total = set(), {}, collections.Counter(), collections.Counter()
    print(f"  {'':28}{'branches':>9}{'taken':>7}{'':9}{'lines':>6}{'run':>6}")
    for file in sorted(files, key=lambda file: file["filename"]):
        name = pathlib.Path(file["filename"]).relative_to(folder).as_posix()
        if not name.startswith("core/"):
            continue
        counts = branches(file, (folder / name).read_text().splitlines())
        taken, lines = sum(count > 0 for count in counts.values()), file["summary"]["lines"]
        total += collections.Counter(branches=len(counts), taken=taken)
        lines_total += collections.Counter(count=lines["count"], covered=lines["covered"])
        row = f"{len(counts):9}{taken:7}  {percent(taken, len(counts))}" if counts else f"{'-':>9}{'':16}"
        print(f"  {name:28}{row}{lines['count']:6}{lines['covered']:6}  {percent(lines['covered'], lines['count'])}")
        for (line, _, text, outcome), count in counts.items():
            known.add((name, text, outcome))
            if count == 0:
                untaken.setdefault((name, text, outcome), []).append(line)
    share = 100 * total["taken"] / total["branches"]
    print(
        f"  {'core':28}{total['branches']:9}{total['taken']:7}  {percent(total['taken'], total['branches'])}"
        f"{lines_total['count']:6}{lines_total['covered']:6}  {percent(lines_total['covered'], lines_total['count'])}"
    )

    listed, at_times = accepted(accepted_path)
    wrong = []
    for (name, text, outcome), places in untaken.items():
        if len(places) > listed[name, text, outcome]:
            at = ", ".join(map(str, places))
            wrong.append(f"{name}:{at}: `{text}` is never {outcome}, and {accepted_path.name} does not say why")
    for (name, text, outcome), count in listed.items():
        taken = count > len(untaken.get((name, text, outcome), []))
        if taken and not ((name, text, outcome) in at_times and (name, text, outcome) in known):
            wrong.append(f"{accepted_path.name}: {name}: `{text}` is {outcome} now, or not there any more: take it off the list")
    if share < LIMIT:
        wrong.append(f"{share:.1f} % of core's branches were taken; expected {LIMIT} % or more")
    count = sum(map(len, untaken.values()))
    print("".join(f"\n{text}" for text in wrong) or f"\n{count} branches are not taken, for the reasons in {accepted_path.name}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
