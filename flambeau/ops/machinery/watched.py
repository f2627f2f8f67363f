"""Functions that modes see: the test of the mode stack before a plain Python function."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from ...core.aliases import AnyFunction
from ...core.modes import active, intercept, watching
from ...core.sharded import ShardedOperand
from .record import Op, register


def watched(fn: AnyFunction | None = None, *, name: str | None = None, kind: str = "primitive", **fields: Any) -> Any:
    """Declare a plain function as an operator without a public name: a part of others, seen by modes like any other.
    `fields` are those of its record."""
    if fn is None:
        return functools.partial(watched, name=name, kind=kind, **fields)
    op = Op(name or fn.__name__, kind, fn, (), doc=fn.__doc__ or "", source=fn, **fields)
    op.function = watched_face(op, fn)
    return register(op).function


def watched_face(op: Op, fn: AnyFunction, inline: str = "", **names: Any) -> Any:
    """Return `fn` after a test of the modes, which costs one test and one call. If `fn` is only an expression, the text `inline`, with the
    objects that its `names` denote, saves the call."""
    signature = inspect.signature(fn).parameters.values()
    source, space = _text(signature, "_active" if op.namespaces else "_active and _watching()", inline)
    space.update(
        names, _watching=watching, _active=active, _intercept=intercept, _fn=fn, _given=_given, __name__=__name__
    )
    exec(_compiled(source), space)  # noqa: S102 - made of parameter names only
    face = space["_face"]
    face.__name__ = face.__qualname__ = op.name
    face.__doc__, face.__module__ = fn.__doc__, fn.__module__
    face.op, face._unwatched, face.__wrapped__ = op, fn, fn
    return face


def _text(parameters: Any, test: str, inline: str) -> tuple[str, dict[str, Any]]:
    """Return the source of a face that passes its arguments on, and the objects that the names of its defaults denote."""
    signature, passed, required, options, starred = [], [], [], [], False
    space: dict[str, Any] = {}
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not starred:
            signature.append("*")
            starred = True
        passed.append(f"{p.name}={p.name}" if starred else p.name)
        if p.default is p.empty:
            signature.append(p.name)
            required.append(f"{p.name}, ")
        else:
            signature.append(f"{p.name}=_default_{p.name}")
            space[f"_default_{p.name}"] = p.default
            options.append(f"({p.name!r}, {p.name}, _default_{p.name})")
    return (
        f"def _face({', '.join(signature)}):\n"
        f"    if {test}:\n"
        f"        return _intercept(_face.op, _face, ({''.join(required)}), _given({', '.join(options)}))\n"
        f"    return {inline or '_fn(' + ', '.join(passed) + ')'}\n"
    ), space


@functools.cache
def _compiled(source: str) -> Any:
    return compile(source, f"{__file__}<watched function>", "exec")


def _given(*options: tuple[str, Any, Any]) -> dict[str, Any]:
    """Return the optional arguments that differ from their defaults: a mode need not know of the others."""
    return {name: value for name, value, default in options if value is not default}


class PrivateCall:
    """Callable through which operators use a formula or reduction without a public name: `compute(*args, **kwargs)`, seen by modes."""

    __slots__ = ("op", "_unwatched")

    def __init__(self, op: Op, compute: AnyFunction):
        self.op, self._unwatched = op, compute

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if active and watching():
            return intercept(self.op, self, args, kwargs)
        try:
            return self._unwatched(*args, **kwargs)
        except ShardedOperand as problem:
            instead = problem.instead(self, args, kwargs)
        return instead()
