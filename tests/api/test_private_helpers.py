"""Helpers of PyTorch's private rooms that libraries call: answers taken from PyTorch 2.13."""

from __future__ import annotations

import flambeau
from flambeau.compat.private import _utils
from flambeau.core.pytree import tree_flatten
from flambeau.func import mapping
from flambeau.horovod import torch as horovod


def test_tensors_are_grouped_by_type_and_size() -> None:
    tensors = [
        flambeau.ones(4),
        flambeau.ones(4).double(),
        flambeau.ones(3),
        flambeau.ones(9),
        flambeau.ones(1).double(),
    ]
    assert [[t.numel() for t in group] for group in _utils._take_tensors(tensors, 30)] == [[4, 3], [4], [9], [1]]


def test_values_are_spread_over_a_structure() -> None:
    _, spec = tree_flatten({"a": (1, 2), "b": 3})
    spread = mapping._broadcast_to_and_flatten
    assert spread({"a": 5, "b": 6}, spec) == [5, 5, 6]
    assert spread(0, spec) == [0, 0, 0]
    assert spread({"a": (1, 2, 3), "b": 6}, spec) is None


def test_horovods_operations_are_found_under_their_module() -> None:
    assert horovod.mpi_ops.Sum == horovod.Sum
