"""Total norm of DTensors, with one reduction for all of them."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from ...ops import namespace
from ...ops.reduce.norms import vector_norm
from ._dtensor_spec import DTensorSpec, meta_of
from ._redistribute import redistribute_local_tensor
from .placement_types import Partial, Replicate, _is_shard_like

_torch = namespace("torch")


def total_norm(tensors: list[Any], kind: float) -> Any:
    """Return the norm of all tensors as one vector: a replicated DTensor on their mesh, if they are distributed."""
    parts: dict[tuple, list[Tensor]] = {}
    plain: list[Tensor] = []
    for tensor in tensors:
        if not hasattr(tensor, "_local_tensor"):
            plain.append(tensor)
            continue
        if any(p.is_partial() for p in tensor.placements):
            tensor = tensor.redistribute(placements=[Replicate() if p.is_partial() else p for p in tensor.placements])
        cut = tuple(_is_shard_like(p) for p in tensor.placements)
        parts.setdefault((tensor.device_mesh, cut), []).append(tensor._local_tensor)
    norms = [_combined(locals_, kind, mesh, cut) for (mesh, cut), locals_ in parts.items()]
    norms += [vector_norm(t, kind) for t in plain]
    mesh = next(iter(parts))[0]
    total = norms[0] if len(norms) == 1 else vector_norm(_torch["stack"](norms), kind)
    return type(next(t for t in tensors if hasattr(t, "_local_tensor")))(
        total, _spec(mesh, [Replicate()] * mesh.ndim, total)
    )


def _spec(mesh: Any, placements: list[Any], value: Tensor) -> DTensorSpec:
    return DTensorSpec(mesh, tuple(placements), meta_of(value.shape, (), value.dtype))


def _combined(locals_: list[Tensor], kind: float, mesh: Any, cut: tuple[bool, ...]) -> Tensor:
    """Return the norm of tensors with the same placement on one mesh."""
    held = [vector_norm(t, kind) for t in locals_ if t.numel()]
    own = vector_norm(_torch["stack"](held), kind) if held else locals_[0].new_zeros(())
    if not any(cut):
        return own
    largest = kind == float("inf")
    value = own if largest else own**kind
    terms = [Partial("max" if largest else "sum") if c else Replicate() for c in cut]
    value = redistribute_local_tensor(value, _spec(mesh, terms, value), _spec(mesh, [Replicate()] * mesh.ndim, value))
    return value if largest else value ** (1.0 / kind)
