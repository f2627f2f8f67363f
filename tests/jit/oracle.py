"""The same program under both libraries."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import flambeau


def real_torch() -> Any:
    return pytest.importorskip("torch", reason="compares with PyTorch")


def load_programs(library: Any, file: str = "programs.py") -> ModuleType:
    """The module of programs with `torch`, `nn` and `F` of one library."""
    name = f"programs_of_{library.__name__}"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(file))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module).update(torch=library, nn=library.nn, F=library.nn.functional)
    sys.modules[name] = module  # the source of classes is looked up there
    spec.loader.exec_module(module)
    return module


def quiet(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Without PyTorch's warning that TorchScript is deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **kwargs)


def arrays(tree: Any) -> list[np.ndarray]:
    """The tensors and numbers of a result, in order."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        return [a for item in tree for a in arrays(item)]
    if tree is None or isinstance(tree, str):
        return []
    return [np.asarray(tree.detach().numpy() if hasattr(tree, "detach") else tree)]


def assert_same(found: Any, expected: Any, tolerance: float = 1e-4) -> None:
    a, b = arrays(found), arrays(expected)
    assert len(a) == len(b)
    for x, y in zip(a, b):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def copy_weights(source: Any, target: Any) -> None:
    """Give a PyTorch module the weights of a Flambeau module."""
    torch = real_torch()
    target.load_state_dict({k: torch.from_numpy(np.array(v.detach().numpy())) for k, v in source.state_dict().items()})


__all__ = ["flambeau"]
