# SPDX-License-Identifier: Apache-2.0
"""The documentation site: Sphinx over these Markdown files. ./run docs builds it into build/docs and fails on a warning."""

import csv
import json
import pathlib
import re
import subprocess
import sys

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

ROOT = pathlib.Path(__file__).parent.parent
NARROWS = ROOT / "build/cpu/bin/narrows"

project = "Narrows"
author = "the Narrows authors"
copyright = author
version = release = re.search(r"project\(Narrows VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)

extensions = ["myst_parser", "sphinx.ext.autodoc", "breathe"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
myst_heading_anchors = 4
breathe_projects = {"narrows": str(ROOT / "build/doxygen/xml")}
breathe_default_project = "narrows"
breathe_default_members = ("members",)
breathe_show_include = False
breathe_show_define_initializer = True
html_theme = "furo"
html_title = f"Narrows {version}"

# Pages that stand elsewhere in the repository, where its readers look for them: each is included by a page here.
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "examples.md",
    "tests/mutation/README.md": "mutation.md",
}


def _relink(page, text):
    """Links to files of the repository as links to pages of the site."""

    def target(match):
        path, anchor = match.group(1), match.group(2) or ""
        found = (page.parent / path).resolve()
        if not found.is_relative_to(ROOT) or not found.exists():
            return match.group(0)
        inside = found.relative_to(ROOT).as_posix()
        if inside in PAGES:
            return f"](/{PAGES[inside]}{anchor})"
        return f"](/{inside.removeprefix('docs/')}{anchor})" if inside.startswith("docs/") else match.group(0)

    return re.sub(r"\]\(([^)#:]+)(#[^)]*)?\)", target, text)


def _read_source(app, docname, content):
    content[0] = _relink(ROOT / "docs" / f"{docname}.md", content[0])


def _read_included(app, path, docname, content):
    content[0] = _relink(ROOT / "docs" / path, content[0])


class NarrowsHelp(Directive):
    """What `narrows --help` prints, and its subcommands."""

    def run(self):
        sections = []
        for words in ([], ["info"], ["conform"], ["bench"], ["demo"]):
            text = subprocess.run([NARROWS, *words, "--help"], check=True, capture_output=True, text=True).stdout
            text = text if not words else text[: text.index("\nExit codes:") + 1]
            section = nodes.section(ids=["-".join(["narrows", *words])])
            section += nodes.title(text=" ".join(["narrows", *words]))
            section += nodes.literal_block(text, text, language="text")
            sections.append(section)
        return sections


class ElementwiseFunctions(Directive):
    """The reference of every element-wise function, from the package's own list of them."""

    def run(self):
        from narrows import _functions

        lines = [f".. autofunction:: narrows.{name}" for name in _functions.NAMES]
        node = nodes.container()
        self.state.nested_parse(StringList(["```{eval-rst}", *lines, "```"], source="narrows"), 0, node)
        return node.children


class Figures(Directive):
    """A table of measurements: a CSV file, whose last columns are machine, versions and commit. What all rows share of these stands
    below the table, once."""

    required_arguments = 1

    def run(self):
        env = self.state.document.settings.env
        path = pathlib.Path(env.doc2path(env.docname)).parent / self.arguments[0]
        env.note_dependency(str(path))
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file, strict=True))
        shared = {name: rows[0][name] for name in ("machine", "versions", "commit") if len({row[name] for row in rows}) == 1}
        columns = [name for name in rows[0] if name not in shared]
        lines = [columns, ["---"] * len(columns), *([row[name] for name in columns] for row in rows)]
        text = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
        said = [f"commit {value}" if name == "commit" else value for name, value in shared.items() if value]
        node = nodes.container()
        self.state.nested_parse(StringList([*text, "", "; ".join(said)], source=str(path)), 0, node)
        return node.children


def _draw_pictures(app):
    """The pictures beside pages, each of the JSON of its name, which a benchmark wrote."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import report

    for data in sorted((ROOT / "docs").glob("performance*.json")):
        report.draw(json.loads(data.read_text()), data.with_suffix(".svg"))


def _escape_bars(app, what, name, obj, options, lines):
    """|a| in a docstring is an absolute value, no substitution of reStructuredText's."""
    lines[:] = [line.replace("|", "\\|") for line in lines]


def setup(app):
    app.connect("builder-inited", _draw_pictures)
    app.connect("autodoc-process-docstring", _escape_bars)
    app.add_directive("narrows-help", NarrowsHelp)
    app.add_directive("elementwise-functions", ElementwiseFunctions)
    app.add_directive("figures", Figures)
    app.connect("source-read", _read_source)
    app.connect("include-read", _read_included)
