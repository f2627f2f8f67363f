"""Numeric limits of dtypes: `finfo` for floating point types, `iinfo` for integers."""

from __future__ import annotations

from typing import Any

from .dtype import OF_PYTHON, bool_, dtype
from .promotion import get_default_dtype
from .typenames import type_name

_MISSING = object()


def _as_dtype(function: str, given: Any) -> dtype:
    if isinstance(given, dtype):
        return given
    try:
        return OF_PYTHON[given]
    except (KeyError, TypeError):
        name = type_name(given)
        message = f"{function}(): argument 'type' (position 1) must be torch.dtype, not {name}"
        raise TypeError(message) from None


class _Limits:
    """Read-only numeric limits of a dtype; equal if they describe the same one."""

    __slots__ = ("bits", "dtype", "max", "min")

    bits: int
    dtype: str

    def _fill(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        kind = f"torch.{type(self).__name__}"
        if hasattr(self, name):
            raise AttributeError(f"attribute '{name}' of '{kind}' objects is not writable")
        raise AttributeError(f"'{kind}' object has no attribute '{name}'")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.dtype == other.dtype

    def __reduce__(self) -> Any:
        raise TypeError(f"cannot pickle 'torch.{type(self).__name__}' object")


class finfo(_Limits):
    """The numeric properties of a floating point dtype (of the real part for a complex one).

    >>> finfo(float64).eps
    2.220446049250313e-16
    """

    __slots__ = ("eps", "resolution", "smallest_normal", "tiny")

    eps: float
    max: float
    min: float
    resolution: float
    smallest_normal: float
    tiny: float

    def __init__(self, type: Any = _MISSING) -> None:
        given = get_default_dtype() if type is _MISSING else _as_dtype("finfo", type)
        if not (given.is_floating_point or given.is_complex):
            raise TypeError(
                f"torch.finfo() requires a floating point input type, got {given}. Use torch.iinfo for integers"
            )
        real = given.to_real()
        values = real.limits._asdict()
        del values["precision"]
        self._fill(bits=real.itemsize * 8, dtype=real.name, tiny=real.limits.smallest_normal, **values)

    def __repr__(self) -> str:
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        return f"finfo({', '.join(f'{name}={getattr(self, name):g}' for name in names)}, dtype={self.dtype})"


class iinfo(_Limits):
    """The numeric properties of an integer dtype.

    >>> iinfo(int64).max
    9223372036854775807
    """

    __slots__ = ()

    max: int
    min: int

    def __init__(self, type: Any) -> None:
        given = _as_dtype("iinfo", type)
        if given is bool_:
            raise TypeError("torch.bool is not supported by torch.iinfo")
        if given.kind not in "iuq":
            raise TypeError(f"torch.iinfo() requires an integer input type, got {given}. Use torch.finfo for floats")
        bits = given.itemsize * 8
        signed = given.is_signed or given.name.startswith("qint")
        smallest = -(1 << (bits - 1)) if signed else 0
        self._fill(bits=bits, dtype=given.name, min=smallest, max=smallest + (1 << bits) - 1)

    def __repr__(self) -> str:
        # PyTorch prints these through a double, six digits long; the attributes are exact.
        return f"iinfo(min={float(self.min):g}, max={float(self.max):g}, dtype={self.dtype})"
