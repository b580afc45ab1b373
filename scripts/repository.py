#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what a reader and a contributor meet: words, sentences, commands, files, duplicates; at several commits side by side.

scripts/repository.py           writes docs/internals/repository.json, and the table of it in docs/internals/repository.md
scripts/repository.py --table   writes the table only, from the data
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import duplicates

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA, PAGE = ROOT / "docs/internals/repository.json", ROOT / "docs/internals/repository.md"
COMMITS = {"0.1.0": "1528e62", "before": "c632020", "now": "HEAD"}
GUIDES = re.compile(
    r"docs/((start|guides)/.*|python|gpu|cuda|vulkan|models|examples|conformance|faq)\.md|docs/(start|guides)/.*\.md"
)
FOLDERS = (
    *("core/program", "backends/common", "backends/cpu/ops", "backends/cuda/ops", "backends/vulkan/shaders"),
    *("tests/conformance", "tests/program", "tests/python"),
)
LINES_ALIKE = 8


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True).stdout.decode(errors="replace")


class Tree:
    """The files of a commit."""

    def __init__(self, commit):
        self.commit = git("rev-parse", "--short=7", commit).strip()
        self.names = git("ls-tree", "-r", "--name-only", self.commit).splitlines()

    def read(self, name):
        return git("show", f"{self.commit}:{name}") if name in self.names else ""

    def matching(self, pattern):
        return {name: self.read(name) for name in self.names if pattern.fullmatch(name)}


def prose(markdown):
    """The sentences, as lists of words: no code, no tables, no headings. A list's entry ends a sentence."""
    text = re.sub(r"^(```|~~~).*?^(```|~~~)", "", markdown, flags=re.M | re.S)
    text = re.sub(r"^\s*(\||#|<|!\[|\[!\[|:?::).*$", "", text, flags=re.M)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)", text)
    sentences = [s for block in blocks for s in re.split(r"(?<=[.!?])\s+", " ".join(block.split()))]
    words = [[w for w in s.split() if re.search(r"\w", w)] for s in sentences]
    return [w for w in words if len(w) > 1]


def of_prose(name, texts):
    sentences = [s for text in texts for s in prose(text)]
    lengths = [len(s) for s in sentences] or [0]
    return {
        f"{name}: words": sum(lengths),
        f"{name}: words in a sentence, median": round(statistics.median(lengths)),
        f"{name}: sentences of more than 25 words": sum(n > 25 for n in lengths),
    }


def of_run(tree):
    run = tree.read("run")
    usage = run.split("<<'TEXT'")[-1].split("\nTEXT\n")[0]
    return {"run: lines": len(run.splitlines()), "run help: lines": len(usage.splitlines()) - 1}


def longest_entry(changelog):
    return max((len(entry.split()) for entry in re.split(r"\n(?=- )|\n\n", changelog) if entry.startswith("- ")), default=0)


# What is added: the section of CONTRIBUTING, and the script that makes its files.
ADDED = {
    "an op": ("Add an op", ["scripts/new_op.py", "scale", "--params", "factor:float64"]),
    "an element-wise function": ("Add an element-wise function", []),
    "a backend": ("Add a backend", ["scripts/new_backend.py", "sycl"]),
}


def steps(contributing, heading):
    """The numbered rows and items of the section."""
    section = contributing.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return len(re.findall(r"^(?:\| )?\d+(?: \||\.) ", section, flags=re.M))


def files_made(tree, command):
    """How many files the script makes or changes in a copy of that commit. None: it has no such script."""
    if not command or command[0] not in tree.names:
        return None
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "-C", ROOT, "archive", tree.commit], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        before = contents(folder)
        subprocess.run([sys.executable, *command], cwd=folder, check=True, capture_output=True)
        after = contents(folder)
    return sum(before.get(name) != data for name, data in after.items())


def contents(folder):
    files = (f for f in pathlib.Path(folder).rglob("*") if f.is_file() and f.suffix != ".pyc")
    return {f.relative_to(folder): f.read_bytes() for f in files}


def of_places(tree):
    contributing, counts = tree.read("CONTRIBUTING.md"), {}
    for what, (heading, command) in ADDED.items():
        counts[f"steps to add {what}"] = steps(contributing, heading) or "none"
        if command:
            counts[f"files that {command[0]} makes or changes"] = files_made(tree, command) or "none"
    return counts


def of_commits(commit):
    subjects = git("log", "-100", "--format=%s", commit).splitlines()
    return {"commits: subjects of more than 72 characters, of 100": sum(len(s) > 72 for s in subjects)}


def measure(commit):
    tree = Tree(commit)
    product = tree.matching(duplicates.PRODUCT)
    folders = {f"files in {folder}": sum(str(pathlib.PurePath(n).parent) == folder for n in tree.names) for folder in FOLDERS}
    return {
        "commit": tree.commit,
        "date": git("log", "-1", "--format=%cs", tree.commit).strip(),
        **of_prose("README", [tree.read("README.md")]),
        **of_prose("guides", tree.matching(GUIDES).values()),
        **of_prose("all of docs", tree.matching(re.compile(r"docs/.*\.md")).values()),
        "CHANGELOG: words of the longest entry": longest_entry(tree.read("CHANGELOG.md")),
        **of_run(tree),
        "presets of CMake: configure, build, test": presets(tree.read("CMakePresets.json")),
        **of_places(tree),
        f"blocks of {LINES_ALIKE} lines that stand twice in the product": len(duplicates.alike(product, LINES_ALIKE)),
        **folders,
        **of_commits(tree.commit),
    }


def presets(text):
    kinds = json.loads(text) if text else {}
    return ", ".join(str(len(kinds.get(f"{kind}Presets", []))) for kind in ("configure", "build", "test"))


def table(data):
    columns = list(data)
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    lines += [[key, *(str(data[column][key]) for column in columns)] for key in data[columns[0]]]
    return "\n" + "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n\n"


def main(words):
    if words != ["--table"]:
        DATA.write_text(json.dumps({name: measure(commit) for name, commit in COMMITS.items()}, indent=1) + "\n")
    text = PAGE.read_text()
    made = re.sub(
        r"(?s)(<!-- table: begin[^\n]*\n).*?(<!-- table: end)", lambda m: m[1] + table(json.loads(DATA.read_text())) + m[2], text
    )
    PAGE.write_text(made)


if __name__ == "__main__":
    main(sys.argv[1:])
