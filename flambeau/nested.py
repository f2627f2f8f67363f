"""`torch.nested`: tensors whose rows have different sizes: in any dimension, or in the first one (`layout=torch.jagged`), which more
operators take.

>>> t = nested_tensor([torch.ones(2, 3), torch.zeros(1, 3)], layout=torch.jagged)
>>> t.sum(dim=1)
tensor([[2., 2., 2.],
        [0., 0., 0.]])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .core import dtype as dt
from .core import naming as _naming
from .core.layout import jagged, layout, strided
from .core.tensor import Tensor
from .ops.creation.construct import as_tensor, from_data
from .ops.creation.ranges import arange
from .ops.kinds import hold
from .ops.kinds.nested import check_offsets, from_rows, from_values
from .ops.kinds.strided_nested import packed
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
    if any(row.dim() == 0 for row in rows):
        raise RuntimeError("Found a 0-dim tensor: the rows of a nested tensor have at least one dimension")
    if len({(row.shape[1:], row.dtype, row.device) for row in rows}) > 1:
        raise RuntimeError(
            "The rows of a jagged tensor differ in their first dimension only, and have one dtype and device; got "
            + ", ".join(f"{list(row.shape)} {row.dtype}" for row in rows)
        )
    return rows


def _of_one_rank(rows: list[Tensor]) -> list[Tensor]:
    for i, row in enumerate(rows):
        if row.dim() != rows[0].dim():
            raise RuntimeError(
                "All Tensors given to nested_tensor must have the same dimension. Found dimension"
                f" {row.dim()} for Tensor at index {i} and dimension {rows[0].dim()} for Tensor at index 0."
            )
    return [row.to(device=rows[0].device, dtype=rows[0].dtype) for row in rows]


def _joined(rows: list[Tensor], dtype: Any, device: Any, chosen: layout | None) -> Any:
    rows = [row.to(device=device or row.device, dtype=dtype or row.dtype) for row in rows]
    return from_rows(_checked(rows)) if _is_jagged(chosen) else packed(_of_one_rank(rows))


def nested_tensor(
    tensor_list: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Any:  # fmt: skip
    """A new nested tensor, a leaf, with copies of the rows in `tensor_list`."""
    if not isinstance(tensor_list, (list, tuple)):
        raise TypeError("Only lists (List[Tensor] and List[List...[Scalar]]) are accepted in nested_tensor")
    rows = [row.detach() if isinstance(row, Tensor) else from_data(row, dtype, Tensor().device) for row in tensor_list]
    return _joined(rows, dtype, device, layout).requires_grad_(requires_grad)


def as_nested_tensor(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> Any:
    """A nested tensor of rows, or of the elements of a batch; gradients flow back to them."""
    if isinstance(ts, Tensor) and ts.is_nested:
        if ts.layout is not (layout or strided):
            raise RuntimeError("as_nested_tensor(): Converting between nested tensor layouts is not supported")
        return ts.to(device=device or ts.device, dtype=dtype or ts.dtype)
    if isinstance(ts, Tensor) and ts.dim() < 2:
        raise RuntimeError("as_nested_tensor(): Expected tensor argument to have dim() > 1")
    return _joined(list(ts.unbind(0)) if isinstance(ts, Tensor) else list(ts), dtype, device, layout)


def nested_tensor_from_jagged(
    values: Tensor, offsets: Tensor | None = None, lengths: Tensor | None = None, jagged_dim: int | None = None,
    min_seqlen: int | None = None, max_seqlen: int | None = None,
) -> Any:  # fmt: skip
    """A nested tensor over `values`, whose rows begin at `offsets` or have `lengths`; with both there are gaps between them."""
    if jagged_dim not in (None, 1):
        raise NotImplementedError("nested_tensor_from_jagged: the ragged dimension is the first one of the values")
    if offsets is not None and lengths is not None:
        check_offsets(offsets, values.shape[0], lengths)
        return from_values(values, offsets, lengths)
    if offsets is None:
        if lengths is None:
            raise RuntimeError("nested_tensor_from_jagged(): At least one of offsets or lengths is required.")
        offsets = cat([lengths.new_zeros(1, dtype=dt.int64), lengths.cumsum(0)])
    check_offsets(offsets, values.shape[0])
    return from_values(values, offsets)


def like_rows(like: Any, rows: list[Tensor]) -> Any:
    """A nested tensor of rows as long as those of `like`; in the jagged layout with the same ragged size, so that both can be added."""
    if like.layout is jagged and like.lengths() is None:
        return hold(cat(rows), like._mold())
    return _joined(rows, None, None, like.layout)


def masked_select(tensor: Tensor, mask: Tensor) -> Any:
    """The elements of each row of `tensor` that `mask` selects, as a nested tensor."""
    if tensor.layout is jagged or tensor.dim() != 2:
        raise RuntimeError(
            f"masked_select requires a strided tensor of 2 dimensions, got {tensor.layout} of {tensor.dim()}"
        )
    if mask.shape != tensor.shape:
        raise RuntimeError(f"the mask has shape {list(mask.shape)}, the tensor {list(tensor.shape)}")
    return nested_tensor_from_jagged(tensor.masked_select(mask), lengths=mask.sum(1))


def narrow(tensor: Tensor, dim: int, start: Any, length: Any, layout: Any = None) -> Any:
    """A nested tensor over a part of each element of a batch: `length` elements of dimension 1 from `start` on, numbers or a tensor with one
    for each."""
    if _is_jagged(layout):
        if dim != 1:
            raise RuntimeError(f"jagged layout only supports dim=1, got {dim}")
        count, longest = tensor.shape[:2]
        begins, lengths = (as_tensor(n, dtype=dt.int64).expand(count) for n in (start, length))
        if any(not 0 <= a <= a + n <= longest for a, n in zip(begins.tolist(), lengths.tolist())):
            raise RuntimeError(f"start {start} and length {length} exceed the size {longest} of dimension 1")
        starts = begins + arange(0, count * longest, longest)
        return from_values(tensor.flatten(0, 1), cat([starts, (starts + lengths)[-1:]]), lengths.contiguous())
    if not isinstance(start, int) or not isinstance(length, int):
        raise RuntimeError("start and length must be integers for the strided layout NT impl")
    return as_nested_tensor(tensor).narrow(dim, start, length)


def to_padded_tensor(input: Any, padding: float, output_size: Any = None) -> Tensor:
    """The rows as one plain tensor, filled up with `padding`."""
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
    """A nested tensor of rows, and its offsets; those given may be shared with others of the same rows."""
    made = _joined(list(tensors), dtype, device, jagged)
    return (made, made.offsets()) if offsets is None else (from_values(made.values(), offsets), offsets)


def _jagged_from_lengths(tensor: Tensor, starts: Tensor, lengths: Tensor) -> tuple[Any, Tensor, Tensor | None]:
    made = narrow(tensor, 1, starts, lengths, layout=jagged)
    return made, made.offsets(), made.lengths()


def _view(values: Tensor, offsets: Tensor, lengths: Tensor | None = None, ragged_idx: int = 1, **sizes: Any) -> Any:
    return nested_tensor_from_jagged(values, offsets, lengths, ragged_idx)


class _ViewNestedFromBuffer:
    """A function with PyTorch's name for it: `ViewNestedFromBuffer.apply(values, offsets)`."""

    @staticmethod
    def apply(values: Tensor, offsets: Tensor, metadata_cache: Any = None) -> Any:
        return from_values(values, offsets)
