"""Objects found while state is followed: items to guard, and values still to be examined, with the contents of containers and wrappers."""

from __future__ import annotations

import collections
import functools
import gc
import sys
import types
from typing import Any

from ...core.tensor import Tensor
from ...nn.modules.module import Module
from ...optim.optimizer import Optimizer
from . import c_functions
from .arguments import ATOMS
from .guards import CollectionItem, DictItem, Item, ListItem, SlotsItem, contents
from .origins import is_pythons


class Unreachable(Exception):
    """Raised with the reason why the state of a function cannot be known."""


class Findings:
    """Objects found so far: `items` to guard, and `pending` values still to be examined. Containers and wrappers add the objects they hold."""

    items: list[Item]
    pending: list[tuple[str, Any]]
    weak: list[tuple[str, Any]]
    seen: dict[Any, Any]
    computed: bool  # whether code looks attributes up by computed names
    texts: set[str]  # in code

    def _add(self, what: str, value: Any) -> None:
        if type(value) not in ATOMS:
            self.pending.append((what, value))

    def _named(self, what: str, value: Any) -> None:
        """Add a value that code names itself. A class in C that is not known raises Unreachable, since any of its methods may be called."""
        if isinstance(value, type) and not is_pythons(value) and not c_functions.is_known(value):
            raise Unreachable(f"{what} is {value.__module__}.{value.__name__}, a class in C whose state cannot be seen")
        self._add(what, value)

    def _builtin(self, what: str, f: Any) -> None:
        owner = getattr(f, "__self__", None)
        if f is tuple.__new__:
            return  # how named tuples are made
        if owner is not None and not isinstance(owner, (types.ModuleType, type)):
            self._add(what, owner)  # the append of a list
            return
        why = c_functions.objection(f)
        if why:
            raise Unreachable(why)

    def _method(self, what: str, m: types.MethodType) -> None:
        self._add(what, m.__func__)
        self._add(what, m.__self__)

    def _partial(self, what: str, p: functools.partial) -> None:
        self.items.append(SlotsItem(what, p, ["func", "args", "keywords"]))
        for part in (p.func, p.args, p.keywords, p.__dict__):
            self._add(what, part)

    def _wrapped(self, what: str, f: Any) -> None:
        self._add(what, f.__func__)

    def _property(self, what: str, p: Any) -> None:
        for f in (p.fget, p.fset) if isinstance(p, property) else (p.func,):
            self._add(what, f)

    def _by_name(self, what: str, get: Any) -> None:
        self.computed = True

    def _dict(self, what: str, held: dict) -> None:
        if held is sys.modules:  # Python's own code looks for modules that it names
            self.items.append(DictItem(what, held, tuple(self.texts)))
            return
        self.items.append(DictItem(what, held))
        for key, value in contents(held).items():
            if not isinstance(key, Tensor):
                self._add(what, key)
            self._add(f"{what}[{key!r}]" if type(key) in (str, int) else f"{what}[...]", value)
        if isinstance(held, collections.defaultdict):
            self.items.append(SlotsItem(what, held, ["default_factory"]))
            self._add(what, held.default_factory)

    def _import(self, name: str, space: dict) -> None:
        """Guard an import inside a function: its module is in `sys.modules` already, or the import did not run."""
        package = space.get("__package__") or ""
        found = [n for n in (name, f"{package}.{name}".rstrip(".")) if n in sys.modules]
        self.items.append(DictItem("sys.modules", sys.modules, (name, *found)))
        for one in found:
            self._add(one, sys.modules[one])

    def _list(self, what: str, held: list) -> None:
        self.items.append(ListItem(what, held))
        for i, value in enumerate(contents(held)):
            self._add(f"{what}[{i}]", value)

    def _tuple(self, what: str, held: Any) -> None:
        for i, value in enumerate(contents(held)):
            self._add(f"{what}[{i}]", value)

    def _collection(self, what: str, held: Any) -> None:
        self.items.append(CollectionItem(what, held))
        for value in contents(held):
            self._add(what, value)

    def _weak(self, what: str, held: Any) -> None:
        """Add the target of a weak reference, if it lives as long as a model does, like the tables of hooks that handles refer to. Other
        targets raise Unreachable: a recording would keep them alive."""
        if not isinstance(held(), (type, Tensor, Module, Optimizer, collections.OrderedDict, type(None))):
            raise Unreachable(f"{what} is a weak reference to a {type(held()).__name__}, which may be freed")
        if not isinstance(held(), Tensor):
            self._add(what, held())
        self.weak.append((what, held))

    def _check_weak(self) -> None:
        """Raise Unreachable if only weak references lead to a tensor."""
        found = [what for what, held in self.weak if isinstance(held(), Tensor) and id(held()) not in self.seen]
        if found:
            raise Unreachable(f"{found[0]} is a weak reference to a tensor, which may be freed")

    def _proxy(self, what: str, held: types.MappingProxyType) -> None:
        self._add(what, gc.get_referents(held)[0])

    def _record(self, what: str, op: Any) -> None:
        """Add a user's operator: the functions that run when it is called. Its other rules (sharding, ONNX) are only guarded."""
        self.items.append(DictItem(what, vars(op)))
        for name in ("kernels", "impl", "autocast", "source"):
            self._add(f"{what}.{name}", getattr(op, name))

    @staticmethod
    def _is_number(value: Any) -> bool:
        """Return whether a value is an immutable NumPy number; one of a user's subclass may have attributes."""
        return isinstance(value, c_functions.NUMBERS) and not is_pythons(type(value))  # type: ignore[arg-type]
