"""Runs cases under PyTorch and under Flambeau, each in a process of its own, and compares what they found."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SHIM = HERE.parent / "programs" / "shim"  # lets the real torchvision be imported beside a CPU build of PyTorch

# program: the packages that it needs, under the names they are imported by
PROGRAMS = {
    "trainer": "transformers accelerate",
    "accelerate": "accelerate",
    "lightning_trainer": "lightning",
    "lightning_fabric": "lightning",
    "torchtune_style": "transformers",
    "peft": "peft transformers",
    "diffusers": "diffusers",
    "timm": "timm",
    "einops": "einops",
    "torchmetrics": "torchmetrics",
    "sentence_transformers": "sentence_transformers datasets",
    "torch_geometric": "torch_geometric",
    "gpytorch": "gpytorch",
    "pyro": "pyro",
    "ultralytics": "ultralytics",
}


def families() -> list[str]:
    """The model families of transformers, read from the source: importing it would import torch."""
    source = (HERE / "transformers_models.py").read_text()
    table = source[source.index("FAMILIES") : source.index("def made")]
    return re.findall(r'^    "(\w+)": \(', table, re.M)


def missing(case: str) -> str:
    """The first package that a case needs and that is not installed, or an empty text."""
    needed = PROGRAMS.get(case, "transformers").split()
    return next((name for name in ("torch", *needed) if importlib.util.find_spec(name) is None), "")


def cases() -> list[str]:
    return [*(f"transformers/{name}" for name in families()), *PROGRAMS]


def _run(flambeau: bool, out: Path, own: Path, other: Path | str, chosen: list[str]) -> dict[str, np.ndarray]:
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT if flambeau else SHIM), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false", "YOLO_OFFLINE": "1", "YOLO_CONFIG_DIR": str(own.parent),
    }  # fmt: skip
    start = [sys.executable, *(("-m", "flambeau") if flambeau else ()), str(HERE / "runner.py")]
    command = [*start, str(out), str(own), str(other), *chosen]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800, cwd=own.parent)
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    with np.load(out) as found:
        return {name: found[name] for name in found.files}


def compared(chosen: list[str]) -> dict[str, dict[str, Any]]:
    """For each case, for each of its results: the largest relative difference (0 or infinite for numbers that must be equal), or a
    text if it failed.

    PyTorch runs first, then Flambeau, which loads what PyTorch saved, then PyTorch again, which loads what Flambeau saved.
    """
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        theirs, ours = top / "torch", top / "flambeau"
        _run(False, top / "first.npz", theirs, "-", chosen)
        b = _run(True, top / "flambeau.npz", ours, theirs, chosen)
        a = _run(False, top / "torch.npz", theirs, ours, chosen)
    return {case: _case(case, a, b) for case in chosen}


def _case(case: str, a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> dict[str, Any]:
    names = [name.split(":", 1)[1] for name in {**a, **b} if name.startswith(f"{case}:")]
    found: dict[str, Any] = {}
    for name in dict.fromkeys(names):
        x, y = a.get(f"{case}:{name}"), b.get(f"{case}:{name}")
        if name == "error":
            found[name] = f"PyTorch: {x}\nFlambeau: {y}"
        elif name != "seconds":
            found[name] = float("inf") if x is None or y is None or x.shape != y.shape else difference(x, y)
    return found


def difference(x: np.ndarray, y: np.ndarray) -> float:
    if x.dtype.kind not in "fc":
        return 0.0 if np.array_equal(x, y) else float("inf")
    if not x.size:
        return 0.0
    scale = np.nanmax(np.abs(x)) or 1.0
    return float(np.nanmax(np.abs(x - y)) / scale) if np.array_equal(np.isnan(x), np.isnan(y)) else float("inf")
