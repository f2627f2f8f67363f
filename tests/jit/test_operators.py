"""Traces of one call of each operator: they give PyTorch's results, also when they have been written and read again."""

from __future__ import annotations

import io
from typing import Any

import pytest

import flambeau
from tests.ops.database_calls import call, names

from .oracle import quiet

# Refused by name, because operators of our own compute them; embedding_bag's sample has its arguments in the order of former versions.
# gradient: a list of numbers is a list of floats in a file, which the schema does not take.
WITHOUT_FORM = (
    "nn.functional.max_unpool", "nn.functional.fractional_max_pool", "lu", "cdist", "gradient", "nn.functional.upsample_",
    "nn.functional.embedding_bag",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in names() if not name.startswith(WITHOUT_FORM)][::2])
def test_traces(name: str) -> None:
    made = call(name)
    trace = quiet(flambeau.jit.trace, made, made.tensors, check_trace=False)
    assert not (problem := made.differs(trace)), problem
    file = io.BytesIO()
    flambeau.jit.save(trace, file)
    file.seek(0)
    assert not (problem := made.differs(flambeau.jit.load(file))), problem


def test_an_operator_registered_anew_is_the_new_one() -> None:
    def result(schema: str, kernel: Any) -> float:
        library = flambeau.library.Library("registered_anew", "DEF")
        try:
            library.define(schema)
            library.impl("scaled", kernel, "CompositeExplicitAutograd")
            text = "def f(x):\n    return torch.ops.registered_anew.scaled(x)\n"
            return flambeau.jit.CompilationUnit(text).f(flambeau.ones(1)).item()
        finally:
            library._destroy()

    assert result("scaled(Tensor x, int k=2) -> Tensor", lambda x, k=2: x * k) == 2
    assert result("scaled(Tensor x, int k=2) -> Tensor", lambda x, k=2: x * k + 1) == 3
    assert result("scaled(Tensor x, *, int m=5) -> Tensor", lambda x, *, m=5: x * m) == 5


def test_nodes_that_draw_random_numbers() -> None:
    def function(x: Any) -> Any:
        return flambeau.nn.functional.dropout(x, 0.5, False) + flambeau.rand_like(x)

    traced = flambeau.jit.trace(function, flambeau.ones(3), check_trace=False)
    assert [n.kind() for n in traced.graph.nodes() if n.isNondeterministic()] == ["aten::rand_like"]
