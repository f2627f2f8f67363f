"""Functions of plain tensors, applied to DTensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ....core import pytree
from ....core.tensor import Tensor
from .._api import DTensor

__all__ = ["local_map"]


def local_map(
    func: Callable | None = None,
    out_placements: Any = None,
    in_placements: Any = None,
    in_grad_placements: Any = None,
    device_mesh: Any = None,
    *,
    redistribute_inputs: bool = False,
) -> Callable:
    """Return a function of DTensors that calls `func` on each rank's parts; its results have `out_placements`. Arguments must have
    `in_placements`, or are redistributed with `redistribute_inputs`; `in_grad_placements` are those of their gradients."""
    if func is None:
        return functools.partial(
            local_map, out_placements=out_placements, in_placements=in_placements, in_grad_placements=in_grad_placements,
            device_mesh=device_mesh, redistribute_inputs=redistribute_inputs,
        )  # fmt: skip

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        values, shape = pytree.tree_flatten(args)
        if in_placements is not None and len(in_placements) != len(values):
            raise AssertionError(
                f"in_placements length {len(in_placements)} does not match the number of input args {len(values)}!"
            )
        mesh, spread = device_mesh, False
        for i, value in enumerate(values):
            if isinstance(value, DTensor):
                mesh, spread = mesh or value.device_mesh, True
                values[i] = _part(value, i, in_placements, in_grad_placements, redistribute_inputs)
            elif in_placements is not None and in_placements[i] is not None and not isinstance(value, Tensor):
                raise AssertionError(f"Non-Tensor input {value} should have None placements but got {in_placements[i]}")
        result = func(*pytree.tree_unflatten(values, shape), **kwargs)
        if not spread and mesh is None:
            return result
        outs, form = pytree.tree_flatten(result)
        wanted = out_placements if isinstance(out_placements, tuple) else (out_placements,) * len(outs)
        if len(outs) != len(wanted):
            raise AssertionError(
                f"local_map requires one PlacementType be provided for each output value, received {len(wanted)} out_placements but"
                f" {len(outs)} is expected!"
            )
        for i, (out, placements) in enumerate(zip(outs, wanted)):
            if hasattr(out, "requires_grad"):
                if isinstance(out, DTensor):
                    raise AssertionError(f"torch.Tensor output expected but received {type(out)}: {out}")
                if placements is not None:
                    outs[i] = DTensor.from_local(out, mesh, placements, run_check=False)
            elif placements is not None:
                raise AssertionError(f"Non-tensor output {out} does not have a placement, got {placements}")
        return pytree.tree_unflatten(outs, form)

    return mapped


def _part(value: DTensor, i: int, in_placements: Any, in_grad_placements: Any, moves: bool) -> Any:
    wanted = None if in_placements is None else in_placements[i]
    if in_placements is not None and wanted is None:
        raise AssertionError(f"DTensor input {value} expects placements but received {wanted}!")
    if wanted is not None and value.placements != tuple(wanted):
        if not moves:
            raise ValueError(
                f"arg {value} in local_map has a mismatched placements: arg placements is {value.placements} but the input"
                f" placements is {tuple(wanted)}! If redistribute_inputs is wanted, set redistribute_inputs=True to local_map."
            )
        value = value.redistribute(placements=wanted)
    return value.to_local(grad_placements=None if in_grad_placements is None else in_grad_placements[i])
