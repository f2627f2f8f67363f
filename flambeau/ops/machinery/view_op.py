"""Views with little overhead: the new header that follows from an old one is computed once for each layout and then looked up.

    @geometry_view(backward=lambda g, shape, dim0, dim1: g.transpose(dim0, dim1))
    def transpose(input, dim0, dim1):
        return shape, strides, offset

The rule may read the input's shape, strides and offset and the (int or tuple) arguments, nothing else."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from ...core import graph, modes
from ...core.caching import remember
from ...core.graph import (
    INFERENCE,
    AutogradState,
    Node,
    declare_saved,
    grad_mode,
    gradient_edge,
    named_class,
    user_trace,
)
from ...core.overrides import with_attributes
from ...core.size import Size, make_size
from ...core.tensor import Tensor, is_contiguous_layout, numel_of
from ...core.typenames import type_name
from .arguments import as_int
from .formula import camel
from .parameters import NO_DEFAULT, parameter_names, parameters, takes_options
from .primitive import remember_no_grad_view
from .public import dress, recourse
from .quirks import NO_QUIRKS, Quirks
from .record import Op, register

_new_object = object.__new__
_sequence = graph._sequence
_active = modes.active
_intercept = modes.intercept
_MAX_PARTS = 256  # a plan with more parts is not worth keeping


class ViewNode(Node):
    """The recorded call of a view. It keeps no tensors, so there is nothing to release."""

    op: Any  # a ViewOp or SeveralViewsOp
    shape: Size
    args: tuple[Any, ...]

    def __init__(self) -> None:  # fields are set by ViewOp.inherit
        pass

    def apply(self, grads: list[Any]) -> tuple[Any, ...]:
        (g,) = grads
        return (None if g is None else self.op.backward(g, self.shape, *self.args),)

    def saved_fields(self, hookable: bool = False) -> dict[str, Any]:
        return {"self_sym_sizes": self.shape, **dict(zip(parameter_names(self.op.backward)[2:], self.args))}

    def release(self) -> None:
        pass


class ViewOp:
    """Operator that returns a view: `geometry(input, *args)` returns shape, strides and offset; `backward(g, input shape, *args)` the
    gradient."""

    def __init__(self, name: str, geometry: Callable[..., Any], backward: Callable[..., Any], label: Any):
        self.name, self.geometry, self.backward, self.label = name, geometry, backward, label
        declare_saved("self_sym_sizes", *parameter_names(backward)[2:])
        self.plans: dict[tuple[Any, ...], tuple[Size, tuple[int, ...], int, bool]] = {}

    def __call__(self, input: Tensor, *args: Any) -> Tensor:
        return self.place(input, args, args, 0)

    def place(self, input: Tensor, key: tuple[Any, ...], args: tuple[Any, ...], offset: int) -> Tensor:
        """Return the view whose layout `key` determines, `offset` elements further into the storage; `args` are for backward."""
        try:
            shape, strides, shift, contig = self.plans[input.shape, input._strides, key]
        except KeyError:
            shape, strides, shift, contig = self.plan(input, key)
        except AttributeError:
            raise TypeError(
                f"{self.name}(): argument 'input' (position 1) must be Tensor, not {type_name(input)}"
            ) from None
        t = _new_object(Tensor)
        t._storage = input._storage
        t.shape = shape
        t._strides = strides
        t._offset = input._offset + shift + offset
        t.dtype = input.dtype
        t.device = input.device
        t._contig = contig
        t._autograd = None
        base = input._base
        if base is None:
            t._base = input
            if input._autograd is not None:
                self.inherit(input, t, args)
        else:
            t._base = base
            if input._autograd is not None or base._autograd is not None:
                self.inherit(input, t, args)
        return t

    def plan(self, input: Tensor, key: tuple[Any, ...]) -> tuple[Size, tuple[int, ...], int, bool]:
        shape, strides, offset = self.geometry(input, *key)
        shape, strides = make_size(shape), tuple(strides)
        if numel_of(shape) > sys.maxsize:
            raise RuntimeError("numel: integer multiplication overflow")
        found = (shape, strides, offset - input._offset, is_contiguous_layout(shape, strides))
        return remember(self.plans, (input.shape, input._strides, key), found)

    def inherit(self, input: Tensor, out: Tensor, args: tuple[Any, ...]) -> None:
        """Record the view if the input takes part in autograd."""
        if not grad_mode.enabled:
            remember_no_grad_view(out, input)
            return
        edge = gradient_edge(input)
        if edge is None or input._storage.version >= INFERENCE:
            return
        node = named_class(ViewNode, self.label)()
        node.edges = (edge,)
        node.sequence = next(_sequence)
        node.op, node.shape, node.args = self, input.shape, args
        if grad_mode.anomaly:
            node.trace = user_trace()
        meta = out._autograd = AutogradState()
        meta.grad_fn = node
        meta.view_version = out._storage.version
        if input._base is not None and input._autograd is not None:
            # What must not be changed must not be changed through a view either.
            meta.creation = input._autograd.creation


class SeveralViewsNode(ViewNode):
    """The recorded call of an operator that returns several views."""

    def apply(self, grads: list[Any]) -> tuple[Any, ...]:
        if all(g is None for g in grads):
            return (None,)
        return (self.op.backward(tuple(grads), self.shape, *self.args),)


class SeveralViewsOp:
    """Operator that returns several views: `geometry(input, *args)` returns a list of (shape, strides, offset); `backward(gs, input shape,
    *args)` the gradient from those of the parts, None for a part that was not used. Autograd forbids changing such views in place."""

    def __init__(self, name: str, geometry: Callable[..., Any], backward: Callable[..., Any], label: Any):
        self.name, self.geometry, self.backward, self.label = name, geometry, backward, label
        declare_saved("self_sym_sizes", *parameter_names(backward)[2:])
        self.plans: dict[tuple[Any, ...], list[tuple[Size, tuple[int, ...], int, bool]]] = {}

    def __call__(self, input: Tensor, *args: Any) -> tuple[Tensor, ...]:
        try:
            plan = self.plans[input.shape, input._strides, args]
        except KeyError:
            plan = self.plan(input, args)
        except AttributeError:
            raise TypeError(
                f"{self.name}(): argument 'input' (position 1) must be Tensor, not {type_name(input)}"
            ) from None
        base = input if input._base is None else input._base
        storage, start, d, where = input._storage, input._offset, input.dtype, input.device
        parts = []
        for shape, strides, shift, contig in plan:
            t = _new_object(Tensor)
            t._storage = storage
            t.shape = shape
            t._strides = strides
            t._offset = start + shift
            t.dtype = d
            t.device = where
            t._contig = contig
            t._autograd = None
            t._base = base
            parts.append(t)
        if input._autograd is not None or base._autograd is not None:
            self.inherit(input, parts, args)
        return tuple(parts)

    def plan(self, input: Tensor, args: tuple[Any, ...]) -> list[Any]:
        found = []
        for shape, strides, offset in self.geometry(input, *args):
            size, steps = make_size(shape), tuple(strides)
            found.append((size, steps, offset - input._offset, is_contiguous_layout(size, steps)))
        if len(found) <= _MAX_PARTS:
            remember(self.plans, (input.shape, input._strides, args), found, _MAX_PARTS)
        return found

    def inherit(self, input: Tensor, parts: list[Tensor], args: tuple[Any, ...]) -> None:
        if not grad_mode.enabled:
            remember_no_grad_view(parts, input)
            return
        edge = gradient_edge(input)
        if edge is None:
            return
        node = named_class(SeveralViewsNode, self.label)()
        node.edges, node.sequence = (edge,), next(_sequence)
        node.op, node.shape, node.args, node.output_count = self, input.shape, args, len(parts)
        if grad_mode.anomaly:
            node.trace = user_trace()
        for i, t in enumerate(parts):
            meta = t._autograd = AutogradState()
            meta.grad_fn, meta.output_nr, meta.creation = node, i, "multi"
            meta.view_version = t._storage.version


def declare_geometry_view(
    fn: Callable[..., Any],
    *,
    backward: Callable[..., Any],
    quirks: Quirks = NO_QUIRKS,
    name: str | None = None,
    function: bool = True,
    method: bool = True,
    aliases: tuple[str, ...] = (),
    **fields: Any,
) -> Any:
    """Declare a view whose arguments are ints (with `function=False, method=False`: ints or tuples of ints).
    `fields` are further fields of the record."""
    op_name = name or fn.__name__
    impl = ViewOp(op_name, fn, backward, quirks.label or camel(op_name) + "Backward0")
    if function or method:
        make: Callable[..., Any] = functools.partial(_public_face, impl, fn)
    else:
        make = functools.partial(_internal_face, impl)
    face = make()
    op = Op(
        op_name, "view", face, ("torch",) if function else (), face if method else None, impl=impl, aliases=aliases,
        quirks=quirks, **fields,
    )  # fmt: skip
    op.doc = fn.__doc__ or ""
    dress(face, op, fn, lambda: make(()))
    face.__wrapped__ = fn
    return register(op).function


geometry_view: Any = takes_options(declare_geometry_view)


def _internal_face(impl: ViewOp, active: Any = _active) -> Any:
    """Return the function for callers inside the library, which have checked the arguments."""

    @with_attributes
    def face(input: Tensor, *args: Any) -> Tensor:
        if active:
            return _intercept(face.op, face, (input, *args), {})
        try:
            return impl.place(input, args, args, 0)
        except Exception as problem:
            instead = recourse(face, problem, (input, *args), {})
            if instead is None:
                raise
        return instead()

    return face


def _public_face(impl: ViewOp, fn: Callable[..., Any], active: Any = _active) -> Any:
    """Return the function for users: arguments may be named, and must be ints."""
    own = parameters(fn)[1:]
    names, defaults = tuple(p.name for p in own), tuple(p.default for p in own)
    count = len(names)

    @with_attributes
    def face(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if active:
            return _intercept(face.op, face, (input, *args), kwargs)
        given = args
        try:
            if kwargs or len(args) != count:
                args = _bound(impl.name, names, defaults, args, kwargs)
            for a in args:
                if type(a) is not int:
                    args = tuple([as_int(a, impl.name, n, i + 2) for i, (n, a) in enumerate(zip(names, args))])
                    break
            return impl.place(input, args, args, 0)
        except Exception as problem:
            instead = recourse(face, problem, (input, *given), kwargs)
            if instead is None:
                raise
        return instead()

    return face


def _bound(
    name: str, names: tuple[str, ...], defaults: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    if len(args) > len(names):
        raise TypeError(f"{name}() takes {len(names) + 1} positional arguments but {len(args) + 1} were given")
    values = dict(zip(names, args))
    for key, value in kwargs.items():
        if key not in names:
            raise TypeError(f"{name}() got an unexpected keyword argument '{key}'")
        if key in values:
            raise TypeError(f"{name}() got multiple values for argument '{key}'")
        values[key] = value
    for n, default in zip(names, defaults):
        if n not in values:
            if default is NO_DEFAULT:
                raise TypeError(f'{name}() missing 1 required positional arguments: "{n}"')
            values[n] = default
    return tuple(values[n] for n in names)
