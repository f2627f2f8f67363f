"""Forward-mode derivatives: tensors that carry a tangent, which every operator pushes forward.

>>> import flambeau.autograd.forward_ad as fwAD
>>> with fwAD.dual_level():
...     y = fwAD.make_dual(flambeau.tensor(0.0), flambeau.tensor(2.0)).sin()
...     fwAD.unpack_dual(y).tangent
tensor(2.)

An open level is a mode: it sees every operator call. The tangent of a result follows from the operator's declared derivative:
a vector times the Jacobian is linear in the vector, so the derivative of that product is the Jacobian, which is multiplied
with the tangents of the operands. So every operator that can be differentiated twice has a forward derivative, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..core import modes
from ..core.batched import BatchedTensor
from ..core.graph import mode
from ..core.naming import no_attribute
from ..core.tensor import Tensor
from .engine import LinearPass, run_backward


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` returns; the tangent is None for a tensor that carries none."""

    primal: Tensor
    tangent: Tensor | None


class _Level(modes.Mode):
    """An open dual level."""

    def handle(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        found = [x for x in _tensors((args, tuple(kwargs.values()))) if tangent_of(x) is not None]
        if not found:
            return function(*args, **kwargs)
        if any(isinstance(x, BatchedTensor) for x in _tensors((args, tuple(kwargs.values())))):
            raise NotImplementedError("forward_ad does not work on tensors inside vmap: use torch.func.jvp there")
        if kwargs.get("out") is not None:
            raise RuntimeError(f"{op.name}(): functions with out=... arguments don't support forward derivatives")
        if op.name.endswith("_") and not op.name.startswith("_"):
            return _push_in_place(self, function, args, kwargs, found)
        return _push(self, function, args, kwargs, found)


_open: list[_Level] = []


def tangent_of(x: Tensor) -> Tensor | None:
    """The tangent that x carries at the open level."""
    held = x.__dict__.get("_tangent") if _open else None
    return held[1] if held is not None and held[0] is _open[-1] else None


def _tensors(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    return [t for part in tree for t in _tensors(part)] if isinstance(tree, (tuple, list)) else []


def _replaced(tree: Any, new: dict[int, Tensor]) -> Any:
    if isinstance(tree, Tensor):
        return new.get(id(tree), tree)
    if type(tree) is dict:
        return {k: _replaced(v, new) for k, v in tree.items()}
    return type(tree)(_replaced(v, new) for v in tree) if type(tree) in (tuple, list) else tree


def _push(level: _Level, function: Callable, args: tuple, kwargs: dict, duals: list[Tensor]) -> Any:
    """Call the operator, and give its results their tangents."""
    records = mode.enabled and any(x.requires_grad for x in _tensors((args, tuple(kwargs.values()))))
    before, mode.enabled = mode.enabled, True
    try:
        starts = {id(x): x.view_as(x) if records and x.requires_grad else _leaf(x) for x in duals}
        result = function(*_replaced(args, starts), **_replaced(kwargs, starts))
        outputs = [t for t in _tensors(result) if t.requires_grad]
        tangents = _tangents(outputs, [(starts[id(x)], tangent_of(x)) for x in duals], records)
    finally:
        mode.enabled = before
    new = {}
    for out, tangent in zip(outputs, tangents):
        new[id(out)] = carrier = out if records else out.detach()
        carrier.__dict__["_tangent"] = (level, tangent)
        for x in duals:
            if (
                x._storage is carrier._storage
            ):  # a view: neither may be changed now, the other's tangent would not follow
                x.__dict__["_shared"] = carrier.__dict__["_shared"] = level
    if isinstance(result, tuple) and type(result) is not tuple:  # a named result, made of one iterable
        return type(result)(new.get(id(t), t) for t in result)
    return _replaced(result, new)


def _leaf(x: Tensor) -> Tensor:
    return x.detach().requires_grad_()


def _tangents(outputs: list[Tensor], starts: list[tuple], create_graph: bool) -> list[Tensor]:
    """For each output the Jacobian times the tangents."""
    if not outputs:
        return []
    points, vectors = [p for p, _ in starts], [v for _, v in starts]
    seeds = [o.new_ones(o.shape).requires_grad_() for o in outputs]
    rows = run_backward(outputs, seeds, True, True, points, False, LinearPass)
    reached = [(r, v) for r, v in zip(rows, vectors) if r is not None and r.requires_grad]
    found: list = [None] * len(seeds)
    if reached:
        found = run_backward([r for r, _ in reached], [v for _, v in reached], False, create_graph, seeds, False)
    return [o.new_zeros(o.shape) if f is None else f for o, f in zip(outputs, found)]


def _push_in_place(level: _Level, function: Callable, args: tuple, kwargs: dict, duals: list[Tensor]) -> Any:
    target = args[0]
    if target.__dict__.get("_shared") is level:
        raise NotImplementedError(
            "forward_ad: a tensor that carries a tangent cannot be changed in place through a view, nor while it has views"
        )

    def out_of_place(first: Tensor, *rest: Any, **options: Any) -> Any:
        return function(first.clone(), *rest, **options)

    before, mode.enabled = mode.enabled, False
    try:
        result = _push(level, out_of_place, args, kwargs, duals)
    finally:
        mode.enabled = before
    changed = function(*args, **kwargs)
    target.__dict__["_tangent"] = (level, tangent_of(result))
    return changed


# -- PyTorch's interface ------------------------------------------------------------------------------------------------


def enter_dual_level() -> int:
    """Open a level and return its number."""
    if _open:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    level = _Level()
    _open.append(level)
    level.__enter__()
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Close the level: tensors carry tangents no longer."""
    if not _open:
        raise RuntimeError("Dual level must be a positive number.")
    if level not in (None, 0):
        raise RuntimeError(
            f"Trying to exit a forward AD level that was not the last one that was created: expected 0, got {level}."
        )
    _open.pop().__exit__()


class dual_level:  # noqa: N801  PyTorch's name
    """`with dual_level():` tensors may carry tangents."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: Any) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A view of `tensor` that carries `tangent`."""
    if not _open:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    for what, x in (("primal", tensor), ("tangent", tangent)):
        if not (x.dtype.is_floating_point or x.dtype.is_complex):
            raise ValueError(f"Expected {what} to be floating point or complex, but got: {x.dtype}")
    if tangent_of(tensor) is not None:
        raise RuntimeError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the same level 0 is not supported."
        )
    if tensor.shape != tangent.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not"
            f" supported. Tensor is of size {list(tensor.shape)} while the given forward gradient is of size"
            f" {list(tangent.shape)}."
        )
    dual = tensor.view_as(tensor)
    dual.__dict__["_tangent"] = (_open[-1], tangent)
    return dual


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """(the tensor without its tangent, the tangent or None)."""
    tangent = tangent_of(tensor)
    if tangent is None:
        return UnpackedDualTensor(tensor, None)
    _open[-1].__exit__()  # the primal is a plain view
    try:
        return UnpackedDualTensor(tensor.view_as(tensor), tangent)
    finally:
        _open[-1].__enter__()


__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


def __getattr__(name: str) -> Any:
    """`_current_level` is how programs written for PyTorch ask whether a level is open: its number, or -1."""
    if name == "_current_level":
        return len(_open) - 1
    raise no_attribute(__name__, name)
