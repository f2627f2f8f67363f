"""Custom sharding rules of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....ops import OPS
from ....ops.machinery.record import Op
from .. import _rules
from .._dispatch import forget_decisions
from .._op_schema import RuntimeSchemaInfo, dispatcher

__all__ = ["register_sharding"]


def register_sharding(op: Any) -> Callable[[Callable], Callable]:
    """Declare which combinations of placements the arguments and results of an operator (an overload of `torch.ops`, or several) may have.
    The function gets the arguments, with DTensorSpecs for tensors, and returns pairs of lists: placements of the results and of the
    arguments (None for non-tensors), for one dimension of the mesh."""
    operators = list(op) if isinstance(op, (list, tuple)) else [op]

    def declare(function: Callable) -> Callable:
        for one in operators:
            _record(one).sharding = _rule(function)
            known = dispatcher.sharding_propagator
            known.op_strategy_funcs[one], known.op_to_schema_info[one] = function, _deciding(one)
        _rules.rule_for.cache_clear()
        forget_decisions()
        return function

    return declare


def _deciding(overload: Any) -> RuntimeSchemaInfo:
    """Return which arguments determine the placements of results: integers, and all arguments after the first of them."""
    schema = getattr(overload, "_schema", None)
    numbers = [
        (i, a)
        for i, a in enumerate(getattr(schema, "arguments", ()))
        if str(a.type) in ("int", "Optional[int]", "int?")
    ]
    names = [a.name for _, a in numbers if a.kwarg_only]
    return RuntimeSchemaInfo(min((i for i, _ in numbers), default=100), names or None, needs_pytree=True)


def _record(overload: Any) -> Op:
    """Return the record of the operator that a call of an overload reaches."""
    found = getattr(overload, "op", None)
    name = str(getattr(overload, "_name", overload)).split(".")[0].removeprefix("aten::")
    found = found if isinstance(found, Op) else OPS.get(name)
    if found is None or (found.kind == "composite" and found.layout is None and found.sharding is None):
        raise NotImplementedError(
            f"register_sharding: {overload} is made of other operators here, which have rules of their own"
        )
    return found


def _rule(function: Callable) -> Callable:
    def ways(call: Any) -> Any:
        args, kwargs = call.filled([t._spec for t in call.tensors])
        places = [i for i, value in enumerate(call.args) if type(value) is _rules.Place]
        found = []
        for outs, ins in function(*args, **kwargs):
            found.append((tuple(ins[i] for i in places), tuple(outs)))
        return _rules.Ways(found, free=True)

    return ways
