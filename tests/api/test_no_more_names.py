"""Public names that Flambeau has and PyTorch has not: those that are meant, and no others."""

from __future__ import annotations

import importlib

import pytest
from answers import told

import flambeau

MEANT = {
    "": "compat core expr get_printoptions kernels printoptions vision",
    "Tensor": "align_as align_to conv_tbc fill has_names is_hpu names refine_names rename rename_ saddmm",
    "nn.functional": "Any naming ops",
}


def names(library: object, path: str) -> list[str]:
    place = library
    for part in filter(None, path.split(".")):
        place = getattr(place, part)
    return sorted(name for name in dir(place) if not name.startswith("_"))


@pytest.mark.parametrize("path", MEANT)
def test_names(path: str) -> None:
    theirs = told(f"public names of torch.{path}", lambda: names(importlib.import_module("torch"), path))
    assert set(names(flambeau, path)) - set(theirs) == set(MEANT[path].split())
