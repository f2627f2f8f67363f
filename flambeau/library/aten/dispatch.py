"""A mode that intercepts a program's calls as calls of PyTorch's operators.

Each call of a public function becomes calls of `torch.ops.aten` (see `translation`), and each of those is passed to `record`.

This is no recorder: it decides what is called, before the call. If a gradient is recorded, PyTorch's operator runs with a node of its own,
and a composite is decomposed; a `TorchDispatchMode` may compute something else altogether. The resulting calls are recorded by the `Writer`
of `graph.recorder` that the mode is combined with (`call`), if any, as all other calls are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...core import modes
from .derivatives import asks_for_gradients, recorded
from .overloads import OpOverload, aten, recording
from .translation import DataDependent, translated


class AtenMode(modes.Mode):
    """Base of such modes: a subclass handles a call in `make(overload, args, kwargs)` or, with a recorder of `graph`, in `call`."""

    aten = aten  # the operators that are called
    differentiates = True  # whether calls with rules for their gradients go through these
    keeps_masks = True  # as `aten::index` takes them
    parts = True  # a value from a call that is not seen would become a constant of the graph
    reads_values = False  # whether calls that ask for values are allowed; a graph has none
    call: Callable[..., Any]  # makes a call and writes it down: (op, function, run, args, kwargs)
    _before: Any = None

    @functools.cached_property
    def inside(self) -> list[OpOverload]:
        """Return the operators whose parts are being recorded."""
        return []

    def __enter__(self) -> Any:
        self._before = recording.recorder
        recording.recorder = self
        return super().__enter__()

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        recording.recorder = self._before

    def handle(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        return self.settled(self._run_translated, op, function, args, kwargs)

    def _run_translated(self, op: Any, function: Callable, run: Callable, args: tuple, kwargs: dict) -> Any:
        """Make a call by this function or, if autocast chooses another one to run, by the calls of that."""
        if run is function or run is modes.unwatched(function):
            return translated(self, op, function, args, kwargs)
        return self.again(run, args, kwargs)

    def again(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Run a composite function, recording its calls."""
        before, self.reads_python = self.reads_python, False  # Python's operators are functions that were seen already
        try:
            return self.through(function, args, kwargs)
        finally:
            self.reads_python = before

    def attempt(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Run a composite function, recording its calls; if PyTorch has no operator for one of them, drop the calls and return
        NotImplemented."""
        mark = self.mark()
        try:
            return self.again(function, args, kwargs)
        except (NotImplementedError, DataDependent):
            self.forget(mark)
            return NotImplemented

    def returned(self, noted: Any, result: Any) -> None:
        """Note that the program gets other tensors in place of those that were recorded."""

    def mark(self) -> Any:
        """Return the recorder's present position."""

    def forget(self, mark: Any) -> None:
        """Drop the calls recorded since `mark`."""

    def record(self, overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Make and record a call, or its parts; if a gradient is needed, so that the backward pass calls PyTorch's operator for it."""
        parts = self.parts_of(overload, args, kwargs) if overload not in self.inside else None
        if parts is not None:
            self.inside.append(overload)
            try:
                found = self.attempt(parts, args, kwargs)
            finally:
                self.inside.pop()
            if found is not NotImplemented:
                return found
        return self.make(overload, args, kwargs)

    def make(self, overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Make a call that is recorded unchanged."""
        if self.differentiates and asks_for_gradients(args, kwargs):
            found = recorded(self, overload, args, kwargs)
            if found is not NotImplemented:
                return found
        return self.unseen(self.call, overload, overload, lambda *a, **k: overload.run(a, k), args, kwargs)

    def parts_of(self, overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Callable | None:
        """Return the function that makes the calls to record instead of this one, or None. PyTorch differentiates the parts of composites."""
        wanted = self.differentiates and overload.is_composite and asks_for_gradients(args, kwargs)
        return overload.decompose if wanted else None

    def node(self, function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Record a call of a user's operator."""
        return self.unseen(self.call, function, function, function, args, kwargs)

    def unseen(self, function: Callable, *args: Any) -> Any:
        """Run a function without recording its calls."""
        stack = modes.own.stack
        on, before = self in stack, recording.recorder
        if on:
            stack.take(self)
        recording.recorder = self._before
        try:
            return function(*args)
        finally:
            recording.recorder = before
            if on:
                stack.push(self)

    def branch(self, op: Any, pred: Any, true_fn: Callable, false_fn: Callable, operands: tuple) -> Any:
        """Make a choice between two functions by a tensor; not supported by default."""
        raise NotImplementedError(f"{op} while {type(self).__name__} records")

    def keeps(self, op: Any, name: str) -> bool:
        """Return whether a composite or pointwise operator is recorded as one call; overridden by exporters."""
        return True

    def before_cast(self, tensor: Any) -> None:
        """Note that a tensor is about to be converted to another type."""

    def unknown(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Handle a call that has no counterpart among PyTorch's operators: raise an error."""
        raise NotImplementedError(
            f"the operator {op.key or op.name} has no counterpart among PyTorch's, or not with these arguments"
        )
