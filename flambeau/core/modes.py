"""The mode stack: tracing, autocast, vmap, overrides of operators by classes; and observers, which profile.

Every operator tests `if active:` once; while no thread has an active mode, that is all it costs. A mode gets the operator's record, the
function and its arguments, and decides: change the arguments, run it, record it. Modes belong to the thread that entered them;
`enter_everywhere` enters one in every thread."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

from .locks import MODES, new_lock
from .uninterrupted import at_once, uninterrupted

active: list[Any] = []  # one entry, whatever it is, per mode that is on in some thread: what operators test
_length = at_once(len)


class Mode:
    """Base class of modes: subclass, implement `handle`, and use as a context manager.

    A mode is off while it handles a call. One that `stays` is not: it is at the bottom of the stack, applies to the parts of a composite
    operator, too, and runs functions by `op.unwatched` (see `unwatched`)."""

    stays = False
    asks = False  # whether it hands calls to a `__torch_function__`
    reads_python = False  # whether it gets Python's operators (`x[1:n]`) in their written form, before their parts
    keeps_masks = False  # whether masks in subscripts stay masks, instead of the positions of their true elements
    left = False  # set by a mode that has left all threads while it handled a call: it is not put back
    parts = True  # whether it gets calls without a public name: formulas inside operators, gradients

    def handle(self, op: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
        return function(*args, **kwargs)

    def prepared(
        self, op: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[Any, Any]
    ) -> tuple[Callable[..., Any], tuple[Any, ...], dict[Any, Any], bool]:
        """Return, for a mode above one that stays, what `handle` would run, with which arguments, and whether the parts of the operator are
        then run `aside`, without this mode."""
        return unwatched(function), args, kwargs, False

    def aside(self) -> contextlib.AbstractContextManager[None]:
        """Context manager: this mode has no effect inside."""
        return contextlib.nullcontext()

    def settled(
        self,
        make: Callable[..., Any],
        op: Any,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[Any, Any],
    ) -> Any:
        """Make a call as a mode that stays below this one would, by `make(op, function, run, args, kwargs)`, where `run` may be another
        function than this one without its test of the modes. This mode sees what is done with the arguments first."""
        if not staying():
            return make(op, function, function, args, kwargs)
        bottom = own.stack[0]
        run, args, kwargs, alone = self.through(bottom.prepared, (op, function, args, kwargs), {})
        with bottom.aside() if alone else contextlib.nullcontext():
            return make(op, function, run, args, kwargs)

    def handle_function(self, function: type, args: tuple[Any, ...]) -> Any:
        """Handle a call of a user's autograd.Function; return NotImplemented to get the operators inside it instead."""
        return NotImplemented

    def through(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
        """Run a function with this mode on: the calls inside it are seen, the call itself is not."""
        stack = own.stack
        on = self in stack
        if not on:
            stack.push(self)
        try:
            return unwatched(function)(*args, **kwargs)
        finally:
            if not on:
                stack.take(self)

    def gradients(self, found: list[Any]) -> None:
        """Note the gradients that a backward pass inside the mode has found."""

    def __enter__(self) -> Any:
        own.stack.push(self)
        return self

    @uninterrupted
    def __exit__(self, *exc: Any) -> None:
        own.stack.take(self)


class Observer:
    """Interface of a profiler, which is notified of everything that runs in a thread and changes nothing. There is one per thread (see
    `observe`), and it is no mode: it sees what is left to run after all modes have decided."""

    sees_messages = False  # whether it must see when a message that was started is waited for

    def operator(self, op: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
        """Compute an operator: return `run(*args, **kwargs)`."""
        return run(*args, **kwargs)

    def begin(self, name: str, scope: int, sequence: int = -1) -> Any:
        """Note the beginning of a named range of work; the result is passed to `end`."""

    def end(self, event: Any) -> None:
        """Note the end of a range."""


# Kinds of ranges, by PyTorch's numbers.
FUNCTION, BACKWARD, USER = 0, 1, 7


class Stack(list[Mode]):
    """The modes of one thread, the innermost last, and its observer. `active` has an entry for each. Changes cannot be divided by Ctrl-C."""

    __slots__ = ("__weakref__", "observer")
    __hash__ = object.__hash__  # type: ignore[assignment]  # each thread has its own, whatever is in it
    __eq__ = object.__eq__

    def __init__(self) -> None:
        self.observer: Observer | None = None

    @uninterrupted
    def push(self, mode: Mode, position: int | None = None) -> None:
        active[:0] = (None,)
        if position is None:
            position = _length[self]
        self[position:position] = (mode,)

    @uninterrupted
    def take(self, mode: Mode) -> None:
        """Remove an entry of this mode, if it is in the stack: the innermost, if that is the last."""
        if self and self[-1] is mode:
            del self[-1]
            del active[-1]
        elif mode in self:
            try:
                self.remove(mode)
            finally:
                del active[-1]

    @uninterrupted
    def push_below(self, mode: Mode) -> None:
        """Insert a mode below all others, except the one that stays."""
        self.push(mode, 1 if self and self[0].stays else 0)

    @uninterrupted
    def replace(self, modes: list[Mode]) -> None:
        """Replace the stack of modes by the given one."""
        active[:0] = modes
        count = _length[self]
        self[:] = modes
        del active[:count]

    def __del__(self, active: list[None] = active) -> None:  # of a thread that ended with modes on
        del active[: len(self) + (self.observer is not None)]


class _Own(threading.local):
    def __init__(self) -> None:
        self.stack = Stack()
        with _lock:
            for mode in _everywhere:
                self.stack.push(mode)
            _stacks.add(self.stack)


_lock = new_lock(MODES)
_everywhere: list[Mode] = []
_stacks: weakref.WeakSet[Any] = weakref.WeakSet()
own = _Own()


def enter_everywhere(mode: Mode) -> None:
    """Switch a mode on in every thread, including future ones."""
    with _lock:
        _everywhere.append(mode)
        for stack in list(_stacks):
            stack.push_below(mode)


def leave_everywhere(mode: Mode) -> None:
    """Switch a mode off in every thread."""
    with _lock:
        if mode in _everywhere:
            _everywhere.remove(mode)
        for stack in list(_stacks):
            stack.take(mode)


def intercept(op: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
    """Pass a call to this thread's innermost mode, with that mode switched off while it decides."""
    stack = own.stack
    if not stack:  # the modes that are on are other threads', or there is only an observer
        if stack.observer is None:
            return unwatched(function)(*args, **kwargs)
        return stack.observer.operator(op, unwatched(function), args, kwargs)
    top = stack[-1]
    if top.stays:
        if stack.observer is None:
            return top.handle(op, function, args, kwargs)
        return stack.observer.operator(op, lambda *a, **k: top.handle(op, function, a, k), args, kwargs)
    del stack[-1]  # not pop(): an interrupt can come after a call, and would leave the mode off for good
    del active[-1]
    try:
        return top.handle(op, function, args, kwargs)
    finally:
        if not top.left:
            stack.push(top)


def observe(observer: Observer | None) -> Observer | None:
    """Set the observer of what runs in this thread, or None; return the one before."""
    stack = own.stack
    before = stack.observer
    if before is None and observer is not None:
        active[:0] = (None,)
    stack.observer = observer
    if observer is None and before is not None:
        del active[-1]
    return before


def observing() -> Observer | None:
    """Return the observer of this thread."""
    return own.stack.observer if active else None


class named_range:  # noqa: N801
    """Context manager: report the work inside under a name to the observer of this thread."""

    def __init__(self, name: str, scope: int = USER):
        self.name, self.scope = name, scope

    def __enter__(self) -> named_range:
        self.observer = observing()
        self.event = None if self.observer is None else self.observer.begin(self.name, self.scope)
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.observer is not None:
            self.observer.end(self.event)


def asking() -> bool:
    """Return whether this thread's innermost mode passes calls to a `__torch_function__`, or wants calls in their Python form."""
    stack = own.stack
    return bool(stack) and (stack[-1].asks or stack[-1].reads_python)


def keeping_masks() -> bool:
    """Return whether this thread's innermost mode wants masks in subscripts unchanged."""
    stack = own.stack
    return bool(stack) and stack[-1].keeps_masks


def watching() -> bool:
    """Return whether a mode of this thread, or its observer, wants to see calls that have no public name."""
    stack = own.stack
    return stack.observer is not None or any(mode.parts for mode in stack)


def deciding() -> bool:
    """Return whether a mode of this thread must see every call, so that two may not be merged. An observer need not."""
    return any(mode.parts for mode in own.stack)


def staying() -> bool:
    """Return whether a mode that stays is on in this thread."""
    stack = own.stack
    return bool(stack) and stack[0].stays


def unwatched(function: Any) -> Any:
    """Return the public function of an operator without its test of the modes; a function that has no such test is returned itself."""
    try:
        return function._unwatched
    except AttributeError:
        make = getattr(function, "_make_unwatched", None)
        if make is None:
            return function
        found = function._unwatched = make()
        return found
