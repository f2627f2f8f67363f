"""Sizes of tensors as numbers that keep their origin, so that arithmetic with them can be recorded."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from ..core.layout import strided
from ..core.size import Size, make_size
from ..core.tensor import Tensor, tensors_in
from ..graph import program
from ..graph.recorder import TensorRecorder
from ..library.aten.dispatch import AtenMode
from .trace_places import is_user_call, warn_of_constant
from .tracing_state import active, set_active


class TracedNumber:
    """Mix-in for a number computed from sizes of tensors: it has its origin, and arithmetic with it is recorded."""

    tracer: Any
    make: Any  # returns the graph's value
    is_followed = True  # a Size keeps it
    __mul__: Any  # as all arithmetic, set below
    __sym_max__: Any

    @staticmethod
    def of(number: float, tracer: Any, make: Callable[[], Any]) -> Any:
        """Return an int or a float with its origin."""
        made = (TracedInt if isinstance(number, int) else TracedFloat)(number)
        made.tracer, made.make = tracer, functools.cache(make)
        return made

    def __reduce__(self) -> Any:
        return type(self).__mro__[2], (plain(self),)  # the int or float that it is

    def __neg__(self) -> Any:
        return self * -1

    def __abs__(self) -> Any:
        return self.__sym_max__(-self)

    def __hash__(self) -> int:
        return hash(plain(self))

    def __float__(self) -> float:
        """Return a plain float, which is a constant of what is recorded."""
        if self.tracer.listening():
            self.tracer.lost(self)
        return float(plain(self))


class TracedInt(TracedNumber, int):
    """A tensor size, or an integer computed from sizes."""


class TracedFloat(TracedNumber, float):
    """A float computed from sizes."""

    def __int__(self) -> int:
        if self.tracer.listening():
            warn_of_constant("integer")
        return int(plain(self))


def _recorded(symbol: str, compute: Callable[[Any, Any], Any], reflected: bool = False) -> Any:
    """Return the method for an operation of two numbers that the recorder writes down."""

    def run(self: TracedNumber, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        operands = (other, self) if reflected else (self, other)
        return self.tracer.computed(symbol, operands, compute(*map(plain, operands)))

    return run


_ARITHMETIC = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod,
    "truediv": operator.truediv, "pow": operator.pow,
}  # fmt: skip
_SYMBOLS = {"mod": "remainder", "truediv": "div"}  # what TorchScript calls them
for _name, _compute in _ARITHMETIC.items():
    _symbol = _SYMBOLS.get(_name, _name)
    setattr(TracedNumber, f"__{_name}__", _recorded(_symbol, _compute))
    setattr(TracedNumber, f"__r{_name}__", _recorded(_symbol, _compute, reflected=True))
for _name, _compute in (("min", min), ("max", max)):  # what torch.sym_min and torch.sym_max ask
    setattr(TracedNumber, f"__sym_{_name}__", _recorded(_name, _compute))


def _compared(compare: Callable[[Any, Any], Any]) -> Any:
    """Return the method for a comparison, whose result is a constant of what is recorded: the user is warned."""

    def run(self: TracedNumber, other: Any) -> Any:
        if self.tracer.listening() and is_user_call():
            warn_of_constant("boolean")
        return compare(plain(self), plain(other))

    return run


for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(TracedNumber, f"__{_name}__", _compared(getattr(operator, _name)))


class TracedSizes(TensorRecorder, AtenMode):
    """Recorder that represents tensors' sizes as traced numbers; `reader` converts them to graph values when the recording is read."""

    reader: Any = None
    follows_floats = False  # whether floats computed from sizes are recorded, too
    quiet = 0  # how many functions that are not to be seen run

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.traced: list[Tensor] = []
        self.scopes: list[str] = []  # names of what is being recorded

    def __enter__(self) -> Any:
        self._active = set_active(self)
        return super().__enter__()

    def __exit__(self, *exc: Any) -> None:
        set_active(self._active)
        super().__exit__(*exc)
        for tensor in self.traced:
            tensor.shape = make_size([int(n) for n in tensor.shape])

    def listening(self) -> bool:
        """Return whether arithmetic with sizes is to be recorded now."""
        return active() is self and not self.quiet

    def combine(self, symbol: str, left: Any, right: Any) -> Any:
        """Return the graph value of a number computed from sizes."""
        return self.reader.combine(symbol, left, right)

    def computed(self, symbol: str, operands: tuple, result: float) -> Any:
        """Return the result of arithmetic with sizes: with its origin if that is recorded."""
        if not self.listening():
            return result
        if isinstance(result, int) or self.follows_floats:
            return TracedNumber.of(result, self, lambda: self.combine(symbol, *operands))
        for size in operands:
            if isinstance(size, TracedNumber):
                self.lost(size)
        return result

    def lost(self, size: TracedNumber) -> None:
        """Hook for subclasses: a size was converted to a number that is not recorded."""

    def know(self, t: Tensor) -> program.Value:
        made = super().know(t)
        self.trace_shape(t, lambda dim: self.reader.size(made, dim))
        return made

    def call(self, op: Any, function: Callable, run: Callable, args: tuple, kwargs: dict) -> Any:
        return super().call(op, function, lambda *a, **k: self.run_plain(run, a, k), args, kwargs)

    def unseen(self, function: Callable, *args: Any) -> Any:
        self.quiet += 1
        try:
            return super().unseen(function, *args)
        finally:
            self.quiet -= 1

    def run(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Run an operator on plain numbers and shapes, without recording it."""
        return self.unseen(self.run_plain, function, args, kwargs)

    def python_value(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Run an operator that returns a Python value, and warn that the trace treats it as a constant."""
        result = self.run(function, args, kwargs)
        numbers = {bool: "boolean", int: "integer", float: "float"}
        word = numbers.get(type(result), op.tells)
        warn_of_constant(word)
        return result

    def trace_shape(self, tensor: Tensor, size: Callable[[int], Any]) -> None:
        """Make the tensor's sizes traced numbers; `size(dim)` returns the graph value of one."""
        if tensor.layout is not strided or tensor.is_nested:
            return
        self.traced.append(tensor)
        sizes = [TracedInt.of(int(n), self, functools.partial(size, d)) for d, n in enumerate(tensor.shape)]
        tensor.shape = make_size(sizes)

    def run_plain(self, function: Callable, args: tuple, kwargs: dict, shapes: bool = True) -> Any:
        """Run an operator on plain numbers and shapes; with `shapes=False`, on the traced ones, unchanged."""
        swapped = []
        for tensor in tensors_in((args, kwargs)):
            if any(type(n) is TracedInt for n in tensor.shape):
                swapped.append((tensor, tensor.shape))
                if shapes:
                    tensor.shape = make_size([int(n) for n in tensor.shape])
        try:
            return function(*plain(args), **plain(kwargs)) if shapes else function(*args, **kwargs)
        finally:
            for tensor, shape in swapped:
                if tuple(map(int, tensor.shape)) == tuple(map(int, shape)):
                    tensor.shape = shape


def plain(tree: Any) -> Any:
    """Return arguments with traced numbers replaced by plain ones."""
    if isinstance(tree, TracedInt):
        return int.__int__(tree)
    if isinstance(tree, TracedFloat):
        return float.__float__(tree)
    if isinstance(tree, Size):
        return make_size([int(n) for n in tree])
    if type(tree) in (list, tuple):
        return type(tree)(map(plain, tree))
    if isinstance(tree, slice):
        return slice(*map(plain, (tree.start, tree.stop, tree.step)))
    return {k: plain(v) for k, v in tree.items()} if type(tree) is dict else tree
