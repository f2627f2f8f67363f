"""`torch.nested`: tensors whose rows have different lengths, in the jagged layout (`layout=torch.jagged`).

>>> t = nested_tensor([torch.ones(2, 3), torch.zeros(1, 3)], layout=torch.jagged)
>>> t.sum(dim=1)
tensor([[2., 2., 2.],
        [0., 0., 0.]])
"""

from __future__ import annotations

from typing import Any

from .core import dtype as dt
from .core.jagged import NestedTensor
from .core.layout import jagged, layout
from .core.tensor import Tensor
from .ops.creation.construct import from_data
from .ops.kinds.nested import from_rows, from_values
from .ops.kinds.nested import to_padded_tensor as padded
from .ops.shape.joining import cat

__all__ = [
    "as_nested_tensor", "masked_select", "narrow", "nested_tensor", "nested_tensor_from_jagged", "to_padded_tensor",
]  # fmt: skip


def _check_layout(name: str, chosen: layout | None) -> None:
    if chosen is not jagged:
        raise NotImplementedError(
            f"torch.nested.{name}: Flambeau has nested tensors in the jagged layout only; pass layout=torch.jagged, or pad the rows"
            " (nn.utils.rnn.pad_sequence)"
        )


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


def nested_tensor(
    tensor_list: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Any:  # fmt: skip
    """A new nested tensor, a leaf, with copies of the rows in `tensor_list`."""
    _check_layout("nested_tensor", layout)
    rows = [row.detach() if isinstance(row, Tensor) else from_data(row, dtype, Tensor().device) for row in tensor_list]
    made = from_rows([row.to(device=device or row.device, dtype=dtype or row.dtype) for row in _checked(rows)])
    return made.requires_grad_(requires_grad)


def as_nested_tensor(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> Any:
    """A nested tensor of rows, or of the elements of a batch; gradients flow back to them."""
    if isinstance(ts, NestedTensor):
        return ts.to(device=device or ts.device, dtype=dtype or ts.dtype)
    _check_layout("as_nested_tensor", layout)
    rows = list(ts.unbind(0)) if isinstance(ts, Tensor) else list(ts)
    return from_rows([row.to(device=device or row.device, dtype=dtype or row.dtype) for row in _checked(rows)])


def nested_tensor_from_jagged(
    values: Tensor, offsets: Tensor | None = None, lengths: Tensor | None = None, jagged_dim: int | None = None,
    min_seqlen: int | None = None, max_seqlen: int | None = None,
) -> Any:  # fmt: skip
    """A nested tensor over `values`, whose rows begin at `offsets` or have `lengths`."""
    if jagged_dim not in (None, 1):
        raise NotImplementedError("nested_tensor_from_jagged: the ragged dimension is the first one of the values")
    if offsets is not None and lengths is not None:
        raise NotImplementedError("nested_tensor_from_jagged: rows with gaps (offsets and lengths) are not implemented")
    if offsets is None:
        if lengths is None:
            raise RuntimeError("nested_tensor_from_jagged(): At least one of offsets or lengths is required.")
        offsets = cat([lengths.new_zeros(1, dtype=dt.int64), lengths.cumsum(0)])
    starts = offsets.tolist()
    if starts[:1] != [0] or starts[-1] != values.shape[0] or any(a > b for a, b in zip(starts, starts[1:])):
        raise RuntimeError(f"offsets must rise from 0 to the number of values, {values.shape[0]}, got {starts[:16]}")
    return from_values(values, offsets)


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
    """Part of each row: rows with gaps between them are not implemented."""
    raise NotImplementedError(
        "torch.nested.narrow: Flambeau's nested tensors have no gaps; use as_nested_tensor on the parts"
    )


def to_padded_tensor(input: Any, padding: float, output_size: Any = None) -> Tensor:
    """The rows as one plain tensor, filled up with `padding`."""
    if not isinstance(input, NestedTensor):
        raise RuntimeError("to_padded_tensor expects a nested tensor")
    return padded(input, padding, output_size)
