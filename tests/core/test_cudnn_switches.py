"""What `backends.cudnn` says of tensors where there is a GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import flambeau
from flambeau.backends import cudnn


@pytest.mark.parametrize("available", [True, False])
@pytest.mark.parametrize("is_cuda", [True, False])
@pytest.mark.parametrize("name", ["float32", "float16", "float8_e5m2", "int64", "int8"])
def test_floats_of_two_bytes_and_more_on_a_gpu_are_acceptable(monkeypatch, name, is_cuda, available):
    monkeypatch.setattr(cudnn, "is_available", lambda: available)
    tensor = SimpleNamespace(is_cuda=is_cuda, dtype=getattr(flambeau, name))
    assert cudnn.is_acceptable(tensor) is (is_cuda and available and name in ("float32", "float16"))
