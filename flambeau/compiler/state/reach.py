"""The Python state that a function depends on: closure variables of the code that ran, globals that it names, objects reachable from these.

An `Observer` has seen which code ran; code that did not run does not count, even if it is named. Code of this library is trusted to depend on
its arguments and on the settings that `function` compares. Of an object only attributes count whose names occur in code that ran; where such
code looks attributes up by computed names, all count. What cannot be followed is a reason not to record."""

from __future__ import annotations

import abc
import builtins
import collections
import functools
import gc
import operator
import sys
import types
import warnings
import weakref
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from ...autograd.api import grad
from ...core import settings
from ...core.device import device
from ...core.dtype import dtype
from ...core.generator import Generator
from ...core.graph import Node
from ...core.locks import new_lock
from ...core.sharded import SpreadTensor
from ...core.tensor import Tensor
from ...nn import functional, init
from ...nn.modules.module import Module
from ...nn.parameter import Parameter
from ...ops.machinery.record import Op
from ...optim import optimizer as optimizer_room
from ...optim.optimizer import Optimizer
from . import c_functions, code_names, origins
from .findings import Findings, Unreachable
from .frames import function_id
from .guards import (
    AutogradItem,
    CellItem,
    ClassItem,
    DictItem,
    FunctionItem,
    ListItem,
    OwnDictItem,
    SlotsItem,
    TensorItem,
    TypeItem,
    ValueItem,
)
from .observer import Observer, Ran

_PACKAGE = __name__.partition(".")[0]
_LOCK = type(new_lock())  # whoever asks whether it is held calls a C function, which is an objection by itself
_PLAIN = (dtype, device, Generator, Node, _LOCK)


# Namespaces that programs patch with functions of their own, which this library calls, too.
_PATCHED: dict[str, Any] = {
    "Tensor": gc.get_referents(Tensor.__dict__)[0], "nn.functional": vars(functional), "nn.init": vars(init)
}  # fmt: skip


class Reach(Findings):
    """Objects reachable from some roots: `items` to guard, tensors, optimizers. `observer` has seen which code runs; with `ran`, only this
    part of it counts, so that a statement of a function can be examined separately."""

    def __init__(self, observer: Observer | None = None, ran: dict[int, Ran] | None = None) -> None:
        self.observer = Observer() if observer is None else observer
        self.ran = {**self.observer.expected, **self.observer.ran} if ran is None else ran
        self.whole = ran is None  # whether all that ran must be found
        self.names: set[str] = set()
        self._sets: dict[tuple, frozenset[str]] = {}  # of these and more, by their sizes
        self.computed = False
        self.texts = set()
        self.uses_numpy = False  # whether numbers or functions of NumPy were found
        self.matched: set[str] = set()  # attributes that patterns read by position
        self.everything = False  # whether code that did not run counts, too: its results are kept somewhere
        self.codes: set[types.CodeType] = set()
        self._clear()

    def _clear(self) -> None:
        self.items = []
        self.tensors: dict[int, tuple[str, Tensor]] = {}
        self.optimizers: list[Optimizer] = []
        self.seen: dict[Any, Any] = {}
        self.followed: set[int] = set()  # ids of code
        self.functions: set[int] = set()  # ids of those that were followed
        self.known: set[Any] = set()  # what the observer calls them, and functions that are gone
        self.made_inside: set[int] = set()  # ids of code of functions that code which was followed makes
        self.before: set[int] = set()  # ids of functions with such code that were there
        self.pending, self.weak, self.caches = [], [], False  # whether a function keeps its results

    def explore(self, roots: list[tuple[str, Any]]) -> Reach:
        """Follow everything from the roots, repeatedly until no new names turn up in code."""
        self.roots = {id(f.__func__ if isinstance(f, types.MethodType) else f) for _, f in roots}
        for ran in self.ran.values():
            self._names_in(ran.code)
        while True:
            before = self._extent()
            self._clear()
            self.pending = list(roots)
            self._visit_pending()
            for name, held in _PATCHED.items():
                for one in self._used_of(held):
                    if origins.is_put_there(held[one]):
                        self._add(f"{name}.{one}", held[one])
            self._visit_pending()
            if self.whole and before == self._extent():
                self._find_the_rest()
            if before == self._extent():
                self._settings()
                self._check_weak()
                return self

    def _extent(self) -> tuple:
        """Return the counts that grow until everything is found."""
        return len(self.names), self.computed, self.everything

    def _visit_pending(self) -> None:
        while self.pending:
            self._visit(*self.pending.pop())

    def _find_the_rest(self) -> None:
        """Follow the code that ran but was not found from the roots, such as a patched operator."""
        missed = [
            one for key, one in self.ran.items() if key not in self.followed or not one.functions.keys() <= self.known
        ]
        for f in code_names.functions_that_ran(missed):
            if self._has_run(f):
                self._add(f.__qualname__, f)
        self._visit_pending()
        for ran in self.observer.ran.values():
            self.known |= ran.functions.keys()
            if id(ran.code) not in self.followed:  # it was made while it ran
                self._code(ran.code.co_name, ran.code, ran.space)
                self._visit_pending()
        nested = (c for code in self.codes for c in code.co_consts if type(c) is types.CodeType)
        inner = [c for c in nested if id(c) in self.followed]
        self.made_inside = {id(code) for code in inner}
        # nobody but a comprehension holds its function, whose only argument has no name
        lasting = [code for code in inner if code.co_varnames[: code.co_argcount] != (".0",)]
        self.before = {id(f) for f in code_names.functions_of(lasting)}

    def unforeseen(self) -> list[types.CodeType]:
        """Return code that has run since, and whose state is not among the items. Functions made since do not count: they depend on the state
        of those that made them."""
        ran = self.observer.ran
        new = [one.code for key, one in ran.items() if key not in self.followed]
        if not new:
            strange = [one for one in ran.values() if not one.functions.keys() <= self.known]
            found = code_names.functions_that_ran(strange)
            # functions that were there before, not made since by code that was followed
            there = (f for f in found if id(f.__code__) not in self.made_inside or id(f) in self.before)
            new = [f.__code__ for f in there if id(f) not in self.functions and ran[id(f.__code__)].includes(f)]
            if not new:  # looking for functions takes long: these need not be looked for again
                self.known.update(*(one.functions for one in strange))
        return new

    def _settings(self) -> None:
        """Guard the settings that every function depends on, and those of Python that only some functions query."""
        space = vars(builtins)
        self.items.append(DictItem("builtins", space, tuple(n for n in self.names if n in space)))
        for name, held in _PATCHED.items():
            used = self._used_of(held)
            self.items.append(DictItem(name, held, None if self.computed else self.names | used))
        for name, held in settings.changeable:
            if name in self.observer.library_names:
                space = gc.get_referents(held.__dict__)[0] if isinstance(held, type) else held
                self.items.append(DictItem(name, space))
        for asked, what, ask in (
            (self.observer.asks_abstract, "what abstract classes know", abc.get_cache_token),
            (self.observer.warned, "the filters of warnings", lambda: (*warnings.filters, warnings.showwarning)),
            (self.observer.asks_exception, "the exception that is handled", sys.exc_info),
            (self.uses_numpy, "what NumPy does about errors", np.geterr),
        ):
            if asked:
                self.items.append(ValueItem(what, ask))

    def _used_of(self, held: dict[str, Any]) -> set[str]:
        """Return the names in a namespace of this library that code may look up."""
        wanted = self._wanted(code_names.IMPLICIT, self.observer.library_names)
        return {n for n in held if self.computed or n in wanted}

    def differentiates(self) -> bool:
        """Return whether code that was found requests gradients of intermediate values: `autograd.grad`, a hook."""
        return {"autograd", "grad"} <= self.names or bool(self.names & code_names.HOOKS) or id(grad) in self.seen

    def looks_at_gradients(self) -> bool:
        """Return whether code that was found may ask whether a parameter has a gradient: it uses such a name, or an optimizer."""
        names = {n for n in self.names if "grad" in n} - code_names.OF_GRAD_MODE
        return bool(names or self.computed or self.optimizers)

    def _visit(self, what: str, value: Any) -> None:
        number = self._is_number(value)
        self.uses_numpy = self.uses_numpy or number
        if number or isinstance(value, _PLAIN) or type(value) in c_functions.IMMUTABLE:
            return
        if id(value) in self.seen:
            return
        self.seen[id(value)] = value
        for kinds, visit in _VISITORS:
            if isinstance(value, kinds):
                visit(self, what, value)
                if type(value) not in _COMPLETE and isinstance(value, c_functions.CONTAINERS):
                    self._object(what, value)  # a class of a user's
                return
        if isinstance(value, type):
            self._class(what, value)
        else:
            self._object(what, value)

    # -- code -------------------------------------------------------------------------------------------------------
    def _function(self, what: str, f: types.FunctionType) -> None:
        if f.__dict__.get("_torchdynamo_disable"):
            raise Unreachable(f"{what} is not to be compiled")
        if origins.is_library(f.__code__, f.__globals__):
            if origins.reaches_outside(f.__code__):
                raise Unreachable(f"{what} talks to other processes")
            self._add(what, f.__dict__.get("_torchdynamo_orig_callable"))  # behind a compiled function
            return
        self.items.append(FunctionItem(what, f))
        self._dict(f"attributes of {what}", f.__dict__)
        if "__annotations__" in self.names:
            self.items.append(SlotsItem(what, f, ["__annotations__"]))
            self._add(f"annotations of {what}", f.__annotations__)
        if not self._has_run(f) and id(f) not in self.roots and not self.everything:
            return
        self.functions.add(id(f))
        self.known.add(function_id(f))
        self._code(what, f.__code__, f.__globals__)
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or ()):
            item = CellItem(f"{name} of {what}", cell)
            self.items.append(item)
            self._add(f"{name}", item.seen)
        self._add(f"defaults of {what}", f.__defaults__)
        self._add(f"defaults of {what}", f.__kwdefaults__)

    def _has_run(self, f: Any) -> bool:
        ran = self.ran.get(id(getattr(f, "__code__", None)))
        return ran is not None and ran.includes(f)

    def _code(self, what: str, code: types.CodeType, space: dict) -> None:
        self.codes.add(code)
        self.followed.add(id(code))
        self.texts.update(c for c in code.co_consts if type(c) is str)
        names = self._names_in(code)
        if "modules" in names and origins.is_users(code, space):
            raise Unreachable(f"{what} reads sys.modules")
        if names & (code_names.OF_ONE_CALL | code_names.HOOKS) and origins.is_users(code, space):
            raise Unreachable(f"{what} asks for {min(names & (code_names.OF_ONE_CALL | code_names.HOOKS))}")
        loaded, imported = code_names.globals_of(code)
        if loaded:
            where = space.get("__name__", "globals")
            self.items.append(DictItem(f"globals of {where}", space, loaded))
            for name in loaded:
                if name in space:
                    self._named(name, space[name])
        for name in imported:
            self._import(name, space)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._code(what, constant, space)

    def _names_in(self, code: types.CodeType) -> set[str]:
        """Note the names in code, and return them."""
        names = {*code.co_names, *(n for c in code.co_consts if type(c) is tuple for n in c if type(n) is str)}
        self.names |= names
        self.everything |= bool(names & code_names.OF_FUNCTIONS)
        if names & code_names.BY_COMPUTED_NAME or ("format" in names and code_names.formats_attributes(code)):
            self.computed = True
        return names

    def _follow_cached(self, what: str, f: Any) -> None:
        """Follow a function whose results are cached. If they were cached before it was observed, its code is not known, and all code counts."""
        inner, self.caches = f.__wrapped__, True
        self.everything = self.everything or not self._has_run(inner)
        self._add(what, inner)

    def _wanted(self, *more: Collection[str]) -> frozenset[str]:
        """Return the names in code and `more`: the same set for all objects until names are added."""
        key = len(self.names), *((id(names), len(names)) for names in more)
        if key not in self._sets:
            self._sets[key] = frozenset(self.names).union(*more)
        return self._sets[key]

    def _module_object(self, what: str, module: types.ModuleType) -> None:
        name, space = module.__name__, vars(module)
        own = origins.is_library_module(module)
        self.uses_numpy = self.uses_numpy or module is np
        if own and origins.is_outside(name):
            raise Unreachable(f"{what} may reach files or other processes ({name})")
        if own and "ops" in self.names:
            self._operators()
        # without names that every module has, such as `__file__`
        used = tuple(n for n in self.names if n in space and not (n.startswith("__") and n.endswith("__")))
        watched = tuple(space) if self.computed else used
        absent = self.names.difference(space) if "__getattr__" in space else ()
        self.items.append(DictItem(f"globals of {name}", space, (*watched, *absent, "__getattr__")))
        for one in used if origins.is_shared_module(module) else watched:
            if (
                not own
                or isinstance(space[one], (types.FunctionType, types.ModuleType, type))
                or origins.is_put_there(space[one])
            ):
                self._named(f"{name}.{one}", space[one])
        self._add(f"{name}.__getattr__", space.get("__getattr__"))
        if not own:
            self.items.append(ClassItem(name, module))
            for c in type(module).__mro__:
                self._class_state(c)

    def _operators(self) -> None:
        """Follow the operators that users have defined, if code names their namespaces."""
        for name, place in vars(sys.modules[f"{_PACKAGE}.ops"]).items():
            if name in self.names and type(place).__name__ == "_Namespace":
                for face in vars(place).values():
                    if type(face).__name__ == "OperatorFace":
                        self._add(f"ops.{name}.{face.__name__}", face)

    # -- objects ----------------------------------------------------------------------------------------------------
    def _tensor(self, what: str, t: Tensor) -> None:
        cls: Any = type(t)
        spread = isinstance(t, SpreadTensor)  # among its attributes is a plain tensor, this rank's part
        if cls not in (Tensor, Parameter) and not (spread and origins.is_library_class(cls)):
            raise Unreachable(f"{what} is a {type(t).__name__}, a tensor of a class of its own")
        if t.is_sparse or t.device.type not in ("cpu", "cuda", "meta") or not hasattr(t, "_storage"):
            raise Unreachable(f"{what} is on {t.device} with layout {t.layout}")
        self.items += [ClassItem(what, t), OwnDictItem(what, t)]
        if t.device.type != "meta":  # there is no memory then, only a shape
            self.tensors[id(t)] = (what, t)
        self.items.append(SlotsItem(what, t, ["shape", "dtype", "_base"]) if spread else TensorItem(what, t))
        if t._autograd is not None:
            if t._autograd.hooks or t._autograd.post_hooks:
                raise Unreachable(f"{what} has hooks")
            self.items.append(AutogradItem(what, t._autograd))
            self._accumulator(f"where gradients of {what} arrive", t._autograd)
        self._dict(f"attributes of {what}", t.__dict__)

    def _accumulator(self, what: str, meta: Any) -> None:
        """Guard the hooks that are called when a leaf has its gradient; their node is kept alive meanwhile."""
        node = None if meta.accumulator is None else meta.accumulator()
        for hooks in () if node is None else (node.prehooks, node.hooks):
            if hooks is not None and id(hooks) not in self.seen:
                self.seen[id(node)] = node
                self.items += [
                    DictItem(what, meta.__dict__, ("accumulator",)),
                    DictItem(what, node.__dict__, ("hooks", "prehooks")),
                ]
                self._add(what, hooks)

    def _optimizer(self, what: str, o: Optimizer) -> None:
        self.optimizers.append(o)
        for kind in ("pre", "post"):
            hooks = getattr(optimizer_room, f"_global_optimizer_{kind}_hooks")
            self._add("hooks of all optimizers", hooks)
        if not origins.is_library_class(type(o)) or self.computed or self.names & code_names.OF_OPTIMIZERS:  # type: ignore[arg-type]
            self._object(what, o)
            return
        # Code only clears gradients: the rest of the optimizer's state does not matter.
        self._class(what, type(o))
        self.items += [ClassItem(what, o), OwnDictItem(what, o), DictItem(what, o.__dict__, ("param_groups",))]
        self.items.append(ListItem(f"{what}.param_groups", o.param_groups))
        for i, group in enumerate(o.param_groups):
            self.items.append(DictItem(f"{what}.param_groups[{i}]", group, ("params",)))
            self._add(f"{what}.param_groups[{i}]['params']", group["params"])

    def _object(self, what: str, o: Any) -> None:
        cls = type(o)
        if origins.is_known_by_identity(cls):
            return
        foreign = next((c for c in cls.__mro__ if not origins.shows_its_state(c)), None)
        if foreign is not None:
            raise Unreachable(f"{what} is a {foreign.__module__}.{foreign.__name__}, whose state cannot be seen")
        own = origins.is_library_class(cls)  # type: ignore[arg-type]
        if own and origins.is_outside(cls.__module__):
            raise Unreachable(f"{what} talks to other processes")
        self.items.append(ClassItem(what, o))
        if isinstance(o, BaseException):
            self.items.append(SlotsItem(what, o, ["args"]))
            self._add(f"{what}.args", o.args)
        if getattr(o, "__dict__", None) is not None:
            self._attributes(what, o, own)
        slots = [n for c in cls.__mro__ for n in code_names.slots_of(c)]
        if slots:
            self.items.append(SlotsItem(what, o, slots))
            for name in slots:
                self._add(f"{what}.{name}", getattr(o, name, None))
        for c in (*cls.__mro__, *type(cls).__mro__):
            self._class_state(c)

    def _attributes(self, what: str, o: Any, own: bool) -> None:
        """Follow the attributes of an object that code names, or all."""
        held, inner = o.__dict__, isinstance(o, Module)
        self.items.append(OwnDictItem(what, o))
        # This library reads a module's attributes that begin with an underscore; what else its own layers read is not known.
        layered = inner and any(origins.is_library_class(c) for c in type(o).__mro__ if c not in Module.__mro__)
        # The methods of a SimpleNamespace are in C and read all attributes.
        if own or self.computed or layered or isinstance(o, (Optimizer, types.SimpleNamespace)):
            self.items.append(DictItem(what, held))
            for name, value in held.items():
                self._add(f"{what}.{name}", value)
            return
        names = self._wanted(code_names.OF_MODULES if inner else code_names.CALLED)
        used = [n for n in held if n in names or (inner and n[0] == "_")]
        # those that it has no attribute for count, too: one may hide the class's
        self.items.append(DictItem(what, held, names if names.issuperset(used) else names.union(used)))
        for name in used:
            if name == "_modules" and inner and not self.names & code_names.ALL_CHILDREN:
                self._children(what, held[name])
            else:
                self._add(f"{what}.{name}", held[name])

    def _children(self, what: str, modules: dict[str, Any]) -> None:
        """Follow the modules inside a user's module. Those that no code names are not called, but their parameters may be used."""
        self.items.append(DictItem(f"{what}._modules", modules))
        for name, child in modules.items():
            if name in self.names or not isinstance(child, Module):
                self._add(f"{what}.{name}", child)
            else:
                self._data(f"{what}.{name}", child)

    def _data(self, what: str, module: Module) -> None:
        """Follow parameters and buffers of a module that is not called, and of those inside it."""
        if (id(module), "data") in self.seen:
            return
        self.seen[id(module), "data"] = module
        tables = ("_parameters", "_buffers", "_modules")
        self.items.append(DictItem(what, module.__dict__, ("training", *tables)))
        for name in tables:
            held = module.__dict__[name]
            self.items.append(DictItem(f"{what}.{name}", held))
            for key, value in held.items():
                if isinstance(value, Module):
                    self._data(f"{what}.{key}", value)
                else:
                    self._add(f"{what}.{key}", value)

    def _class(self, what: str, cls: type) -> None:
        for c in (*cls.__mro__, *type(cls).__mro__):  # type: ignore[misc]
            self._class_state(c)

    def _class_state(self, cls: type) -> None:
        """Follow the methods and attributes of a class that code names or Python calls implicitly."""
        if not cls.__flags__ & origins.HEAP_TYPE or (id(cls), "state") in self.seen:
            return
        self.seen[id(cls), "state"] = cls
        space = gc.get_referents(cls.__dict__)[0]
        own = origins.is_library_class(cls)
        wanted = self._wanted(code_names.OF_CLASSES, *((self.observer.library_names,) if own else ()))
        used = {n for n in cls.__dict__ if self.computed or n in wanted}
        if "__match_args__" in used:
            self.matched |= {n for n in cls.__match_args__ if type(n) is str}  # type: ignore[attr-defined]
            self.names |= self.matched
        for name in used:
            value = cls.__dict__[name]
            if not isinstance(value, (*_DESCRIPTORS, types.BuiltinFunctionType)) and (
                not own
                or name in code_names.CALLED
                or isinstance(value, types.FunctionType)
                or origins.is_put_there(value)
            ):
                self._add(f"{cls.__qualname__}.{name}", value)
        self.items.append(TypeItem(cls.__qualname__, cls))
        if isinstance(space, dict):
            # those that it has nothing for count, too: it may hide a base's
            self.items.append(DictItem(cls.__qualname__, space, None if self.computed else wanted))


_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType,
                types.MethodDescriptorType, types.ClassMethodDescriptorType)  # fmt: skip
_VISITORS: list[tuple[Any, Callable]] = [
    (Tensor, Reach._tensor),
    (types.FunctionType, Reach._function),
    (types.MethodType, Reach._method),
    ((types.BuiltinFunctionType, types.MethodWrapperType, *_DESCRIPTORS), Reach._builtin),
    (functools.partial, Reach._partial),
    ((staticmethod, classmethod), Reach._wrapped),
    (functools._lru_cache_wrapper, Reach._follow_cached),
    ((property, functools.cached_property), Reach._property),
    ((operator.attrgetter, operator.methodcaller), Reach._by_name),
    (types.ModuleType, Reach._module_object),
    (Optimizer, Reach._optimizer),
    (Op, Reach._record),
    (dict, Reach._dict),
    (list, Reach._list),
    ((tuple, frozenset), Reach._tuple),
    ((set, collections.deque), Reach._collection),
    (weakref.ref, Reach._weak),
    (types.MappingProxyType, Reach._proxy),
]
_COMPLETE = frozenset(c_functions.CONTAINERS)
