# SPDX-License-Identifier: Apache-2.0
"""Plugins that are built and loaded from Python: load_inline, build, versions of an op, and paths of any letters."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import pytest

import narrows

HERE = pathlib.Path(__file__).parents[1]

SOURCE = """
#include <narrows/plugin.hpp>
struct Params { float factor; };
void scale(const narrows::plugin::Launch& call) {
  const float *x = call.input<float>(0), factor = call.params<Params>().factor;
  float* y = call.output<float>(0);
  call.parallel_for(call.size(0), [=](int64_t i) { y[i] = factor * x[i]; });
}
NARROWS_PLUGIN("inline", {.name = "inline.scale/1", .inputs = {"x"}, .outputs = {"y"}, .shape_rule = "like 0", .kernel = scale,
               .params = {narrows::plugin::field("factor", &Params::factor, 1.0)}, .params_size = sizeof(Params)})
"""


def test_load_inline(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    loaded = narrows.load_inline("inline", SOURCE)
    scale = loaded.scale
    np.testing.assert_array_equal(scale(np.ones(3, "float32"), factor=4), [4, 4, 4])
    with pytest.raises(AttributeError, match=r"^the plugin has no op 'scael'; it has scale; did you mean 'scale'\?$"):
        loaded.scael  # noqa: B018
    assert "scale" in dir(loaded) and not hasattr(loaded, "twice")
    libraries = list(tmp_path.rglob("*.so"))
    assert len(libraries) == 1
    made = libraries[0].stat().st_mtime_ns
    again = narrows.load_inline("inline", SOURCE).scale
    assert again.op == scale.op and list(tmp_path.rglob("*.so")) == libraries and libraries[0].stat().st_mtime_ns == made
    narrows.load_inline("inline", SOURCE + "// another content\n")
    assert len(list(tmp_path.rglob("*.so"))) == 2


def test_a_kernel_that_asks_for_elements_of_another_dtype_is_told(tmp_path, monkeypatch):
    """Before it reads or writes anything. An input that is absent is told alike."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = (
        SOURCE.replace("inline.scale/1", "asks.scale/1").replace('PLUGIN("inline"', 'PLUGIN("asks"').replace('{"x"}', '{"x", "b?"}')
    )
    kinds = "{kDLFloat, 64, 1}, {kDLInt, 32, 1}, {kDLFloat, 16, 1}, {kDLBool, 8, 1}, {kDLFloat, 32, 1}"
    text = text.replace("sizeof(Params)", f"sizeof(Params), .dtypes = {{{kinds}}}").replace('"like 0"', '"... ; ? -> ..."')
    scale = narrows.load_inline("asks", text).scale
    for dtype in ("float64", "int32", "float16", "bool"):
        with pytest.raises(RuntimeError, match=f"asks.scale/1: input x has dtype {dtype}; the kernel asks for float32"):
            scale(np.ones(3, dtype))
    np.testing.assert_array_equal(scale(np.ones(3, "float32"), factor=4), [4, 4, 4])
    for kernel, words in {
        "input<uint16_t>(0)": "input x has dtype float32; the kernel asks for uint16",
        "input<uint8_t>(0)": "input x has dtype float32; the kernel asks for uint8",
        "input<float>(1)": "input b is absent; the kernel asks for float32",
        "output<int32_t>(0)": "output y has dtype float32; the kernel asks for int32",
    }.items():
        name = f"asks{abs(hash(kernel)) % 1000}"
        body = text.replace("asks.scale/1", f"{name}.scale/1").replace('PLUGIN("asks"', f'PLUGIN("{name}"')
        body = body.replace("call.parallel_for", f"call.{kernel}; call.parallel_for")
        with pytest.raises(RuntimeError, match=words):
            narrows.load_inline(name, body).scale(np.ones(3, "float32"))
    with pytest.raises(RuntimeError, match=r"narrows::plugin::class_dtype is specialised for"):  # nothing says what it is
        narrows.load_inline("asks", text.replace("call.parallel_for", "struct S { float x; }; call.input<S>(0); call.parallel_for"))


def test_load_inline_gives_the_source_that_was_asked_for(tmp_path, monkeypatch):
    """Also one that another of its name has replaced since."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for offset in (1, 2, 1, 3, 2, 2, 1):
        text = SOURCE.replace("inline.scale/1", "replaced.scale/1").replace('PLUGIN("inline"', 'PLUGIN("replaced"')
        scale = narrows.load_inline("replaced", text.replace("factor * x[i]", f"factor * x[i] + {offset}")).scale
        np.testing.assert_array_equal(scale(np.ones(3, "float32"), factor=4), 4 + offset)


@pytest.mark.parametrize("plugin", ["same", "another"])
def test_an_op_object_of_a_body_that_was_replaced_says_so(tmp_path, monkeypatch, plugin):
    """Whether the new body's plugin has the old one's name, or another one, and the old one is loaded again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    x, vendor = np.ones(3, "float32"), f"body_{plugin}"

    def made(offset, plugin_name):
        text = SOURCE.replace("inline.scale/1", f"{vendor}.scale/1").replace('PLUGIN("inline"', f'PLUGIN("{plugin_name}"')
        return narrows.load_inline(vendor, text.replace("factor * x[i]", f"factor * x[i] + {offset}")).scale

    first = made(1, vendor)
    bound, same = first.bind(factor=4), made(1, vendor)
    assert same == first and bound(x).tolist() == [5, 5, 5]
    second = made(2, vendor if plugin == "same" else vendor + "2")
    assert second(x).tolist() == [3, 3, 3] and narrows.op(f"{vendor}.scale")(x).tolist() == [3, 3, 3]
    for old in (first, bound, first.bind(factor=2)):
        with pytest.raises(RuntimeError, match=rf"{vendor}\.scale/1: this op object is stale: .* narrows\.ops\['{vendor}"):
            old(x)
    if importlib.util.find_spec("jax") is not None:
        jnp, call = importlib.import_module("jax.numpy"), narrows.jax.call
        with pytest.raises(RuntimeError, match="this op object is stale"):
            call(first, jnp.ones(3))
    again = made(1, vendor)
    assert again(x).tolist() == [2, 2, 2] and first(x).tolist() == [2, 2, 2]  # which computes what it did
    with pytest.raises(RuntimeError, match="this op object is stale"):
        second(x)


def test_an_op_of_two_devices_is_not_replaced():
    """The plugin that comes later, for another device, takes nothing from the one for the CPU."""
    source = SOURCE.replace("inline.scale/1", "two.scale/1")
    code = f"""
import narrows, numpy
source = {source!r}
near = narrows.load_inline("near", source.replace('PLUGIN("inline"', 'PLUGIN("near"')).scale
on_cuda = "#include <narrows/plugin.h>\\n#define kDLCPU kDLCUDA\\n"
narrows.load_inline("far", on_cuda + source.replace('PLUGIN("inline"', 'PLUGIN("far"'))
print(near(numpy.ones(2, "float32"), factor=4))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[4. 4.]\n"), done.stderr


def test_load_inline_refuses_what_is_no_op(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, words in (
        ("k/1", r"op 'k/1' is not named like 'vendor\.name/1': it has no vendor"),
        ("k", "are left out: k; expected ops that are named like"),
    ):
        with pytest.raises(ValueError, match=words):
            narrows.load_inline("nameless", SOURCE.replace("inline.scale/1", name).replace('PLUGIN("inline"', 'PLUGIN("nameless"'))
    beside = SOURCE.replace("sizeof(Params)}", 'sizeof(Params)}, {.name = "k", .inputs = {"x"}, .outputs = {"y"}, .kernel = scale}')
    with pytest.raises(ValueError, match="are left out: k; expected ops that are named like"):
        narrows.load_inline(
            "beside", beside.replace("inline.scale/1", "beside.scale/1").replace('PLUGIN("inline"', 'PLUGIN("beside"')
        )
    text = SOURCE.replace("inline.scale/1", "lost.scale/1").replace('PLUGIN("inline"', 'PLUGIN("lost"')
    text = text.replace("sizeof(Params)}", 'sizeof(Params), .backward = "lost.scale_back/1"}')
    with pytest.raises(ValueError, match=r"op 'lost\.scale/1' declares backward 'lost\.scale_back/1', an op that neither"):
        narrows.load_inline("lost", text)


def test_a_plugin_ahead_does_not_describe_the_cpu(tmp_path, monkeypatch):
    """Nor one that is loaded: neither to Device, nor to info(), nor to the command."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = narrows.Device("cpu").info
    library = pathlib.Path(narrows.build(HERE / "plugins" / "rows.cpp"))
    narrows.load(library)
    assert narrows.Device("cpu").info == before and before["total_memory"] > 0
    assert all(
        {"device": "cpu", **before} in b["devices"] for b in narrows.info()["backends"] if b["device_type"] == 1 and b["devices"]
    )
    environment = {**os.environ, "NARROWS_PLUGIN_PATH": str(library.parent)}
    command = pathlib.Path(narrows.__file__).parent / "bin" / "narrows"
    out = subprocess.run([command, "info"], env=environment, capture_output=True, text=True, check=True).stdout
    devices = [line.rpartition(", by ")[0] for line in out.splitlines() if line.startswith("  CPU 0")]
    assert len(devices) == 2 and devices[0] == devices[1] and "0.0 GiB" not in out


SEVERAL = """
#include <narrows/plugin.hpp>
using narrows::plugin::Launch;
template <int N> void fill(const Launch& call) {
  call.parallel_for(call.size(0), [y = call.output<float>(0)](int64_t i) { y[i] = N; });
}
template <int N> narrows::plugin::Op op(const char* name) { return {.name = name, .inputs = {"x"}, .outputs = {"y"}, .kernel = fill<N>}; }
NARROWS_PLUGIN("NAME", OPS)
"""


def test_short_names_of_load_inline(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    x = np.zeros(2, "float32")
    ops = 'op<10>("short.v/10"), op<1>("short.v/1"), op<9>("short.v/9"), op<3>("short.w/3")'
    found = narrows.load_inline("short", SEVERAL.replace("NAME", "short").replace("OPS", ops))
    assert found.v.op == "short.v/10" and found.v(x).tolist() == [10, 10] and found.w(x).tolist() == [3, 3]
    ops = 'op<1>("shorter.v/1"), op<2>("another.v/2")'
    with pytest.raises(ValueError, match=r"shorter\.v/1 and another\.v/2; expected ops whose short names differ"):
        narrows.load_inline("shorter", SEVERAL.replace("NAME", "shorter").replace("OPS", ops))
    assert narrows.ops.another.v(x).tolist() == [2, 2]


def test_load_says_what_is_wrong_with_a_file(tmp_path):
    folder, dangling = tmp_path / "narrows_folder.so", tmp_path / "narrows_link.so"
    empty, text = tmp_path / "narrows_empty.so", tmp_path / "narrows_text.so"
    folder.mkdir()
    dangling.symlink_to(tmp_path / "gone.so")
    empty.touch()
    text.write_text("#include <narrows/plugin.h>")
    for path, words in (
        (folder, "narrows_folder.so: a directory, not a file"),
        (dangling, "gone.so: cannot be opened: No such file"),
        (tmp_path / "nothing.so", "nothing.so: cannot be opened: No such file"),
        (empty, "narrows_empty.so: an empty file"),
        (text, "narrows_text.so: not an ELF file"),
        ("/a\0b", "null (byte|character)"),  # Python's own words, by its version
    ):
        with pytest.raises(ValueError, match=words):
            narrows.load(path)
    with pytest.raises(TypeError, match="NoneType"):
        narrows.load(None)


def test_a_plugin_path_that_is_relative(tmp_path):
    """It is not searched, whatever lies there; the folders beside it are."""
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "narrows_empty.so").touch()
    code = "import narrows; [print(b['status'], b['path'], b['reason'], sep='|') for b in narrows.info()['backends']]"
    environment = {
        **os.environ,
        "NARROWS_PLUGIN_PATH": f"here:{tmp_path / 'beside'}",
        "PYTHONPATH": str(pathlib.Path(narrows.__file__).parents[1]),
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True)
    words = "'here' is not an absolute folder; plugins are searched for in absolute ones only"
    assert done.returncode == 0 and f"warning: here: {words}" in done.stderr
    assert done.stdout.splitlines()[:2] == [f"invalid|here|{words}", f"invalid|{tmp_path}/beside/narrows_empty.so|an empty file"]


def test_an_op_that_is_declared_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = SOURCE.replace("inline.scale/1", "again.scale/1").replace('PLUGIN("inline"', 'PLUGIN("again"')
    scale = narrows.load_inline("again", first).scale
    second = tmp_path / "second.cpp"
    second.write_text(first.replace('PLUGIN("again"', 'PLUGIN("second"').replace('field("factor"', 'field("by"'))
    path = narrows.build(second)
    for _ in range(2):
        with pytest.raises(
            ValueError,
            match=r"op 'again\.scale/1' is declared differently by .*: field 0 of params is 'by' here and 'factor' there",
        ):
            narrows.load(path)
    np.testing.assert_array_equal(narrows.ops.again.scale(np.ones(3, "float32"), factor=4), 4)
    np.testing.assert_array_equal(scale(np.ones(3, "float32"), factor=2), 2)


def load_versions(folder, vendor, versions):
    for version in versions:
        text = SOURCE.replace("inline.scale/1", f"{vendor}.scale/{version}").replace("1.0", f"{version}.0")
        source = folder / f"v{version}.cpp"
        # Of one name, the last would hide the others.
        source.write_text(text.replace('PLUGIN("inline"', f'PLUGIN("{vendor}{version}"'))
        narrows.load(narrows.build(source))


def test_the_newest_version_is_the_one_without_a_number(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load_versions(tmp_path, "versions", (2, 10, 9))  # by number, not by letter, and not the last to be loaded
    x = np.ones(2, "float32")
    assert narrows.op("versions.scale").op == narrows.ops.versions.scale.op == "versions.scale/10"
    for version in (2, 9, 10):
        np.testing.assert_array_equal(narrows.ops[f"versions.scale/{version}"](x), version * x)


def test_an_older_version_in_torch(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="torch has no wheel for this Python")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load_versions(tmp_path, "older", (9, 10))
    assert torch.ops.narrows.older_scale_9(torch.ones(2)).tolist() == [9, 9]


def test_build_says_what_the_compiler_says(tmp_path, monkeypatch):
    bad = tmp_path / "bad.cpp"
    bad.write_text("int x = nothing_of_that_name;")
    with pytest.raises(RuntimeError, match="nothing_of_that_name"):
        narrows.build(bad)
    (tmp_path / "folder.cpp").mkdir()
    for path, words in ((tmp_path / "none.cpp", "does not exist"), (tmp_path / "folder.cpp", "is no file")):
        with pytest.raises(FileNotFoundError, match=re.escape(f"build: '{path}' {words}")):
            narrows.build(path)
    with pytest.raises(ValueError, match=r"^load_inline: no source; expected cpp_sources, cuda_sources or vulkan_sources$"):
        narrows.load_inline("nothing", headers={"scale.h": "int k;"})
    with pytest.raises(ValueError, match="sources that end in"):
        narrows.build(tmp_path / "x.rs")
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(RuntimeError, match="no compiler 'no-such-compiler'"):
        narrows.build(bad)
    with pytest.raises(ValueError, match="identifier"):
        narrows.load_inline("../x", SOURCE)
    good = tmp_path / "empty.c"
    good.write_text("int unrelated;")
    with pytest.raises((ValueError, NotImplementedError), match="narrows_plugin_query"):
        narrows.load(narrows.build(good))


ODD = "o d$d:#%'&;(é"  # make, ninja or a shell reads each of these signs


@pytest.mark.parametrize("compiler", ["c++", "clang++"])
def test_paths_with_signs_of_make_and_the_shell(tmp_path, monkeypatch, compiler):
    """Sources, headers that change, their folders, the cache and the folder of temporary files. No file's name is taken for an option."""
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    folder = tmp_path / ODD
    (folder / "temporary").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "temporary"))
    for name in (ODD, "-o", "@at", "a: b.o", "$$", "back\\#slash" if compiler == "c++" else "x"):
        source, header = pathlib.Path(f"{name}.cpp"), folder / f"{name}.h"
        source.write_text(f'#include "{header.name}"\nint unrelated = VALUE;\n')
        paths = []
        for value in (1, 2, 1):
            header.write_text(f"#define VALUE {value}\n")
            paths.append(narrows.build(source))
        assert paths[0] == paths[2] != paths[1] and os.path.exists(paths[0]), name
    text = SOURCE.replace("inline.scale/1", f"odd_{len(compiler)}.scale/1").replace(
        'PLUGIN("inline"', f'PLUGIN("odd_{len(compiler)}"'
    )
    np.testing.assert_array_equal(narrows.load_inline("odd", text).scale(np.ones(3, "float32"), factor=4), 4)


def test_rules_for_make():
    from narrows import _build

    for name in (
        "a b",
        "a\tb",
        "a$b",
        "a$$b",
        "a#b",
        "a:b",
        "a: b",
        "a'b",
        'a"b',
        "a\\b",
        "a\\ b",
        "a\\\\ b",
        "a\\#b",
        "a`b",
        "-o",
        "%.h",
    ):
        quoted = re.sub(r"(\\*)(\s)", r"\1\1\\\2", name).replace("$", "$$").replace("#", "\\#")  # as GCC writes it
        assert _build._prerequisites(f"{quoted}.o: {quoted} \\\n other.h {quoted}.h\n") == [name, "other.h", f"{name}.h"]


def test_nvcc_and_signs_of_the_shell(tmp_path, monkeypatch):
    """It hands paths to a shell between double quotes, as this one does."""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("""#!/bin/sh
[ "$1" = --version ] && echo one && exit
for word; do case $word in -Xcompiler=*|-Xlinker=*) ;; *) line="$line \\"$word\\"" ;; esac; done
eval exec c++ -fPIC -x c++ $line
""")
    nvcc.chmod(0o755)
    folder = tmp_path / "a$b `c` d"
    folder.mkdir()
    monkeypatch.setenv("NVCC", str(nvcc))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    source, header = folder / "kernel.cu", folder / "own.h"
    source.write_text('#include "own.h"\nint unrelated = VALUE;\n')
    paths = []
    for value in (1, 2, 1):
        header.write_text(f"#define VALUE {value}\n")
        paths.append(narrows.build(source))
    assert paths[0] == paths[2] != paths[1] and os.path.exists(paths[0])
    with pytest.raises(ValueError, match=r"k\$1\.cu; nvcc takes no file with"):
        narrows.build(source.rename(folder / "k$1.cu"))


def compiler_that_counts(folder, version):
    """c++ under another name, which writes down each time that it makes a library."""
    wrapper = folder / "counting-c++"
    wrapper.write_text(f"""#!/bin/sh
[ "$1" = --version ] && echo {version} && exit
case "$*" in *" -o "*) echo made >>{folder}/made ;; esac
exec c++ "$@"
""")
    wrapper.chmod(0o755)
    return wrapper


def test_what_is_built_is_kept_by_content_and_compiler(tmp_path, monkeypatch):
    """A header of the source's own is content too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    monkeypatch.setenv("CXX", str(compiler_that_counts(tmp_path, "one")))
    source, header = tmp_path / "own.cpp", tmp_path / "a header.h"
    source.write_text('#include "a header.h"\n' + SOURCE.replace("factor * x[i]", "FACTOR * x[i]"))
    made = lambda: len((tmp_path / "made").read_text().splitlines())  # noqa: E731
    paths = []
    for text, times in (("3", 1), ("3", 1), ("4", 2), ("3", 2)):
        header.write_text(f"#define FACTOR {text}\n")
        paths.append(narrows.build(source))
        assert made() == times
    assert paths[0] == paths[1] == paths[3] != paths[2]
    compiler_that_counts(tmp_path, "two")
    assert narrows.build(source) not in paths and made() == 3
    assert narrows.build(source, flags=["-DNDEBUG"]) not in paths and made() == 4


def compiler_of(tmp_path, body):
    """CXX: a script that answers as the real one, but where it is asked to write a file."""
    script = tmp_path / "compiler.sh"
    script.write_text(f'for word in "$@"; do if [ "$word" = -o ]; then {body}; fi; done\nexec c++ "$@"\n')
    return f"sh {script}"


@pytest.mark.parametrize(
    "body, words",
    [
        (None, "true .*-MM.*\nit prints no list of headers; expected a compiler"),
        ("exit 0", "exited with status 0 but wrote no file; expected a compiler"),
        ("exit 7", "exit status 7"),
        ("kill -9 $$", "it was ended by SIGKILL"),
        ("sleep 1000 & wait", r"it was ended after 2 s \(NARROWS_COMPILE_SECONDS\)"),
    ],
)
def test_a_compiler_that_does_not_work_is_told(tmp_path, monkeypatch, body, words):
    monkeypatch.setenv("NARROWS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", "true" if body is None else compiler_of(tmp_path, body))
    monkeypatch.setenv("NARROWS_COMPILE_SECONDS", "2" if body is not None and "sleep" in body else "nonsense")
    with pytest.raises(RuntimeError, match=f"(?s){words}"):
        narrows.load_inline("inline", SOURCE)
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".so" or path.name.startswith("tmp")]


def test_a_compiler_that_says_nothing_or_cannot_start(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(RuntimeError, match=r"false .*-MM.*\nexit status 1"):
        narrows.load_inline("inline", SOURCE)
    program = tmp_path / "compiler"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))
    with pytest.raises(RuntimeError, match="it cannot be started: Exec format error"):
        narrows.load_inline("inline", SOURCE)


@pytest.mark.parametrize("where", ["a file", "/sys"])
def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch, where):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" if where == "a file" else pathlib.Path(where) / "narrows"
    monkeypatch.setenv("NARROWS_CACHE_DIR", str(folder))
    with pytest.raises(OSError, match=f"plugins cannot be kept in {folder}/plugins/.*set NARROWS_CACHE_DIR to a folder") as error:
        narrows.load_inline("inline", SOURCE)
    assert error.value.errno is not None


def test_two_processes_build_one_plugin(tmp_path):
    """Both are compiling before either is done."""
    (tmp_path / "seen").mkdir()
    wait = f"touch {tmp_path}/seen/$$; while [ $(ls {tmp_path}/seen | wc -l) -lt 2 ]; do sleep 0.05; done"
    code = f"import numpy, narrows; print(narrows.load_inline('inline', {SOURCE!r}).scale(numpy.ones(2, 'float32'), factor=4))"
    paths = os.pathsep.join(filter(None, (str(pathlib.Path(narrows.__file__).parents[1]), os.environ.get("PYTHONPATH"))))
    environment = {
        **os.environ, "PYTHONPATH": paths, "NARROWS_CACHE_DIR": str(tmp_path / "cache"), "CXX": compiler_of(tmp_path, wait)
    }  # fmt: skip
    both = [subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=300)[0].strip() for process in both] == ["[4. 4.]"] * 2
    (folder,) = (tmp_path / "cache" / "plugins").iterdir()
    assert [path.name for path in folder.iterdir()] == ["narrows_inline.so"]
