"""The product of 8-bit matrices, in 32-bit integers."""

from __future__ import annotations

from ...core import dtype as dt
from ...core.tensor import Tensor
from ..machinery.declare import composite

_EXACT = 256  # so many products of two bytes are summed exactly by float32, whatever the bytes are


@composite(method=False)
def _int_mm(input: Tensor, mat2: Tensor) -> Tensor:
    """input @ mat2 of int8 (or uint8) matrices, as int32. Floating-point sums are exact here: they are split into short ones."""
    if len(input.shape) != 2:
        raise RuntimeError(f"int_mm_out_cpu: Expected self to be of dimension 2 but got {len(input.shape)}")
    if len(mat2.shape) != 2:
        raise RuntimeError(f"int_mm_out_cpu: Expected mat2 to be of dimension 2 but got {len(mat2.shape)}")
    if input.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            f"int_mm_out_cpu: self.size(1) needs to match mat2.size(0) but got {input.shape[1]} and {mat2.shape[0]}"
        )
    for name, t in (("self", input), ("mat2", mat2)):
        if t.dtype is not dt.int8 and not (name == "self" and t.dtype is dt.uint8):
            expected = "int8 or uint8" if name == "self" else "int8"
            raise RuntimeError(f"int_mm_out_cpu: Expected {name} dtype to be {expected} but got {t.dtype.cpp}")
    whole = None
    for start in range(0, max(input.shape[1], 1), _EXACT):
        a, b = input[:, start : start + _EXACT].to(dt.float32), mat2[start : start + _EXACT].to(dt.float32)
        part = a.mm(b).to(dt.int32)
        whole = part if whole is None else whole + part
    assert whole is not None  # there is always a first part
    return whole
