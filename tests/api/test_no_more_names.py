"""Public names that Flambeau has and PyTorch has not, besides modules, which are there once they are imported: those that are meant, and no others."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest
from answers import told

import flambeau

MEANT = {
    "": "get_printoptions printoptions",
    "Tensor": "align_as align_to conv_tbc fill has_names is_hpu names refine_names rename rename_ saddmm",
    "nn.functional": "Any",
}


def place_of(library: object, path: str) -> object:
    for part in filter(None, path.split(".")):
        library = getattr(library, part)
    return library


def names(library: object, path: str) -> list[str]:
    return sorted(name for name in dir(place_of(library, path)) if not name.startswith("_"))


@pytest.mark.parametrize("path", MEANT)
def test_names(path: str) -> None:
    theirs = told(f"public names of torch.{path}", lambda: names(importlib.import_module("torch"), path))
    place = place_of(flambeau, path)
    more = {
        name for name in set(names(flambeau, path)) - set(theirs) if not isinstance(getattr(place, name), ModuleType)
    }
    assert more == set(MEANT[path].split())
