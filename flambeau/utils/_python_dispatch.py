"""Dispatch modes: a program seen as calls of PyTorch's operators, each of which a mode can replace.

>>> class Log(TorchDispatchMode):
...     def __torch_dispatch__(self, func, types, args=(), kwargs=None):
...         print(func)
...         return func(*args, **(kwargs or {}))
>>> with Log():
...     y = flambeau.ones(2).exp()
aten.ones.default
aten.exp.default
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from ..core import modes
from ..core.graph import unrecorded
from ..core.tensor import Tensor
from ..library.aten.derivatives import asks_for_gradients, recorded
from ..library.aten.dispatch import AtenMode
from ..library.aten.overloads import OpOverload, aten
from ._pytree import tree_leaves
from ._wrapper_gradients import with_history


class TorchDispatchMode(AtenMode):
    """Inside a `with` block, `__torch_dispatch__` gets every call of an operator that PyTorch has a kernel for; operators that PyTorch
    makes of others (`linear`, `conv2d`) are seen as those. What Flambeau computes in one step where PyTorch has none is an operator
    `flambeau.name`."""

    reads_values = True
    differentiates = (
        False  # operators that PyTorch has a kernel for stay whole; the backward pass calls what is declared
    )

    def parts_of(self, overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Callable | None:
        return overload.decompose if overload.is_composite else None

    def make(self, overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
        found = recorded(self, overload, args, kwargs) if asks_for_gradients(args, kwargs) else NotImplemented
        return self.unseen(self._dispatch, overload, args, kwargs) if found is NotImplemented else found

    def _dispatch(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        types = tuple({type(v): None for v in tree_leaves((args, kwargs)) if isinstance(v, Tensor)})
        rule = _rule(func, type(self))
        return (
            self.__torch_dispatch__(func, types, args, kwargs)
            if rule is None
            else rule(self, func, types, args, kwargs)
        )

    def node(self, function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        return self.unseen(self._dispatch, function, args, kwargs)

    def unknown(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        return self.unseen(self._dispatch, OwnOperator(op, function), args, kwargs)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __torch_dispatch__")

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> TorchDispatchMode:
        return cls(*args, **kwargs)


def _rule(func: Any, asked: type) -> Callable | None:
    """Return the rule that `library.register_torch_dispatch` gave a user's operator for a mode or a class, or None."""
    rules = getattr(getattr(getattr(func, "op", None), "impl", None), "dispatch", None)
    return rules.get(asked) if rules else None


class OwnOperator:
    """An operator of Flambeau that PyTorch does not have, called as modes see it."""

    tags: tuple = ()
    namespace = "flambeau"

    def __init__(self, op: Any, function: Callable) -> None:
        self.op, self.function = op, function
        self.__name__ = op.name
        self._overloadpacket, self._overloadname, self._schema = self, "default", op.schema

    overloadpacket = property(lambda self: self)

    def name(self) -> str:
        return f"flambeau::{self.op.name}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __str__(self) -> str:
        return f"flambeau.{self.op.name}.default"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnOperator) and other.op is self.op

    def __hash__(self) -> int:
        return hash(self.op)


def _get_current_dispatch_mode_stack() -> list[TorchDispatchMode]:
    return [mode for mode in modes.own.stack if isinstance(mode, TorchDispatchMode)]


def _get_current_dispatch_mode() -> TorchDispatchMode | None:
    found = _get_current_dispatch_mode_stack()
    return found[-1] if found else None


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    return bool(_get_current_dispatch_mode_stack())


@contextlib.contextmanager
def _disable_current_modes() -> Iterator[list[TorchDispatchMode]]:
    """Context manager: switch all dispatch modes off."""
    found = _get_current_dispatch_mode_stack()
    for mode in found:
        modes.own.stack.take(mode)
    try:
        yield found
    finally:
        for mode in found:
            modes.own.stack.push(mode)


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Return whether a tensor is composed of others that it can be flattened into (`__tensor_flatten__`)."""
    return isinstance(t, Tensor) and is_traceable_wrapper_subclass_type(type(t))


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    return (
        issubclass(t, Tensor)
        and t is not Tensor
        and hasattr(t, "__tensor_flatten__")
        and hasattr(t, "__tensor_unflatten__")
    )


class _ClassDispatch(TorchDispatchMode):
    """Mode below autograd that passes each operator to the first class among its arguments' that defines `__torch_dispatch__`."""

    def make(self, overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
        return self.unseen(self._first_answer, overload, args, kwargs)

    def _first_answer(self, overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
        first = overload._schema.arguments[0].alias_info if overload._schema.arguments else None
        writes = first is not None and first.is_write

        def call() -> Any:
            result = self._dispatch(overload, args, kwargs)
            if not writes:
                return result
            args[0]._bump(overload._overloadpacket.__name__)
            return args[0]

        return with_history(call, overload, args, kwargs, writes)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        asked = sorted((t for t in types if "__torch_dispatch__" in _named_in(t)), key=lambda t: -len(t.__mro__))
        if not asked:
            return func(*args, **(kwargs or {}))
        for kind in asked:
            rule = _rule(func, kind)
            answer = kind.__torch_dispatch__ if rule is None else functools.partial(rule, kind)
            found = answer(func, types, args, kwargs or {})
            if found is not NotImplemented:
                return found
        name = f"torch.ops.{str(func).removesuffix('.default')}"
        raise TypeError(
            f"Multiple dispatch failed for '{name}'; all __torch_dispatch__ handlers returned NotImplemented:\n\n"
            + "\n".join(f"  - tensor subclass {kind}" for kind in asked)
        )


@functools.cache
def _named_in(cls: type) -> frozenset[str]:
    """Return the names that a class and its bases define, except Tensor's own definitions."""
    return frozenset(name for base in cls.__mro__ if base is not Tensor for name in vars(base))


def ask_classes(face: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Dispatch a call of a public function to the argument classes that define `__torch_dispatch__`."""
    op: Any = getattr(face, "op", None)
    tells = op.tells if op is not None and op.reads_values else ""
    if tells not in ("", "number"):
        rest = f", got {type(args[0]).__name__}" if tells == "list" else "."
        raise RuntimeError(f".{op.name}() is not supported for tensor subclasses{rest}")
    with _ClassDispatch():
        return unrecorded(aten._local_scalar_dense.default, *args) if tells else face(*args, **kwargs)


def return_and_correct_aliasing(func: Any, args: tuple, kwargs: dict[str, Any], out: Any) -> Any:
    """Return the result of an operator computed by a class. Operators that change an argument return that argument itself."""
    schema = getattr(func, "_schema", None)
    first = schema.arguments[0] if schema is not None and schema.arguments else None
    writes = first is not None and first.alias_info is not None and first.alias_info.is_write
    return args[0] if writes and args else out
