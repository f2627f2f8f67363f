"""Compiled calls of operators: the first call, which records, and those after it give PyTorch's results."""

from __future__ import annotations

import pytest

import flambeau
from tests.ops.database_calls import call, names


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", names()[2::4])
def test_compiled(name: str) -> None:
    made = call(name)
    compiled = flambeau.compile(made)
    for _ in range(3):
        assert not (problem := made.differs(compiled)), problem
