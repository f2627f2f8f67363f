"""Index arrays that stay on a device, for arithmetic written for NumPy's arrays.

The operators of this package compute with NumPy which entries there are. `Places` holds a tensor of another device and implements the part of
NumPy's interface that they use, so that the same code sorts, searches and counts there. Only values that Python must know (a size, the
condition of an `if`) are read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.aliases import Values
from ...core.tensor import Tensor, copy_of_array
from ..machinery.record import lookup


def _function(name: str) -> Any:
    return lookup(name).function


class Places:
    """A tensor on a device with some of the interface of NumPy's arrays."""

    __slots__ = ("t",)
    __array_ufunc__ = None  # arrays leave operators with one of these to this class

    def __init__(self, t: Any):
        self.t: Any = t

    shape = property(lambda self: tuple(self.t.shape))
    size = property(lambda self: self.t.numel())

    def of(self, value: Any) -> Any:
        """Return a value as tensors take it: on this device, if it is an array."""
        if isinstance(value, Places):
            return value.t
        if isinstance(value, (np.ndarray, list)):
            array = np.asarray(value)
            kind = dt.bool_ if array.dtype == bool else dt.int64
            return copy_of_array(np.ascontiguousarray(array, bool if kind is dt.bool_ else np.int64), kind).to(
                self.t.device
            )
        return int(value) if isinstance(value, np.integer) else value

    def _key(self, key: Any) -> Any:
        return tuple(map(self.of, key)) if isinstance(key, tuple) else self.of(key)

    def __getitem__(self, key: Any) -> Places:
        return Places(self.t[self._key(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.t[self._key(key)] = self.of(value)

    def __iter__(self) -> Iterator[Places]:
        return (Places(row) for row in self.t.unbind(0))

    def __len__(self) -> int:
        return self.t.shape[0]

    def __bool__(self) -> bool:
        return bool(self.t)

    def __int__(self) -> int:
        return int(self.t)

    __index__ = __int__

    def __format__(self, spec: str) -> str:
        return format(int(self), spec)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"numbers on {self.t.device} are not read by themselves")

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Values, kwargs: dict[str, Any]) -> Any:
        found = _FUNCTIONS.get(function.__name__)
        if found is None:
            raise NotImplementedError(f"sparse tensors on {self.t.device}: this operator needs {function.__name__}")
        return found(self, *args, **kwargs)

    # -- as arrays do them ------------------------------------------------------------------------------------------
    def _reduced(self, name: str, axis: Any) -> Any:
        if axis is None:
            return getattr(self.t, name)().item()
        found = getattr(self.t, {"min": "amin", "max": "amax"}.get(name, name))(axis)
        return Places(found)

    def min(self, axis: Any = None) -> Any:
        return self._reduced("min", axis)

    def max(self, axis: Any = None) -> Any:
        return self._reduced("max", axis)

    def any(self, axis: Any = None) -> Any:
        return self._reduced("any", axis)

    def all(self, axis: Any = None) -> Any:
        return self._reduced("all", axis)

    def sum(self, axis: Any = None) -> Any:
        return self._reduced("sum", axis)

    def clip(self, low: Any, high: Any) -> Places:
        return Places(self.t.clamp(low, high))

    def astype(self, kind: Any) -> Places:
        return Places(self.t.to(dt.bool_ if kind is bool else dt.int64))

    def reshape(self, *shape: Any) -> Places:
        return Places(self.t.reshape(*shape))

    def copy(self) -> Places:
        return Places(self.t.clone())

    def __invert__(self) -> Places:
        return Places(~self.t)

    def tolist(self) -> Any:
        return self.t.tolist()


def _declare(name: str, reverse: bool) -> None:
    act = getattr(operator, name)
    word = name.strip("_")

    def method(self: Places, other: Any) -> Places:
        return Places(act(self.t, self.of(other)))

    def reversed_(self: Places, other: Any) -> Places:
        given = self.of(other)
        return Places(act(given if isinstance(given, Tensor) else self.t.new_tensor(given), self.t))

    setattr(Places, f"__{word}__", method)
    if reverse:
        setattr(Places, f"__r{word}__", reversed_)


for _name in ("add", "sub", "mul", "floordiv", "mod", "and_", "or_"):
    _declare(_name, True)
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    _declare(_name, False)


def _list(like: Places, parts: Any) -> list[Any]:
    """Return the parts of a list as tensors of one dtype on the device."""
    found = [p if isinstance(p, Tensor) else like.of(np.asarray(p)) for p in map(like.of, parts)]
    kind = dt.bool_ if all(p.dtype is dt.bool_ for p in found) else dt.int64
    return [p.to(kind) for p in found]


def repeated(values: Any, counts: Any) -> Any:
    """Return each value as often as `counts` says."""
    if not isinstance(counts, Places):
        return np.repeat(values, counts)
    return Places(_function("repeat_interleave")(counts.of(values), counts.t))


def _searchsorted(like: Places, a: Any, v: Any, side: str = "left") -> Places:
    return Places(_function("searchsorted")(like.of(a).contiguous(), like.of(v).contiguous(), right=side == "right"))


def _lexsort(like: Places, keys: Any) -> Places:
    """Sort by several keys; the last key counts most."""
    order = None
    for key in keys:
        given = like.of(key)
        held = given if order is None else given.index_select(0, order)
        step = held.argsort(stable=True)
        order = step if order is None else order.index_select(0, step)
    return Places(order)


def _where(like: Places, condition: Any, x: Any, y: Any) -> Places:
    return Places(_function("where")(like.of(condition), like.of(x), like.of(y)))


def _insert(like: Places, a: Places, at: int, value: int, axis: int) -> Places:
    before, after = a.t.narrow(0, 0, at), a.t.narrow(0, at, a.t.shape[0] - at)
    return Places(_function("cat")([before, a.t.new_full((1, *a.t.shape[1:]), value), after]))


def _delete(like: Places, a: Places, at: int, axis: int) -> Places:
    rows = [i for i in range(a.t.shape[0]) if i != at]
    return Places(a.t.index_select(0, like.of(np.array(rows, np.int64))))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "diff": lambda like, a: Places(a.t.diff()),
    "repeat": lambda like, a, count: Places(a.t.repeat_interleave(count)),
    "stack": lambda like, parts: Places(_function("stack")(_list(like, parts))),
    "concatenate": lambda like, parts, axis=0: Places(_function("cat")(_list(like, parts), axis)),
    "searchsorted": _searchsorted,
    "argsort": lambda like, a, kind=None: Places(a.t.argsort(stable=True)),
    "lexsort": _lexsort,
    "flatnonzero": lambda like, a: Places(a.t.reshape(-1).nonzero().reshape(-1)),
    "nonzero": lambda like, a: tuple(Places(row) for row in a.t.nonzero().t().unbind(0)),
    "isin": lambda like, a, b: Places(_function("isin")(like.of(a), like.of(b))),
    "cumsum": lambda like, a: Places(a.t.cumsum(0, dtype=dt.int64)),
    "unique": lambda like, a: Places(_function("unique")(a.t)),
    "where": _where,
    "insert": _insert,
    "delete": _delete,
    "tile": lambda like, a, count: Places(a.t.repeat(*[1] * (len(a.t.shape) - 1), count)),
}
