"""The base class of PyTorch's tests, with what only those about sparse tensors use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map

from flambeau.testing._internal import case as comparing
from flambeau.testing._internal.case import SEED as SEED
from flambeau.testing._internal.case import TestCase as _TestCase
from flambeau.testing._internal.case import set_rng_seed as set_rng_seed

from .sparse_cases import SparseCases

comparing.torch = torch  # type: ignore[attr-defined]  # the library under test: for a baseline, PyTorch itself


class TestCase(SparseCases, _TestCase):
    """The base class; like PyTorch's, it has sparse tensors checked when they are made."""

    def setUp(self) -> None:
        super().setUp()
        before = torch.sparse.check_sparse_tensor_invariants.is_enabled()
        switch = torch.sparse.check_sparse_tensor_invariants
        self.addCleanup(switch.enable if before else switch.disable)
        switch.enable()


def _rows(value: Any) -> Any:
    return list(value.unbind()) if isinstance(value, torch.Tensor) and value.is_nested else value


def _is_strided_nested(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_nested and value.layout is torch.strided


class NestedTensorTestCase(TestCase):
    """Comparisons of nested tensors by their rows: two of the same rows have different numbers for their ragged sizes."""

    def assertEqual(self, x: Any, y: Any, *args: Any, **options: Any) -> None:  # noqa: N802 - PyTorch's name
        if _is_strided_nested(x) and _is_strided_nested(y):  # PyTorch compares these by their rows, too
            x, y = list(x.unbind()), list(y.unbind())
        super().assertEqual(x, y, *args, **options)

    def assertEqualIgnoringNestedInts(self, a: Any, b: Any) -> None:  # noqa: N802 - PyTorch's name
        self.assertEqual(tree_map(_rows, a), tree_map(_rows, b))

    assertEqualNoncontigAware = assertEqualIgnoringNestedInts  # noqa: N815 - PyTorch's name

    @contextlib.contextmanager
    def branch_nested_state(self) -> Iterator[None]:
        yield
