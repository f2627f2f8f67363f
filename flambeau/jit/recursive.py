"""From a Python module to a compiled one: the type of the module from its attributes, its methods from its class.

Two modules with the same class and attributes of the same types share one compiled type.
"""

from __future__ import annotations

import copy
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

import flambeau as torch

from . import Attribute
from . import signatures as notes
from .functions import Definition, Function, defaults_of, parsed
from .hook_signatures import check_hooks
from .marks import Mark, mark_of, overloads
from .module_values import is_constant
from .naming import is_library, qualified_name, unique_name
from .resolver import PythonResolver, function_for_overload
from .types import NONE, TENSOR, ClassType, InterfaceType, Type
from .value_types import inferred

_INTERNAL = frozenset(torch.nn.Module().__dict__) - {"training"}


class _ById:
    """Key that compares objects by identity and keeps them alive, so that their `id` is not reused."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any):
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)


class Concrete:
    """Description of a Python module for its compilation: types of attributes, constants, submodules, functions, hooks."""

    def __init__(self, python_class: type):
        self.python_class = python_class
        self.attributes: dict[str, Type] = {}
        self.parameters: set[str] = set()
        self.buffers: set[str] = set()
        self.constants: dict[str, Any] = {}
        self.modules: dict[str, Concrete | InterfaceType] = {}
        self.functions: dict[str, Any] = {}
        self.failed: dict[str, str] = {}
        self.ignored: set[str] = set()
        self.container = _container(python_class)
        self.hooks: tuple = ()
        self.overrides: dict[str, Any] = {}  # functions that an instance has in place of its class's methods
        self.script_type: ClassType | None = None
        self.done: ClassType | None = None  # of a module that was compiled before

    def method(self, function: Any, name: str) -> Function:
        """Compile a method of the Python class as a method of the compiled type."""
        assert self.script_type is not None
        return method_for(self.script_type, function, name)

    def overloads(self, function: Any, name: str) -> list[str]:
        """Return the names under which the overloads of a method are compiled."""
        assert self.script_type is not None
        return method_overloads(self.script_type, function, name)

    def key(self) -> tuple:
        modules = tuple((n, _ById(c.script_type if isinstance(c, Concrete) else c)) for n, c in self.modules.items())
        constants = tuple((n, type(v).__name__, repr(v)) for n, v in self.constants.items())
        functions = tuple((n, _ById(f)) for n, f in (*self.functions.items(), *self.overrides.items()))
        attributes = tuple(
            (n, str(t), _ById(t) if isinstance(t, (ClassType, InterfaceType)) else 0)
            for n, t in self.attributes.items()
        )
        return (
            self.python_class, attributes, tuple(sorted(self.parameters)), tuple(sorted(self.buffers)), constants, modules,
            functions, self.hooks,
        )  # fmt: skip


def _container(kind: type) -> str:
    nn = torch.nn
    for word, owner in (("list", (nn.Sequential, nn.ModuleList)), ("dict", nn.ModuleDict), ("parameters", nn.ParameterList), ("parameter dict", nn.ParameterDict)):  # fmt: skip
        if issubclass(kind, owner):
            return word
    return ""


_store: dict[tuple, Concrete] = {}


def infer(module: Any, share: bool = True, memo: dict[int, Concrete] | None = None) -> Concrete:
    """Infer the concrete type of a module."""
    memo = {} if memo is None else memo
    if id(module) in memo:
        return memo[id(module)]
    if is_compiled(module):
        found = getattr(module.script_type, "concrete", None)
        if found is None:
            found = Concrete(type(module))
            found.script_type = found.done = module.script_type
        memo[id(module)] = found
        return found
    concrete = _read_module(module, share, memo)
    if share:
        known = _store.setdefault(concrete.key(), concrete)
        if known.script_type is None:
            known.script_type = _make_type(known)
    else:
        known = concrete
        known.script_type = _make_type(known)
    memo[id(module)] = known
    return known


def _hints(kind: type) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base in (torch.nn.Module, object) or not base.__dict__.get("__annotations__"):
            continue
        try:
            found = typing.get_type_hints(base, include_extras=True)
        except Exception:  # an annotation that cannot be evaluated: take them one by one
            found = {}
        hints.update({n: found.get(n, t) for n, t in base.__dict__["__annotations__"].items()})
    return hints


def _declared_type(hint: Any) -> Type | None:
    """Return the type of an annotation; None if there is none, if it is a string or a ClassVar, or if TorchScript has no such type."""
    if hint is None or isinstance(hint, str):
        return None
    if typing.get_origin(hint) is typing.ClassVar:
        return None
    try:
        return notes.python_type(hint)
    except (notes.UnknownType, RuntimeError):
        return None


def _read_module(module: Any, share: bool, memo: dict[int, Concrete]) -> Concrete:
    kind = type(module)
    made = Concrete(kind)
    hints = {} if is_library(kind.__module__) else _hints(kind)
    hints.update(module.__dict__.get("_attribute_types", {}))
    made.ignored = set(getattr(kind, "__jit_ignored_attributes__", ())) | set(
        getattr(kind, "__jit_unused_properties__", ())
    )
    for name, value in [*module._parameters.items(), *module._buffers.items()]:
        if name in made.ignored:
            continue
        declared = _declared_type(hints.get(name))
        made.attributes[name] = declared if declared is not None else NONE if value is None else TENSOR
        (made.parameters if name in module._parameters else made.buffers).add(name)
    for name, value in module._modules.items():
        if name in made.ignored:
            continue
        if value is None:
            made.attributes[name] = NONE
            continue
        interface = _declared_type(hints.get(name))
        made.modules[name] = infer(value, share, memo)
        if isinstance(interface, InterfaceType):
            made.modules[name] = interface
    constants = {n for base in kind.__mro__ for n in base.__dict__.get("__constants__", ())}
    constants |= {n for n, h in hints.items() if h is typing.Final or typing.get_origin(h) is typing.Final}
    for name in _in_order(module, constants):
        if name in made.attributes or name in made.modules or not hasattr(module, name):
            continue
        made.constants[name] = _valid_constant(kind, name, getattr(module, name))
    for name, value in module.__dict__.items():
        if (
            name in _INTERNAL
            or name in made.ignored
            or name in made.constants
            or name in made.attributes
            or name in made.modules
        ):
            continue
        if inspect.ismethod(value) and value.__self__ is module:
            made.overrides[name] = value.__func__
            continue
        _read_attribute(made, name, value, hints.get(name))
    for name in getattr(kind, "__computed__", ()):  # properties whose values compiled code keeps
        made.failed.pop(name, None)
        _read_attribute(made, name, getattr(module, name), None)
    made.hooks = (*map(_ById, module._forward_pre_hooks.values()), "|", *map(_ById, module._forward_hooks.values()))
    return made


def _valid_constant(kind: type, name: str, value: Any) -> Any:
    """Return a constant as compiled code has it (lists become tuples); raises TypeError for invalid ones."""
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return tuple(_valid_constant(kind, name, v) for v in value)
    if not is_constant(value) and not is_library(kind.__module__):
        what = type(value)
        word = what.__name__ if what.__module__ == "builtins" else f"{what.__module__}.{what.__name__}"
        raise TypeError(
            f"'{word}' object in attribute '{kind.__name__}.{name}' is not a valid constant.\nValid constants are:\n1. a nn.ModuleList\n2. a value of type {{bool, float, int, str, NoneType, torch.device, torch.layout, torch.dtype, torch.qscheme}}\n3. a list or tuple of (2)\n"
        )
    return value


def _in_order(module: Any, names: set[str]) -> list[str]:
    """Instance attributes in the order in which they were set, then the rest by name."""
    first = [n for n in module.__dict__ if n in names]
    return first + sorted(names - set(first))


def _read_attribute(made: Concrete, name: str, value: Any, hint: Any) -> None:
    if (
        inspect.isfunction(value)
        or hasattr(value, "script_function")
        or inspect.isbuiltin(value)
        or hasattr(value, "op")
    ):
        made.functions[name] = value
        return
    attribute_type = None
    if isinstance(value, Attribute):
        attribute_type, value = _declared_type(value.type), value.value
    declared = attribute_type if attribute_type is not None else _declared_type(hint)
    if declared is None:
        try:
            declared = inferred(value)
        except RuntimeError as problem:
            made.failed[name] = str(problem)
            return
    if (
        declared is None
        and not isinstance(value, (type, torch.nn.Module))
        and hasattr(value, "__dict__")
        and not callable(value)
    ):
        try:
            declared = notes.class_type(type(value))
        except (notes.UnknownType, RuntimeError, OSError) as problem:
            made.failed[name] = f"(This attribute exists on the Python module, but we failed to convert Python type: '{type(value).__name__}' to a TorchScript type. {problem if not isinstance(problem, notes.UnknownType) else ''}. Its type was inferred; try adding a type annotation for the attribute.)"  # fmt: skip
            return
    if declared is None:
        empty = isinstance(value, (list, dict)) and not value
        reason = (
            f"{'List' if isinstance(value, list) else 'Dictionary'} inference requires a non-empty {'list' if isinstance(value, list) else 'dict'}"
            if empty
            else f"Only tensors and (possibly nested) tuples of tensors, lists, or dictsare supported as inputs or outputs of traced functions, but instead got value of type {type(value).__name__}"
        )
        made.failed[name] = f"(This attribute exists on the Python module, but we failed to convert Python type: '{type(value).__name__}' to a TorchScript type. {reason}. Its type was inferred; try adding a type annotation for the attribute.)"  # fmt: skip
        return
    made.attributes[name] = declared


def _make_type(concrete: Concrete) -> ClassType:
    made = ClassType(unique_name(qualified_name(concrete.python_class)), is_module=True)
    made.python_class = concrete.python_class
    made.attributes.update(concrete.attributes)
    for name, inner in concrete.modules.items():
        made.attributes[name] = inner.script_type if isinstance(inner, Concrete) else inner  # type: ignore[assignment]
    made.parameters, made.buffers = set(concrete.parameters), set(concrete.buffers)
    for name, value in concrete.constants.items():
        if is_constant(value):
            made.constants[name] = value
    made.concrete = concrete
    made.compile_method = functools.partial(_compile_method, made, concrete)
    return made


_NEVER_COMPILED = frozenset(n for n in dir(torch.nn.Module) if n != "forward")


def _compile_method(kind: ClassType, concrete: Concrete, name: str) -> Function | None:
    """Return a method of the Python class as a function that is compiled on its first call."""
    if name in _NEVER_COMPILED and getattr(concrete.python_class, name, None) is getattr(torch.nn.Module, name, None):
        return None
    function = concrete.overrides.get(name) or inspect.getattr_static(concrete.python_class, name, None)
    if isinstance(function, (staticmethod, classmethod)) or not inspect.isfunction(function):
        return None
    if mark_of(function) in (Mark.IGNORE, Mark.UNUSED) or _is_unimplemented(function) or overloads(function):
        return None
    kind.methods[name] = made = method_for(kind, function, name)
    return made


def method_for(kind: ClassType, function: Any, name: str) -> Function:
    tree, source = parsed(function)
    names = PythonResolver(function, None, _owner_of(kind, function))
    definition = Definition(tree, source, names, defaults_of(function))
    return Function(f"{kind.name}.{name}", definition, kind)


def _owner_of(kind: ClassType, function: Any) -> Any:
    """Return the class whose body defines a method; `super()` needs it."""
    for base in kind.python_class.__mro__:
        if function in base.__dict__.values():
            return base
    return kind.python_class


# -- compiling modules -----------------------------------------------------------------------------------------------------------


def method_overloads(kind: ClassType, function: Any, name: str) -> list[str]:
    names = []
    declarations = overloads(function)
    if any(declared is function for declared in declarations):
        raise RuntimeError(f'Implementation for the method "{name}" is missing. Please make sure a definition is provided and defined after all overload declarations.')  # fmt: skip
    for number, declared in enumerate(declarations):
        label = f"{name}__{number}"
        if label not in kind.methods:
            made = function_for_overload(function, declared)
            made.qualified_name, made.owner = f"{kind.name}.{label}", kind
            kind.methods[label] = made
        names.append(label)
    return names


def is_compiled(module: Any) -> bool:
    """Return whether a module is a ScriptModule."""
    return getattr(type(module), "_is_compiled", False)


def script_module(
    made_as: Any,
    module: Any,
    methods: Callable[[Any], list[str]] | None = None,
    share: bool = True,
    tracing: bool = False,
) -> Any:
    """Compile a Python module into one of the class `made_as`, which shares its parameters."""
    if is_compiled(module):
        return module
    _check_ready(module)
    concrete = infer(module, share)
    made = _build(module, concrete, {}, made_as, tracing)
    if not tracing:
        _compile(made, module, concrete, methods)
    return made


def prepared(module: Any, memo: dict[int, Any] | None = None) -> Any:
    """Return the module to compile in place of a module: `__prepare_scriptable__` applied to it and its submodules."""
    memo = {} if memo is None else memo
    if id(module) not in memo:
        made = memo[id(module)] = (
            module.__prepare_scriptable__() if hasattr(module, "__prepare_scriptable__") else module
        )
        held = getattr(made, "_modules", {})
        inner = {n: None if child is None else prepared(child, memo) for n, child in held.items()}
        if any(inner[n] is not child for n, child in held.items()):
            made = memo[id(module)] = copy.copy(made)
            made.__dict__["_modules"] = inner
    return memo[id(module)]


def _check_ready(module: Any) -> None:
    if "_parameters" not in module.__dict__:
        raise RuntimeError(
            f"'{type(module).__name__}' has not been initialized, did you forget to call 'super().__init__()'?"
        )


def _build(module: Any, concrete: Concrete, memo: dict[int, Any], kind: Any, tracing: bool) -> Any:
    if is_compiled(module):
        return module
    if id(module) in memo:
        return memo[id(module)]
    made = memo[id(module)] = kind._make(concrete.script_type, module)
    for name, inner in module._modules.items():
        held = concrete.modules.get(name)
        if inner is None or held is None:
            if inner is None:
                made._modules[name] = None
            continue
        inner_concrete = held if isinstance(held, Concrete) else infer(inner)
        built = _build(inner, inner_concrete, memo, kind, tracing)
        if isinstance(held, InterfaceType) and not tracing:
            _compile(built, inner, inner_concrete, None)
            for method in map(built.script_type.find_method, held.methods):
                if method is not None:
                    method.ensure()
        made._modules[name] = built
    made._fill(module, concrete)
    return made


def exported(module: Any) -> list[str]:
    """Return the methods to compile: `forward` and those marked @export; none for a compiled module."""
    names: list[str] = []
    if hasattr(module, "script_type"):
        return names
    kind = type(module)
    forward = getattr(kind, "forward", None)
    if forward is not None and not _is_unimplemented(forward) and mark_of(forward) not in (Mark.IGNORE, Mark.UNUSED):
        names.append("forward")
    for name in dir(kind):
        function = inspect.getattr_static(kind, name, None)
        if mark_of(function) is Mark.EXPORT and name not in names:
            names.append(name)
    return names


def _is_unimplemented(function: Any) -> bool:
    return getattr(function, "__name__", "") == "_forward_unimplemented"


def _compile(made: Any, module: Any, concrete: Concrete, methods: Callable | None) -> None:
    kind = concrete.script_type
    assert kind is not None
    _compile_children(made, module, concrete)
    if kind.compiled and methods is None:
        return
    kind.compiled = True
    _compile_methods(made, module, kind, methods or exported)


def _compile_children(made: Any, module: Any, concrete: Concrete) -> None:
    """Compile the exported methods of submodules, once per class."""
    for name, inner in concrete.modules.items():
        child = module._modules.get(name)
        if child is None or not isinstance(inner, Concrete) or inner.done is not None:
            continue
        kind = inner.script_type
        assert kind is not None
        if not kind.compiled:
            kind.compiled = True
            _compile_children(made._modules[name], child, inner)
            _compile_methods(made._modules[name], child, kind, exported)


def _compile_methods(made: Any, module: Any, kind: ClassType, methods: Callable) -> None:
    _compile_hooks(module, kind)
    for name in methods(module):
        if method_overloads(kind, getattr(type(module), name), name):
            continue
        found = kind.find_method(name)
        if found is not None:
            found.ensure()
    if hasattr(made, "_bind_python_methods"):
        made._bind_python_methods(module)


def _compile_hooks(module: Any, kind: ClassType) -> None:
    for table, target in (
        (module._forward_pre_hooks, kind.forward_pre_hooks),
        (module._forward_hooks, kind.forward_hooks),
    ):
        if target:
            continue
        word = "Pre-hook" if target is kind.forward_pre_hooks else "Hook"
        seen: dict[str, Any] = {}
        for hook in table.values():
            name = hook.__name__
            if seen.setdefault(name, hook) is not hook:
                raise RuntimeError(f"{word} '{name}' on {type(module).__name__} has at least two different python definitions. Please use unique names for all hooks.")  # fmt: skip
            if name not in kind.methods and inspect.isfunction(getattr(kind.python_class, name, None)):
                raise RuntimeError(f"Can't define hook: {name} on class: {kind} because a method or hook with that name already exists.")  # fmt: skip
            if name not in kind.methods:
                kind.methods[name] = method_for(kind, hook, name)
            target.append(kind.methods[name])
    for hook in [*kind.forward_pre_hooks, *kind.forward_hooks]:
        hook.ensure()
    check_hooks(type(module).__name__, kind)
