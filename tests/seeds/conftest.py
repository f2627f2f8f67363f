"""The notes' programs run on Flambeau and, where it is installed, on PyTorch itself: what they assert must hold for both."""

from __future__ import annotations

import importlib
import importlib.util
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
