"""The notes' programs run on Flambeau and, where it is installed, on PyTorch itself: what they assert must hold for both."""

from __future__ import annotations

import importlib
import importlib.util
import pathlib
import types

import pytest

LIBRARIES = ["flambeau", "torch"] if importlib.util.find_spec("torch") else ["flambeau"]


@pytest.fixture(autouse=True, params=LIBRARIES)
def library(request, monkeypatch):
    """Under "torch", every flambeau module that a notes file imported is replaced by PyTorch's module of the same name."""
    if request.param == "torch":
        for name, value in list(vars(request.module).items()):
            if isinstance(value, types.ModuleType) and value.__name__.split(".")[0] == "flambeau":
                twin = importlib.import_module("torch" + value.__name__[len("flambeau") :])
                monkeypatch.setattr(request.module, name, twin)
    return request.param


def load_oracle():
    """tests/vision/oracle.py, which knows how to import torchvision."""
    path = pathlib.Path(__file__).parents[1] / "vision" / "oracle.py"
    spec = importlib.util.spec_from_file_location("torchvision_oracle", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.torchvision()


@pytest.fixture
def vision(library):
    """Finds a part of torchvision."""
    if library == "torch":
        load_oracle()
    root = "torchvision" if library == "torch" else "flambeau.vision"
    return lambda part: importlib.import_module(f"{root}.{part}")
