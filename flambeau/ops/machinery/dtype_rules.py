"""Rules for the dtypes that pointwise operators compute in and return.

A rule gets the operator and its operands (tensors and Python numbers), and optionally the parameters, and returns
(compute dtype, output dtype)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.dtype import dtype
from ...core.promotion import get_default_dtype, result_dtype
from ...core.quantized import QuantizedOperand
from ...core.tensor import Tensor


def unsupported(kernel: str, d: dtype) -> NotImplementedError:
    """Return the error of a kernel, by its name in PyTorch, that does not exist for a dtype. That for quantized tensors is caught: the
    operator may have a form for them."""
    error = QuantizedOperand if d.kind == "q" else NotImplementedError
    return error(f"\"{kernel}\" not implemented for '{d.scalar_type}'")


def number_dtype(value: Any) -> dtype:
    """Return the dtype in which a Python number is passed to a kernel."""
    if isinstance(value, complex):
        return dt.complex128
    return dt.float64 if isinstance(value, float) else dt.int64


def integer_limits(d: dtype) -> tuple[int, int]:
    """Return the range of integers that a number given for `d` may have: small negative ones wrap around in an unsigned dtype."""
    found = np.iinfo(d.numpy)
    return int(found.min) or max(-int(found.max), -(2**63)), int(found.max)


def _overflow(d: dtype) -> RuntimeError:
    name = d.c_type if d.category == 1 and d is not dt.int32 else d.cpp
    return RuntimeError(f"value cannot be converted to type {name} without overflow")


def usual_range(d: dtype) -> tuple[float, float]:
    """Return bounds of the numbers that every rule for elements of `d` accepts."""
    if d.category == 1:
        return 0, integer_limits(d)[1]
    limits = d.to_real().limits
    return (0, 0) if limits is None else (-limits.max, limits.max)


def check_fits(value: Any, d: dtype) -> Any:
    """Return a number as an element of `d` holds it, or raise PyTorch's overflow error."""
    if d is dt.bool_:
        return bool(value) if isinstance(value, complex) else value
    if isinstance(value, complex):
        if value.imag != 0 and not d.is_complex:
            raise _overflow(d)
        value = value if d.is_complex else value.real
    if d.category == 1:
        low, high = integer_limits(d)
        if isinstance(value, float) and d.name.startswith("u"):
            low = 0  # whole numbers may wrap around, others not
        if not low <= value <= high:  # NaN too
            raise _overflow(d)
        value = int(value)
        return value if value < 2**63 else value - 2**64
    limits = (dt.opmath(d) if d in dt.FLOAT8 else d.to_real()).limits  # the 8-bit floats are reached by way of float32
    parts = (value.real, value.imag) if d.is_complex else (value,)
    if limits is not None and any(abs(v) > limits.max and not math.isinf(v) for v in parts):
        raise _overflow(d)
    return value


def promote(op: Any, operands: tuple[Any, ...]) -> tuple[dtype, dtype]:
    d = result_dtype(operands)
    return d, d


def promote_float(op: Any, operands: tuple[Any, ...]) -> tuple[dtype, dtype]:
    """Promote operands; integers and bools compute in the default float dtype."""
    d = result_dtype(operands)
    if d.category < 2:
        d = get_default_dtype()
    return d, d


def compare(op: Any, operands: tuple[Any, ...]) -> tuple[dtype, dtype]:
    """Promote operands; the result is bool."""
    return result_dtype(operands), dt.bool_


def select(op: Any, operands: tuple[Any, ...]) -> tuple[dtype, dtype]:
    """Promote the operands of where(condition, a, b) without the condition."""
    d = result_dtype(operands[1:])
    return d, d


def real_part(op: Any, operands: tuple[Any, ...]) -> tuple[dtype, dtype]:
    """Promote operands, which may be complex; the result is real."""
    d = result_dtype(operands)
    return d, d.to_real()


def integral(op: Any, operands: tuple[Any, ...]) -> tuple[dtype, dtype]:
    d = result_dtype(operands)
    if d.category > 1:
        raise unsupported(f"{op.kernel}", d)
    return d, d


def gradient_rule(op: Any, operands: tuple[Any, ...]) -> tuple[dtype, dtype]:
    """Compute a derivative in the widest dtype of its operands."""
    return promote_float(op, operands)


def check_parameter_dtypes(input: Tensor, *parameters: Tensor | None) -> None:
    """Check that weights and statistics of a normalisation have the input's dtype, or float32 with a 16-bit input."""
    given = {t.dtype for t in parameters if t is not None} - {input.dtype}
    if not given:
        return
    if given != {dt.float32}:
        raise RuntimeError("mixed dtype (CPU): expect parameter to have scalar type of Float")
    if input.dtype not in (dt.float16, dt.bfloat16):
        raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype.")
