"""The Python state that a function can read: variables around it, globals that its code names, objects behind these, and theirs.

Code of this library is trusted to depend on its arguments and on the settings that `function` compares; code of users is followed.
Of a user's object only attributes count whose names occur in code that can be reached; where such code looks attributes up by
computed names, all count. What cannot be followed is a reason not to record."""

from __future__ import annotations

import builtins
import collections
import dis
import enum
import functools
import gc
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from ..autograd.api import grad
from ..core.device import device
from ..core.dtype import dtype
from ..core.generator import Generator
from ..core.graph import Node
from ..core.tensor import Tensor
from ..nn.modules.module import Module
from ..nn.parameter import Parameter
from ..optim.optimizer import Optimizer
from .arguments import ATOMS
from .guards import (
    AutogradItem,
    CellItem,
    ClassItem,
    CollectionItem,
    DictItem,
    Item,
    ListItem,
    SlotsItem,
    TensorItem,
)
from .late import late

source = late("source")

_PACKAGE = __name__.partition(".")[0]
_PURE_MODULES = frozenset(
    ("math", "cmath", "operator", "_operator", "functools", "_functools", "itertools", "collections", "_collections", "typing",
     "numbers", "dataclasses", "abc", "_abc", "types", "enum", "copy", "string", "re", "contextlib", "warnings", "_warnings",
     "inspect", "numpy", "__future__", "bisect", "_bisect", "heapq", "_heapq", "collections.abc", "_collections_abc", "copyreg")
)  # fmt: skip
_IMPURE_BUILTINS = frozenset(("print", "input", "open", "eval", "exec", "globals", "locals", "breakpoint", "compile", "id", "hash",
                              "__import__"))  # fmt: skip
_OUTSIDE = frozenset(
    ("distributed", "horovod", "save", "load")
)  # names of this library's that reach outside the process
_BY_COMPUTED_NAME = frozenset(("getattr", "setattr", "delattr", "vars", "__dict__", "hasattr", "dir"))
# What is another thing in each call: where a tensor lies, how often it was changed, where it comes from; what random numbers come
# next.
_OF_ONE_CALL = frozenset(("data_ptr", "storage_offset", "storage", "untyped_storage", "_version", "grad_fn", "_base", "is_shared", "is_pinned",
                          "_is_view", "is_set_to", "share_memory_", "_use_count", "__array_interface__",
                          "_profiler_enabled", "initial_seed", "seed", "get_rng_state", "get_state"))  # fmt: skip
# What is done to gradients of something that a function computes.
_HOOKS = frozenset(
    (
        "register_hook",
        "register_post_accumulate_grad_hook",
        "register_prehook",
        "register_multi_grad_hook",
        "retain_grad",
    )
)
# Methods that this library calls on objects of users.
_CALLED = frozenset(("forward", "backward", "setup_context", "step", "zero_grad", "__call__"))
# Names by which code gets at modules inside a module without naming them.
_ALL_CHILDREN = frozenset(("children", "modules", "named_children", "named_modules", "_modules", "apply", "get_submodule", "deepcopy",
                           "copy", "compile", "jit", "func", "functional_call", "export", "fx"))  # fmt: skip
# Names by which code gets at more of an optimizer than its parameters.
_OF_OPTIMIZERS = frozenset(
    {n for n in dir(Optimizer) if not n.startswith("__")} - {"zero_grad"} | {"param_groups", "state", "defaults", "deepcopy", "copy"}
)  # fmt: skip
_NOT_CALLED = frozenset(("__init__", "__new__", "__del__", "__repr__", "__str__", "__reduce__", "__reduce_ex__", "__getstate__",
                         "__setstate__", "__init_subclass__", "__class_getitem__", "__deepcopy__", "__copy__", "__dir__"))  # fmt: skip
_PLAIN = (*ATOMS, dtype, device, range, slice, enum.Enum, types.CodeType, Generator, Node)


class Unreachable(Exception):
    """Why the state of a function cannot be known."""


class _Reentered(Exception):
    """The method that is set aside may be called after all."""


class Reach:
    """What can be reached from some objects: `items` to guard, tensors, optimizers.

    `aside` is an object and the code of one of its methods, of which the function is a part: the function does not call this method,
    so that what the method names besides does not count. Where it might be called in a roundabout way, it counts after all."""

    def __init__(self, aside: tuple[Any, types.CodeType] | None = None) -> None:
        self.aside = aside
        self.names: set[str] = set()
        self.computed = False  # whether code looks attributes up by computed names
        self.codes: set[types.CodeType] = set()
        self._clear()

    def _clear(self) -> None:
        self.items: list[Item] = []
        self.tensors: dict[int, tuple[str, Tensor]] = {}
        self.optimizers: list[Optimizer] = []
        self.seen: dict[int, Any] = {}
        self.pending: list[tuple[str, Any]] = []

    def explore(self, roots: list[tuple[str, Any]]) -> Reach:
        """Follow everything from the roots, again until no new names turn up in code."""
        while True:
            before = (len(self.names), self.computed)
            self._clear()
            self.pending = list(roots)
            try:
                while self.pending:
                    self._visit(*self.pending.pop())
            except _Reentered:
                self.aside = None
                continue
            if before == (len(self.names), self.computed):
                space = vars(builtins)
                self.items.append(DictItem("builtins", space, tuple(n for n in self.names if n in space)))
                return self

    def differentiates(self) -> bool:
        """Whether code that was found asks for gradients of something in between: `autograd.grad`, a hook."""
        return {"autograd", "grad"} <= self.names or bool(self.names & _HOOKS) or id(grad) in self.seen

    def _add(self, what: str, value: Any) -> None:
        if type(value) not in ATOMS:
            self.pending.append((what, value))

    def _visit(self, what: str, value: Any) -> None:
        if isinstance(value, _PLAIN):
            return
        if id(value) in self.seen:
            if self.aside is not None and value is self.aside[0]:
                raise _Reentered  # somebody else holds the object, too
            return
        self.seen[id(value)] = value
        for kinds, visit in _VISITORS:
            if isinstance(value, kinds):
                visit(self, what, value)
                if visit in _CONTAINERS and type(value) not in _KNOWN_BASES and hasattr(value, "__dict__"):
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
        original = f.__dict__.get("_torchdynamo_orig_callable")
        if original is not None:  # a compiled function: what is behind it counts
            self._add(what, original)
            return
        if _communicates(f.__module__):
            raise Unreachable(f"{what} talks to other processes")
        if _trusted(f.__module__):
            return
        if self.aside is not None and f.__code__ is self.aside[1]:
            raise _Reentered
        self._code(what, f.__code__, f.__globals__)
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or ()):
            item = CellItem(f"{name} of {what}", cell)
            self.items.append(item)
            self._add(f"{name}", item.seen)
        self._add(f"defaults of {what}", f.__defaults__)
        self._add(f"defaults of {what}", f.__kwdefaults__)
        if f.__dict__:
            self._dict(f"attributes of {what}", f.__dict__)

    def _code(self, what: str, code: types.CodeType, space: dict) -> None:
        self.codes.add(code)
        self.names.update(code.co_names)
        names = set(code.co_names)
        if names & (_OF_ONE_CALL | _HOOKS):
            raise Unreachable(f"{what} asks for {min(names & (_OF_ONE_CALL | _HOOKS))}")
        if names & _BY_COMPUTED_NAME:
            self.computed = True
        loaded = _globals_of(code)
        if loaded:
            where = space.get("__name__", "globals")
            self.items.append(DictItem(f"globals of {where}", space, loaded))
            for name in loaded:
                if name in space:
                    self._add(f"{name}", space[name])
        for name in loaded:
            if name in _IMPURE_BUILTINS and name not in space and hasattr(builtins, name):
                raise Unreachable(f"{what} calls {name}()")
        for instruction in dis.get_instructions(code):
            if instruction.opname == "IMPORT_NAME":
                module = sys.modules.get(instruction.argval)
                if module is None:
                    raise Unreachable(f"{what} imports {instruction.argval}")
                self._add(str(instruction.argval), module)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._code(what, constant, space)

    def _method(self, what: str, m: types.MethodType) -> None:
        self._add(what, m.__func__)
        self._add(what, m.__self__)

    def _builtin(self, what: str, f: Any) -> None:
        owner = getattr(f, "__self__", None)
        module = (getattr(f, "__module__", None) or "").partition(".")[0]
        if f is tuple.__new__:
            return  # how named tuples are made
        if owner is not None and not isinstance(owner, (types.ModuleType, type)):
            self._add(what, owner)  # the append of a list
        elif module == "builtins":
            if f.__name__ in _IMPURE_BUILTINS:
                raise Unreachable(f"{what} is {f.__name__}()")
        elif module not in _PURE_MODULES and not _trusted(module):
            raise Unreachable(f"{what} is a function of {module or type(f).__name__}, which may do anything")

    def _partial(self, what: str, p: functools.partial) -> None:
        for part in (p.func, p.args, p.keywords):
            self._add(what, part)

    def _wrapped(self, what: str, f: Any) -> None:
        self._add(what, f.__wrapped__ if hasattr(f, "__wrapped__") else f.__func__)

    def _property(self, what: str, p: property) -> None:
        for f in (p.fget, p.fset):
            self._add(what, f)

    def _module_object(self, what: str, module: types.ModuleType) -> None:
        name = module.__name__
        if _trusted(name) and (_communicates(name) or self.names & _OUTSIDE):
            raise Unreachable(f"{what} may reach files or other processes ({', '.join(self.names & _OUTSIDE) or name})")
        if _trusted(name) or name.partition(".")[0] in _PURE_MODULES:
            if name.partition(".")[0] == "numpy" and "random" in self.names:
                raise Unreachable(f"{what} may draw random numbers of NumPy")
            if "ops" in self.names:
                self._operators()
            return
        if getattr(module, "__file__", None) is None or name.partition(".")[0] in sys.stdlib_module_names:
            raise Unreachable(f"{name} is used, which may do anything")
        space = vars(module)
        used = tuple(space) if self.computed else tuple(n for n in self.names if n in space)
        self.items.append(DictItem(f"globals of {name}", space, used))
        for one in used:
            self._add(f"{name}.{one}", space[one])

    def _operators(self) -> None:
        """Operators that users have defined, as far as code names where they are found."""
        for name, place in vars(sys.modules[f"{_PACKAGE}.ops"]).items():
            if name in self.names and type(place).__name__ == "_Namespace":
                for face in vars(place).values():
                    if type(face).__name__ == "OperatorFace":
                        self._add(f"ops.{name}.{face.__name__}", face)

    # -- containers -------------------------------------------------------------------------------------------------
    def _dict(self, what: str, held: dict) -> None:
        self.items.append(DictItem(what, held))
        for key, value in held.items():
            if not isinstance(key, Tensor):
                self._add(what, key)
            self._add(f"{what}[{key!r}]" if type(key) in (str, int) else f"{what}[...]", value)
        if isinstance(held, collections.defaultdict):
            self._add(what, held.default_factory)

    def _list(self, what: str, held: list) -> None:
        self.items.append(ListItem(what, held))
        for i, value in enumerate(held):
            self._add(f"{what}[{i}]", value)

    def _tuple(self, what: str, held: Any) -> None:
        for i, value in enumerate(held):
            self._add(f"{what}[{i}]", value)

    def _collection(self, what: str, held: Any) -> None:
        self.items.append(CollectionItem(what, held))
        for value in held:
            self._add(what, value)

    def _weak(self, what: str, held: Any) -> None:
        self._add(what, held())

    def _proxy(self, what: str, held: types.MappingProxyType) -> None:
        self._add(what, gc.get_referents(held)[0])

    # -- objects ----------------------------------------------------------------------------------------------------
    def _tensor(self, what: str, t: Tensor) -> None:
        if type(t) not in (Tensor, Parameter):
            raise Unreachable(f"{what} is a {type(t).__name__}, a tensor of a class of its own")
        if t.is_sparse or t.device.type not in ("cpu", "cuda") or not hasattr(t, "_storage"):
            raise Unreachable(f"{what} is on {t.device} with layout {t.layout}")
        self.tensors[id(t)] = (what, t)
        self.items.append(TensorItem(what, t))
        if t._autograd is not None:
            if t._autograd.hooks or t._autograd.post_hooks:
                raise Unreachable(f"{what} has hooks")
            self.items.append(AutogradItem(what, t._autograd))
        if t.__dict__:
            self._dict(f"attributes of {what}", t.__dict__)

    def _optimizer(self, what: str, o: Optimizer) -> None:
        self.optimizers.append(o)
        if not _trusted(type(o).__module__) or self.computed or self.names & _OF_OPTIMIZERS:
            self._object(what, o)
            return
        # Only gradients are cleared: what the optimizer knows of its parameters besides does not matter.
        self.items += [DictItem(what, o.__dict__, ("param_groups",)), ListItem(f"{what}.param_groups", o.param_groups)]
        for i, group in enumerate(o.param_groups):
            self.items.append(DictItem(f"{what}.param_groups[{i}]", group, ("params",)))
            self._add(f"{what}.param_groups[{i}]['params']", group["params"])

    def _object(self, what: str, o: Any) -> None:
        cls = type(o)
        foreign = next((c for c in cls.__mro__ if not _written_in_python(c)), None)
        if foreign is not None:
            raise Unreachable(f"{what} is a {foreign.__module__}.{foreign.__name__}, whose state cannot be seen")
        if _communicates(cls.__module__):
            raise Unreachable(f"{what} talks to other processes")
        own = _trusted(cls.__module__)
        if self.aside is not None and o is not self.aside[0] and isinstance(o, type(self.aside[0])):
            raise _Reentered  # another object with the same method
        if not own or isinstance(o, Module):
            self.items.append(ClassItem(what, o))
        held = getattr(o, "__dict__", None)
        slots = [n for c in cls.__mro__ for n in _slots(c)]
        # Of a module, this library reads what begins with an underscore; what its own layers read besides is not known.
        layered = isinstance(o, Module) and any(_trusted(c.__module__) for c in cls.__mro__ if c not in Module.__mro__)
        whole = own or self.computed or layered or isinstance(o, Optimizer)
        if held is not None:
            inner = isinstance(o, Module)
            used = (
                None
                if whole
                else tuple(
                    n for n in held if n in self.names or n in _CALLED or (inner and (n[0] == "_" or n == "training"))
                )
            )
            absent = (
                () if whole else tuple(n for n in self.names | _CALLED if n not in held)
            )  # they may hide the class's
            self.items.append(DictItem(what, held, None if used is None else (*used, *absent)))
            parted = used is not None and inner and not self.names & _ALL_CHILDREN
            for name in held if used is None else used:
                if name == "_modules" and parted:
                    self._children(what, held[name])
                else:
                    self._add(f"{what}.{name}", held[name])
        if slots:
            self.items.append(SlotsItem(what, o, slots))
            for name in slots:
                self._add(f"{what}.{name}", getattr(o, name, None))
        for c in cls.__mro__:
            self._methods(c, False)
            if (
                isinstance(o, Module)
                and "forward" in c.__dict__
                and _trusted(c.__module__)
                and (id(c), True) not in self.seen
            ):
                self.seen[id(c), True] = c  # type: ignore[index]
                self.items.append(DictItem(c.__qualname__, gc.get_referents(c.__dict__)[0], ("forward",)))
                self._add(f"{c.__qualname__}.forward", c.__dict__["forward"])  # somebody may have exchanged it

    def _children(self, what: str, modules: dict[str, Any]) -> None:
        """Modules inside one of a user's. Those that no code names are not called; their parameters may be used yet."""
        self.items.append(DictItem(f"{what}._modules", modules))
        for name, child in modules.items():
            if name in self.names or not isinstance(child, Module):
                self._add(f"{what}.{name}", child)
            else:
                self._data(f"{what}.{name}", child)

    def _data(self, what: str, module: Module) -> None:
        """Parameters and buffers of a module that is not called, and of those inside it."""
        if (id(module), "data") in self.seen:
            return
        self.seen[id(module), "data"] = module  # type: ignore[index]
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
        for c in cls.__mro__:
            self._methods(c, True)

    def _methods(self, cls: type, made: bool) -> None:
        """The code and the attributes of a class of a user's."""
        if (
            _trusted(cls.__module__)
            or cls.__module__.partition(".")[0] in (*_PURE_MODULES, "builtins")
            or cls is object
        ):
            return
        if (id(cls), made) in self.seen:
            return
        self.seen[id(cls), made] = cls  # type: ignore[index]
        space = gc.get_referents(cls.__dict__)[0]
        used = []
        for name, value in cls.__dict__.items():
            special = name.startswith("__") and name.endswith("__")
            if special and not callable(value):
                continue
            wanted = name in self.names or name in _CALLED or self.computed or (special and name not in _NOT_CALLED)
            if wanted or (made and name in ("__init__", "__new__", "__post_init__")):
                used.append(name)
                if self._is_aside(cls, value):
                    continue
                if not isinstance(value, _DESCRIPTORS):
                    self._add(f"{cls.__qualname__}.{name}", value)
        if isinstance(space, dict):
            absent = tuple(n for n in self.names | _CALLED if n not in space)  # they may hide a base's
            self.items.append(DictItem(cls.__qualname__, space, (*used, *absent)))

    def _is_aside(self, cls: type, value: Any) -> bool:
        """Whether this is the method that is set aside. Others of its object must not use the object as a whole."""
        if self.aside is None or not isinstance(self.aside[0], cls) or not isinstance(value, types.FunctionType):
            return False
        if value.__code__ is self.aside[1]:
            return True
        if not only_attributes(value):
            raise _Reentered
        return False


_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType,
                types.MethodDescriptorType, types.ClassMethodDescriptorType)  # fmt: skip
_VISITORS: list[tuple[Any, Callable]] = [
    (Tensor, Reach._tensor),
    (types.FunctionType, Reach._function),
    (types.MethodType, Reach._method),
    ((types.BuiltinFunctionType, types.MethodWrapperType, *_DESCRIPTORS), Reach._builtin),
    (functools.partial, Reach._partial),
    ((staticmethod, classmethod, functools._lru_cache_wrapper), Reach._wrapped),
    (property, Reach._property),
    (types.ModuleType, Reach._module_object),
    (Optimizer, Reach._optimizer),
    (dict, Reach._dict),
    (list, Reach._list),
    ((tuple, frozenset), Reach._tuple),
    ((set, collections.deque), Reach._collection),
    (weakref.ref, Reach._weak),
    (types.MappingProxyType, Reach._proxy),
]


_CONTAINERS = (Reach._dict, Reach._list, Reach._tuple, Reach._collection)
_KNOWN_BASES = (object, dict, list, tuple, set, frozenset, collections.OrderedDict, collections.defaultdict, collections.deque,
                BaseException, Exception, ValueError, RuntimeError, TypeError, KeyError, enum.Enum, types.SimpleNamespace)  # fmt: skip


@functools.lru_cache(1024)
def only_attributes(f: types.FunctionType) -> bool:
    """Whether a method uses the object that it belongs to only to read and set attributes."""
    given = source.of(f)
    names = f.__code__.co_varnames[: f.__code__.co_argcount]
    return not isinstance(given, str) and bool(names) and source.uses_only_attributes(given.tree, names[0])


@functools.lru_cache(4096)
def _written_in_python(cls: type) -> bool:
    """Whether a class hides nothing in C: its state is in its dict and slots, and its methods are functions."""
    if cls in _KNOWN_BASES or _trusted(cls.__module__):
        return True
    if not cls.__flags__ & _HEAP_TYPE or cls.__module__ in sys.builtin_module_names:
        return False
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return file is None or file.endswith((".py", ".pyc"))


_HEAP_TYPE = 1 << 9  # classes that are made at run time: those of Python, and some of C


def _trusted(module: str | None) -> bool:
    return (module or "").partition(".")[0] == _PACKAGE


def _communicates(module: str | None) -> bool:
    """Whether a room of this library does more than compute."""
    return (module or "").startswith(
        tuple(f"{_PACKAGE}.{room}" for room in ("distributed", "horovod", "serialization", "serve"))
    )


def _slots(cls: type) -> list[str]:
    given = cls.__dict__.get("__slots__", ())
    return [n for n in ((given,) if isinstance(given, str) else given) if n not in ("__dict__", "__weakref__")]


@functools.lru_cache(4096)
def _globals_of(code: types.CodeType) -> tuple[str, ...]:
    """The global names that code reads or writes."""
    found = (
        i.argval
        for i in dis.get_instructions(code)
        if i.opname.endswith(("_GLOBAL", "_NAME")) and "IMPORT" not in i.opname
    )
    return tuple(dict.fromkeys(found))


__all__ = ["Reach", "Unreachable"]
