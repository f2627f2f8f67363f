"""Ways of giving einsum its operands, as a tracer and a tensor's class get to see them."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import Tensor, fx


class _Seen(flambeau.Tensor):
    calls: list[list[str]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        cls.calls.append([type(x).__name__ for x in args])
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_traced_list_of_operands_is_recorded_flat() -> None:
    def product(a: Tensor, b: Tensor) -> Tensor:
        return flambeau.einsum("ij,jk->ik", [a, b]) + flambeau.einsum("ij,jk->ik", (a, b))

    traced = fx.symbolic_trace(product)
    calls = [node.args for node in traced.graph.nodes if node.op == "call_function" and node.target is flambeau.einsum]
    assert [[str(x) for x in args] for args in calls] == [["ij,jk->ik", "a", "b"]] * 2
    a = flambeau.arange(4.0).reshape(2, 2)
    assert flambeau.equal(traced(a, a), product(a, a))


def test_a_class_sees_the_equation_and_flat_operands() -> None:
    t = flambeau.ones(2, 2).as_subclass(_Seen)
    _Seen.calls.clear()
    listed = flambeau.einsum("ij,jk->ik", [t, t])
    numbered = flambeau.einsum(t, [0, 1], t, [1, 2])
    assert _Seen.calls == [["str", "_Seen", "_Seen"]] * 2
    assert listed.tolist() == numbered.tolist() == [[2.0, 2.0], [2.0, 2.0]]
