"""Patches of functions and methods during tracing, and the functions that `wrap` keeps as calls."""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from .node import map_aggregate
from .proxy import Proxy


def _holds_proxy(*values: Any) -> Proxy | None:
    found: list[Proxy] = []

    def look(value: Any) -> Any:
        if isinstance(value, Proxy):
            found.append(value)
        return value

    map_aggregate(values, look)
    return found[-1] if found else None


# -- functions changed temporarily ----------------------------------------------------------------------------------------

_ABSENT = object()


class _Patcher:
    """Context manager that replaces functions in dicts of globals and in classes, and restores them on exit."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], None]] = []
        self.redo: list[Callable[[], None]] = []
        self.visited: set[int] = set()

    def patch(self, space: dict[str, Any], name: str, new: Any, deduplicate: bool = True) -> None:
        old = space.get(name, _ABSENT)
        if getattr(old, "__fx_already_patched", False):
            return
        new.__fx_already_patched = deduplicate

        def revert() -> None:
            if old is _ABSENT:  # a builtin, now in sight again
                del space[name]
            else:
                space[name] = old

        self._apply(functools.partial(space.__setitem__, name, new), revert)

    def patch_method(self, cls: type, name: str, new: Any, deduplicate: bool = True) -> None:
        old = getattr(cls, name)
        if getattr(old, "__fx_already_patched", False):
            return
        new.__fx_already_patched = deduplicate
        self._apply(functools.partial(setattr, cls, name, new), functools.partial(setattr, cls, name, old))

    def _apply(self, apply: Callable[[], None], revert: Callable[[], None]) -> None:
        apply()
        self.redo.append(apply)
        self.undo.append(revert)

    def visit_once(self, thing: Any) -> bool:
        new = id(thing) not in self.visited
        self.visited.add(id(thing))
        return new

    def revert_all(self) -> None:
        for revert in reversed(self.undo):
            revert()

    def reapply_all(self) -> None:
        for apply in self.redo:
            apply()

    def __enter__(self) -> _Patcher:
        _patchers.append(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        _patchers.remove(self)
        self.revert_all()


_patchers: list[_Patcher] = []


@contextlib.contextmanager
def _maybe_revert_all_patches() -> Iterator[None]:
    """Context manager: undo the patches of an active trace, and apply them again on exit."""
    patcher = _patchers[-1] if _patchers else None
    if patcher is not None:
        patcher.revert_all()
    try:
        yield
    finally:
        if patcher is not None:
            patcher.reapply_all()


_wrapped_fns_to_patch: dict[tuple[int, str], dict[str, Any]] = {}
_wrapped_methods_to_patch: list[tuple[type, str]] = []


def _create_wrapped_func(orig_fn: Callable) -> Callable:
    @functools.wraps(orig_fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = _holds_proxy(args, kwargs)
        if proxy is None:
            return orig_fn(*args, **kwargs)
        result = proxy.tracer.create_proxy("call_function", orig_fn, args, kwargs)
        result.node.meta["is_wrapped"] = True
        return result

    return wrapped


def _create_wrapped_method(cls: type, name: str) -> Callable:
    orig_fn = getattr(cls, name)

    @functools.wraps(orig_fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = _holds_proxy(args, kwargs)
        if proxy is None:
            return orig_fn(*args, **kwargs)
        return proxy.tracer.create_proxy("call_method", name, args, kwargs)

    return wrapped


def _patch_wrapped_functions(patcher: _Patcher) -> None:
    for (_, name), space in list(_wrapped_fns_to_patch.items()):
        original = space[name] if name in space else getattr(builtins, name)
        patcher.patch(space, name, _create_wrapped_func(original))
    for cls, name in _wrapped_methods_to_patch:
        patcher.patch_method(cls, name, _create_wrapped_method(cls, name))


def _autowrap_check(patcher: _Patcher, space: dict[str, Any], function_ids: set[int]) -> None:
    """Patch those of the functions that a module's globals contain."""
    if not patcher.visit_once(space):
        return
    for name, value in list(space.items()):
        if not name.startswith("_") and callable(value) and id(value) in function_ids:
            patcher.patch(space, name, _create_wrapped_func(value))


def wrap(fn_or_name: Any) -> Any:
    """Mark a function so that its calls are recorded as single nodes instead of being traced through. Call it at the top of a module,
    with the function or its name; or use it as a decorator."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name.__name__ if callable(fn_or_name) else fn_or_name
    caller = inspect.currentframe().f_back  # type: ignore[union-attr]
    assert caller is not None
    if caller.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped_fns_to_patch[id(caller.f_globals), name] = caller.f_globals
    return fn_or_name
