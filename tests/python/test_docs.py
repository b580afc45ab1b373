# SPDX-License-Identifier: Apache-2.0
"""The Python examples of README.md and docs/: those of a page run one after the other. One that cannot run here says so, and why, in
the line that opens it: ```python no-run: needs a GPU."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BLOCK = re.compile(r"^```python[ \t]*([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _blocks(page):
    """(how it is to be run, source with the page's line numbers) of each Python example."""
    text = page.read_text()
    return [(m.group(1), "\n" * text[: m.start(2)].count("\n") + m.group(2)) for m in BLOCK.finditer(text)]


PAGES = [page for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if _blocks(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples_of_a_page_run(page, tmp_path, monkeypatch):
    for framework in ("torch", "jax"):
        if re.search(rf"^\s*import {framework}\b", page.read_text(), re.MULTILINE):
            pytest.importorskip(framework)
    if "torch.onnx.export(" in page.read_text():
        pytest.importorskip("onnxscript", reason="onnxscript is not installed; ./run check python installs it")
    if "tvm_ffi" in page.read_text():
        pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not installed; ./run check python installs it")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for how, source in _blocks(page):
        assert not how or re.fullmatch(r"no-run: \w.*", how), (
            f"{page.name}: a block is opened by {how!r}; expected 'no-run: REASON'"
        )
        if not how:
            exec(compile(source, str(page), "exec"), names)


def test_pages_were_found():
    assert {"README.md", "quickstart.md", "python.md"} <= {page.name for page in PAGES}


def test_every_variable_of_the_environment_is_in_the_reference():
    product = [p for place in ("core", "backends", "bindings", "tools") for p in sorted((ROOT / place).rglob("*"))]
    sources = [p for p in product if p.suffix in (".cpp", ".h", ".hpp", ".py", ".cu") and "skeleton" not in p.parts]
    read = {name for p in sources for name in re.findall(r"[\"'](NARROWS_[A-Z0-9_]+)[\"']", p.read_text())}
    rows = re.findall(r"^\| (`[^|]*) \|", (ROOT / "docs/reference/environment.md").read_text(), re.MULTILINE)
    known = {name for row in rows for name in re.findall(r"`(NARROWS_\w+)`", row)}
    assert read == known, f"not in the page: {read - known}; read nowhere: {known - read}"


def test_every_status_is_in_the_reference():
    header = (ROOT / "abi/include/narrows/abi.h").read_text()
    statuses = dict(
        re.findall(r"^#define (NW_[A-Z_]+) (\d+)$", header[header.index("defgroup statuses") :].split("@}")[0], re.MULTILINE)
    )
    rows = re.findall(r"^\| `(NW_\w+)` \| (\d+) \|", (ROOT / "docs/reference/errors.md").read_text(), re.MULTILINE)
    assert len(statuses) > 7 and dict(rows) == statuses
