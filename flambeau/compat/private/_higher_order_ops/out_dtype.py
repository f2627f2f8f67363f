"""An operator whose result has another dtype than its arguments, computed without intermediate loss."""

from __future__ import annotations

from typing import Any

from ....core.dtype import dtype
from ....core.tensor import Tensor


def out_dtype(op: Any, output_dtype: dtype, *args: Any) -> Any:
    """Return `op(*args)` with its tensors converted first: `out_dtype(torch.ops.aten.mm.default, torch.int32, a, b)` of bytes."""
    return op(*(a.to(output_dtype) if isinstance(a, Tensor) else a for a in args))
