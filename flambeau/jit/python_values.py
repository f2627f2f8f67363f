"""Python objects that compiled code names: classes of modules, legacy constructors, functions that depend on a known flag."""

from __future__ import annotations

import inspect
from typing import Any

from . import signatures as notes
from .matching import Named
from .named_values import OperatorNamespace
from .source import Range, error
from .types import INT
from .values import SimpleValue, Sugared


class ModuleClass(Sugared):
    """A class of modules: its static methods can be called, modules cannot be made."""

    kind = "class"

    def __init__(self, thing: Any):
        self.thing = thing

    def attr(self, place: Range | None, m: Any, name: str) -> Sugared:
        found = inspect.getattr_static(self.thing, name, None)
        if not isinstance(found, staticmethod):
            raise error(place, f"attribute lookup is not defined on python value of type '{type(self.thing).__name__}'")
        return m.resolver.sugared(m, place, found.__func__)

    def call(self, place: Range | None, m: Any, args: Any, kwargs: Any) -> Sugared:
        raise error(
            place, f"Cannot instantiate class '{self.thing.__name__}' in a script function", notes.FrontendError
        )


class LegacyConstructor(Sugared):
    """A typed tensor constructor such as `torch.LongTensor([1, 2])`."""

    kind = "class"

    def __init__(self, thing: Any):
        self.thing = thing

    def call(self, place: Range | None, m: Any, args: Any, kwargs: Any) -> Sugared:
        if len(args) != 1 or kwargs:
            raise error(place, "Legacy tensor constructors expect one list of numbers in TorchScript")
        dtype = m.constant(self.thing.dtype.number, INT, place)
        return SimpleValue(m.call_operator(place, "aten::tensor", args, [Named(dtype, place, "dtype")]))


class BoundFunction(Sugared):
    """A compiled function with its first argument bound."""

    def __init__(self, function: Sugared, first: Any):
        self.function, self.first = function, first

    def call(self, place: Range | None, m: Any, args: Any, kwargs: Any) -> Sugared:
        return self.function.call(place, m, [Named(self.first, place), *args], kwargs)


class RecorderValue(Sugared):
    """The `recorder` argument of functions that call PyTorch's operators (`recorder.aten`): a namespace of operators."""

    kind = "recorder"

    def attr(self, place: Range | None, m: Any, name: str) -> Sugared:
        return OperatorNamespace(name)


class Dispatch(Sugared):
    """A function whose result depends on a flag that is known when compiling: `max_pool2d(..., return_indices=True)`."""

    kind = "function"

    def __init__(
        self, flag: str, index: int, chosen: dict[bool, Sugared], default: bool = False, takes_flag: bool = True
    ):
        self.flag, self.index, self.chosen, self.default, self.takes_flag = flag, index, chosen, default, takes_flag

    def call(self, place: Range | None, m: Any, args: Any, kwargs: Any) -> Sugared:
        args, kwargs = list(args), list(kwargs)
        given = next((k for k in kwargs if k.name == self.flag), None)
        if given is not None and not self.takes_flag:
            kwargs.remove(given)
        elif given is None and len(args) > self.index:
            given = args[self.index] if self.takes_flag else args.pop(self.index)
        truth = self.default
        if given is not None:
            known, truth = m.known(given.value)
            if not known:
                raise error(place, f"{self.flag} must be known when compiling")
        return self.chosen[bool(truth)].call(place, m, args, kwargs)
