# SPDX-License-Identifier: Apache-2.0
"""command.py -- drives the `narrows` command as a user would. Standard library only.

usage: command.py NARROWS CASE [ARGUMENT ...]
CASE is the name of a function below without "case_"; each is a test of ctest's.
"""

import html.parser
import json
import math
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree

NARROWS = sys.argv[1]
SPEECH = pathlib.Path("/usr/share/sounds/alsa")
LIST = pathlib.Path(__file__).parents[2] / "core" / "ops" / "ops.inc"
OPS = re.findall(r"^NARROWS_OP\((\w+)\)", LIST.read_text(encoding="utf-8"), re.M)
DTYPES = "f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool".split()


def run(*arguments, expect=0, environment=None, cwd=None):
    """Runs narrows with its output in pipes, and checks its exit code (None: any) and that no escape code is in what it prints."""
    env = {**os.environ, "TERM": "xterm-256color", **(environment or {})}
    for name in ("NARROWS_PLUGIN_PATH", "NARROWS_BACKEND"):
        if name not in (environment or {}):
            env.pop(name, None)
    done = subprocess.run([NARROWS, *map(str, arguments)], capture_output=True, env=env, cwd=cwd, timeout=100)
    out, err = done.stdout.decode(), done.stderr.decode()
    assert expect in (done.returncode, None), f"exit code {done.returncode}, expected {expect}\n{out}\n{err}"
    for text in (out, err):
        assert "\033" not in text and "\r" not in text, f"escape codes in a pipe: {text!r}"
        assert "█" not in text and "░" not in text, f"a progress bar in a pipe: {text!r}"
    return out, err


def one_line(err, *words):
    """An error is one line on stderr that says all of `words`."""
    assert err.count("\n") == 1 and err.endswith("\n"), f"not one line: {err!r}"
    for word in words:
        assert word in err, f"{word!r} is not in {err!r}"


def wav(frames, *, tag=1, channels=1, bits=16, rate=16000, data_size=None):
    frame = channels * bits // 8
    head = struct.pack(
        "<4sI4s4sIHHIIHH", b"RIFF", 36 + len(frames), b"WAVE", b"fmt ", 16, tag, channels, rate, rate * frame, frame, bits
    )
    return head + struct.pack("<4sI", b"data", len(frames) if data_size is None else data_size) + frames


def tone(seconds, rate=16000):
    """A sound whose loudness and pitch change: something to filter and to predict."""
    values = []
    for i in range(int(seconds * rate)):
        t = i / rate
        values.append(int(12000 * math.sin(2 * math.pi * 3 * t) ** 2 * math.sin(2 * math.pi * (400 + 300 * math.sin(4 * t)) * t)))
    return struct.pack(f"<{len(values)}h", *values)


def read_pcm16(path):
    data = path.read_bytes()
    assert data[:4] == b"RIFF" and data[8:16] == b"WAVEfmt " and data[36:40] == b"data", path
    assert struct.unpack_from("<I", data, 4)[0] == len(data) - 8 and struct.unpack_from("<I", data, 40)[0] == len(data) - 44, path
    assert struct.unpack_from("<HH", data, 20) == (1, 1) and struct.unpack_from("<H", data, 34)[0] == 16, path
    return struct.unpack_from("<I", data, 24)[0], struct.unpack(f"<{(len(data) - 44) // 2}h", data[44:])


def check_page(path, pictures=8):
    """A page that is well-formed and needs nothing from elsewhere."""
    text = path.read_text(encoding="utf-8")
    root = xml.etree.ElementTree.fromstring(text[text.index("<html") :])
    tags = [element.tag for element in root.iter()]
    assert tags.count("svg") == pictures, tags.count("svg")
    assert tags.count("audio") == 3 and tags.count("table") == 2 and "script" not in tags
    for element in root.iter():
        for name, value in element.attrib.items():
            assert name not in ("href", "action", "background", "poster"), (element.tag, name)
            assert name != "src" or value.startswith("data:audio/wav;base64,"), value[:60]
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]*", "", text) and "url(" not in text and "@import" not in text
    assert "nan" not in re.sub(r"base64,[A-Za-z0-9+/=]*", "", text).lower().split(), "a NaN on the page"
    for polyline in root.iter("polyline"):
        assert re.fullmatch(r"(-?[0-9.]+,-?[0-9.]+ ?)+", polyline.attrib["points"]), polyline.attrib["points"][:80]
    html.parser.HTMLParser().feed(text)
    return text


def check_demo(report, folder):
    assert report["ok"] is True
    assert report["puzzle"]["got"] == [14, 20, 26, 32, 38, 44, 50, 56, 62, 68, 74, 80, 41, 14, 0]
    assert report["backend"] and report["device"]
    steps = [(ran["step"], ran["operation"]) for ran in report["ran"]]
    assert ("band-pass", "conv1d") in steps and ("soft clip", "elementwise tanh") in steps
    for ran in report["ran"]:
        assert ran["seconds"] > 0 and ran["backend"] == report["backend"], ran
        assert ran.get("gb_per_second", 0) > 0 or ran.get("gflop_per_second", 0) > 0, ran
    assert all(
        check["ok"] and check["elements"] > 0 and check["relative_error"] <= check["relative_limit"] for check in report["checks"]
    )
    assert [pathlib.Path(file).name for file in report["files"]] == ["speech.wav", "bandpass.wav", "softclip.wav", "demo.html"]
    for name in ("speech.wav", "bandpass.wav", "softclip.wav"):
        rate, samples = read_pcm16(folder / name)
        assert rate == report["input"]["sample_rate"] and len(samples) == report["input"]["samples"], name
        assert any(samples), f"{name} is silent"


def energy(samples):
    return sum(value * value for value in samples)


def case_version_and_help():
    out, _ = run("--version")
    assert re.fullmatch(r"narrows \d+\.\d+\.\d+\n", out), out
    out, _ = run("--help")
    assert "Exit codes" in out and "info" in out and "demo" in out
    for command in ("info", "demo"):
        out, _ = run(command, "--help")
        assert "Examples:" in out and f"narrows {command} " in out and "Exit codes" in out, out


def case_output_that_cannot_be_written():
    for arguments in (("--version",), ("info",), ("info", "--json"), ("conform", "--list")):
        with open("/dev/full", "w") as full:
            done = subprocess.run([NARROWS, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=100)
        assert done.returncode == 4, (arguments, done)
        one_line(done.stderr, "narrows: ", "could not be written")


def case_bad_usage():
    for arguments, word in (
        ((), "subcommand"),
        (("frobnicate",), "'frobnicate' (see"),
        (("inof",), "unknown subcommand 'inof'; did you mean 'info'?"),
        (("new", "mine"), "new is in the Python package's command: pip install narrows, or python -m narrows new"),
        (("hub",), "python -m narrows hub"),
        (("config", "--cflags"), "python -m narrows config"),
        (("info", "--jsno"), "did you mean '--json'?"),
        (("demo", "--epoch=3"), "did you mean '--epochs'?"),
        (("info", "--frobnicate"), "--frobnicate"),
        (("demo", "--frobnicate"), "--frobnicate"),
        (("demo", "extra"), "extra"),
        (("demo", "--seed", "many"), "many"),
        (("demo", "--seed", "-1"), "-1"),
        (("demo", "--epochs", "0"), "0"),
        (("demo", "--wav"), "--wav"),
    ):
        out, err = run(*arguments, expect=2)
        assert out == "", out
        one_line(err, "narrows: ", word)


def case_info_text():
    out, err = run("info")
    assert err == ""
    assert re.search(r"^  accepted +cpu +\S+ +CPU +/\S+/narrows_cpu\.so$", out, re.M), out
    assert re.search(r"^  CPU 0 .*GiB memory, by cpu$", out, re.M), out
    header = next(line for line in out.splitlines() if line.split() == ["op", *DTYPES])
    rows = {line.split()[0]: line.split()[1:] for line in out[out.index(header) :].splitlines()[1 : 1 + len(OPS)]}
    assert rows["conv1d"] == ["yes"] * 4 + ["-"] * 9, rows
    assert rows["lltm_backward"] == ["yes"] * 4 + ["-"] * 9, rows
    assert all(count.isdigit() for count in rows["elementwise"]), rows
    assert "Kernels" in out and "beside libnarrows" in out
    for missing in ("CUDA", "ROCm", "Vulkan"):
        line = re.search(rf"^  {missing} +\S.*", out[out.index("\nMissing\n") :], re.M)
        assert line or f"  {missing} 0" in out, out
        backend = {"ROCm": "hip"}.get(missing, missing.lower())
        if line and f"narrows_{backend}.so" not in out:  # no file of it: the command that builds it beside those that are here
            command = rf"no plugin serves it\. .*: cmake .*-DNARROWS_BACKENDS='cpu;(\w+;)*{backend}(;\w+)*'"
            assert re.search(command, line[0]), line[0]
    assert "Functions of" not in out
    out, _ = run("info", "--verbose")
    assert re.search(r"^  tanh +yes +yes +yes +yes( +-){9}$", out, re.M), out
    assert re.search(r"^  bitwise_and( +-){4}( +yes){9}$", out, re.M), out


def case_info_json():
    out, err = run("info", "--json")
    assert err == ""
    info = json.loads(out)
    assert info["abi_major"] == 1
    cpu = next(plugin for plugin in info["plugins"] if plugin["name"] == "cpu")
    assert cpu["verdict"] == "accepted" and cpu["device_count"] == 1 and pathlib.Path(cpu["path"]).is_file()
    device = next(device for device in info["devices"] if device["backend"] == "cpu")
    assert device["device_type"] == "CPU" and device["total_memory"] > 0 and device["arch"]
    ops = {op["op"]: op for op in info["ops"] if op["backend"] == "cpu"}
    assert list(ops) == OPS, ops
    for name in ("conv1d", "conv1d_backward", "lltm", "lltm_backward"):
        assert ops[name]["dtypes"] == {d: {"supported": 1, "legal": 1} for d in ("float32", "float64", "float16", "bfloat16")}, ops[
            name
        ]
    functions = ops["elementwise"]["functions"]
    with open(pathlib.Path(__file__).parents[2] / "core/ops/elementwise_functions.toml", "rb") as table:
        assert sorted(functions) == sorted(tomllib.load(table))
    assert len(ops["elementwise"]["dtypes"]) == 13
    assert "int32" not in functions["tanh"] and functions["tanh"]["float16"] is True
    for name, op in ops.items():
        assert op["kernels"], name
        for dtype, count in op["dtypes"].items():
            assert count["supported"] == count["legal"], f"{name}: {dtype}: {count}"
    assert {missing["device_type"] for missing in info["missing"]}.isdisjoint({"CPU"})
    assert info["search"][-1]["source"] == "beside libnarrows" and info["search"][-1]["exists"]


def case_info_compilers():
    def of_cpu(environment):
        out, _ = run("info", "--json", environment=environment)
        compiler = next(c for c in json.loads(out)["compilers"] if c["backend"] == "cpu")
        out, _ = run("info", environment=environment)
        shown = re.search(r"^Compilers of tensor programs\n(?:  .*\n)*?  cpu +(.*)$", out, re.M)
        assert shown and shown[1] == (compiler["compiler"] or compiler["missing"]), out
        return compiler

    with tempfile.TemporaryDirectory() as folder:
        for name, script in {"told": "echo 'planted 1.2.3'; echo more", "silent": "exit 3"}.items():
            path = pathlib.Path(folder, name)
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        told, silent = of_cpu({"CC": f"{folder}/told -O2"}), of_cpu({"CC": f"{folder}/silent"})
        assert told == {"backend": "cpu", "compiler": f"planted 1.2.3, {folder}/told", "missing": ""}, told
        assert silent["compiler"] is None and silent["missing"].startswith(f"the C compiler {folder}/silent does not answer"), (
            silent
        )
    none = of_cpu({"CC": "/no/such/cc"})
    assert none["compiler"] is None and none["missing"].startswith("there is no C compiler: CC is '/no/such/cc'"), none


def case_info_plugin_path():
    out, _ = run("info", environment={"NARROWS_PLUGIN_PATH": "relative/folder"})
    assert "refused" in out and "'relative/folder' is not an absolute folder" in out, out
    assert re.search(r"^  NARROWS_PLUGIN_PATH +relative/folder \(not absolute: not searched\)$", out, re.M), out
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "narrows_broken.so").write_bytes(b"not a library")
        pathlib.Path(folder, "narrows_cpu.so").symlink_to(json.loads(run("info", "--json")[0])["plugins"][0]["path"])
        info = json.loads(run("info", "--json", "--plugin-path", folder)[0])
        verdicts = [(plugin["verdict"], pathlib.Path(plugin["path"]).name) for plugin in info["plugins"]]
        assert ("refused", "narrows_broken.so") in verdicts, verdicts
        assert [v for v, name in verdicts if name == "narrows_cpu.so"] == ["accepted", "shadowed"], verdicts
        assert all(plugin["reason"] for plugin in info["plugins"] if plugin["verdict"] != "accepted"), info["plugins"]
        out, _ = run("info", "--plugin-path", folder)
        assert re.search(r"^  shadowed .*narrows_cpu\.so$", out, re.M) and "--plugin-path" in out, out
    out, _ = run("info", "--plugin-path", "/no/such/folder")
    assert "/no/such/folder (no such folder)" in out, out


def case_info_threads():
    """How many threads a call may use, and by whose word."""
    number = json.loads(run("info", "--json")[0])["threads"]["threads"]
    info = json.loads(run("info", "--json", environment={"OMP_NUM_THREADS": "1,2", "NARROWS_NUM_THREADS": "77"})[0])
    assert number >= 1 and info["threads"]["threads"] == 1 and not info["threads"]["ignored"], info["threads"]
    assert info["threads"]["limits"]["NARROWS_NUM_THREADS"] == 77 and info["threads"]["limits"]["affinity mask"] >= 1, info[
        "threads"
    ]
    out, _ = run("info", environment={"OMP_NUM_THREADS": "1", "NARROWS_NUM_THREADS": "many"})
    assert re.search(r"^  1, the smallest of: OMP_NUM_THREADS 1, affinity mask \d+", out, re.M), out
    assert "NARROWS_NUM_THREADS = 'many' is ignored; expected a number of 1 or more" in out, out


def case_info_own_op(plugin_folder):
    """A plugin's own op is listed with its declaration."""
    info = json.loads(run("info", "--json", "--plugin-path", plugin_folder)[0])
    own = info["own_ops"]
    assert own and all(op["op"] and op["inputs"] and op["outputs"] and "params" in op and "shape_rule" in op for op in own), own
    out, _ = run("info", "--plugin-path", plugin_folder)
    assert "Plugins' own ops" in out and own[0]["op"] in out and "shapes:" in out, out
    alone = [d for d in json.loads(run("info", "--json")[0])["devices"] if d["backend"] == "cpu"]
    ahead = [d for d in info["devices"] if d["device_type"] == "CPU"]  # a plugin ahead does not change what the CPU is
    assert len(ahead) == 2 and all({**d, "backend": "cpu"} == alone[0] for d in ahead), ahead


def case_demo_default():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary, "new", "out")
        out, err = run("demo", "--json", "--out", folder)
        assert err == "", err
        report = json.loads(out)
        check_demo(report, folder)
        lltm = report["lltm"]
        assert lltm["done"] and lltm["beats_persistence"] and lltm["held_out"] == "Side_Right", lltm
        assert lltm["model_mse_db2"] < 0.98 * lltm["persistence_mse_db2"], lltm
        assert [turn["held_out"] for turn in lltm["each_held_out"]] == report["input"]["recordings"]
        assert sum(turn["improvement"] > 0 for turn in lltm["each_held_out"]) >= 6, lltm["each_held_out"]
        assert math.isclose(lltm["each_held_out"][-1]["improvement"], lltm["improvement"], rel_tol=1e-3), lltm
        assert len(lltm["curve_training_and_held_out_over_persistence"]) == lltm["epochs"] > 1
        assert {check["what"].split(":")[0] for check in report["checks"]} == {
            "conv1d",
            "conv1d_backward",
            "elementwise",
            "lltm",
            "lltm_backward",
        }
        text = check_page(folder / "demo.html")
        assert "Side_Right" in text and "300 to 3400 Hz" in text
        speech, filtered = read_pcm16(folder / "speech.wav")[1], read_pcm16(folder / "bandpass.wav")[1]
        assert 0 < energy(filtered) < energy(speech)
        assert sum(len(read_pcm16(SPEECH / f"{name}.wav")[1]) for name in report["input"]["recordings"]) == len(speech)
        assert report["seconds"] < 60, report["seconds"]


def case_demo_text():
    with tempfile.TemporaryDirectory() as folder:
        out, err = run("demo", "--seed", "2", "--backend", "cpu", cwd=folder)
        assert err == "", err
        assert "14 20 26 32 38 44 50 56 62 68 74 80 41 14 0   as expected" in out, out
        assert "All checks passed" in out and "DIFFERS" not in out and "% less" in out, out
        for name in ("speech.wav", "bandpass.wav", "softclip.wav", "demo.html"):
            assert pathlib.Path(folder, "narrows-demo", name).stat().st_size > 1000, name


def case_demo_is_reproducible():
    with tempfile.TemporaryDirectory() as folder:
        curves = [
            json.loads(run("demo", "--json", "--epochs", "2", "--seed", seed, "--out", folder, expect=None)[0])["lltm"][
                "curve_training_and_held_out_over_persistence"
            ]
            for seed in (5, 5, 6)
        ]
        assert curves[0] == curves[1] != curves[2], curves


def case_demo_own_wav():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        path = folder / "mine <&> caf\u00e9.wav"
        stereo = b"".join(sample + sample for sample in re.findall(b"..", tone(6), re.S))
        path.write_bytes(wav(stereo, channels=2))
        report = json.loads(run("demo", "--json", "--wav", path, "--out", folder / "out")[0])
        check_demo(report, folder / "out")
        assert report["input"]["samples"] == 6 * 16000 and "stereo" in report["input"]["from"]
        assert report["lltm"]["done"] and "last 20 %" in report["lltm"]["held_out"], report["lltm"]
        assert "mine &lt;&amp;&gt; caf\u00e9.wav" in check_page(folder / "out" / "demo.html")
        for rate in (2000, 8000, 44100):
            path.write_bytes(wav(tone(5, rate), rate=rate))
            check_demo(json.loads(run("demo", "--json", "--wav", path, "--out", folder / "out")[0]), folder / "out")


def case_demo_short_wav():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        path = folder / "short.wav"
        for seconds in (1 / 16000, 0.01, 1):
            path.write_bytes(wav(tone(1)[1000 : 1000 + 2 * int(seconds * 16000)]))
            out, _ = run("demo", "--wav", path, "--out", folder / "out")
            assert "no LLTM was trained: too short" in out, out
            assert "Not trained: too short" in (folder / "out" / "demo.html").read_text()
        path.write_bytes(wav(bytes(2 * 16000 * 5)))
        out, _ = run("demo", "--wav", path, "--out", folder / "out")
        assert "no LLTM was trained: nothing changes" in out, out
        assert "Not trained" in check_page(folder / "out" / "demo.html", pictures=4)


def case_demo_bad_wav():
    good = wav(tone(0.1))
    bad = {
        "empty": (b"", "empty"),
        "text": (b"hello, I am not a WAV file at all, sorry", "does not begin with RIFF"),
        "truncated": (good[:-100], "the file ends after"),
        "header": (good[:20], "the file ends after"),
        "lying": (wav(tone(0.1), data_size=0xFFFFFFFF), "4294967295 bytes"),
        "odd": (wav(b"abc"), "ends inside a sample"),
        "silent": (wav(b""), "no samples"),
        "mute": (wav(tone(0.1), channels=0), "0 channels"),
        "crowd": (wav(tone(0.12), channels=6), "6 channels"),
        "mp3": (wav(tone(0.1), tag=0x55), "compressed audio (MP3)"),
        "alaw": (wav(tone(0.1), tag=6, bits=8), "A-law"),
        "bits": (wav(tone(0.1), bits=20), "20-bit PCM"),
        "rate": (wav(tone(0.1), rate=0), "0 Hz"),
        "slow": (wav(tone(0.1), rate=100), "100 Hz"),
        "nan": (wav(struct.pack("<f", math.nan), tag=3, bits=32), "not a finite number"),
    }
    with tempfile.TemporaryDirectory() as temporary:
        for name, (content, message) in bad.items():
            path = pathlib.Path(temporary, name + ".wav")
            path.write_bytes(content)
            out, err = run("demo", "--wav", path, "--out", pathlib.Path(temporary, "out"), expect=2)
            assert out == "", out
            one_line(err, "narrows demo: ", str(path), message)
        one_line(run("demo", "--wav", pathlib.Path(temporary, "none.wav"), expect=2)[1], "no such file")
        one_line(run("demo", "--wav", temporary, expect=2)[1], "not a regular file")
        assert not pathlib.Path(temporary, "out").exists()


def case_demo_unavailable():
    with tempfile.TemporaryDirectory() as folder:
        one_line(run("demo", "--speech", folder, "--out", folder, expect=3)[1], "alsa-utils", "--wav")
        one_line(run("demo", "--backend", "abacus", "--out", folder, expect=3)[1], "abacus")
        one_line(run("demo", "--out", folder, expect=3, environment={"NARROWS_BACKEND": "abacus"})[1], "abacus")
        unknown = {"NARROWS_CPU_TARGET": "abacus"}
        one_line(
            run("demo", "--backend", "cpu", "--out", folder, expect=3, environment=unknown)[1],
            "cpu",
            "NARROWS_CPU_TARGET is 'abacus'",
        )
        out, _ = run("info", environment=unknown, expect=None)
        assert re.search(r"^  unavailable +cpu", out, re.M) and re.search(r"^  CPU +.*NARROWS_CPU_TARGET is 'abacus'", out, re.M), (
            out
        )
        taken = pathlib.Path(folder, "file")
        taken.write_text("")
        one_line(run("demo", "--out", taken, expect=4)[1], "cannot be made a folder")
        one_line(run("demo", "--out", taken / "below", expect=4)[1], "cannot be made a folder")
        pathlib.Path(folder, "demo.html").mkdir()
        one_line(run("demo", "--out", folder, expect=4)[1], "demo.html: cannot be written")
        _, err = run("demo", "--out", pathlib.Path(folder, "out"), environment={"NARROWS_PLUGIN_PATH": "relative"})
        one_line(err, "warning", "'relative' is not an absolute folder")


def on_a_terminal(*arguments):
    master, slave = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color"}
    for name in ("NO_COLOR", "NARROWS_PLUGIN_PATH", "NARROWS_BACKEND"):
        env.pop(name, None)
    process = subprocess.Popen([NARROWS, *arguments], stdout=slave, stderr=slave, env=env)
    os.close(slave)
    output = b""
    while select.select([master], [], [], 100)[0]:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        output += piece
    os.close(master)
    assert process.wait(10) == 0
    return output.decode()


def case_terminal():
    """On a terminal there are colours and a bar."""
    assert "\033[32maccepted" in on_a_terminal("info")
    with tempfile.TemporaryDirectory() as folder:
        output = on_a_terminal("demo", "--out", folder)
        assert "█" in output and "100 %" in output and "\033[32mAll checks passed" in output, output


if __name__ == "__main__":
    globals()["case_" + sys.argv[2]](*sys.argv[3:])
