"""The checks of tests.cuda.core_on_device, one test each, where there is a GPU."""

from __future__ import annotations

import pytest

import flambeau
from tests.cuda import core_on_device

if not flambeau.cuda.is_available():
    pytest.skip("there is no NVIDIA GPU here", allow_module_level=True)


@pytest.mark.parametrize("name", [n for n in core_on_device.CHECKS if "cost" not in n and "parts" not in n])
def test_on_the_gpu(name):
    if core_on_device.torch is None and ("random" in name or name in ("exchange", "dropout_of_halves")):
        pytest.skip("it compares with PyTorch, which is not installed")
    core_on_device.CHECKS[name]()
