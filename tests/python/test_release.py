# SPDX-License-Identifier: Apache-2.0
"""scripts/release.py, in a clone: the commit and the tag. The packages take too long for a test."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(shutil.which("pahole") is None, reason="pahole, which reads the ABI's layout, is missing")


def git(clone, *arguments):
    return subprocess.run(["git", *arguments], cwd=clone, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def clone(tmp_path):
    if subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True).returncode != 0:
        pytest.skip("these are sources without git")
    git(tmp_path, "clone", "--quiet", ROOT, "clone")
    folder = tmp_path / "clone"
    for name, value in {"user.name": "A tester", "user.email": "tester@localhost"}.items():
        git(folder, "config", name, value)
    shutil.copy(ROOT / "scripts/release.py", folder / "scripts/release.py")
    (folder / ".deps").symlink_to(ROOT / ".deps")
    (folder / ".git/info/exclude").write_text(".deps\n")
    (folder / "CHANGELOG.md").write_text(
        "# Changelog\n\n## Unreleased\n\n### Added\n\n- A thing.\n\n## 0.1.0 - 2026-11-21\n\n- First.\n"
    )
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "as it is")
    return folder


def release(clone, *arguments):
    return subprocess.run([sys.executable, "scripts/release.py", *arguments], cwd=clone, capture_output=True, text=True)


def test_one_command_makes_the_commit_and_the_tag(clone):
    done = release(clone, "7.8.9", "--date", "2030-01-02")
    assert done.returncode == 0, done.stderr
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "log", "-1", "--format=%s").strip() == "Narrows 7.8.9"
    assert git(clone, "tag", "--list", "--format=%(contents)", "v7.8.9").strip() == "Narrows 7.8.9\n\n### Added\n\n- A thing."
    assert "\nproject(Narrows VERSION 7.8.9 " in (clone / "CMakeLists.txt").read_text()
    for backend in ("cuda", "hip", "vulkan"):
        assert '"narrows==7.8.*"' in (clone / f"backends/{backend}/pyproject.toml").read_text()
    assert "## Unreleased\n\n## 7.8.9 - 2030-01-02\n\n### Added\n\n- A thing." in (clone / "CHANGELOG.md").read_text()
    abi = (clone / "docs/abi.md").read_text()
    assert "7.8.9, 2030-01-02 |" in abi and not re.search(r"^\| 1\.\d+ \| \|", abi, re.M)
    assert "7.8.9/golden.c" in (clone / "tests/abi/golden.c").read_text()
    assert (clone / "tests/abi/releases/7.8.9/include/narrows/abi.h").is_file()
    again = release(clone, "7.8.9")
    assert again.returncode == 1 and "the version is 7.8.9; expected one above 7.8.9" in again.stderr


@pytest.mark.parametrize(
    "version, change, words",
    [
        ("0.2", None, "the version is '0.2'; expected three numbers"),
        ("0.0.9", None, "expected one above 0.1.0"),
        ("9.0.0", ("a file", "text"), "changes that are not committed"),
    ],
)
def test_what_is_no_release_is_refused(clone, version, change, words):
    if change is not None:
        (clone / change[0]).write_text(change[1])
    before = git(clone, "rev-parse", "HEAD")
    done = release(clone, version)
    assert done.returncode == 1 and words in done.stderr, done.stderr
    assert git(clone, "rev-parse", "HEAD") == before and git(clone, "tag", "--list", f"v{version}") == ""


def test_a_step_that_fails_leaves_the_checkout_as_it_was(clone):
    freeze = clone / "scripts/freeze_abi.sh"
    freeze.write_text("#!/bin/sh\nmkdir -p tests/abi/releases/$1\necho 'the headers break it' >&2\nexit 1\n")
    git(clone, "commit", "--all", "--quiet", "--message", "a freeze that fails")
    before = git(clone, "rev-parse", "HEAD")
    done = release(clone, "9.0.0")
    assert done.returncode == 1 and "the headers break it" in done.stderr, done.stderr
    assert git(clone, "rev-parse", "HEAD") == before and git(clone, "status", "--porcelain") == ""
    assert not (clone / "tests/abi/releases/9.0.0").exists() and git(clone, "tag", "--list", "v9.0.0") == ""
