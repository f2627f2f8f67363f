"""`torch.nested`: tensors whose rows have different sizes: in any dimension, or in the first one (`layout=torch.jagged`), which more
operators take.

>>> t = nested_tensor([torch.ones(2, 3), torch.zeros(1, 3)], layout=torch.jagged)
>>> t.sum(dim=1)
tensor([[2., 2., 2.],
        [0., 0., 0.]])
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from .core import dtype as dt
from .core import naming as _naming
from .core.layout import jagged, layout, strided
from .core.tensor import Tensor
from .ops.creation.construct import as_tensor, from_data
from .ops.creation.ranges import arange
from .ops.kinds import hold
from .ops.kinds.jagged_rows import check_offsets, from_padded, from_rows, from_values
from .ops.kinds.strided_rows import packed, viewed_rows
from .ops.shape.joining import cat

__all__ = [
    "as_nested_tensor", "masked_select", "narrow", "nested_tensor", "nested_tensor_from_jagged", "to_padded_tensor",
]  # fmt: skip

__path__ = ()  # modules of gathered names are found below this one


def _is_jagged(chosen: layout | None) -> bool:
    if chosen not in (None, strided, jagged):
        raise RuntimeError(f"Specified layout is unsupported for nested tensors: {chosen}")
    return chosen is jagged


def _checked(rows: list[Tensor]) -> list[Tensor]:
    if not rows:
        raise RuntimeError("Cannot construct a nested tensor from an empty tensor list")
    if all(row.dim() == 0 for row in rows):
        raise RuntimeError("Cannot construct a nested tensor from a list of zero-dim tensors")
    for what in ("device", "dtype", "dim"):
        if len({row.ndim if what == "dim" else getattr(row, what) for row in rows}) > 1:
            raise RuntimeError(f"When constructing a nested tensor, all tensors in list must have the same {what}")
    if sum(len(set(sizes)) > 1 for sizes in zip(*(row.shape for row in rows))) > 1:
        raise RuntimeError(
            "Cannot represent given tensor list as a nested tensor with the jagged layout: the tensors may differ in one size,"
            f" got the shapes {[list(row.shape) for row in rows]}"
        )
    return rows


def _of_one_rank(rows: list[Tensor]) -> list[Tensor]:
    for i, (last, row) in enumerate(pairwise(rows)):
        if row.dim() != last.dim():
            raise RuntimeError(
                "All Tensors given to nested_tensor must have the same dimension. Found dimension"
                f" {row.dim()} for Tensor at index {i + 1} and dimension {last.dim()} for Tensor at index {i}."
            )
    return [row.to(device=rows[0].device, dtype=rows[0].dtype) for row in rows]


def _joined(rows: list[Tensor], dtype: Any, device: Any, chosen: layout | None) -> Any:
    rows = [row.to(device=device or row.device, dtype=dtype or row.dtype) for row in rows]
    return from_rows(_checked(rows)) if _is_jagged(chosen) else packed(_of_one_rank(rows))


def nested_tensor(
    tensor_list: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Any:  # fmt: skip
    """Return a new nested tensor, a leaf, with copies of the rows in `tensor_list`."""
    if not isinstance(tensor_list, (list, tuple)):
        raise TypeError("Only lists (List[Tensor] and List[List...[Scalar]]) are accepted in nested_tensor")
    rows = [row.detach() if isinstance(row, Tensor) else from_data(row, dtype, Tensor().device) for row in tensor_list]
    return _joined(rows, dtype, device, layout).requires_grad_(requires_grad)


def as_nested_tensor(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> Any:
    """Return a nested tensor of rows, or of the elements of a batch; gradients flow back to them."""
    if isinstance(ts, Tensor) and ts.is_nested:
        if ts.layout is not (layout or strided):
            raise RuntimeError("as_nested_tensor(): Converting between nested tensor layouts is not supported")
        return ts.to(device=device or ts.device, dtype=dtype or ts.dtype)
    if isinstance(ts, Tensor) and ts.dim() < 2:
        raise RuntimeError("as_nested_tensor(): Expected tensor argument to have dim() > 1")
    if isinstance(ts, Tensor):
        ts = ts.to(device=device or ts.device, dtype=dtype or ts.dtype).contiguous()
        if not _is_jagged(layout):
            return viewed_rows(ts)
        count, size = ts.shape[:2]
        starts = (
            arange(0, count * size + 1, size, device=ts.device) if size else ts.new_zeros(count + 1, dtype=dt.int64)
        )
        return from_values(ts.flatten(0, 1), starts, min_seqlen=size, max_seqlen=size)
    return _joined(list(ts), dtype, device, layout)


def nested_tensor_from_jagged(
    values: Tensor, offsets: Tensor | None = None, lengths: Tensor | None = None, jagged_dim: int | None = None,
    min_seqlen: int | None = None, max_seqlen: int | None = None,
) -> Any:  # fmt: skip
    """Return a nested tensor over `values`, whose rows begin at `offsets` or have `lengths`; with both there may be gaps between them."""
    ragged = 1 if jagged_dim is None else jagged_dim
    if ragged < 1:
        raise ValueError(f"Expected jagged_dim >=1, but got {ragged}.")
    if offsets is None:
        if lengths is None:
            raise RuntimeError("nested_tensor_from_jagged(): At least one of offsets or lengths is required.")
        offsets, lengths = cat([lengths.new_zeros(1, dtype=dt.int64), lengths.cumsum(0)]), None
    check_offsets(offsets, values.shape[ragged - 1], lengths)
    return from_values(values, offsets, lengths, ragged, min_seqlen=min_seqlen, max_seqlen=max_seqlen)


def like_rows(like: Any, rows: list[Tensor]) -> Any:
    """Return a nested tensor of rows as long as those of `like`; if jagged with the same ragged size, so that both can be added."""
    if like.layout is jagged and like.lengths() is None:
        return hold(cat(rows), like._mold())
    return _joined(rows, None, None, like.layout)


def masked_select(tensor: Tensor, mask: Tensor) -> Any:
    """Return the elements of each row of `tensor` that `mask` selects, as a nested tensor."""
    if tensor.is_nested or tensor.layout is not strided:
        raise RuntimeError(f"masked_select requires a strided tensor, got one of layout {tensor.layout}")
    mask = mask.expand(tensor.shape)
    return nested_tensor_from_jagged(tensor.masked_select(mask), lengths=mask.sum(-1).flatten())


def narrow(tensor: Tensor, dim: int, start: Any, length: Any, layout: Any = None) -> Any:
    """Return a nested tensor over a part of each element of a batch: `length` elements of dimension 1 from `start` on, numbers or a tensor
    with one for each."""
    if _is_jagged(layout):
        if dim != 1:
            raise RuntimeError(f"jagged layout only supports dim=1, got {dim}")
        count, longest = tensor.shape[:2]
        begins, lengths = (as_tensor(n, dtype=dt.int64).expand(count) for n in (start, length))
        if any(not 0 <= a <= a + n <= longest for a, n in zip(begins.tolist(), lengths.tolist())):
            raise RuntimeError(f"start {start} and length {length} exceed the size {longest} of dimension 1")
        starts, values = begins + arange(0, count * longest, longest), tensor.flatten(0, 1)
        offsets = cat([starts, (starts + lengths)[-1:]])
        known: dict[str, Any] = {"min_seqlen": int(lengths.min()), "max_seqlen": int(lengths.max())}
        if bool((starts + lengths == offsets[1:]).all()):  # without gaps
            first, last = int(offsets[0]), int(offsets[-1])
            return from_values(values[first:last], offsets - first, **known)
        return from_values(values, offsets, lengths.contiguous(), **known)
    if not isinstance(start, int) or not isinstance(length, int):
        raise RuntimeError("start and length must be integers for the strided layout NT impl")
    return as_nested_tensor(tensor).narrow(dim, start, length)


def to_padded_tensor(input: Any, padding: float, output_size: Any = None) -> Tensor:
    """Return the rows as one plain tensor, padded with `padding`."""
    if not input.is_nested:
        raise RuntimeError("to_padded_tensor expects a nested tensor")
    return input.to_padded_tensor(padding, output_size)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return _naming.submodule(__name__, name)


# -- what libraries take from PyTorch's private `nested._internal` ------------------------------------------------------


def _buffer_from_jagged(jagged: Any) -> Tensor:
    return jagged.values()


def _jagged_from_list(
    tensors: list[Tensor], offsets: Tensor | None, dtype: Any = None, device: Any = None
) -> tuple[Any, Tensor]:
    """Return a nested tensor of rows, and its offsets; given ones may be shared with others of the same rows."""
    made = _joined(list(tensors), dtype, device, jagged)
    return (made, made.offsets()) if offsets is None else (from_values(made.values(), offsets), offsets)


def _jagged_from_lengths(tensor: Tensor, starts: Tensor, lengths: Tensor) -> tuple[Any, Tensor, Tensor | None]:
    made = narrow(tensor, 1, starts, lengths, layout=jagged)
    return made, made.offsets(), made.lengths()


def _view(values: Tensor, offsets: Tensor, lengths: Tensor | None = None, ragged_idx: int = 1, **known: Any) -> Any:
    return nested_tensor_from_jagged(values, offsets, lengths, ragged_idx, **known)


def _from_padded(padded: Tensor, offsets: Tensor, ragged_idx: int = 1, sum_S: int | None = None, **known: Any) -> Any:
    return from_padded(padded, offsets, ragged_idx, **known)


class _ViewNestedFromBuffer:
    """A function with PyTorch's name for it: `ViewNestedFromBuffer.apply(values, offsets)`."""

    @staticmethod
    def apply(values: Tensor, offsets: Tensor, metadata_cache: Any = None) -> Any:
        return from_values(values, offsets)
