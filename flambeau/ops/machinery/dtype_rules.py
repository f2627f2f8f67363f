"""Rules for the dtypes that pointwise operators compute in and return.

A rule gets the operator and its operands (tensors and Python numbers), and optionally the parameters, and returns
(compute dtype, output dtype)."""

from __future__ import annotations

from typing import Any

from ...core import dtype as dt
from ...core.dtype import dtype
from ...core.promotion import get_default_dtype, result_dtype
from ...core.quantized import QuantizedOperand
from ...core.tensor import Tensor


def unsupported(kernel: str, d: dtype) -> NotImplementedError:
    """The error of a kernel, by its name in PyTorch, that does not exist for a dtype. That of quantized tensors is caught: the operator
    may have a form for them."""
    error = QuantizedOperand if d.kind == "q" else NotImplementedError
    return error(f"\"{kernel}\" not implemented for '{d.scalar_type}'")


def number_dtype(value: Any) -> dtype:
    """Return the dtype in which a Python number is passed to a kernel."""
    if isinstance(value, complex):
        return dt.complex128
    return dt.float64 if isinstance(value, float) else dt.int64


def promote(op: Any, operands: tuple) -> tuple[dtype, dtype]:
    d = result_dtype(operands)
    return d, d


def promote_float(op: Any, operands: tuple) -> tuple[dtype, dtype]:
    """Like promote, but integers and bools compute in the default float dtype."""
    d = result_dtype(operands)
    if d.category < 2:
        d = get_default_dtype()
    return d, d


def compare(op: Any, operands: tuple) -> tuple[dtype, dtype]:
    """Promoted operands, a bool result."""
    return result_dtype(operands), dt.bool_


def select(op: Any, operands: tuple) -> tuple[dtype, dtype]:
    """where(condition, a, b): the condition takes no part in promotion."""
    d = result_dtype(operands[1:])
    return d, d


def real_part(op: Any, operands: tuple) -> tuple[dtype, dtype]:
    """Complex operands, a real result."""
    d = result_dtype(operands)
    return d, d.to_real()


def integral(op: Any, operands: tuple) -> tuple[dtype, dtype]:
    d = result_dtype(operands)
    if d.category > 1:
        raise unsupported(f"{op.kernel}", d)
    return d, d


def gradient_rule(op: Any, operands: tuple) -> tuple[dtype, dtype]:
    """A derivative computes in the widest dtype of what it reads."""
    return promote_float(op, operands)


def check_parameter_dtypes(input: Tensor, *parameters: Tensor | None) -> None:
    """Weights and statistics of a normalisation have the input's dtype, or are float32 beside a 16-bit input."""
    given = {t.dtype for t in parameters if t is not None} - {input.dtype}
    if not given:
        return
    if given != {dt.float32}:
        raise RuntimeError("mixed dtype (CPU): expect parameter to have scalar type of Float")
    if input.dtype not in (dt.float16, dt.bfloat16):
        raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype.")
