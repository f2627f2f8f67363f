"""Short names of dtypes, as they are printed beside shapes: f32[2, 3]."""

from __future__ import annotations

from ..core import dtype as _dt

_KINDS = {"bfloat": "bf", "float": "f", "complex": "c", "int": "i", "uint": "u"}


def _short(name: str) -> str:
    kind = name.rstrip("0123456789")
    return f"{_KINDS[kind]}{name[len(kind) :]}" if kind in _KINDS else {"bool": "b8"}.get(name, name)


dtype_abbrs = {d: _short(name) for name, d in _dt.BY_NAME.items()}
