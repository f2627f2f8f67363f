"""Operators on tensors that hold their elements in another one (`core.held`): how their calls are dispatched.

Operators run on the values (`on_values`) if their records allow it: the derivative is then the operator's own, between two conversions that
autograd records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core import naming
from ...core.graph import grad_mode, unrecorded
from ...core.held import HeldOperand, HeldTensor
from ...core.layout import wrap_dim
from ...core.pytree import tree_flatten, tree_map
from ...core.tensor import Tensor
from ..machinery.declare import composite
from ..machinery.inplace import check_history_writable, view_through
from ..machinery.quirks import Quirks
from ..machinery.record import Batched, Op, lookup
from ..machinery.sparse_dispatch import sparse_primitive

# The function that makes a call, by kind.
HOMES = {kind: f"ops.kinds.{kind}" for kind in ("mkldnn", "nested", "strided_nested")}


def _anything(bound: dict[str, Any]) -> None:
    """Accept every call."""


def mkldnn_takes(*keys: str, check: Callable[[dict[str, Any]], None] = _anything) -> None:
    """Declare in the records of operators that they accept tensors in oneDNN's layout; `check` gets a call in canonical form and raises for
    those that PyTorch refuses."""
    for key in keys:
        lookup(key).forms["mkldnn"] = check


def held_call(problem: HeldOperand, face: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an operator on tensors of the kind that it found, or refuse: an operator composed of this one may have a form."""
    return naming.above(HOMES[problem.tensor.kind]).call(face, args, kwargs, problem)


@composite(function=False)
def to_mkldnn(self: Tensor, dtype: Any = None) -> Tensor:
    """A copy of a dense tensor in oneDNN's layout."""
    return naming.above("ops.kinds.mkldnn").to_mkldnn(self, dtype)


def base_record(op: Op) -> Op:
    """Return the record that an in-place form belongs to; an operator's own record for others."""
    return op.plain or op if not op.key else op


def call_by_record(
    kind: type[HeldTensor], face: Any, args: tuple[Any, ...], kwargs: dict[str, Any], problem: HeldOperand, *,
    elementwise: Callable[..., Any], reduced: Callable[..., Any], along: Callable[..., Any],
) -> Any:  # fmt: skip
    """Run an operator on tensors of one kind by the form in its record, or else by the function for operators that compute each element,
    reduce, or run along a dimension. An operator whose record declares none of these is refused: one that is composed of it may have a form."""
    op = base_record(face.op)
    given = tree_flatten((args, kwargs))[0]
    like = next((x for x in given if isinstance(x, kind)), None)
    batching = op.batching.form if isinstance(op.batching, Batched) else op.batching
    if like is not None:
        chosen = op.forms.get(kind.kind)
        if chosen is None and (op.kind == "pointwise" or op.formula is not None):
            chosen = elementwise
        chosen = chosen or (reduced if op.kind == "reduction" else along if batching == "along" else None)
        if chosen is not None:
            result = chosen(face, op, args, kwargs, like)
            for t in tree_flatten(result)[0]:
                shared = isinstance(t, HeldTensor) and t._base is None and t._storage is like._storage
                if shared and all(t is not x for x in given):
                    as_view(t, like)
            return result
    raise HeldOperand(problem.tensor, problem.reason or f"aten.{op.name}.default: not implemented for nested tensors")


def deep_copy(self: Any, memo: dict[int, Any]) -> Any:
    """Return a deep copy of a leaf."""
    if id(self) not in memo:
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment."
            )
        memo[id(self)] = self._mold()(self._value.detach().clone()).requires_grad_(self.requires_grad)
    return memo[id(self)]


def sizes_given(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the sizes in a call that takes them one by one or as a sequence."""
    return args[1:] if len(args) != 2 or isinstance(args[1], int) else tuple(args[1])


def dims_given(args: tuple[Any, ...], kwargs: dict[str, Any], rank: int) -> list[int]:
    """Return the dimensions in a call that takes them one by one or as a sequence."""
    return [wrap_dim(d, rank) for d in sizes_given(args) or kwargs.get("dims", ())]


# -- the way to the value and back ------------------------------------------------------------------------------------------------------


_value_of = sparse_primitive(
    lambda input, mold: input._value._bare_alias(),
    {"input": lambda g, mold: g if isinstance(g, HeldTensor) else hold(g, mold)},
    Quirks(label="ToDenseBackward0"),
    name="value_of_held",
)

hold: Callable[..., Any] = sparse_primitive(
    lambda value, mold: mold(value._bare_alias()),
    {"value": lambda g, mold: value_of(g._arranged(mold)) if isinstance(g, HeldTensor) else g},
    Quirks(label="HoldBackward0"),
    name="hold_value",
)


def value_of(t: HeldTensor) -> Tensor:
    """Return the plain tensor that holds the elements, with the history of `t`."""
    return _value_of(t, t._mold())


def held_as(value: Tensor, mold: Callable[[Tensor], HeldTensor]) -> Any:
    """Return `value` in a tensor that `mold` makes. Its history shows the operator that made the value."""
    label = None if value.grad_fn is None else value.grad_fn.name()
    return relabelled(hold(value, mold), label)


def relabelled(t: Any, label: str | None) -> Any:
    """Return the tensor `t` with `label` as the last operator of its history."""
    if label is not None and t.grad_fn is not None:
        t.grad_fn.label = label
    return t


def as_view(t: Any, of: Tensor) -> Any:
    """Mark the tensor `t`, which shares the memory of another one, as a view of it, and return it: changes of either become part of both
    histories."""
    value, mold = t._value, t._mold()
    place = (value.shape, value._strides, value._offset, value.dtype)
    t._base, meta = of if of._base is None else of._base, t._ensure_autograd()
    meta.view_fn = lambda base: hold(view_through(_plain(base), *place), mold)
    meta.view_version = t._storage.version
    return t


def _plain(t: Tensor) -> Tensor:
    return value_of(t) if isinstance(t, HeldTensor) else t


def holders(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[HeldTensor]:
    """Return the tensors among the arguments that hold others."""
    return [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, HeldTensor)]


def written_by(face: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the argument that a call writes into, that of an in-place form or `out=`; None if there is none."""
    return args[0] if face.op.in_place and args else kwargs.get("out")


def on_values(face: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Callable[[Tensor], Any]) -> Any:
    """Run an operator on the values; `result` wraps each resulting tensor. An operator that writes into one of the tensors writes into its
    value."""
    written = written_by(face, args, kwargs)
    if isinstance(written, HeldTensor):
        return _written(written, face, args, kwargs)
    inner = tree_map(lambda x: value_of(x) if isinstance(x, HeldTensor) else x, (args, kwargs))
    found = face(*inner[0], **inner[1])
    return tree_map(lambda x: result(x) if isinstance(x, Tensor) else x, found)


def _written(target: Any, face: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Write an operator's result into the value of a tensor, which takes over the result's history."""
    check_history_writable(target)
    root: Any = target if target._base is None else target._base
    whole = None
    place = target._value
    if grad_mode.enabled and any(x.requires_grad for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)):
        if isinstance(root, HeldTensor):
            whole = value_of(root).clone()
            if whole._strides != root._value._strides:
                raise RuntimeError(
                    "a nested tensor whose values are spread in memory cannot be changed in place: clone() it"
                )
        first = 0 if whole is None else root._value._offset
        parts = (place.shape, place._strides, place._offset - first, place.dtype)
        place = whole if root is target else view_through(root if whole is None else whole, *parts)

    def inner(x: Any) -> Any:
        return place if x is target else value_of(x) if isinstance(x, HeldTensor) else x

    inner_args, inner_kwargs = tree_map(inner, (args, kwargs))
    face(*inner_args, **inner_kwargs)
    if whole is not None:
        unrecorded(root._value.copy_, whole.detach())
        made = held_as(whole, root._mold())
        root._set_history(made.grad_fn, 0)
    return target
