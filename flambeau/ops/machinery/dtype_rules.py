"""What dtype a pointwise operator computes in and returns.

A rule gets the operator and its operands (tensors and Python numbers), and optionally the parameters, and returns
(compute dtype, output dtype)."""

from __future__ import annotations

from typing import Any

from ...core import dtype as dt
from ...core.dtype import dtype
from ...core.promotion import get_default_dtype, result_dtype
from ...core.quantized import QuantizedOperand
from ...core.tensor import Tensor

_WORDS = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int",
    "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool", "complex64": "ComplexFloat",
    "complex128": "ComplexDouble", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64",
    "qint8": "QInt8", "quint8": "QUInt8", "qint32": "QInt32", "quint4x2": "QUInt4x2", "quint2x4": "QUInt2x4",
}  # fmt: skip


_CPP_NAMES = {
    "float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "int64": "long int",
    "int32": "int", "int16": "short int", "int8": "signed char", "uint8": "unsigned char", "bool": "bool",
    "complex64": "c10::complex<float>", "complex128": "c10::complex<double>",
}  # fmt: skip


def cpp_name(d: dtype) -> str:
    """The C++ type of a dtype, which some of PyTorch's messages show."""
    return _CPP_NAMES.get(d.name, d.name)


def type_word(d: dtype) -> str:
    """PyTorch's C++ name of a dtype, as its messages use it."""
    return _WORDS.get(d.name) or d.name.replace("float8", "Float8")


def unsupported(kernel: str, d: dtype) -> NotImplementedError:
    """The error of a kernel, by its name in PyTorch, that does not exist for a dtype. That of quantized tensors is caught: the operator
    may have a form for them."""
    error = QuantizedOperand if d.kind == "q" else NotImplementedError
    return error(f"\"{kernel}\" not implemented for '{type_word(d)}'")


def number_dtype(value: Any) -> dtype:
    """How a Python number travels to a kernel."""
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
