"""Declaring operators: the decorators that turn one definition into function, method, in-place and out= forms."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from ..core import modes
from ..core.graph import mode
from ..core.promotion import can_cast
from ..core.tensor import Tensor
from ..expr.node import Expr
from .formula import (
    Pointwise,
    PointwiseNode,
    as_operand,
    formula_globals,
    promote,
    type_word,
)
from .inplace import (
    assign,
    check_partial_overlap,
    check_writable,
    copy_values,
    needs_copy_before_write,
    rebase_history,
    resize_out,
    write_out,
)
from .primitive import Primitive
from .registry import Op, register

_stack = modes.stack
_intercept = modes.intercept


# -- pointwise --------------------------------------------------------------------------------------------------------


def pointwise(
    formula: Callable | None = None,
    *,
    name: str | None = None,
    rule: Callable = promote,
    grad: Callable | None = None,
    label: str | None = None,
    check: Callable | None = None,
    method: bool = True,
    inplace: bool = True,
    out: bool = True,
    namespaces: tuple[str, ...] = ("torch",),
    aliases: tuple[str, ...] = (),
    differentiable: bool = True,
) -> Any:
    """Declare a pointwise operator from its scalar formula.

    Parameters without a default are operands (tensors or numbers, broadcast and promoted together); parameters with a
    default are numbers or choices. Returns the public function; its record is `function.op`.
    """
    if formula is None:
        return functools.partial(
            pointwise, name=name, rule=rule, grad=grad, label=label, check=check, method=method, inplace=inplace, out=out,
            namespaces=namespaces, aliases=aliases, differentiable=differentiable,
        )  # fmt: skip
    op_name = name or formula.__name__
    impl = Pointwise(op_name, formula, rule, grad, label, differentiable, check)
    face = _pointwise_face(impl, out)
    op = Op(
        op_name, "pointwise", face, namespaces, face if method else None, None, out, differentiable, impl, aliases,
        formula.__doc__ or "",
    )  # fmt: skip
    if inplace:
        op.inplace = _pointwise_inplace(impl)
    _dress(face, op, formula)
    return register(op).function


def user_pointwise(formula: Callable) -> Callable:
    """`@flambeau.ops.pointwise`: a user's own operator. Its formula may use sigmoid, exp, where, ... without importing
    them; the operator is compiled, multi-threaded and differentiable, and is not added to the library's namespace."""
    names = {**formula_globals(), **formula.__globals__}
    twin = types.FunctionType(formula.__code__, names, formula.__name__, formula.__defaults__, formula.__closure__)
    twin.__kwdefaults__ = formula.__kwdefaults__
    impl = Pointwise(formula.__name__, twin)
    face = _pointwise_face(impl, True)
    op = Op(formula.__name__, "pointwise", face, (), None, _pointwise_inplace(impl), True, True, impl, (), formula.__doc__ or "")
    _dress(face, op, formula)
    return face


def _dress(face: Any, op: Op, source: Callable) -> None:
    face.__name__ = face.__qualname__ = op.name
    face.__doc__ = source.__doc__
    face.__module__ = "flambeau"
    face.op = op


def _pointwise_face(impl: Pointwise, has_out: bool) -> Any:
    if impl.arity == 1 and not impl.parameters:
        return _unary_face(impl)
    if impl.arity == 2 and not impl.parameters:
        return _binary_face(impl)
    return _general_face(impl)


def _unary_face(impl: Pointwise) -> Any:
    unary = impl.unary

    def face(input: Any, *, out: Any = None) -> Any:
        if _stack:
            return _intercept(face.op, face, (input,), {"out": out} if out is not None else {})  # type: ignore[attr-defined]
        if out is None and isinstance(input, Tensor):
            return unary(input)
        return _slow_call(impl, (input,), (), out)

    return face


def _binary_face(impl: Pointwise) -> Any:
    binary = impl.binary

    def face(input: Any, other: Any, *, out: Any = None) -> Any:
        if _stack:
            return _intercept(face.op, face, (input, other), {"out": out} if out is not None else {})  # type: ignore[attr-defined]
        if out is None and isinstance(input, Tensor) and isinstance(other, (Tensor, float, int)):
            return binary(input, other)
        return _slow_call(impl, (input, other), (), out)

    return face


def _general_face(impl: Pointwise) -> Any:
    def face(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if _stack:
            if out is not None:
                kwargs["out"] = out
            return _intercept(face.op, face, args, kwargs)  # type: ignore[attr-defined]
        operands, params = bind_arguments(impl, args, kwargs)
        return _slow_call(impl, operands, params, out)

    return face


def bind_arguments(impl: Pointwise, args: tuple, kwargs: dict) -> tuple[tuple, tuple]:
    """Split a call's arguments into operands and parameter values."""
    names = impl.operand_names + tuple(n for n, _ in impl.parameters)
    if len(args) > len(names):
        raise TypeError(f"{impl.name}() takes {len(names)} positional arguments but {len(args)} were given")
    values = dict(zip(names, args))
    for key, value in kwargs.items():
        if key not in names:
            raise TypeError(f"{impl.name}() got an unexpected keyword argument '{key}'")
        if key in values:
            raise TypeError(f"{impl.name}() got multiple values for argument '{key}'")
        values[key] = value
    missing = [n for n in impl.operand_names if n not in values]
    if missing:
        raise TypeError(f"{impl.name}() missing {len(missing)} required positional arguments: " + ", ".join(f'"{m}"' for m in missing))
    operands = tuple(values[n] for n in impl.operand_names)
    params = tuple(_parameter(values.get(n, d)) for n, d in impl.parameters)
    return operands, params


def _parameter(value: Any) -> Any:
    """A 0-dim tensor or NumPy scalar given where a number belongs."""
    if type(value) in (int, float, bool, str, complex) or value is None:
        return value
    return value.item() if hasattr(value, "item") else value


def _slow_call(impl: Pointwise, operands: tuple, params: tuple, out: Any) -> Any:
    if any(isinstance(x, Expr) for x in operands):
        return impl.formula(*operands, *params)  # used inside another formula
    operands = tuple(as_operand(x, impl.name, i) for i, x in enumerate(operands))
    if not any(isinstance(x, Tensor) for x in operands):
        raise TypeError(
            f"{impl.name}(): argument 'input' (position 1) must be Tensor, not {type(operands[0]).__name__}"
        )
    if out is None:
        return impl.call(operands, params)
    before, mode.enabled = mode.enabled, mode.enabled
    try:
        result = impl.call(operands, params)
    finally:
        mode.enabled = before
    return write_out(impl.name, out, result)


def _pointwise_inplace(impl: Pointwise) -> Any:
    name = impl.name + "_"

    def face(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if _stack:
            return _intercept(face.op, face, (self, *args), kwargs)  # type: ignore[attr-defined]
        operands, params = bind_arguments(impl, (self, *args), kwargs)
        return run_inplace(impl, self, operands, params, name)

    face.__name__ = face.__qualname__ = name
    face.op = Op(name, "pointwise", face, (), face, None, False, True, impl)  # type: ignore[attr-defined]
    return face


def run_inplace(impl: Pointwise, self: Tensor, operands: tuple, params: tuple, name: str) -> Tensor:
    """Compute a pointwise operator into its first operand."""
    check_writable(self, name)
    operands = (self, *(as_operand(x, name, i + 1) for i, x in enumerate(operands[1:])))
    plan = impl.plan_for(operands, params, None, None)
    if plan.shape != self.shape:
        raise RuntimeError(f"output with shape {list(self.shape)} doesn't match the broadcast shape {list(plan.shape)}")
    if not can_cast(plan.dtype, self.dtype):
        raise RuntimeError(
            f"result type {type_word(plan.dtype)} can't be cast to the desired output type {type_word(self.dtype)}"
        )
    node = None
    if mode.enabled and impl.differentiable and any(isinstance(x, Tensor) and x.requires_grad for x in operands):
        node = impl.make_node(operands)
    sources = list(operands)
    for i, x in enumerate(operands[1:], 1):
        if isinstance(x, Tensor) and x is not self:
            check_partial_overlap(self, x)
            if needs_copy_before_write(self, x):
                sources[i] = _bare_copy(x)
    kept = list(sources)
    if node is not None and node.reads_operand(0, params):
        kept[0] = _copy_with_history(self)
    impl.into(self, tuple(sources), params)
    self._bump(name)
    if node is not None:
        node.remember(tuple(kept), params, self)
        rebase_history(self, node, 0)
    elif mode.enabled and self._meta is not None and self._meta.grad_fn is not None:
        rebase_history(self, None, 0)
    return self


def _bare_copy(x: Tensor) -> Tensor:
    return copy_values.call((x._bare_alias(),))


def _copy_with_history(x: Tensor) -> Tensor:
    """The values and history x has now, before they are overwritten."""
    fresh = _bare_copy(x)
    if x.grad_fn is not None:
        fresh._set_history(x.grad_fn, x.output_nr)
    return fresh


# -- everything else --------------------------------------------------------------------------------------------------


def primitive(
    fn: Callable | None = None,
    *,
    grads: dict | None = None,
    label: str | None = None,
    kind: str = "primitive",
    multi_view: bool = False,
    name: str | None = None,
    function: bool = True,
    method: bool = True,
    inplace: bool = False,
    out: bool = False,
    namespaces: tuple[str, ...] = ("torch",),
    aliases: tuple[str, ...] = (),
) -> Any:
    """Declare an operator with a kernel of its own and derivative rules `grads` (see ops.primitive)."""
    if fn is None:
        return functools.partial(
            primitive, grads=grads, label=label, kind=kind, multi_view=multi_view, name=name, function=function,
            method=method, inplace=inplace, out=out, namespaces=namespaces, aliases=aliases,
        )  # fmt: skip
    impl = Primitive(fn, grads or {}, label, kind == "view", multi_view)
    return _declare(fn, impl, impl, kind, name, function, method, inplace, out, namespaces, aliases, bool(grads))


def view(fn: Callable | None = None, **options: Any) -> Any:
    """Declare an operator whose result shares memory with its input."""
    if fn is None:
        return functools.partial(view, **options)
    return primitive(fn, kind="view", **options)


def composite(
    fn: Callable | None = None,
    *,
    kind: str = "composite",
    name: str | None = None,
    function: bool = True,
    method: bool = True,
    inplace: bool = False,
    out: bool = False,
    namespaces: tuple[str, ...] = ("torch",),
    aliases: tuple[str, ...] = (),
) -> Any:
    """Declare an operator made of other operators: its derivative follows from theirs."""
    if fn is None:
        return functools.partial(
            composite, kind=kind, name=name, function=function, method=method, inplace=inplace, out=out,
            namespaces=namespaces, aliases=aliases,
        )  # fmt: skip
    return _declare(fn, fn, None, kind, name, function, method, inplace, out, namespaces, aliases, True)


def _declare(
    fn: Callable,
    run: Callable,
    impl: Any,
    kind: str,
    name: str | None,
    function: bool,
    method: bool,
    inplace: bool,
    out: bool,
    namespaces: tuple[str, ...],
    aliases: tuple[str, ...],
    differentiable: bool,
) -> Any:
    op_name = name or fn.__name__
    face = _face_with_out(op_name, run) if out else _plain_face(run)
    op = Op(
        op_name, kind, face, namespaces if function else (), face if method else None, None, out, differentiable, impl,
        aliases, fn.__doc__ or "",
    )  # fmt: skip
    if inplace:
        op.inplace = _assigning_inplace(op_name, run)
    _dress(face, op, fn)
    face.__wrapped__ = fn
    return register(op).function


def _plain_face(run: Callable) -> Any:
    def face(*args: Any, **kwargs: Any) -> Any:
        if _stack:
            return _intercept(face.op, face, args, kwargs)  # type: ignore[attr-defined]
        return run(*args, **kwargs)

    return face


def _face_with_out(name: str, run: Callable) -> Any:
    def face(*args: Any, **kwargs: Any) -> Any:
        if _stack:
            return _intercept(face.op, face, args, kwargs)  # type: ignore[attr-defined]
        if "out" in kwargs:
            out = kwargs.pop("out")
            if out is not None:
                return write_out(name, out, run(*args, **kwargs))
        return run(*args, **kwargs)

    return face


def _assigning_inplace(base_name: str, run: Callable) -> Any:
    name = base_name + "_"

    def face(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if _stack:
            return _intercept(face.op, face, (self, *args), kwargs)  # type: ignore[attr-defined]
        check_writable(self, name)
        return assign(self, run(self, *args, **kwargs), name)

    face.__name__ = face.__qualname__ = name
    face.op = Op(name, "composite", face, (), face)  # type: ignore[attr-defined]
    return face


__all__ = ["PointwiseNode", "composite", "pointwise", "primitive", "resize_out", "run_inplace", "user_pointwise", "view"]
