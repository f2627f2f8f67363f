"""Forward-mode derivatives: tensors that carry a tangent, which every operator pushes forward.

>>> import flambeau.autograd.forward_ad as fwAD
>>> with fwAD.dual_level():
...     y = fwAD.make_dual(flambeau.tensor(0.0), flambeau.tensor(2.0)).sin()
...     fwAD.unpack_dual(y).tangent
tensor(2.)

An open level is a mode that intercepts every operator call. The tangent of a result follows from the operator's declared derivative: a vector
times the Jacobian is linear in the vector, so the derivative of that product is the Jacobian, which is multiplied with the tangents of the
operands. So every operator that can be differentiated twice has a forward derivative, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.aliases import AnyFunction
from ..core.batched import BatchedTensor
from ..core.graph import grad_mode
from ..core.naming import no_attribute
from ..core.tensor import Tensor
from ..core.uninterrupted import uninterrupted
from .duals import DualLevel, carry, give, laid_out_like, levels_closed, open_levels, tangent_of
from .engine import LinearPass, run_backward
from .grad_mode import enable_grad


class UnpackedDualTensor(NamedTuple):
    """The result of `unpack_dual`; the tangent is None for a tensor without one."""

    primal: Tensor
    tangent: Tensor | None


class _Level(DualLevel):
    """Mode that intercepts every operator call while the level is open."""

    def handle(self, op: Any, function: AnyFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = _tensors((args, tuple(kwargs.values())))
        out = kwargs.get("out")
        if out is not None and any(tangent_of(x) is not None for x in (*given, *_tensors(out))):
            raise RuntimeError(
                f"{op.name}(): Trying to use forward AD with an out= function: functions with out=... arguments don't support"
                " forward derivatives"
            )
        found = list({id(x): x for x in given if tangent_of(x) is not None}.values())  # each once: x * x
        if not found:
            return function(*args, **kwargs)
        if any(isinstance(x, BatchedTensor) for x in given):
            raise NotImplementedError("forward_ad does not work on tensors inside vmap: use torch.func.jvp there")
        if op.in_place:
            return _push_in_place(function, args, kwargs, found)
        return _push_forward(function, args, kwargs, found)


def _tensors(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    return [t for part in tree for t in _tensors(part)] if isinstance(tree, (tuple, list)) else []


def _replace_tensors(tree: Any, new: dict[int, Tensor]) -> Any:
    if isinstance(tree, Tensor):
        return new.get(id(tree), tree)
    if type(tree) is dict:
        return {k: _replace_tensors(v, new) for k, v in tree.items()}
    return type(tree)(_replace_tensors(v, new) for v in tree) if type(tree) in (tuple, list) else tree


def _push_forward(function: AnyFunction, args: tuple[Any, ...], kwargs: dict[str, Any], duals: list[Tensor]) -> Any:
    """Call the operator, and set the tangents of its results."""
    records = grad_mode.enabled and any(x.requires_grad for x in _tensors((args, tuple(kwargs.values()))))
    with enable_grad():
        starts = {id(x): x.view_as(x) if records and x.requires_grad else x.detach().requires_grad_() for x in duals}
        result = function(*_replace_tensors(args, starts), **_replace_tensors(kwargs, starts))
        outputs = [t for t in _tensors(result) if t.requires_grad]
        viewed = next((x for x in duals for t in outputs if t._storage is x._storage), None)
        tangents = [] if viewed is not None else _tangents(outputs, starts, duals, records)
    if viewed is not None:
        return _push_view(function, args, kwargs, viewed)
    for out in _tensors(result):
        if any(out._storage is x._storage for x in duals):  # detached
            carry(out, None)
    new = {}
    for out, tangent in zip(outputs, tangents):
        new[id(out)] = carrier = out if records else out.detach()
        carry(carrier, laid_out_like(tangent, carrier))
    if isinstance(result, tuple) and type(result) is not tuple:  # a named result, made of one iterable
        return type(result)(new.get(id(t), t) for t in result)
    return _replace_tensors(result, new)


def _push_view(function: AnyFunction, args: tuple[Any, ...], kwargs: dict[str, Any], viewed: Tensor) -> Any:
    """Set the tangents of views: the same views of the tangent."""
    tangent = tangent_of(viewed)
    assert tangent is not None
    result = function(*args, **kwargs)
    parts = function(*_replace_tensors(args, {id(viewed): tangent}), **_replace_tensors(kwargs, {id(viewed): tangent}))
    for out, part in zip(_tensors(result), _tensors(parts)):
        carry(out, part)
    return result


def _tangents(
    outputs: list[Tensor], starts: dict[int, Tensor], duals: list[Tensor], create_graph: bool
) -> list[Tensor]:
    """Return the product of the Jacobian and the tangents for each output."""
    if not outputs:
        return []
    points: list[Any] = [starts[id(x)] for x in duals]
    vectors: list[Any] = [tangent_of(x) for x in duals]
    seeds = [o.new_ones(o.shape).requires_grad_() for o in outputs]
    rows = run_backward(outputs, seeds, True, True, points, False, LinearPass)
    reached = [(r, v) for r, v in zip(rows, vectors) if r is not None and r.requires_grad]
    found: list[Any] = [None] * len(seeds)
    if reached:
        found = run_backward([r for r, _ in reached], [v for _, v in reached], False, create_graph, seeds, False)
    return [o.new_zeros(o.shape) if f is None else f for o, f in zip(outputs, found)]


def _push_in_place(function: AnyFunction, args: tuple[Any, ...], kwargs: dict[str, Any], duals: list[Tensor]) -> Any:
    def out_of_place(first: Tensor, *rest: Any, **options: Any) -> Any:
        return function(first.clone(), *rest, **options)

    pushed = _push_forward(out_of_place, args, kwargs, duals)
    tangent = tangent_of(pushed)
    changed = function(*args, **kwargs)
    give(args[0], pushed.new_zeros(pushed.shape) if tangent is None else tangent)
    return changed


# -- PyTorch's interface ------------------------------------------------------------------------------------------------


def enter_dual_level() -> int:
    """Open a level and return its number."""
    if open_levels:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    level = _Level()
    open_levels.append(level)
    level.__enter__()
    return 0


@uninterrupted
def exit_dual_level(*, level: int | None = None) -> None:
    """Close the level: tensors lose their tangents."""
    if not open_levels:
        raise RuntimeError("Dual level must be a positive number.")
    if level not in (None, 0):
        raise RuntimeError(
            f"Trying to exit a forward AD level that was not the last one that was created: expected 0, got {level}."
        )
    closed = open_levels[-1]
    closed.__exit__()
    del open_levels[-1]
    closed.close()


class dual_level:  # noqa: N801  PyTorch's name
    """Context manager: tensors may carry tangents inside."""

    def __enter__(self) -> int:
        return enter_dual_level()

    @uninterrupted
    def __exit__(self, *exc: Any) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """Return a view of `tensor` that carries `tangent`."""
    if not open_levels:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    for what, x in (("primal", tensor), ("tangent", tangent)):
        if not (x.dtype.is_floating_point or x.dtype.is_complex):
            raise ValueError(f"Expected {what} to be floating point or complex, but got: {x.dtype}")
    if tangent_of(tensor) is not None or tangent_of(tangent) is not None:
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
    carry(dual, laid_out_like(tangent, dual))
    return dual


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """Return (the tensor without its tangent, the tangent or None)."""
    tangent = tangent_of(tensor)
    if tangent is None:
        return UnpackedDualTensor(tensor, None)
    with levels_closed():
        primal = tensor.view_as(tensor)
    carry(primal, None)
    return UnpackedDualTensor(primal, tangent)


__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return `_current_level`, by which programs written for PyTorch test whether a level is open: its number, or -1."""
        if name == "_current_level":
            return len(open_levels) - 1
        raise no_attribute(__name__, name)
