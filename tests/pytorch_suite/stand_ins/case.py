"""The base class of PyTorch's tests, with what only those about sparse tensors use."""

from __future__ import annotations

from flambeau.testing._internal.case import SEED as SEED
from flambeau.testing._internal.case import TestCase as _TestCase
from flambeau.testing._internal.case import set_rng_seed as set_rng_seed

from .sparse_cases import SparseCases


class TestCase(SparseCases, _TestCase):
    pass
