#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a release of this checkout, in one command:

    scripts/release.py 0.2.0                            # the commit and the tag
    scripts/release.py 0.2.0 --packages build/release   # and the files that people download

The commit has the version in every file that says it, a dated heading in CHANGELOG.md, and the frozen ABI (scripts/freeze_abi.sh). The
tag's message is that part of the changelog. Nothing is pushed. If a step fails, the checkout is as it was before.

The packages are made of the tag: the sources, a wheel of narrows and of each backend whose compiler is here, Debian's packages, and
SHA256SUMS over them. Without pip, auditwheel or cpack nothing is made. If a package fails, the folder is not made, and the tag stays:
the same command then makes the packages of the tag.
"""

import argparse
import contextlib
import datetime
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

COMPILERS = {"cuda": "nvcc", "vulkan": "glslc", "hip": "hipcc"}  # of the backends that are wheels of their own
DRIVER = "libamdhip64.so.*"  # belongs to the machine's driver, so that no wheel carries it
HEADING = "## Unreleased\n"


class Refused(Exception):
    """What is told, without a trace."""


def run(*command, cwd, **how):
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False, **how)
    if done.returncode != 0:
        raise Refused(f"{' '.join(map(str, command))} failed with status {done.returncode}:\n{done.stderr or done.stdout}")
    return done.stdout


# ---- the commit and the tag ----


def numbers(version):
    return tuple(map(int, version.split(".")))


def current_version(root):
    found = re.search(r"^project\(Narrows VERSION (\d+\.\d+\.\d+) ", (root / "CMakeLists.txt").read_text(), re.M)
    if found is None:
        raise Refused("CMakeLists.txt has no line project(Narrows VERSION …")
    return found[1]


def notes(root):
    """What the changelog says of the release."""
    text = (root / "CHANGELOG.md").read_text()
    if HEADING not in text:
        raise Refused("CHANGELOG.md has no heading '## Unreleased'")
    part = text.partition(HEADING)[2].partition("\n## ")[0].strip()
    if not re.search(r"^- ", part, re.M):
        raise Refused("CHANGELOG.md says nothing of this release below '## Unreleased'")
    return part


def require_ready(root, version):
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise Refused(f"the version is '{version}'; expected three numbers, as in 0.2.0")
    if numbers(version) <= numbers(current_version(root)):
        raise Refused(f"the version is {version}; expected one above {current_version(root)}")
    if changed := run("git", "status", "--porcelain", cwd=root):
        raise Refused(f"the checkout has changes that are not committed:\n{changed}")
    if run("git", "tag", "--list", f"v{version}", cwd=root):
        raise Refused(f"there is a tag v{version} already")


def is_tagged(root, version):
    """Whether this commit is that release."""
    return run("git", "tag", "--points-at", "HEAD", "--list", f"v{version}", cwd=root) != ""


def replaced(path, pattern, text):
    before = path.read_text()
    after, count = re.subn(pattern, text, before, flags=re.M)
    if count == 0:
        raise Refused(f"{path.name}: nothing in it fits {pattern}")
    path.write_text(after)


def write_version(root, version, date):
    minor = version.rpartition(".")[0]
    replaced(root / "CMakeLists.txt", r"^(project\(Narrows VERSION )\S+", rf"\g<1>{version}")
    for backend in COMPILERS:
        replaced(root / f"backends/{backend}/pyproject.toml", r'"narrows==[\d.]+\*"', f'"narrows=={minor}.*"')
    replaced(root / "CHANGELOG.md", re.escape(HEADING), f"{HEADING}\n## {version} - {date}\n")
    path = root / "docs/abi.md"  # its changelog says which library had a change first
    path.write_text(re.sub(r"^(\| 1\.\d+ \|) \|", rf"\1 {version}, {date} |", path.read_text(), flags=re.M))


def commit_and_tag(root, version, date):
    require_ready(root, version)
    said = notes(root)
    try:
        write_version(root, version, date)
        run("scripts/freeze_abi.sh", version, cwd=root)
        run("git", "add", "--all", cwd=root)
        run("git", "commit", "-m", f"Narrows {version}", cwd=root)
    except BaseException:
        run("git", "reset", "--hard", cwd=root)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(root / f"tests/abi/releases/{version}")
        raise
    run(
        "git",
        "tag",
        "--annotate",
        f"v{version}",
        "--file",
        "-",
        "--cleanup=verbatim",
        cwd=root,
        input=f"Narrows {version}\n\n{said}\n",
    )


# ---- the packages ----


def isl_options(root, sources):
    """The wheel builds isl in: smaller than Debian's, and without GMP. Its archive may lie in .deps, as ./run check python leaves it."""
    release = re.search(r"^set\(NARROWS_ISL_RELEASE (.+)\)$", (sources / "cmake/Isl.cmake").read_text(), re.M)[1]
    kept = root / f".deps/{release}.tar.xz"
    defines = ["NARROWS_ISL_FROM_SOURCE=ON", *([f"NARROWS_ISL_URL={kept}"] if kept.exists() else [])]
    return [word for define in defines for word in ("-C", f"cmake.define.{define}")]


def make_wheels(root, sources, folder):
    wheels = [sources, *(sources / "backends" / backend for backend, compiler in COMPILERS.items() if shutil.which(compiler))]
    with tempfile.TemporaryDirectory() as raw:
        for source in wheels:
            say(f"the wheel of {source.relative_to(sources)}" if source != sources else "the wheel of narrows")
            options = isl_options(root, sources) if source == sources else []
            run(sys.executable, "-m", "pip", "wheel", source, "--no-deps", "--wheel-dir", raw, *options, cwd=sources)
        for made in pathlib.Path(raw).glob("*.whl"):
            run(sys.executable, "-m", "auditwheel", "repair", "--exclude", DRIVER, made, "--wheel-dir", folder, cwd=sources)


def say(words):
    print(f"  making {words}", flush=True)


def require_tools(root, folder):
    if folder.exists():
        raise Refused(f"--packages: {folder} is there already")
    for module in ("pip", "auditwheel"):
        run(sys.executable, "-m", module, "--version", cwd=root)
    for tool in ("cpack", "patchelf"):  # the latter is auditwheel's
        if shutil.which(tool) is None:
            raise Refused(f"{tool} is missing; expected it on PATH, for the packages")


def make_packages(root, version, target):
    """The folder is there when all of them are in it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        folder = pathlib.Path(scratch, "packages")
        folder.mkdir()
        fill(root, version, folder)
        folder.rename(target)


def fill(root, version, folder):
    archive = folder / f"narrows-{version}.tar.gz"
    run("git", "archive", f"--prefix=narrows-{version}/", "--output", archive, f"v{version}", cwd=root)
    with tempfile.TemporaryDirectory() as scratch:
        run("tar", "-xzf", archive, "-C", scratch, cwd=root)
        sources = pathlib.Path(scratch, f"narrows-{version}")
        if (root / ".deps").exists():
            (sources / ".deps").symlink_to(root / ".deps")  # dlpack.h, which ./run fetches
        run("cmake", "--preset", "deb", cwd=sources)  # first of all, since it soon says what is missing
        make_wheels(root, sources, folder)
        say("Debian's packages")
        run("cmake", "--build", "--preset", "deb", cwd=sources)
        run("cpack", "-G", "DEB", cwd=sources / "build/deb")
        for package in (sources / "build/deb").glob("*.deb"):
            shutil.copy(package, folder)
    files = sorted(path for path in folder.iterdir() if path.is_file())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(sums))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="three numbers, as in 0.2.0")
    parser.add_argument(
        "--packages", type=pathlib.Path, metavar="FOLDER", help="a folder that is not there yet: the packages go there"
    )
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="of the release; today")
    options = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parents[1]
    try:
        if options.packages is not None:
            require_tools(root, options.packages)
        if options.packages is not None and is_tagged(root, options.version):
            print(f"v{options.version} is the tag of this commit already")
        else:
            commit_and_tag(root, options.version, options.date)
            print(
                f"v{options.version} is the tag of this commit. To publish it: git push origin HEAD v{options.version}", flush=True
            )
        if options.packages is not None:
            make_packages(root, options.version, options.packages.resolve())
            print("\n".join(sorted(path.name for path in options.packages.iterdir())))
    except Refused as refused:
        sys.exit(f"release.py: {refused}")


if __name__ == "__main__":
    main()
