"""Names of Python objects' types in error messages."""

from __future__ import annotations

_IMMUTABLE_TYPE_FLAG = 1 << 8  # CPython's Py_TPFLAGS_IMMUTABLETYPE: not for classes made by a `class` statement


def type_name(value: object) -> str:
    """Return the type's name as C code prints it: `numpy.float64` for an extension type, `Thing` for a Python class."""
    return class_name(type(value))


def class_name(cls: type) -> str:
    if not cls.__flags__ & _IMMUTABLE_TYPE_FLAG or cls.__module__ == "builtins":
        return getattr(cls, "_printed_name", cls.__name__)
    return f"{cls.__module__}.{cls.__name__}"
