# SPDX-License-Identifier: Apache-2.0
"""Models that torch saves in one process and loads in another, where narrows is imported beside torch, in either order."""

import os
import subprocess
import sys
import textwrap

import pytest

import narrows

pytest.importorskip("torch")
ORDERS = ["import torch, narrows", "import narrows, torch"]


def python(code, file=None, **environment):
    """What a fresh process prints; of code in a file, where torch.jit.script reads it."""
    if file is not None:
        file.write_text(textwrap.dedent(code))
    command = [sys.executable, "-c", textwrap.dedent(code)] if file is None else [sys.executable, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=300)
    assert done.returncode == 0 and "libnarrows_torch" not in done.stderr, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def saved(tmp_path_factory, scale_folder):
    """A folder with a scripted, a traced and an exported model of built-in ops and of a plugin's, and the plugin in a folder of its own."""
    folder = tmp_path_factory.mktemp("saved")
    (folder / "plugins").symlink_to(scale_folder)
    python(
        f"""
        import torch, narrows, narrows.torch
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.cell = narrows.torch.Conv1d(2, 4, 3, padding="same"), narrows.torch.LLTM(4, 5)
            def forward(self, x):
                state = torch.zeros(x.shape[0], 5)
                h, c = self.cell(self.conv(x).mean(2), (state, state))
                return torch.ops.narrows.elementwise(h, c, function="add")
        class Scaled(torch.nn.Module):
            def forward(self, x):
                return torch.ops.narrows.test_scale_1(x, factor=3.0)
        x = torch.rand(3, 2, 8)
        for name, model in (("model", Model()), ("scaled", Scaled())):
            torch.jit.script(model).save(r"{folder}/" + name + ".script")
            torch.jit.trace(model, (x,)).save(r"{folder}/" + name + ".trace")
            torch.export.save(torch.export.export(model, (x,)), r"{folder}/" + name + ".pt2")
            torch.save((x, model(x).detach()), r"{folder}/" + name + ".pt")
        """,
        folder / "save.py",
        NARROWS_PLUGIN_PATH=str(folder / "plugins"),
    )
    return folder


LOAD = """
    {order}
    x, y = torch.load(r"{folder}/{name}.pt")
    for kind in ("script", "trace"):
        model = torch.jit.load(r"{folder}/{name}." + kind)
        result = model(x.requires_grad_())
        torch.testing.assert_close(result, y)
        result.sum().backward()
        assert x.grad is not None and all(p.grad is not None for p in model.parameters())
    torch.testing.assert_close(torch.export.load(r"{folder}/{name}.pt2").module()(x), y)
    print("loaded")
"""


@pytest.mark.parametrize("order", ORDERS)
def test_a_fresh_process_loads_models(saved, order):
    assert python(LOAD.format(order=order, folder=saved, name="model")) == "loaded\n"


@pytest.mark.parametrize("order", ORDERS)
def test_a_fresh_process_loads_models_of_plugins_on_the_path(saved, order):
    plugins = str(saved / "plugins")
    assert python(LOAD.format(order=order, folder=saved, name="scaled"), NARROWS_PLUGIN_PATH=plugins) == "loaded\n"


def test_a_plugin_that_is_loaded_later(saved):
    printed = python(f"""
        import narrows, torch
        torch.ops.load_library(narrows.torch.library_path())  # the package's ops stay
        for ask in (lambda: torch.jit.load(r"{saved}/scaled.script"), lambda: torch.ops.narrows.test_scale_1):
            try:
                ask()
            except (RuntimeError, AttributeError) as error:
                print(error)
        narrows.load(r"{saved}/plugins/narrows_scale.so")
        print(torch.jit.load(r"{saved}/scaled.script")(torch.ones(2)).tolist())
    """)
    folder = os.path.realpath(narrows.get_include().removesuffix("include") + "lib/narrows/backends")
    missing = (
        f"torch.ops.narrows has no op 'test_scale_1': it is none of narrows {narrows.info()['version']}, and no loaded plugin "
        f"declares it. Plugins were looked for in {folder}; narrows.load loads others\n"
    )
    assert printed == missing + missing + "[3.0, 3.0]\n"
