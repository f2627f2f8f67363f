"""One call of each operator of the database (operator_database.py) as a function of its tensors, for rooms that record functions."""

from __future__ import annotations

import functools
import json
import lzma
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.core.tensor import Tensor
from flambeau.utils import _pytree as pytree

from .operator_database import FILE, answer, built, differs, function_of

RANDOM = (
    "rand",
    "normal",
    "bernoulli",
    "dropout",
    "multinomial",
    "uniform",
    "cauchy",
    "exponential",
    "geometric",
    "log_normal",
    "rrelu",
    "empty",
)


class Call(flambeau.nn.Module):
    """A call of an operator: its tensors are the inputs, everything else is fixed."""

    def __init__(self, name: str, args: Any, kwargs: Any, wanted: list) -> None:
        super().__init__()
        leaves, spec = pytree.tree_flatten((built(args, flambeau), built(kwargs, flambeau)))
        leaves = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        function = function_of(name, flambeau)
        self.__dict__.update(function=function, leaves=leaves, spec=spec, wanted=wanted)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(leaf for leaf in self.leaves if isinstance(leaf, Tensor))

    def forward(self, *tensors: Tensor) -> Any:
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.function(*args, **kwargs)

    def differs(self, run: Callable[..., Any]) -> str:
        """What is different between PyTorch's results and those of a recorded form of this call."""
        found = answer(run, [t.clone() for t in self.tensors], {}, flambeau)
        return differs(found if isinstance(found[0], str) else [found[0], []], [self.wanted[0], []])


@functools.cache
def names() -> tuple[str, ...]:
    """Operators with a call on tensors of single precision whose results are tensors, that draw nothing."""
    return tuple(name for name in _calls() if _row(name) is not None)


@functools.cache
def _calls() -> dict[str, Any]:
    return json.loads(lzma.decompress(FILE.read_bytes()))["calls"]


def _row(name: str) -> Any:
    place, rows = _calls()[name]
    if any(word in place for word in RANDOM):
        return None
    fit = [
        row
        for row in rows
        if '"float32"' in json.dumps(row[0])
        and not isinstance(row[1][0], str)
        and row[1][0]
        and all(len(r) > 3 for r in row[1][0])
    ]
    return fit[len(fit) // 2] if fit else None


def call(name: str) -> Call:
    (args, kwargs), wanted = _row(name)
    return Call(_calls()[name][0], args, kwargs, wanted)
