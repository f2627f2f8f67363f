"""Emitted pieces of the convolutions with fewer products, interpreted."""

from __future__ import annotations

import re

import pytest

from flambeau.backends.cpu.winograd_code import TileFunction


class Emitted(TileFunction):
    """Runs shuffles of vectors instead of writing them."""

    def __init__(self, rows: dict[str, list[int]]) -> None:
        self.lanes, self.vector, self.values = len(rows), "vector", dict(rows)

    def new(self, text: str) -> str:
        a, b = (self.values[name] for name in re.findall(r"vector (%\w+)", text))
        name = f"%new{len(self.values)}"
        self.values[name] = [(a + b)[int(place)] for place in re.findall(r"i32 (-?\d+)", text)]
        return name


@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_rows_become_columns(lanes: int) -> None:
    rows = {f"%row{k}": [100 * k + lane for lane in range(lanes)] for k in range(lanes)}
    code = Emitted(rows)
    assert [code.values[name] for name in code.turned([*rows])] == [list(c) for c in zip(*rows.values())]
