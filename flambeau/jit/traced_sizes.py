"""Sizes of tensors as numbers that keep their origin, so that arithmetic with them can be recorded."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..core.layout import strided
from ..core.size import Size, make_size
from ..core.tensor import Tensor, tensors_in
from ..graph import program
from ..graph.recorder import TensorRecorder
from ..library.aten.dispatch import AtenMode
from .trace_places import warn
from .tracing_state import active, set_active


class TracedInt(int):
    """A tensor size with its origin: arithmetic with it is recorded."""

    tracer: Any
    make: Any
    is_followed = True  # a Size keeps it

    @staticmethod
    def of(number: int, tracer: Any, make: Callable[[], Any]) -> TracedInt:
        made = TracedInt(number)
        made.tracer, made.make = tracer, functools.cache(make)
        return made

    def __reduce__(self) -> Any:
        return int, (int(self),)


def _recorded(alone: Callable, symbol: str, turned: bool = False) -> Any:

    def run(self: TracedInt, other: Any) -> Any:
        result = alone(self, other)
        tracer = self.tracer
        if type(result) is not int or not isinstance(other, int) or not tracer.listening():
            _tell_lost(self, result, other)
            return result
        pair = (other, self) if turned else (self, other)
        return TracedInt.of(result, tracer, lambda: tracer.combine(symbol, *pair))

    return run


for _name, _symbol in (("add", "add"), ("sub", "sub"), ("mul", "mul"), ("floordiv", "floordiv"), ("mod", "remainder")):
    setattr(TracedInt, f"__{_name}__", _recorded(getattr(int, f"__{_name}__"), _symbol))
    setattr(TracedInt, f"__r{_name}__", _recorded(getattr(int, f"__r{_name}__"), _symbol, turned=True))
for _name, _choose in (("min", min), ("max", max)):  # what torch.sym_min and torch.sym_max ask
    setattr(TracedInt, f"__sym_{_name}__", _recorded(lambda a, b, f=_choose: int(f(a, b)), _name))


def _tell_lost(size: TracedInt, result: Any, *other: Any) -> None:
    """Tell the recorder that a size was used in float arithmetic, which is not recorded."""
    if size.tracer.listening() and any(isinstance(n, float) for n in (result, *other)):
        size.tracer.lost(size)


def _lost(alone: Callable) -> Any:
    """Return an operation of TracedInt whose result is not recorded, about which the recorder may warn."""

    def run(self: TracedInt, *other: Any) -> Any:
        result = alone(self, *other)
        _tell_lost(self, result, *other)
        return result

    return run


for _name in ("truediv", "rtruediv", "pow", "rpow", "float"):
    setattr(TracedInt, f"__{_name}__", _lost(getattr(int, f"__{_name}__")))


class TracedSizes(TensorRecorder, AtenMode):
    """Recorder that represents tensors' sizes as traced numbers; `reader` converts them to graph values when the recording is read."""

    reader: Any = None
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

    def lost(self, size: TracedInt) -> None:
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
        warn(f"Converting a tensor to a Python {word} might cause the trace to be incorrect. We can't record the data flow of Python values, so this value will be treated as a constant in the future. This means that the trace might not generalize to other inputs!")  # fmt: skip
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
    """Return arguments with traced sizes replaced by plain numbers."""
    if type(tree) is TracedInt:
        return int(tree)
    if isinstance(tree, Size):
        return make_size([int(n) for n in tree])
    if type(tree) in (list, tuple):
        return type(tree)(map(plain, tree))
    if isinstance(tree, slice):
        return slice(*map(plain, (tree.start, tree.stop, tree.step)))
    return {k: plain(v) for k, v in tree.items()} if type(tree) is dict else tree
