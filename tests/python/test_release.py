# SPDX-License-Identifier: Apache-2.0
"""scripts/release.py, in a clone: the commit and the tag; and the packages, by tools that only play: the real ones take too long."""

import hashlib
import os
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


def release(clone, *arguments, **environment):
    env = os.environ | environment
    return subprocess.run([sys.executable, "scripts/release.py", *arguments], cwd=clone, env=env, capture_output=True, text=True)


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


# ---- the packages ----

PIP = """
import pathlib, sys
with open(pathlib.Path(__file__).with_name("asked"), "a") as f: print(*sys.argv[1:], file=f)
if sys.argv[1] == "wheel":
    name = "narrows" if "backends" not in sys.argv[2] else "narrows_" + pathlib.Path(sys.argv[2]).name
    pathlib.Path(sys.argv[sys.argv.index("--wheel-dir") + 1], f"{name}-7.8.9-py3-none-linux_x86_64.whl").write_text(name)
"""
AUDITWHEEL = """
import pathlib, sys
if sys.argv[1] == "repair":
    assert sys.argv[2:4] == ["--exclude", "libamdhip64.so.*"]  # the machine's own runtime
    raw = pathlib.Path(sys.argv[4])
    pathlib.Path(sys.argv[-1], raw.name.replace("linux", "manylinux_2_35")).write_bytes(raw.read_bytes())
"""
CPACK = """#!/bin/sh
[ ! -e {folder}/broken ] || {{ echo 'cpack is out of order' >&2; exit 1; }}
echo package >libnarrows1_7.8.9-1_amd64.deb
"""


@pytest.fixture
def tools(tmp_path):
    """The environment in which the tools of a release only play; the compilers of cuda and vulkan are there."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "pip.py").write_text(PIP)
    (folder / "auditwheel.py").write_text(AUDITWHEEL)
    scripts = {"cmake": "#!/bin/sh\n[ -L .deps ] && mkdir -p build/deb\n", "cpack": CPACK.format(folder=folder)}
    for name in ("patchelf", "nvcc", "glslc"):
        scripts[name] = "#!/bin/sh\n"
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for name in (
        "git",
        "tar",
        "sh",
        "bash",
        "env",
        "mkdir",
        "gzip",
        "pahole",
        "cc",
        "gcc",
        "as",
        "ld",
        "sed",
        "awk",
        "grep",
        "sort",
        "cp",
    ):
        if (path := shutil.which(name)) and not (folder / name).exists():
            (folder / name).symlink_to(path)
    return {"PYTHONPATH": str(folder), "PATH": f"{folder}:/bin"}


def test_the_packages_of_the_tag(clone, tools, tmp_path):
    folder = tmp_path / "made" / "packages"
    (tmp_path / "tools" / "hipcc").unlink(missing_ok=True)
    done = release(clone, "7.8.9", "--packages", str(folder), **tools)
    assert done.returncode == 0, done.stderr
    sums = dict(reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines())
    made = {p.name for p in folder.iterdir()} - {"SHA256SUMS"}
    expected = {"narrows-7.8.9.tar.gz", "libnarrows1_7.8.9-1_amd64.deb"}
    wheels = {name for name in made if name.endswith(".whl")}
    assert made == expected | wheels == sums.keys()
    assert {"narrows", "narrows_cuda", "narrows_vulkan"} <= {name.partition("-")[0] for name in wheels}
    assert all("manylinux" in name for name in wheels)
    for name, digest in sums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    asked = (tmp_path / "tools" / "asked").read_text().splitlines()
    wheel = {line.split()[1].rpartition("/")[2]: line for line in asked if line.startswith("wheel ")}
    assert "NARROWS_ISL_FROM_SOURCE=ON" in wheel["narrows-7.8.9"] and "ISL" not in wheel["cuda"]
    assert list(folder.parent.iterdir()) == [folder]
    again = release(clone, "7.8.9", "--packages", str(folder), **tools)
    assert again.returncode == 1 and f"{folder} is there already" in again.stderr


def test_packages_that_fail_can_be_made_again(clone, tools, tmp_path):
    folder = tmp_path / "made" / "packages"
    (tmp_path / "tools" / "broken").write_text("")
    done = release(clone, "7.8.9", "--packages", str(folder), **tools)
    assert done.returncode == 1 and "cpack is out of order" in done.stderr and list(folder.parent.iterdir()) == []
    head = git(clone, "rev-parse", "HEAD")
    (tmp_path / "tools" / "broken").unlink()
    done = release(clone, "7.8.9", "--packages", str(folder), **tools)
    assert done.returncode == 0 and "is the tag of this commit already" in done.stdout, done.stderr
    assert git(clone, "rev-parse", "HEAD") == head and (folder / "SHA256SUMS").exists()


@pytest.mark.parametrize(
    "tool, words", [("cpack", "cpack is missing"), ("patchelf", "patchelf is missing"), ("auditwheel.py", "No module named 'gone'")]
)
def test_a_tool_that_is_missing_is_told_before_the_tag_is_made(clone, tools, tmp_path, tool, words):
    (tmp_path / "tools" / tool).unlink()
    (tmp_path / "tools" / "auditwheel.py").touch()
    if tool == "auditwheel.py":
        (tmp_path / "tools" / tool).write_text("import gone")
    path = tools | {"PATH": str(tmp_path / "tools")}
    done = release(clone, "7.8.9", "--packages", str(tmp_path / "packages"), **path)
    assert done.returncode == 1 and words in done.stderr, done.stderr
    assert git(clone, "tag", "--list", "v7.8.9") == "" and not (tmp_path / "packages").exists()
