"""Every operator of PyTorch's database of operators, with a selection of its samples: results, gradients and refusals are PyTorch's."""

from __future__ import annotations

import json
import lzma

import pytest

import flambeau
from tests.ops.operator_database import FILE, answer, built, differs, function_of

NAMES = json.loads(lzma.decompress(FILE.read_bytes()))["calls"]


@pytest.mark.parametrize("name", NAMES)
def test_calls(name: str) -> None:
    place, rows = NAMES[name]
    function = function_of(place, flambeau)
    wrong = []
    for (args, kwargs), wanted in rows:
        found = answer(function, built(args, flambeau), built(kwargs, flambeau), flambeau)
        if difference := differs(found, wanted):
            wrong.append(f"{json.dumps([args, kwargs])[:300]}: {difference}")
    assert not wrong, wrong
