#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes backends/NAME of backends/template, and the presets that build and test it: a backend that runs and passes, on a device that the CPU
plays, until its device.cpp calls a driver. CONTRIBUTING.md says how to go on.

scripts/new_backend.py sycl --device-type kDLOneAPI
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEVICE_TYPE = re.compile(r"\bkDL[A-Z]\w+\b")
# Of the CMakeLists.txt what is about the template alone.
TEMPLATE_ALONE = re.compile(r'set\(install ""\)\n.*?endif\(\)\n', re.S)


def adapted(text, name, device_type):
    """A file of the template as a file of the backend. The keyword of C++ stays."""
    text = TEMPLATE_ALONE.sub("", text).replace(" ${install}", "").replace("kDLExtDev", device_type)
    text = text.replace("template_backend", name)
    text = re.sub(r"\n//\n// The suite's tests use it too:[^\n]*\n", "\n", text)
    return re.sub(r"(?<![\w/])template(?! ?<)\b|(?<=narrows_)template\b", name, text)


def with_presets(text, name):
    """CMakePresets.json with three presets, to configure, build and test, behind those of cpu."""
    configure = f"""    {{
      "name": "{name}",
      "displayName": "The {name} backend beside cpu's",
      "inherits": "cpu",
      "cacheVariables": {{"NARROWS_BACKENDS": "cpu;{name}"}}
    }},
"""
    build = f'    {{"name": "{name}", "configurePreset": "{name}"}},\n'
    tests = rf'"filter": {{"include": {{"name": "^abi\\..*\\.narrows_{name}$|^conformance\\.{name}"}}}}'
    test = f'    {{"name": "{name}", "inherits": "base", "configurePreset": "{name}",\n     {tests}}},\n'
    for what, pattern, more in (
        ("configure", r'    \{\n      "name": "cpu",\n.*?\n    \},\n', configure),
        ("build", r'    \{"name": "cpu", "configurePreset": "cpu"\},\n', build),
        ("test", r'    \{"name": "cpu", "inherits": "base", "configurePreset": "cpu"\},\n', test),
    ):
        cpu = re.search(pattern, text, re.S)
        if cpu is None:
            sys.exit(f"scripts/new_backend.py: CMakePresets.json has no {what} preset 'cpu' as this script knows it")
        text = text[: cpu.end()] + more + text[cpu.end() :]
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--device-type", default="kDLExtDev", help="the DLDeviceType of its tensors, as dlpack.h names it")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, metavar="DIR", help="another tree")
    arguments = parser.parse_args()
    name, folder = arguments.name, arguments.root / "backends" / arguments.name
    if not re.fullmatch(r"[a-z][a-z0-9]*", name):
        sys.exit(f"scripts/new_backend.py: the name is '{name}'; expected lower case: a to z and 0 to 9")
    if folder.exists():
        sys.exit(f"scripts/new_backend.py: the name is '{name}'; backends/{name} is there already")
    if not DEVICE_TYPE.fullmatch(arguments.device_type):
        sys.exit(f"scripts/new_backend.py: --device-type is '{arguments.device_type}'; expected a name like kDLOneAPI")
    template = arguments.root / "backends" / "template"
    for file in sorted(f for f in template.rglob("*") if f.is_file()):
        to = folder / file.relative_to(template)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(adapted(file.read_text(encoding="utf-8"), name, arguments.device_type), encoding="utf-8")
        print(f"  {to.relative_to(arguments.root)}")
    presets = arguments.root / "CMakePresets.json"
    presets.write_text(with_presets(presets.read_text(encoding="utf-8"), name), encoding="utf-8")
    print("  CMakePresets.json")
    print(f"now: CONTRIBUTING.md, 'Add a backend'; cmake --preset {name}; build/{name}/bin/narrows conform --backend {name}")


if __name__ == "__main__":
    main()
