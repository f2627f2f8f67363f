"""What editors say about users' programs: every wrong line is found, and no right one is called wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from .pages import ROOT, write

# What is put into a namespace when it is first used, or is only imported there and public by accident.
LAZY = {
    "torch.nested": ("as_nested_tensor", "masked_select", "narrow", "nested_tensor", "nested_tensor_from_jagged", "to_padded_tensor"),
    "torch.utils.recordio": ("copy_of_array", "Dataset", "decode", "float32", "pillow", "Tensor"),
    "torch.cuda": ("absent_classes", "backend_of", "CUDA_STORAGE_TYPES", "CUDA_TENSOR_TYPES", "Device", "has_backend", "is_capturing", "raising", "why_absent"),
    "torch.accelerator": ("device",),
    "torch.backends": ("matmul_switches",),
    "torch.linalg": ("TYPE_CHECKING",),
    "torch.special": ("TYPE_CHECKING",),
}  # fmt: skip
pytestmark = pytest.mark.skipif(shutil.which("pyright") is None and not Path(sys.prefix, "bin", "pyright").exists(), reason="no pyright")  # fmt: skip


def told(*paths: str | Path) -> list[tuple[str, int, str, str]]:
    """(file, line, rule, message) of pyright's errors in files, or in a project: "-p", its folder."""
    program = shutil.which("pyright") or str(Path(sys.prefix, "bin", "pyright"))
    command = [program, "--pythonpath", sys.executable, "--outputjson", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=Path(paths[-1]).parent, env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    if not done.stdout.startswith("{"):
        pytest.skip(f"pyright does not start here: {done.stderr[-200:]}")
    found = [entry for entry in json.loads(done.stdout)["generalDiagnostics"] if entry["severity"] == "error"]
    return [(Path(e["file"]).name, e["range"]["start"]["line"] + 1, e.get("rule", ""), e["message"]) for e in found]


def test_wrong_lines_are_found_and_no_others() -> None:
    programs = Path(__file__).parent / "programs.py"
    wrong = {i for i, line in enumerate(programs.read_text().splitlines(), 1) if line.endswith("# wrong")}
    assert {line for _, line, _, _ in told(programs)} == wrong


def test_tutorials_and_examples_are_right_in_strict_mode(tmp_path: Path) -> None:
    for example in write(tmp_path):
        if not example.is_relative_to(tmp_path):
            copy = tmp_path / example.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(example, copy)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    found = told("-p", tmp_path)
    # onnx's own `load` says `os.PathLike` without what it holds, which strict mode does not let pass.
    assert [
        e for e in found if not (e[0] == "deployment_page.py" and e[3].startswith('Type of "load" is partially'))
    ] == []


def test_names_of_the_reference_are_known(tmp_path: Path) -> None:
    """An editor completes every name that the reference lists, and says of none that it is private."""
    sys.path.insert(0, str(ROOT / "docs" / "_tools"))
    import reference

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = [(space, name) for space, name, _ in reference.entries() if name not in LAZY.get(space, ())]
        names = [(s, n) for s, n in names if not s.startswith("torch.backends.")]  # former names, found when imported
    homes = {space: re.sub("^torchvision", "torch.vision", space).replace("torch", "flambeau", 1) for space, _ in names}
    del homes["torch.Tensor"]
    lines = [f"import {home} as m{i}" for i, home in enumerate(homes.values())]
    numbers = {space: f"m{i}" for i, space in enumerate(homes)} | {"torch.Tensor": "m0.Tensor"}
    lines += [f"{numbers[space]}.{name}" for space, name in names]
    program = tmp_path / "names.py"
    program.write_text("\n".join(lines) + "\n")
    found = told(program)
    assert len(lines) > 3000
    assert not [f"{lines[line - 1]}: {message}" for _, line, _, message in found]
