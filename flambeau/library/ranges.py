"""`torch.ops.profiler`: ranges with names, as operators, so that a graph can hold them."""

from __future__ import annotations

import itertools

from ..autograd.profiler import record_function
from ..core.tensor import Tensor
from ..fx.node import has_side_effect
from ..ops.creation.construct import tensor
from .operator import find_operator
from .registration import Library

_OPEN: dict[int, record_function] = {}
_NUMBERS = itertools.count()


def _enter(name: str, args: str | None = None) -> Tensor:
    """Begins a range; the number by which it is ended."""
    number = next(_NUMBERS)
    handle = tensor(number)
    _OPEN[number] = record_function(name, args)
    _OPEN[number].__enter__()
    return handle


def _exit(handle: Tensor) -> None:
    opened = _OPEN.pop(int(handle), None)
    if opened is not None:
        opened.__exit__(None, None, None)


library = Library("profiler", "DEF")
for _name in ("_record_function_enter", "_record_function_enter_new"):
    library.define(f"{_name}(str name, str? args=None) -> Tensor")
    library.impl(_name, _enter, "CompositeExplicitAutograd")
library.define("_record_function_exit(Tensor handle) -> ()")
library.impl("_record_function_exit", _exit, "CompositeExplicitAutograd")
for _name in ("_record_function_enter", "_record_function_enter_new", "_record_function_exit"):
    has_side_effect(find_operator(f"profiler::{_name}").function)
