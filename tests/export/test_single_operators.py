"""Exported programs of one call of each operator: they give PyTorch's results, also when written and read again, and when taken apart."""

from __future__ import annotations

import io

import pytest

import flambeau
from flambeau.core.return_types import NamedResult
from tests.ops.database_calls import call, names

# Refused by name, because operators of our own compute them; embedding_bag's sample has its arguments in the order of former versions.
WITHOUT_FORM = (
    "nn.functional.max_unpool", "nn.functional.fractional_max_pool", "lu", "cdist", "nn.functional.upsample_",
    "nn.functional.embedding_bag",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in names() if not name.startswith(WITHOUT_FORM)][1::3])
def test_programs(name: str) -> None:
    made = call(name)
    program = flambeau.export.export(made, made.tensors)
    assert not (problem := made.differs(program.module())), problem
    assert not (problem := made.differs(program.run_decompositions().module())), problem
    if isinstance(made(*made.tensors), NamedResult):
        return  # files have no form for these
    file = io.BytesIO()
    flambeau.export.save(program, file)
    file.seek(0)
    assert not (problem := made.differs(flambeau.export.load(file).module())), problem
