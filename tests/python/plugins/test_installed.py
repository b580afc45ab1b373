# SPDX-License-Identifier: Apache-2.0
"""Plugins that installed packages bring: found without environment variables, listed with their package, and refused in words."""

import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tomllib

import pytest

import narrows

FAULTY = pathlib.Path(__file__).parents[2] / "core" / "plugins" / "faulty.c"


@pytest.fixture(scope="session")
def plugin(tmp_path_factory):
    """plugin(name, **macros): the file of tests/core/plugins/faulty.c with these macros, whose plugin has that name."""
    folder, made = tmp_path_factory.mktemp("faulty"), {}

    def make(name, **macros):
        key = (name, *macros.items())
        if key not in made:
            made[key] = folder / f"{len(made)}.so"
            words = [f"-D{k}={v}" for k, v in {"NAME": f'"{name}"', **macros}.items()]
            command = ["cc", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{narrows.get_include()}", *words, FAULTY]
            subprocess.run([*command, "-o", made[key]], check=True)
        return made[key].read_bytes()

    return make


class Site:
    """A folder of sys.path with packages, as pip lays them out."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def add(self, name, files, entry_point=None, version="1.0", path=None):
        """A distribution with files {path: bytes or text}, and the value of its entry point."""
        for file, content in files.items():
            at = self.folder / file
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(content if isinstance(content, bytes) else content.encode())
        info = self.folder / f"{path or name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in [*files, f"{info.name}/METADATA"]))
        if entry_point:
            (info / "entry_points.txt").write_text(f"[narrows.plugins]\n{name} = {entry_point}\n")

    def run(self, *arguments, ok=True, more=(), **environment):
        path = os.pathsep.join([str(self.folder), *map(str, more), os.environ.get("PYTHONPATH", "")])
        env = {k: v for k, v in os.environ.items() if not k.startswith("NARROWS_PLUGIN")} | {"PYTHONPATH": path} | environment
        done = subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, cwd="/", timeout=300)
        assert not ok or done.returncode == 0, done.stderr
        return done

    def python(self, code, **how):
        return self.run("-c", code, **how)

    def info(self, **how):
        """What narrows.info() has of these packages' plugins, and what was said, by Python and by the command."""
        code = "import json, narrows; print(json.dumps(narrows.info()['backends']))"
        done, command = self.python(code, **how), self.run("-m", "narrows", "info", "--json", **how)
        listed = [b for b in json.loads(done.stdout) if b["path"].startswith(str(self.folder))]
        told = [b for b in json.loads(command.stdout)["plugins"] if b["path"].startswith(str(self.folder))]
        assert [(b["path"], b["distribution"]) for b in told] == [(b["path"], b["distribution"]) for b in listed]
        assert [b["reason"] for b in told] == [b["reason"] for b in listed]
        return listed, done.stderr, told


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / "site with space $HOME")


OPS = "import narrows; print([n for n in narrows.ops if '.' in n])"


def test_an_entry_point_names_a_package(site, plugin):
    """Which is not imported for it."""
    site.add("my-ops", {"my_ops/__init__.py": "raise SystemExit", "my_ops/narrows_mine.so": plugin("mine")}, "my_ops", "2.5")
    assert site.python(OPS).stdout == "['faulty.op/1']\n"
    assert site.python(OPS, NARROWS_PLUGIN_AUTOLOAD="0").stdout == "[]\n"
    (found,), warnings, (told,) = site.info()
    assert (found["name"], found["status"], found["distribution"]) == ("mine", "ok", {"name": "my-ops", "version": "2.5"})
    assert told["verdict"] == "accepted" and not warnings
    text = site.run("-m", "narrows", "info").stdout
    assert "from my-ops 2.5" in text and "my_ops/narrows_mine.so" in text
    assert "from my-ops 2.5" in site.python("import narrows; print(narrows.info())").stdout
    assert site.info(NARROWS_PLUGIN_AUTOLOAD="0")[0] == []


def test_a_function_returns_paths(site, plugin):
    code = "import pathlib\ndef plugins(): return [pathlib.Path(__file__).parent / 'deep' / 'narrows_mine.so']\n"
    site.add("my-ops", {"my_ops/__init__.py": code, "my_ops/deep/narrows_mine.so": plugin("mine")}, "my_ops:plugins")
    assert site.python(OPS).stdout == "['faulty.op/1']\n"


def test_the_folder_narrows_plugins(site, plugin):
    site.add("my-ops", {"narrows_plugins/narrows_mine.so": plugin("mine"), "narrows_plugins/other.so": b""})
    (site.folder / "narrows_plugins" / "narrows_bare.so").write_bytes(plugin("bare"))
    found, _, _ = site.info()
    assert {b["name"]: b["distribution"] for b in found} == {"bare": None, "mine": {"name": "my-ops", "version": "1.0"}}


def test_nothing_is_looked_for_by_the_import_alone(site, plugin):
    site.add("my-ops", {"my_ops/narrows_mine.so": plugin("mine", QUERY="abort()"), "my_ops/__init__.py": ""}, "my_ops")
    site.python("import narrows, sys; assert 'narrows._installed' not in sys.modules")


def test_the_working_directory_is_not_searched(site, plugin):
    site.add("my-ops", {"narrows_plugins/narrows_mine.so": plugin("mine")})
    code = f"import os; os.chdir({str(site.folder)!r}); {OPS}"
    assert site.python(code).stdout == "[]\n"


def test_what_is_named_goes_ahead_of_what_is_installed(site, plugin, tmp_path):
    site.add("my-ops", {"narrows_plugins/narrows_mine.so": plugin("mine")})
    own = tmp_path / "own" / "narrows_mine.so"
    own.parent.mkdir()
    own.write_bytes(plugin("mine"))
    (found,), warnings, (told,) = site.info(NARROWS_PLUGIN_PATH=str(own.parent))
    assert found["shadowed"] and told["verdict"] == "shadowed"
    assert f"narrows: warning: {found['path']}: not used: plugin 'mine' is also {own}" in warnings


def test_one_that_lies_about_its_name(site, plugin):
    """A file of another name, and one that calls itself cpu: calls go on to run Narrows' own backend."""
    site.add("liar", {"liar/__init__.py": "", "liar/narrows_mine.so": plugin("cpu"), "liar/narrows_cpu.so": plugin("cpu")}, "liar")
    (cpu, mine), warnings, _ = site.info()
    assert mine["status"] == "invalid" and cpu["shadowed"]
    assert f"warning: liar 1.0: {mine['path']}: its plugin is named 'cpu'; expected the file to be narrows_cpu.so" in warnings
    assert f"warning: {cpu['path']}: not used: plugin 'cpu' is also " in warnings
    assert site.python("import narrows, numpy; print(narrows.add(numpy.zeros(2), 3))").stdout == "[3. 3.]\n"


def test_one_for_a_newer_abi(site, plugin):
    site.add("newer", {"newer/__init__.py": "", "newer/narrows_newer.so": plugin("newer", PLUGIN=".abi_major=2")}, "newer")
    (found,), warnings, _ = site.info()
    assert found["status"] == "unsupported" and "built for ABI major 2; this host speaks 1" in found["reason"]
    assert warnings.count("\n") == 1 and "warning: newer 1.0: " in warnings and "ABI major 2" in warnings


def test_two_distributions_that_bring_one_plugin(site, plugin):
    for name in ("first", "second"):
        site.add(name, {f"{name}/__init__.py": "", f"{name}/narrows_mine.so": plugin("mine")}, name)
    (first, second), warnings, _ = site.info()
    assert not first["shadowed"] and second["shadowed"] and second["reason"] == first["path"]
    assert f"{second['path']}: not used: plugin 'mine' is also {first['path']}" in warnings


def test_two_distributions_that_bring_one_op(site, plugin):
    for name in ("first", "second", "third"):
        other = {"OP": ".flags=NW_OP_INPLACE"} if name == "third" else {}  # another declaration
        site.add(name, {f"{name}/__init__.py": "", f"{name}/narrows_{name}.so": plugin(name, **other)}, name)
    (first, second, third), warnings, _ = site.info()
    assert first["status"] == second["status"] == "ok" and third["status"] == "invalid"
    assert f"{second['path']}: not used for op 'faulty.op/1': {first['path']} has it too" in warnings
    assert f"warning: third 1.0: {third['path']}: op 'faulty.op/1' is declared differently by {first['path']}" in warnings
    assert f"not used for op 'faulty.op/1': {first['path']} has it too" in site.run("-m", "narrows", "info").stdout


MINOR = ".".join(narrows.__version__.split(".")[:2])


def test_a_backend_of_this_minor_version_comes_first(site, plugin):
    """Whatever its patch: before a plugin whose package is earlier by name."""
    site.add("aaa", {"aaa/__init__.py": "", "aaa/narrows_other.so": plugin("other")}, "aaa")
    site.add("narrows-hip", {"narrows_plugins/narrows_hip.so": plugin("hip")}, version=f"{MINOR}.99")
    (backend, other), warnings, _ = site.info()
    assert backend["status"] == "ok" and backend["distribution"] == {"name": "narrows-hip", "version": f"{MINOR}.99"}
    assert warnings == f"narrows: warning: {other['path']}: not used for op 'faulty.op/1': {backend['path']} has it too\n"
    assert f"from narrows-hip {MINOR}.99" in site.run("-m", "narrows", "info").stdout


@pytest.mark.parametrize("version", ["9.1.0", f"{MINOR}1.0", "0"])
def test_a_backend_of_another_minor_version_is_refused(site, plugin, version):
    site.add("narrows-hip", {"narrows_plugins/narrows_hip.so": plugin("hip")}, version=version)
    (found,), warnings, (told,) = site.info()
    words = (
        f"narrows-hip {version} was built for narrows {'.'.join(version.split('.')[:2])}, and this is narrows {narrows.__version__}; "
        f"expected narrows-hip {MINOR}: pip install 'narrows-hip=={MINOR}.*', "
        f"or pip install ./backends/hip in a checkout of Narrows {narrows.__version__}"
    )
    assert found["reason"] == words and found["status"] == "failed" and told["verdict"] == "refused"
    assert warnings == f"narrows: warning: narrows-hip {version}: {words}\n"
    assert site.python(OPS).stdout == "[]\n"
    text = site.run("-m", "narrows", "info").stdout
    assert words in text and f"from narrows-hip {version}" in text


def test_the_wheels_of_backends_say_what_they_fit():
    """Each asks for this minor version of narrows, and narrows[NAME] asks for it."""
    from narrows import _installed

    root = pathlib.Path(__file__).parents[3]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {f"narrows-{name}": [f"narrows-{name}"] for name in extras} == {name: [name] for name in _installed.BACKENDS}
    for name in _installed.BACKENDS:
        folder = root / "backends" / name.partition("-")[2]
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        assert (project["name"], project["dependencies"]) == (name, [f"narrows=={MINOR}.*"])
        assert (folder / "LICENSE").read_bytes() == (root / "LICENSE").read_bytes()


@pytest.mark.parametrize(
    "value, code, words",
    [
        ("lost", None, "raised ModuleNotFoundError: no package 'lost'"),
        ("bad:plugins", "1 / 0", "raised ZeroDivisionError: division by zero"),
        ("bad:plugins", "raise SystemExit(3)", "raised SystemExit: 3"),
        ("bad:plugins", "", "raised AttributeError: "),
        ("bad:plugins", "def plugins(): return 7", "raised TypeError: "),
        ("bad.inner", "1 / 0", "raised ZeroDivisionError: division by zero"),
        ("bad", "", "brings no file narrows_*.so"),
        ("bad.module", "", "'bad.module' is a module; expected a package, or package:function"),
    ],
)
def test_an_entry_point_that_is_wrong(site, plugin, value, code, words):
    files = {} if code is None else {"bad/__init__.py": code, "bad/module.py": "", "bad/inner/__init__.py": ""}
    site.add("bad", files, value)
    site.add("good", {"good/__init__.py": "", "good/narrows_good.so": plugin("good")}, "good")
    (good, bad), warnings, (_, told) = site.info()
    assert good["status"] == "ok" and bad["status"] == "failed" and told["verdict"] == "refused"
    assert bad["distribution"] == {"name": "bad", "version": "1.0"}
    assert f"the entry point 'bad = {value}' of narrows.plugins " in bad["reason"] and words in bad["reason"]
    assert warnings == f"narrows: warning: bad 1.0: {bad['reason']}\n"


@pytest.mark.parametrize(
    "query, words",
    [("abort()", "crashes when it is asked what it is: Aborted"), ("exit(7)", "ends the process, with exit code 7")],
)
def test_info_survives_a_plugin_that_crashes(site, plugin, query, words):
    site.add("bad", {"bad/__init__.py": "", "bad/narrows_bad.so": plugin("bad", QUERY=query)}, "bad")
    site.add("good", {"good/__init__.py": "", "good/narrows_good.so": plugin("good")}, "good")
    (good, bad), warnings, (_, told) = site.info()
    assert good["status"] == "ok" and bad["status"] == "failed" and told["verdict"] == "crashed"
    assert bad["reason"] == words and warnings == f"narrows: warning: bad 1.0: {words}\n"
    text = site.run("-m", "narrows", "info").stdout
    assert "crashed" in text and words in text and "from bad 1.0" in text


def test_info_survives_a_plugin_of_a_folder_that_crashes(site, plugin, tmp_path):
    """The others of the folder are listed as without it, and so is what is installed."""
    site.add("mine", {"mine/__init__.py": "", "mine/narrows_mine.so": plugin("mine")}, "mine")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "narrows_a.so").write_bytes(plugin("cpu"))  # takes the place of Narrows' own
    (folder / "narrows_bad.so").write_bytes(plugin("bad", QUERY="abort()"))
    (folder / "narrows_good.so").write_bytes(plugin("good"))
    words = "crashes when it is asked what it is: Aborted"
    for how, arguments in (({"NARROWS_PLUGIN_PATH": str(folder)}, ()), ({}, ("--plugin-path", str(folder)))):
        done = site.run("-m", "narrows", "info", "--json", *arguments, **how)
        listed = {pathlib.Path(b["path"]).name: b for b in json.loads(done.stdout)["plugins"]}
        verdicts = {name: b["verdict"] for name, b in listed.items()}
        assert list(verdicts)[:2] == ["narrows_a.so", "narrows_good.so"] and verdicts["narrows_cpu.so"] == "shadowed"
        assert verdicts["narrows_a.so"] == verdicts["narrows_good.so"] == verdicts["narrows_mine.so"] == "accepted"
        assert verdicts["narrows_bad.so"] == "crashed" and listed["narrows_bad.so"]["reason"] == words
    text = site.run("-m", "narrows", "info", NARROWS_PLUGIN_PATH=str(folder)).stdout
    assert "crashed" in text and words in text


def test_info_waits_for_a_plugin_of_a_folder_so_long(site, plugin, tmp_path):
    (tmp_path / "narrows_bad.so").write_bytes(plugin("bad", QUERY="for (;;) select(0, 0, 0, 0, 0)"))
    done = site.run("-m", "narrows", "info", "--json", "--timeout", "1", NARROWS_PLUGIN_PATH=str(tmp_path))
    told = {b["path"]: b for b in json.loads(done.stdout)["plugins"]}[str(tmp_path / "narrows_bad.so")]
    assert (told["verdict"], told["reason"]) == ("crashed", "does not say what it is within 1 s")


def test_a_distribution_that_lies_twice_on_the_path(site, plugin, tmp_path):
    """The first is the one that Python imports."""
    other = Site(tmp_path / "other")
    for at, version in ((site, "2.0"), (other, "1.0")):
        at.add("my-ops", {"my_ops/__init__.py": "", "my_ops/narrows_mine.so": plugin("mine")}, "my_ops", version)
    done = site.python("import narrows; print([b['distribution'] for b in narrows.info()['backends']])", more=[other.folder])
    assert "'2.0'" in done.stdout and "'1.0'" not in done.stdout and not done.stderr


def test_broken_metadata_is_told(site):
    site.add("fine", {}, path="broken")
    (site.folder / "broken-1.0.dist-info" / "entry_points.txt").write_bytes(b"[narrows.plugins]\n\xff\xfe = \xff\n")
    (site.folder / "broken-1.0.dist-info" / "METADATA").unlink()
    (site.folder / "narrows_plugins").write_text("a file")
    done = site.python(OPS)
    assert done.stdout == "[]\n"
    assert done.stderr.startswith("narrows: warning: broken 1.0: its entry_points.txt cannot be read: ")
    assert done.stderr.count("\n") == 1


def test_the_order_of_threads(site, plugin):
    """Every thread's first call sees the plugin."""
    site.add("my-ops", {"my_ops/__init__.py": "", "my_ops/narrows_mine.so": plugin("mine")}, "my_ops")
    code = """
import narrows, threading
seen = []
threads = [threading.Thread(target=lambda: seen.append('faulty.op/1' in narrows.ops)) for _ in range(8)]
for t in threads: t.start()
for t in threads: t.join()
print(seen)
"""
    assert site.python(code).stdout == f"{[True] * 8}\n"


def test_importlib_metadata_agrees(site, plugin, monkeypatch):
    """What the scan finds is what importlib.metadata has."""
    from narrows import _installed

    site.add("my-ops", {"my_ops/__init__.py": "", "my_ops/narrows_mine.so": plugin("mine")}, "my_ops")
    monkeypatch.setattr(sys, "path", [str(site.folder), *sys.path])
    monkeypatch.delenv("NARROWS_PLUGIN_AUTOLOAD", raising=False)
    importlib.invalidate_caches()
    points = {(p.dist.name, p.dist.version) for p in importlib.metadata.entry_points(group="narrows.plugins")}
    assert {(f.name, f.version) for f in _installed.find() if f.name} == points >= {("my-ops", "1.0")}


def test_long_names_have_columns_of_their_own(site, plugin):
    for name in ("mine", "a_plugin_of_a_long_name"):
        site.add(name, {f"{name}/__init__.py": "", f"{name}/narrows_{name}.so": plugin(name)}, name)
    lines = site.run("-m", "narrows", "info").stdout.splitlines()
    rows = [line.split() for line in lines if line.startswith(("  accepted", "  shadowed", "  refused"))]
    assert {"mine", "a_plugin_of_a_long_name", "cpu"} <= {row[1] for row in rows}
    (header,) = {line.index(line.split()[2]) for line in lines if line.startswith("  accepted")}  # one column of versions
    assert header > len("  accepted    a_plugin_of_a_long_name")
