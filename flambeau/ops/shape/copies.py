"""`*_copy`: the elements of a view, copied into memory of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.layout import contiguous_format, wrap_dim
from ...core.tensor import Tensor
from ..creation.convert import clone, detach
from ..creation.memory import alias
from ..machinery.declare import composite
from ..machinery.shown import documented
from .complex_views import view_as_complex, view_as_real
from .dimensions import expand, permute, select, slice_dim, squeeze, t, transpose, unsqueeze
from .parts import unfold
from .reshape import view_
from .strided import as_strided


def _copied(name: str, see: Callable[..., Any]) -> Any:
    def copy(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return clone(see(input, *args, **kwargs), memory_format=contiguous_format)

    copy.__doc__ = f"A copy of what {name.removesuffix('_copy')} shows."
    face = composite(copy, name=name, method=False, out="exact")
    face.__signature__ = documented(see).replace(return_annotation="Tensor")
    return face


def slice_of(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """Return a view of part of a dimension."""
    if not input.shape:
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    d = wrap_dim(dim, len(input.shape))
    first, last, _ = slice(start, end).indices(input.shape[d])
    return slice_dim(input, d, first, max(first, last), step)


for _name, _see in {
    "alias_copy": alias, "detach_copy": detach, "as_strided_copy": as_strided, "expand_copy": expand, "permute_copy": permute,
    "select_copy": select, "slice_copy": slice_of, "squeeze_copy": squeeze, "t_copy": t, "transpose_copy": transpose,
    "unfold_copy": unfold, "unsqueeze_copy": unsqueeze, "view_as_complex_copy": view_as_complex,
    "view_as_real_copy": view_as_real, "view_copy": view_,
}.items():  # fmt: skip
    _copied(_name, _see)
