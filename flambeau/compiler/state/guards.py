"""Guards: checks that Python's state is still what a recording saw.

Each `Item` watches one object: the entries of a dict, the elements of a list, a tensor's header. A native loop compares words of memory
(versions of dicts, pointers in lists and slots) with what they were: a thousand in a few microseconds. If a word differs, the item compares
values in Python, and stores the new word if they are the same."""

from __future__ import annotations

import bisect
import collections
import ctypes
from array import array
from typing import Any

from ...core.graph import AutogradState
from ...core.tensor import Tensor
from ..runtime import driver
from . import object_layouts as layouts
from .arguments import ATOMS, layout_of
from .object_layouts import Rows, word

MISSING: Any = type("MISSING", (), {"__repr__": lambda self: "nothing"})()


def same(old: Any, new: Any) -> bool:
    """Return whether a value can replace another: the same object, or an equal number or text of the same type."""
    if old is new:
        return True
    if type(old) is not type(new):
        return False
    if type(old) is float or type(old) is complex:
        return repr(old) == repr(new)  # so that nan is nan, and 0.0 is not -0.0
    if type(old) in ATOMS:
        return old == new
    if type(old) is tuple:
        return len(old) == len(new) and all(map(same, old, new))
    return False


_KINDS = (list, tuple, set, frozenset, collections.deque)


def contents(held: Any) -> Any:
    """Return the contents of a container, bypassing its class's methods: entries of a dict in order, elements of others."""
    if isinstance(held, dict):
        kind = collections.OrderedDict if isinstance(held, collections.OrderedDict) else dict
        return dict(kind.items(held))
    kind_of_others = next(kind for kind in _KINDS if isinstance(held, kind))
    return list(kind_of_others.__iter__(held))


class Item:
    """Object that a recording depends on. `what` names it in messages."""

    __slots__ = ("what",)
    what: str

    def rows(self) -> Rows | None:
        """Return addresses and the words stored there while nothing changes; None if changes do not show in memory."""
        return None

    def difference(self) -> str:
        """Describe what has changed, or return ""."""
        raise NotImplementedError

    def renew(self) -> None:
        """Hold the present values, which are equal to the former ones: while a row expects an address, its object must live."""

    def steps(self) -> list[tuple[Any, str, int]]:
        """Return the counters, in a dict (with a name) or a cell (without), that changed, and by how much."""
        return []

    def switched(self) -> list[tuple[dict, str, bool]]:
        """Return the changed entries (dict, name, value), if every change is one of a dict's entry from True to False or back."""
        return []

    def reads(self, other: Item) -> bool:
        """Return whether this item guards the object that another item has found changed."""
        return getattr(self, "held", self) is getattr(other, "held", other)


class DictItem(Item):
    """Guard of all entries of a dict, or of those with some names: also that the rest of these names have none."""

    __slots__ = ("held", "names", "seen")

    def __init__(self, what: str, held: dict, names: Any = None):
        self.what, self.held = what, held
        self.names = names if names is None or len(names) <= dict.__len__(held) else frozenset(names)
        self.seen = self._entries()

    def _entries(self) -> dict[Any, Any]:
        held, names = self.held, self.names
        if names is None:
            return contents(held)
        if len(names) > dict.__len__(held):
            return {n: value for n, value in dict.items(held) if n in names}
        return {n: dict.__getitem__(held, n) for n in names if dict.__contains__(held, n)}

    def rows(self) -> Rows | None:
        return layouts.dict_rows(self.held, self.names)

    def renew(self) -> None:
        self.seen = self._entries()

    def changed(self) -> dict[Any, tuple[Any, Any]]:
        """Return the guarded entries that differ, each as it was and as it is; MISSING stands for none."""
        seen, now = self.seen, self._entries()
        names = seen if len(seen) == len(now) and seen.keys() == now.keys() else {**seen, **now}
        pairs = ((n, seen.get(n, MISSING), now.get(n, MISSING)) for n in names)
        return {n: (old, new) for n, old, new in pairs if old is not new and not same(old, new)}

    def difference(self) -> str:
        held, seen = self.held, self.seen
        if self.names is None and (dict.__len__(held) != len(seen) or not all(map(same, seen, contents(held)))):
            return f"the keys of {self.what} changed"
        for name, (old, new) in self.changed().items():
            return f"{self.what}[{name!r}] was {_shown(old)}, is {_shown(new)}"
        return ""

    def switched(self) -> list[tuple[dict, str, bool]]:
        changed = self.changed()
        if "__module__" in self.held or any(type(value) is not bool for pair in changed.values() for value in pair):
            return []  # what has a module is a class: its attributes cannot be set through its dict
        return [(self.held, n, new) for n, (_, new) in changed.items()]

    def reads(self, other: Item) -> bool:
        if not isinstance(other, DictItem) or other.held is not self.held:
            return False
        return self.names is None or any(n in self.names for n in other.changed())


class ListItem(Item):
    """Guard of the elements of a list."""

    __slots__ = ("held", "seen")

    def __init__(self, what: str, held: Any):
        self.what, self.held, self.seen = what, held, contents(held)

    def renew(self) -> None:
        self.seen = contents(self.held)

    def rows(self) -> Rows | None:
        size, items = word(id(self.held) + 16), word(id(self.held) + 24)
        return [size, items, *(word(items[1] + 8 * i) for i in range(size[1]))]

    def difference(self) -> str:
        now = contents(self.held)
        if len(now) != len(self.seen):
            return f"{self.what} had {len(self.seen)} elements, has {len(now)}"
        for i, (old, new) in enumerate(zip(self.seen, now)):
            if old is not new and not same(old, new):
                return f"{self.what}[{i}] was {_shown(old)}, is {_shown(new)}"
        return ""


class CollectionItem(ListItem):
    """Guard of the elements of a set or a deque: compared in Python, except for an empty set."""

    __slots__ = ()

    def rows(self) -> Rows | None:
        known = layouts.SETS_ARE_KNOWN and type(self.held) is set and not self.seen
        return [word(id(self.held) + layouts.SET_SIZE)] if known else None

    def difference(self) -> str:
        now = contents(self.held)
        if len(now) != len(self.seen) or not all(map(same, self.seen, now)):
            return f"the elements of {self.what} changed"
        return ""


class CellItem(Item):
    """Guard of a variable of an enclosing function."""

    __slots__ = ("held", "seen")

    def __init__(self, what: str, held: Any):
        self.what, self.held, self.seen = what, held, _contents(held)

    def renew(self) -> None:
        self.seen = _contents(self.held)

    def rows(self) -> Rows | None:
        return [word(id(self.held) + 16)]

    def difference(self) -> str:
        new = _contents(self.held)
        return "" if same(self.seen, new) else f"{self.what} was {_shown(self.seen)}, is {_shown(new)}"


class SlotsItem(Item):
    """Guard of the attributes of an object that has no dict."""

    __slots__ = ("held", "names", "seen")

    def __init__(self, what: str, held: Any, names: list[str]):
        self.what, self.held, self.names = what, held, names
        self.renew()

    def renew(self) -> None:
        self.seen = [getattr(self.held, n, MISSING) for n in self.names]

    def difference(self) -> str:
        for name, old in zip(self.names, self.seen):
            new = getattr(self.held, name, MISSING)
            if not same(old, new):
                return f"{self.what}.{name} was {_shown(old)}, is {_shown(new)}"
        return ""


class ClassItem(Item):
    """Guard of an object's class. It keeps the object alive, so that no other can have its address."""

    __slots__ = ("held", "seen")

    def __init__(self, what: str, held: Any):
        self.what, self.held, self.seen = what, held, type(held)

    def rows(self) -> Rows | None:
        return [(id(self.held) + 8, id(self.seen))] if layouts.CLASSES_ARE_KNOWN else None

    def difference(self) -> str:
        new = type(self.held)
        return "" if new is self.seen else f"{self.what} was a {self.seen.__name__}, is a {new.__name__}"


class OwnDictItem(SlotsItem):
    """Guard of the dict in which an object stores its attributes: another one may be assigned."""

    __slots__ = ()

    def __init__(self, what: str, held: Any):
        super().__init__(what, held, ["__dict__"])

    def rows(self) -> Rows | None:
        return layouts.own_dict_row(self.held)


class FunctionItem(SlotsItem):
    """Guard of the parts of a function that can be replaced: its code, defaults, attributes and name."""

    __slots__ = ()
    _PARTS: tuple[str, ...] = layouts.FUNCTION_PARTS
    _PLACES = layouts.FUNCTION_PLACES

    def __init__(self, what: str, held: Any):
        super().__init__(what, held, list(self._PARTS))

    def rows(self) -> Rows | None:
        return [word(id(self.held) + place) for place in self._PLACES] or None


class TypeItem(FunctionItem):
    """Guard of the parts of a class that are not in its dict: its bases and its names."""

    __slots__ = ()
    _PARTS = ("__mro__", "__name__", "__qualname__")
    _PLACES = layouts.CLASS_PLACES


class ValueItem(Item):
    """Guard of the result of a function without arguments: a setting of Python's that no object shows."""

    __slots__ = ("ask", "seen")

    def __init__(self, what: str, ask: Any):
        self.what, self.ask, self.seen = what, ask, ask()

    def difference(self) -> str:
        return "" if self.ask() == self.seen else f"{self.what} changed"


class TensorItem(Item):
    """Guard of a tensor's header and the address of its memory. Changes of an autograd state that it got later do not show in the words."""

    __slots__ = ("held", "seen", "storage", "autograd")

    def __init__(self, what: str, held: Tensor):
        self.what, self.held, self.autograd = what, held, held._autograd
        self.renew()

    def renew(self) -> None:
        self.storage, self.seen = self.held._storage, self._header()

    def _header(self) -> tuple:
        t = self.held
        return (t._storage.ptr, t.shape, t._strides, t._offset, t.dtype, t.requires_grad, t.is_leaf, t._base)

    def rows(self) -> Rows | None:
        if not layouts.SLOTS_ARE_KNOWN or self.held._autograd is not self.autograd:
            return None
        t = id(self.held)
        rows = [word(t + offset) for offset in layouts.TENSOR_SLOTS]
        return [*rows, word(id(self.held._storage) + layouts.POINTER_SLOT)]

    def difference(self) -> str:
        words = ("memory", "shape", "strides", "offset", "dtype", "requires_grad", "is_leaf", "base")
        for name, old, new in zip(words, self.seen, self._header()):
            if old is not new and (isinstance(old, Tensor) or old != new):
                return f"{name} of {self.what} was {_shown(old)}, is {_shown(new)}"
        return ""


class AutogradItem(Item):
    """Guard of a tensor's autograd state; of its gradient only whether there is one, and its layout, unless nothing depends on it."""

    __slots__ = ("held", "seen", "any_grad")

    def __init__(self, what: str, held: AutogradState):
        self.what, self.held, self.any_grad = what, held, False
        self.seen = self._state()

    def _state(self) -> tuple:
        m = self.held
        hooks = bool(m.hooks), bool(m.post_hooks), m.accumulator_hooks
        return m.requires_grad, m.grad_fn, *hooks, m.retains_grad, layout_of(m.grad)

    def rows(self) -> Rows | None:
        return layouts.dict_rows(self.held.__dict__)

    def difference(self) -> str:
        words: tuple[str, ...] = ("requires_grad", "grad_fn", "hooks", "post_hooks", "hooks on the accumulator", "retains_grad", "grad")  # fmt: skip
        words = words[:-1] if self.any_grad else words
        for name, old, new in zip(words, self.seen, self._state()):
            if old is not new and old != new:
                return f"{name} of {self.what} was {_shown(old)}, is {_shown(new)}"
        return ""

    def settle(self) -> None:
        """Accept the present state as the expected one."""
        self.seen = self._state()


class GroupItem(DictItem):
    """Guard of a group of an optimizer's parameters. Its numbers may change: they are inputs of the update, in `options`."""

    __slots__ = ("optimizer", "options", "choices", "whole", "widths", "alive")

    def __init__(self, what: str, group: dict, optimizer: Any, options: dict[str, Any]):
        self.widths = {k: _width(v) for k, v in group.items()}
        super().__init__(what, group, tuple(k for k, width in self.widths.items() if not width))
        self.optimizer, self.options, self.choices = optimizer, options, _choices(options)
        self.whole: Any = None  # the names whose words were observed before it was known for a group; None for all
        self.renew()

    def renew(self) -> None:
        super().renew()
        self.alive = contents(self.held)  # numbers, too

    def rows(self) -> Rows | None:
        return layouts.dict_rows(self.held, self.whole)

    def difference(self) -> str:
        found = super().difference()
        if found:
            return found
        if {k: _width(v) for k, v in self.held.items()} != self.widths:
            return f"{self.what} has other options"
        options = self.optimizer._options(self.held)
        if _choices(options) != self.choices:
            return f"an option of {self.what} was switched on or off"
        self.options = options
        return ""


def _width(value: Any) -> int:
    """Return how many numbers an option is (the betas of Adam are two), 0 if it is anything else."""
    values = value if type(value) is tuple else (value,)
    return len(values) if all(type(v) in (int, float) for v in values) else 0


def _choices(options: dict[str, Any]) -> tuple:
    """Return the part of the options that decides the formula: all but the values of plain numbers."""
    return tuple((k, None if type(v) in (int, float) else (type(v), v)) for k, v in options.items())


Observed = list[tuple[Item, Any]]


def observe(items: list[Item]) -> Observed:
    """Return the items with the memory values they have now."""
    return [(item, item.rows()) for item in items]


class Words:
    """Memory words that must not have changed. The objects at their addresses must be kept alive by the caller."""

    def __init__(self, rows: list[tuple[int, int]]):
        self.table = array("q", [*(w for row in rows for w in row), 0, 0])
        self.at, self.count = self.table.buffer_info()[0], len(rows)
        self.result = ctypes.c_int64()
        self.result_at = ctypes.addressof(self.result)
        self.check = driver.checker()

    def unchanged(self) -> bool:
        self.check(self.at, self.count, self.result_at)
        return self.result.value == self.count


class Guard(Words):
    """Guarded items, and the table of memory values that the native loop compares."""

    def __init__(self, observed: Observed):
        self.items = [item for item, _ in observed]
        self.changed: Item | None = None  # the last difference found
        self.slow: list[Item] = []
        self.quick: list[Item] = []
        self.starts = array("l")  # of each of these, its first row
        found: Rows = []
        for item, rows in observed:
            if rows is None:
                self.slow.append(item)
                continue
            self.quick.append(item)
            self.starts.append(len(found))
            found += rows
        super().__init__(found)
        self.starts.append(self.count)

    def difference(self) -> str:
        """Describe what has changed since the recording, or return ""."""
        start = 0
        while True:
            self.check(self.at + 16 * start, self.count - start, self.result_at)
            row = start + self.result.value
            if row >= self.count:
                break
            number = bisect.bisect_right(self.starts, row) - 1
            item, first, start = self.quick[number], self.starts[number], self.starts[number + 1]
            found = item.difference()
            if found:
                self.changed = item
                return found
            item.renew()
            rows = item.rows()
            if rows is None or len(rows) != start - first:
                return f"{item.what} changed"
            self.table[2 * first : 2 * start] = array("q", [w for pair in rows for w in pair])
        for item in self.slow:
            found = item.difference()
            if found:
                self.changed = item
                return found
        return ""


def gradient_rows(t: Any, meta: Any) -> Rows | None:
    """Return rows that hold while only its leaf and one further reference hold a gradient and its storage: their reference counts are two,
    the gradient is the leaf's, and it has no history and no attributes. None if attributes do not show in memory."""
    storage, own = t._storage, layouts.own_dict_row(t)
    rows = [(id(t), 2), (id(storage), 2)]
    rows += [word(id(t) + offset) for offset in layouts.TENSOR_SLOTS]
    more = (id(t.__dict__) + layouts.DICT_SIZE, 0), word(id(meta.__dict__) + layouts.DICT_VERSION)
    return None if own is None else [*rows, *own, *more]


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    text = repr(value) if type(value) in (*ATOMS, tuple, list, dict) else f"a {type(value).__name__}"
    return text if len(text) < 80 else text[:77] + "..."
