"""Tools that people use with PyTorch run on Flambeau unmodified, and find the same."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# The tool's package, and what else it needs.
TOOLS = {
    "torchsummary": (), "torchinfo": (), "torchviz": ("graphviz",), "torchsnooper": ("pysnooper", "pkg_resources"), "fvcore": ("iopath",),
    "ptflops": (), "torchprofile": (), "thop": (), "torchview": ("graphviz",), "lovely_tensors": ("matplotlib",),
    "visdom": ("requests", "websocket", "jsonpatch"), "netron": (), "deepspeed": ("hjson",), "tensorboardX": ("matplotlib",), "torch_tb_profiler": ("pandas",), "captum": ("matplotlib",),
}  # fmt: skip


def there(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")


def run(name: str, *flambeau: str) -> str:
    """What a program finds."""
    path = os.pathsep.join([str(HERE.parent.parent), *sys.path])
    done = subprocess.run(
        [sys.executable, *flambeau, str(HERE / "programs.py"), name], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": path}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.partition("FOUND\n")[2]


def test_calflops() -> None:
    """It needs a torchvision that fits PyTorch; its sums are DeepSpeed's, of which it is made."""
    there("calflops", "transformers")
    assert run("calflops", "-m", "flambeau") == "(161504, 72128, 15786)\n"


@pytest.mark.parametrize("tool", TOOLS)
def test_the_same_is_found(tool: str) -> None:
    there(tool, *TOOLS[tool], "torch")
    found = run(tool.lower(), "-m", "flambeau")
    assert found.strip()
    assert found == run(tool.lower())


def test_hiddenlayer() -> None:
    """Its own code fails with today's PyTorch: what it draws is what it drew of PyTorch 1.7."""
    there("hiddenlayer", "graphviz", "IPython", "matplotlib")
    assert run("hiddenlayer", "-m", "flambeau").splitlines() == [
        "['BatchNorm', 'Conv3x3', 'Flatten', 'Linear', 'MaxPool2x2', 'Relu'] [0.5  0.25]"
    ]
