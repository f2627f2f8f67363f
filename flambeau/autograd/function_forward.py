"""Functions in forward mode: tangents of the results are computed by the user's own `jvp`."""

from __future__ import annotations

from typing import Any

from ..core.graph import Node, gradient_edge
from ..core.tensor import Tensor, empty
from ..ops.creation.filled import fill_raw
from .duals import carry, laid_out_like, levels_closed, tangent_of


def apply_forwards(cls: Any, ctx: Any, args: tuple[Any, ...]) -> Any:
    """Call a Function some of whose arguments carry tangents."""
    tangents = [tangent_of(a) if isinstance(a, Tensor) else None for a in args]
    with levels_closed():
        result = cls._call(ctx, args)
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        dirty = {id(t) for t in ctx._dirty}
        for i, out in enumerate(outputs):
            if any(out is a for a in args) and id(out) not in dirty:  # an input returned unchanged: a new view
                outputs[i] = out.view_as(out)
        given = [_zeros(a, t) if ctx.materialize_grads else t for a, t in zip(args, tangents)]
        versions = [None if t is None else t._version for t in given]
        found = _push_tangents(cls, ctx, given)
    if len(found) != len(outputs):
        raise RuntimeError(
            f"Function's jvp returned an invalid number of forward gradients (expected {len(outputs)} but got"
            f" {len(found)})"
        )
    for a, t, version in zip(args, given, versions):
        if (
            any(a is d for d in ctx._dirty)
            and t is not None
            and (not any(t is f for f in found) or t._version == version)
        ):
            raise RuntimeError(
                "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is modifying an"
                " input inplace, then the jvp function must modify the corresponding gradient inplace."
            )
    for i, (out, tangent) in enumerate(zip(outputs, found)):
        _set_tangent(ctx, args, given, out, tangent, i)
    return tuple(outputs) if isinstance(result, (tuple, list)) else outputs[0]


def _push_tangents(cls: Any, ctx: Any, tangents: list[Any]) -> list[Any]:
    ctx._pushing_forward = True
    try:
        pushed = cls.jvp(ctx, *tangents)
    finally:
        ctx._pushing_forward = False
    return list(pushed) if isinstance(pushed, (tuple, list)) else [pushed]


class Transposed(Node):
    """The product of gradients with the Jacobian of a Function that has a jvp. Only its derivative with respect to the gradients is needed:
    the Jacobian times tangents, which jvp computes. So its value is left at zero."""

    def __init__(self, of: Any, grads: list[Any]):
        super().__init__(of.label, tuple(gradient_edge(g) if g is not None else None for g in grads))
        self.of, self.output_count = of, len(of.edges)

    def share(self, index: int) -> Tensor:
        share = self._zeros_for_input(index)
        share._set_history(self, index)
        return share

    def _zeros_for_input(self, index: int) -> Tensor:
        shape, dtype, device = self.of.inputs[index]
        return fill_raw(empty(shape, dtype, device), 0)

    def apply(self, grads: list[Any]) -> tuple[Any, ...]:
        ctx = self.of.ctx
        tangents: list[Any] = [None] * len(ctx.needs_input_grad)
        for k, (position, g) in enumerate(zip(self.of.positions, grads)):
            tangents[position] = self._zeros_for_input(k) if g is None and ctx.materialize_grads else g
        return tuple(_push_tangents(self.of.cls, ctx, tangents))


def _zeros(argument: Any, tangent: Tensor | None) -> Tensor | None:
    """Return the tangent that jvp gets for a tensor, zeros for one that carries none."""
    if tangent is not None or not _is_differentiable(argument):
        return tangent
    return argument.detach().new_zeros(argument.shape)


def _is_differentiable(x: Any) -> bool:
    return isinstance(x, Tensor) and (x.dtype.is_floating_point or x.dtype.is_complex)


def _set_tangent(ctx: Any, args: tuple[Any, ...], given: list[Any], out: Any, tangent: Any, index: int) -> None:
    """Set the tangent of an output to the result of jvp."""
    if not _is_differentiable(out) or any(out is n for n in ctx._non_differentiable):
        if tangent is not None:
            raise RuntimeError(
                f"A custom Function's jvp returned a forward gradient for output {index}, which is not differentiable. You should"
                " return None at that position instead."
            )
        return
    if tangent is None:
        return
    if not isinstance(tangent, Tensor) or tangent.shape != out.shape:
        what = list(tangent.shape) if isinstance(tangent, Tensor) else type(tangent).__name__
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not"
            f" supported. Output {index} is of size {list(out.shape)} while the jvp of the Function returned {what}."
        )
    if out._base is not None and not any(out is t for t in ctx._dirty):
        _check_view(args, given, out, tangent)
    carry(out, laid_out_like(tangent, out))


def _check_view(args: tuple[Any, ...], given: list[Any], out: Tensor, tangent: Tensor) -> None:
    """Check that a view of an input has a view of that input's tangent."""
    for a, t in zip(args, given):
        if not isinstance(a, Tensor) or t is None or a._storage is not out._storage:
            continue
        what = "A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a view"
        if tangent._base is None:
            raise RuntimeError(what + ".")
        if tangent._base is not (t if t._base is None else t._base):
            of = "of the given grad input." if t._base is None else "of the same base as the given grad input."
            raise RuntimeError(f"{what} {of}")
