"""Tests that PyTorch generates from its tables of functions and modules: the tables are PyTorch's, so there are none here."""

from __future__ import annotations

from typing import Any

from torch.testing._internal.permissive import guess


def get_all_nn_module_tests() -> list:
    return []


def get_nn_functional_tests() -> list:
    return []


def __getattr__(name: str) -> Any:
    return guess(__name__, name)
