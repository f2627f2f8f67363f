"""`__torch_function__`: overrides by other classes of every operator called on their instances.

This costs nothing until such a class is known; then a mode that looks for its instances among the arguments is at the bottom of the mode
stack. A subclass of Tensor is known from its definition on. A class that is no tensor becomes known by its first call: that fails, as no
operator can compute with it, and the operator's face asks `discovers` whether an argument overrides operators."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any, ParamSpec, TypeVar

from . import modes, naming
from .uninterrupted import uninterrupted
from .user_frames import is_own

Given = ParamSpec("Given")
Result = TypeVar("Result")
_REGISTERED: set[type] = set()  # the classes that override operators
_LOOKED_INTO: set[type] = {list, tuple}  # those, and what may contain their instances
# Subclasses that say that they need not be looked for before there is an instance: `_known_when_made`.
_LATER: set[type] = set()
_DISPATCHING: set[type] = set()  # those of the registered classes that have a `__torch_dispatch__`
_PLAIN: set[type] = set()  # Tensor itself, which no operator needs to ask
FACE_CODES: set[CodeType] = set()  # the code of public functions


class _Skip(threading.local):
    next = False  # whether the next call is not to be asked about


skip = _Skip()


def with_attributes(function: Callable[..., Any]) -> Any:
    """Return the function itself, typed as an object that takes attributes."""
    return function


@with_attributes
def disabled_torch_function(
    func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[Any, Any] | None = None
) -> Any:
    """Override for classes that want none: results of operators on them are plain tensors."""
    with DisableTorchFunctionSubclass():
        return below(func, args, kwargs or {})


def below(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[Any, Any], run: Callable[..., Any] | None = None
) -> Any:
    """Make a call that no `__torch_function__` answered: by a class with a `__torch_dispatch__`, or else by `run(args, kwargs)`."""
    if not _DISPATCHING or _disabled.dispatch or _DISPATCHING.isdisjoint(map(type, _flat((*args, *kwargs.values())))):
        return func(*args, **kwargs) if run is None else run(args, kwargs)
    return naming.above("utils._python_dispatch").ask_classes(func, args, kwargs)


def overriding_arguments(args: tuple[Any, ...], kwargs: dict[Any, Any]) -> list[Any]:
    """Return an argument of each class that overrides operators, subclasses before their bases; [] while that is disabled."""
    found: list[Any] = []
    if _disabled.depth or not _REGISTERED:
        return found
    classes: list[type] = []
    for value in _flat((*args, *kwargs.values())):
        cls = type(value)
        if cls in classes or cls not in _REGISTERED:
            continue
        position = next((i for i, other in enumerate(classes) if issubclass(cls, other)), len(classes))
        classes.insert(position, cls)
        found.insert(position, value)
    return found


def _flat(values: Any, depth: int = 4) -> Iterator[Any]:
    """Yield arguments and the elements of lists among them, to a limited depth, since a list may contain itself."""
    for value in values:
        if type(value) not in (list, tuple):
            yield value
        elif depth:
            yield from _flat(value, depth - 1)


def register(cls: type) -> None:
    """Register a class whose `__torch_function__` operators call."""
    if not _REGISTERED:
        modes.enter_everywhere(_subclass_mode)
    _REGISTERED.add(cls)
    _LOOKED_INTO.add(cls)


@contextlib.contextmanager
def registered_for_a_while(base: type) -> Iterator[None]:
    """Context manager: unregister on exit the subclasses of `base` that were registered inside."""
    before = set(_REGISTERED)
    try:
        yield
    finally:
        for cls in _REGISTERED - before:
            if issubclass(cls, base):
                _REGISTERED.discard(cls)
                _LOOKED_INTO.discard(cls)
        if not _REGISTERED:
            modes.leave_everywhere(_subclass_mode)


def register_plain(cls: type) -> None:
    """Register the class of plain tensors."""
    _PLAIN.add(cls)


def register_subclass(cls: type) -> bool:
    """Register a new subclass of Tensor; return whether it overrides operators."""
    overrides = getattr(cls, "__torch_function__", None) is not disabled_torch_function
    answers = any("__torch_dispatch__" in vars(base) for base in cls.__mro__ if base not in _PLAIN)
    if answers:
        _DISPATCHING.add(cls)
        if all("__torch_function__" not in vars(base) for base in cls.__mro__ if base not in _PLAIN):
            cls.__torch_function__, overrides = disabled_torch_function, False  # type: ignore[attr-defined]
    if (overrides and getattr(cls, "_known_when_made", False)) or (answers and not overrides):
        _LATER.add(cls)
    elif overrides:
        register(cls)
    return overrides


def register_instance(cls: type) -> None:
    """Register the class of a new instance of a subclass of Tensor."""
    if cls in _LATER:
        _LATER.discard(cls)
        register(cls)


def register_arguments(values: Any) -> None:
    """Register the classes of these values that override operators without being tensors."""
    for value in _flat(values):
        if _is_newcomer(type(value)):
            register(type(value))


def _is_newcomer(cls: type) -> bool:
    override = getattr(cls, "__torch_function__", disabled_torch_function)
    if override is disabled_torch_function or cls in _REGISTERED or cls in _PLAIN:
        return False
    return not any(base.__module__.partition(".")[0] == "torch" for base in cls.__mro__)  # another library's tensors


def discovers(args: tuple[Any, ...], kwargs: dict[Any, Any]) -> bool:
    """Return, after a call that failed, whether an argument's class overrides operators and was not known to. It is registered, so that the
    same call again reaches it. If another operator made this call, the failure is passed on to that one, which has to make the whole call. A
    tensor of the real PyTorch raises an error that names it."""
    values = list(_flat((*args, *kwargs.values())))
    refuse_real_tensors(values)
    newcomers = [value for value in values if _is_newcomer(type(value))]
    if not newcomers or _disabled.depth or _made_by_operator():
        return False
    register_arguments(newcomers)
    return True


def refuse_real_tensors(values: Iterable[Any]) -> None:
    """Raise an error that explains the cause if one of the refused values is a tensor of the real PyTorch."""
    for cls in {type(value) for value in values} - _PLAIN:
        if any((base.__module__, base.__name__) == ("torch", "Tensor") and base not in _PLAIN for base in cls.__mro__):
            raise TypeError(
                "got a tensor of the real PyTorch, which Flambeau does not compute with: some module of this program imports"
                " torch. To give it Flambeau instead, call flambeau.install_as_torch() before anything imports torch, or run the"
                " program with `python -m flambeau`; to convert one tensor, use flambeau.from_dlpack(tensor.detach())"
            ) from None


def _made_by_operator() -> bool:
    """Return whether the call was made by another operator, not by user code, including a user's function that an operator called. An
    operator that only passed its call to a mode made none. Frames are inspected once in the life of a class, after its first call; counting
    nested calls would cost each one a sixth of a microsecond."""
    frame: Any = sys._getframe(1)
    own, handed, inner = True, False, None
    while frame is not None and is_own(frame):
        code = frame.f_code
        if code is _INTERCEPT:
            handed = inner is not _HANDLE
        elif code in FACE_CODES:
            if not own and not handed:
                return True
            own = handed = False
        frame, inner = frame.f_back, code
    return False


_INTERCEPT = modes.intercept.__code__


def overridable(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Return a plain function that modes and arguments can override like an operator."""

    @with_attributes
    @functools.wraps(function)
    def face(*args: Any, **kwargs: Any) -> Any:
        if modes.active and modes.asking():
            return modes.intercept(face, face, args, kwargs)
        try:
            return function(*args, **kwargs)
        except Exception:
            if discovers(args, kwargs):
                return face(*args, **kwargs)
            raise

    face.name = function.__name__
    FACE_CODES.add(face.__code__)
    return face


def ask_instead(function: Callable[..., Any], *args: Any) -> Any:
    """Return the arguments' override of a call that cannot be made; NotImplemented if none overrides operators."""
    register_arguments(args)
    overriding = overriding_arguments(args, {})
    return call_override(function, args, {}, overriding) if overriding else NotImplemented


def call_override(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[Any, Any], overriding: list[Any], mode: Any = None
) -> Any:
    """Call each argument's override in turn; return the first result that is not NotImplemented. `mode` has declined already."""
    types = tuple(type(x) for x in overriding)
    for x in overriding:
        plain = type(x).__torch_function__ is disabled_torch_function  # a function, which an instance would bind
        result = (disabled_torch_function if plain else x.__torch_function__)(function, types, args, kwargs)
        if result is not NotImplemented:
            return result
    raise not_implemented(function, types, mode)


def not_implemented(function: Callable[..., Any], types: Any, mode: Any = None) -> TypeError:
    """Return the error for a call that every override declined."""
    name = f"{getattr(function, '__module__', None) or 'torch'}.{getattr(function, '__name__', function)}"
    name = name.replace("flambeau", "torch", 1)
    asked = [] if mode is None else [f"  - mode object {mode}"]
    asked += [f"  - tensor subclass {cls}" for cls in types]
    return TypeError(
        f"Multiple dispatch failed for '{name}'; all __torch_function__ handlers returned NotImplemented:\n\n"
        + "\n".join(asked)
    )


def asks(op: Any) -> bool:
    """Return whether calls of an operator (or of a plain function that is `overridable`) can be overridden by arguments."""
    return not getattr(getattr(op, "quirks", None), "unasked", False)


def asked_with(op: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the positional arguments of a call in the form that overrides get."""
    form = getattr(getattr(op, "quirks", None), "asked_with", None)
    return args if form is None else form(args)


class _SubclassMode(modes.Mode):
    asks = True
    parts = False

    def handle(self, op: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
        if kwargs or not _LOOKED_INTO.isdisjoint(map(type, args)):  # rare
            overriding = overriding_arguments(args, kwargs)
            if overriding and not skip.next and asks(op):
                return self.ask(function, overriding, asked_with(op, args), kwargs)
        skip.next = False
        try:
            return function(*args, **kwargs)
        except Exception:
            if not asks(op) or not discovers(args, kwargs):
                raise
        return self.ask(function, overriding_arguments(args, kwargs), asked_with(op, args), kwargs)

    def ask(
        self, function: Callable[..., Any], overriding: list[Any], args: tuple[Any, ...], kwargs: dict[Any, Any]
    ) -> Any:
        modes.own.stack.push_below(self)  # the override's own calls are asked about again
        try:
            return call_override(function, args, kwargs, overriding)
        finally:
            modes.own.stack.take(self)


_HANDLE = _SubclassMode.handle.__code__
_subclass_mode = _SubclassMode()


def only_for_subclasses(mode: modes.Mode) -> bool:
    """Return whether a mode is the one that looks for classes with a `__torch_function__`: it changes nothing for others."""
    return mode is _subclass_mode


def asks_arguments() -> bool:
    """Return whether arguments can override a call made now."""
    return _subclass_mode in modes.own.stack


class _Disabled(threading.local):
    depth = 0  # how many `with DisableTorchFunctionSubclass()` are open in this thread
    dispatch = 0  # how many `with DisableTorchDispatch()` are


_disabled = _Disabled()


class DisableTorchFunctionSubclass:
    """Context manager: operators treat instances of subclasses as plain tensors."""

    def __enter__(self) -> None:
        _disabled.depth += 1
        self.removed = _subclass_mode in modes.own.stack
        if self.removed:
            modes.own.stack.take(_subclass_mode)

    @uninterrupted
    def __exit__(self, *exc: Any) -> None:
        _disabled.depth -= 1
        if self.removed:
            modes.own.stack.push_below(_subclass_mode)


class DisableTorchDispatch(DisableTorchFunctionSubclass):
    """Context manager: classes with a `__torch_dispatch__` are not called either."""

    def __enter__(self) -> None:
        super().__enter__()
        _disabled.dispatch += 1

    @uninterrupted
    def __exit__(self, *exc: Any) -> None:
        _disabled.dispatch -= 1
        DisableTorchFunctionSubclass.__exit__(self)


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """Context manager: neither subclasses nor torch-function modes intercept operators."""

    def __enter__(self) -> None:
        super().__enter__()
        self.known = bool(_REGISTERED)
        self.modes = modes.own.stack[:]
        modes.own.stack.replace([m for m in self.modes if not m.asks])

    @uninterrupted
    def __exit__(self, *exc: Any) -> None:
        modes.own.stack.replace(self.modes)
        if _REGISTERED and not self.known:  # the first class was registered inside
            modes.own.stack.push_below(_subclass_mode)
        DisableTorchFunctionSubclass.__exit__(self)
