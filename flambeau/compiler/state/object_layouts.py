"""Layouts of CPython's objects in memory: each layout is tested before it is relied on.

A row is an address and the word that is stored there while nothing changes. Rows are compared in order, up to the first that differs:
a word behind a pointer comes after the pointer."""

from __future__ import annotations

import collections
import ctypes
import sys
from collections.abc import Iterable
from typing import Any

from ...core.storage import UntypedStorage
from ...core.tensor import Tensor

Rows = list[tuple[int, int]]
DICT_SIZE, DICT_VERSION = 16, 24
SET_SIZE = 24


def word(address: int) -> tuple[int, int]:
    return address, ctypes.c_int64.from_address(address).value


def _dicts_have_versions() -> bool:
    """Return whether the word after a dict's size changes with every change, also of attributes that hot code stores."""
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 13):
        return False

    class Thing:
        pass

    def store(thing: Any, value: Any) -> None:
        thing.a = value

    for _ in range(50):
        store(Thing(), 1)
    thing = Thing()
    thing.a = 0  # type: ignore[attr-defined]
    held = thing.__dict__
    versions = [word(id(held) + DICT_VERSION)[1]]
    for i in range(1, 50):
        store(thing, i)
        versions.append(word(id(held) + DICT_VERSION)[1])
    held["b"] = 1
    versions.append(word(id(held) + DICT_VERSION)[1])
    del held["b"]
    versions.append(word(id(held) + DICT_VERSION)[1])
    return len(set(versions)) == len(versions)


def _slot(cls: type, name: str) -> int:
    """Return the offset of a slot in an object, from its descriptor."""
    member = ctypes.c_int64.from_address(id(cls.__dict__[name]) + 40).value
    return ctypes.c_int64.from_address(member + 16).value


def _sets_are_known() -> bool:
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 14):
        return False
    held: set = set()
    sizes = [word(id(held) + SET_SIZE)[1]]
    for change, element in ((held.add, 1), (held.add, 2), (held.remove, 1), (held.add, 3)):
        change(element)
        sizes.append(word(id(held) + SET_SIZE)[1])
    return sizes == [0, 1, 2, 1, 2]


_TENSOR_FIELDS = ("_storage", "shape", "_strides", "_offset", "dtype", "_autograd", "_base")


def _slots_are_known() -> bool:
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 14):
        return False
    t = Tensor.__new__(Tensor)
    values = [object() for _ in _TENSOR_FIELDS]
    for name, value in zip(_TENSOR_FIELDS, values):
        setattr(t, name, value)
    offsets = [_slot(Tensor, n) for n in _TENSOR_FIELDS]
    if any(not 0 < o < 256 for o in offsets):
        return False
    return all(word(id(t) + o)[1] == id(v) for o, v in zip(offsets, values))


_KEYS, _VALUES = 32, 40  # of a dict without a version: its table of keys, and the values where the table is shared
_MANAGED_DICT = 1 << 4  # a flag of classes whose objects keep the dict before their header


def dict_rows(held: dict, names: Iterable[str] | None = None) -> Rows | None:
    """Return rows that differ whenever one of the entries `names` of a dict changes, or any entry if that is None."""
    if isinstance(held, collections.OrderedDict) and dict.__len__(held) > 1:
        return None  # its order is kept elsewhere
    if DICTS_HAVE_VERSIONS:
        return [word(id(held) + DICT_VERSION)]
    return _entry_rows(held, names) if ENTRIES_ARE_KNOWN else None


def _entry_rows(held: dict, names: Iterable[str] | None) -> Rows:
    """Return the rows for the number of a dict's entries, its tables, and the keys and values of some entries or of all."""
    keys, values = word(id(held) + _KEYS), word(id(held) + _VALUES)
    table, shared = keys[1], values[1]
    used = word(table + 24)
    index_bytes, general = (
        ctypes.c_uint8.from_address(table + 9).value,
        not ctypes.c_uint8.from_address(table + 10).value,
    )
    first, size = table + 32 + (1 << index_bytes) + 8 * general, 16 + 8 * general
    watched = None if names is None else set(names)
    wanted = {id(k) for k in dict.__iter__(held) if watched is None or (type(k) is str and k in watched)}
    rows = [word(id(held) + DICT_SIZE), keys, values, used]
    for i in range(used[1]):
        key = word(first + size * i)
        if key[1] in wanted:
            rows += [key, word(shared + 8 + 8 * i if shared else key[0] + 8)]
    return rows


def _entries_are_known() -> bool:
    """Return whether the rows of dicts notice every change, after a trial on dicts of both kinds, and on those of objects."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] != (3, 13):
        return False

    class Thing:
        pass

    thing, other = Thing(), Thing()
    thing.a = other.a = thing.b = 0.5
    for held in (
        {"a": 0.5, "b": 1.5},
        {1: 0.5, "a": 2.5},
        {f"k{i}": float(i) for i in range(300)} | {"a": -1.5},
        thing.__dict__,
    ):
        for change in (lambda: held.update(a=object()), lambda: held.update(z=1), lambda: held.pop("a")):  # noqa: B023
            rows = _entry_rows(held, None)
            if len(rows) != 4 + 2 * len(held) or {r[1] for r in rows[5::2]} != set(map(id, held.values())):
                return False
            change()
            if all(word(a)[1] == w for a, w in rows[:4]) and all(word(a)[1] == w for a, w in rows):
                return False
    return True


def own_dict_row(o: Any) -> Rows | None:
    """Return the row for the address at which an object stores its dict."""
    held = id(o.__dict__)
    offset = type(o).__dictoffset__
    managed = sys.version_info >= (3, 11) and type(o).__flags__ & _MANAGED_DICT
    place = id(o) - 24 if managed else id(o) + offset if offset > 0 else 0
    row = word(place) if place else (0, 0)
    return [row] if row[1] == held else None


def _places(o: Any, fields: tuple[str, ...], size: int) -> tuple[int, ...]:
    """Return the offsets of these attributes' values in an object; () unless each is found exactly once."""
    words = [word(id(o) + 8 * i)[1] for i in range(size // 8)]
    found = tuple(8 * words.index(id(getattr(o, n))) for n in fields if words.count(id(getattr(o, n))) == 1)
    return found if sys.implementation.name == "cpython" and len(found) == len(fields) else ()


FUNCTION_PARTS = ("__code__", "__defaults__", "__kwdefaults__", "__name__", "__qualname__", "__doc__", "__module__", "__dict__")  # fmt: skip


def _function_places() -> tuple[int, ...]:
    def sample(a: Any = object(), *, b: Any = object()) -> None:  # noqa: B008
        pass

    sample.__name__, sample.__qualname__, sample.__dict__ = "a name of its own", "another name", {}
    sample.__doc__, sample.__module__ = "a text", "a name of a module"
    return _places(sample, FUNCTION_PARTS, sample.__sizeof__())


def _class_places() -> tuple[int, ...]:
    cls = type("a name of its own", (), {"__qualname__": "another name"})
    size: Any = type(cls).__basicsize__
    return _places(cls, ("__mro__", "__name__", "__qualname__"), size)


CLASSES_ARE_KNOWN = sys.implementation.name == "cpython" and word(id(UntypedStorage) + 8)[1] == id(type(UntypedStorage))
SETS_ARE_KNOWN = _sets_are_known()
DICTS_HAVE_VERSIONS = _dicts_have_versions()
SLOTS_ARE_KNOWN = _slots_are_known()
TENSOR_SLOTS = [_slot(Tensor, n) for n in _TENSOR_FIELDS] if SLOTS_ARE_KNOWN else []
GRADIENTS_ARE_KNOWN = SLOTS_ARE_KNOWN and DICTS_HAVE_VERSIONS
POINTER_SLOT = _slot(UntypedStorage, "ptr") if SLOTS_ARE_KNOWN else 0
ENTRIES_ARE_KNOWN = not DICTS_HAVE_VERSIONS and _entries_are_known()
FUNCTION_PLACES, CLASS_PLACES = _function_places(), _class_places()
