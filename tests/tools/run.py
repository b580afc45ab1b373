# SPDX-License-Identifier: Apache-2.0
"""What ./run says of itself: its help fits a screen, it lists every check, each command that a document names exists, mistakes are refused;
and that each preset of CMake configures, builds and tests."""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECKS = sorted(path.stem for path in (ROOT / "scripts/check").glob("*.sh"))


def run(*arguments):
    return subprocess.run([ROOT / "run", *arguments], capture_output=True, text=True, timeout=60)


def listed(text):
    """The words that start an indented line of a help text."""
    return {match[1] for match in re.finditer(r"^  ([a-z0-9-]+) ", text, re.MULTILINE)}


def expect(condition, *what):
    if not condition:
        sys.exit("run.py: " + " ".join(map(str, what)))


def test_help():
    done = run("help")
    expect(done.returncode == 0 and not done.stderr, "help ended with", done.returncode, done.stderr)
    lines = done.stdout.splitlines()
    expect(len(lines) <= 24, "help has", len(lines), "lines, and a screen 24")
    commands = {"demo", "test", "build", "lint", "format", "docs", "bench", "check", "help"}
    expect(listed(done.stdout) == commands, "help lists", sorted(listed(done.stdout)))
    return commands


def test_list_of_checks():
    done = run("check")
    expect(done.returncode == 0 and listed(done.stdout) == set(CHECKS), "check lists", sorted(listed(done.stdout)), "of", CHECKS)
    for line in done.stdout.splitlines():
        expect(len(line) <= 150, "this line is too long:", line)


def test_refusals():
    for arguments, error in [
        ((), "Usage: ./run COMMAND"),
        (("nosuch",), "run: unknown command 'nosuch'"),
        (("asan",), "run: 'asan' is a check: ./run check asan"),
        (("check", "nosuch"), "run: no check is named 'nosuch'"),
        (("check", "../lib/setup"), "run: no check is named '../lib/setup'"),
        (("check", "cuda", "--short"), "run: unknown option '--short'"),
        (("test", "--short"), "run: unknown option '--short'"),
    ]:
        done = run(*arguments)
        expect(done.returncode == 2, arguments, "ended with", done.returncode)
        expect(not done.stdout and done.stderr.startswith(error), arguments, "said", done.stderr)


def test_documents(commands):
    """Every "./run NAME" in the repository's text is a command, and NAME of "check NAME" is a check."""
    texts = [path for pattern in ("*.md", "docs/**/*.md", "tests/**/*.md", ".github/**/*") for path in ROOT.glob(pattern)]
    found = 0
    for path in [*texts, ROOT / ".ci/run"]:
        if not path.is_file() or path.name == "CHANGELOG.md":
            continue
        for match in re.finditer(r"\./run ([a-z][a-z-]*)(?: ([a-z][a-z0-9-]*))?", path.read_text()):
            found += 1
            expect(match[1] in commands, f"{path} names './run {match[1]}'")
            expect(match[1] != "check" or match[2] in (*CHECKS, None), f"{path} names './run check {match[2]}'")
    expect(found > 40, "only", found, "commands are named")


def test_presets():
    """Each configure preset has a build preset of its name, and a test preset where the build has tests."""
    presets = json.loads((ROOT / "CMakePresets.json").read_text())
    names = {
        kind: {preset["name"] for preset in presets[kind + "Presets"] if not preset.get("hidden")}
        for kind in ("configure", "build", "test")
    }
    expect(names["configure"] == names["build"], "presets to configure and to build:", names["configure"] ^ names["build"])
    expect(names["configure"] - names["test"] == {"fuzz", "deb"}, "without a test preset:", names["configure"] - names["test"])
    guide = (ROOT / "docs/start/install.md").read_text()
    for name in names["configure"]:
        expect(f"`{name}`" in guide or name.endswith("-short"), f"docs/start/install.md does not name the preset {name}")


commands = test_help()
test_list_of_checks()
test_refusals()
test_documents(commands)
test_presets()
