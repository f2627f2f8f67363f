"""Groups of dtypes."""

from __future__ import annotations

from typing import Any

import torch

from .permissive import guess

_FLOATING = (torch.float32, torch.float64)
_HALF = (torch.float16, torch.bfloat16)
_COMPLEX = (torch.complex64, torch.complex128)
_INTEGRAL = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


def _group(*members: tuple) -> Any:
    """A pair of functions: the group, and the group with more dtypes."""
    plain = tuple(dtype for part in members for dtype in part)
    return (lambda: plain), (lambda *more: plain + tuple(dtype for dtype in more if dtype not in plain))


floating_types, floating_types_and = _group(_FLOATING)
floating_types_and_half = lambda: (*_FLOATING, torch.float16)  # noqa: E731
integral_types, integral_types_and = _group(_INTEGRAL)
complex_types, complex_types_and = _group(_COMPLEX)
double_types, double_types_and = _group((torch.float64, torch.complex128))
all_types, all_types_and = _group(_FLOATING, _INTEGRAL)
all_types_and_complex, all_types_and_complex_and = _group(_FLOATING, _INTEGRAL, _COMPLEX)
floating_and_complex_types, floating_and_complex_types_and = _group(_FLOATING, _COMPLEX)
integral_types_and_bool = lambda: (*_INTEGRAL, torch.bool)  # noqa: E731
all_types_complex_float8, all_types_complex_float8_and = _group(_FLOATING, _INTEGRAL, _COMPLEX, _FLOAT8)
all_passthru_types, all_passthru_types_and = _group(_FLOATING, _INTEGRAL, _COMPLEX, _FLOAT8, _UNSIGNED)
all_mps_types, all_mps_types_and = _group((torch.float32, torch.float16, torch.bfloat16), _INTEGRAL)
float8_types, float8_types_and = _group(_FLOAT8)
custom_types = lambda *dtypes: tuple(dtypes)  # noqa: E731

_COMPLEX32 = getattr(torch, "complex32", None)
float_to_corresponding_complex_type_map = {
    torch.float16: _COMPLEX32,
    torch.float32: torch.complex64,
    torch.float64: torch.complex128,
}


def get_all_dtypes(
    include_half: bool = True,
    include_bfloat16: bool = True,
    include_bool: bool = True,
    include_complex: bool = True,
    include_complex32: bool = False,
    include_qint: bool = False,
) -> list:
    dtypes = [*_INTEGRAL, *get_all_fp_dtypes(include_half, include_bfloat16)]
    dtypes += [torch.bool] * include_bool + list(_COMPLEX) * include_complex
    dtypes += [_COMPLEX32] * include_complex32 + (get_all_qint_dtypes() if include_qint else [])
    return dtypes


def get_all_fp_dtypes(include_half: bool = True, include_bfloat16: bool = True) -> list:
    return [*_FLOATING] + [torch.float16] * include_half + [torch.bfloat16] * include_bfloat16


def get_all_math_dtypes(device: str) -> list:
    return [*_INTEGRAL, *get_all_fp_dtypes(device.startswith("cuda"), False), *_COMPLEX]


def get_all_complex_dtypes(include_complex32: bool = False) -> list:
    return [*_COMPLEX] + [_COMPLEX32] * include_complex32


def get_all_int_dtypes() -> list:
    return list(_INTEGRAL)


def get_all_qint_dtypes() -> list:
    names = ("qint8", "quint8", "qint32", "quint4x2", "quint2x4")
    return [getattr(torch, name) for name in names if hasattr(torch, name)]


def highest_precision_float(device: Any) -> Any:
    return torch.float64


def highest_precision_complex(device: Any) -> Any:
    return torch.complex128


def __getattr__(name: str) -> Any:
    return guess(__name__, name)
