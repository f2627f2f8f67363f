"""Compiled modules as Python objects: nn.Modules whose methods are graphs."""

from __future__ import annotations

import copy
import inspect
import io
from typing import Any

import flambeau as torch

from ..core import overrides
from ..core.tensor import Tensor
from ..nn import Parameter
from . import archive, compilation, inlining, printing, recursive
from .functions import Function
from .ir import Graph
from .marks import Mark, mark_of
from .naming import unmangled
from .objects import to_script
from .types import ClassType, InterfaceType

_Module = torch.nn.Module
_ABSENT = object()


class ScriptModule(_Module):
    """The base of compiled modules. `class M(ScriptModule)` with methods marked @script_method is PyTorch's older way to make one."""

    script_type: ClassType
    _is_compiled = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__ == __name__ or cls.__module__.startswith("flambeau.jit"):
            return
        first = cls.__init__

        def init(self: Any, *args: Any, **more: Any) -> None:
            first(self, *args, **more)
            if type(self) is cls and "script_type" not in self.__dict__:
                _compile_old_style(self)

        cls.__init__ = init  # type: ignore[method-assign]

    def __setattr__(self, name: str, value: Any) -> None:
        kind: ClassType | None = self.__dict__.get("script_type")
        if type(value).__name__ == "Attribute" and kind is None:  # its type is needed when the module is compiled
            self.__dict__.setdefault("_attribute_types", {})[name] = value.type
            value = value.value
        elif kind is not None and name in kind.constants:
            raise RuntimeError(f"Cannot mutate TorchScript constant value: '{name}'. Value: '{value}'")
        elif kind is not None and name in self._modules and not isinstance(value, ScriptModule):
            raise RuntimeError(f"Cannot re-assign modules in a ScriptModule with non-scripted module, tried to replace existing module '{name}': {value}")  # fmt: skip
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        kind: ClassType | None = self.__dict__.get("script_type")
        if kind is not None:
            if name in ("graph", "inlined_graph", "code", "code_with_constants", "schema"):
                forward = kind.find_method("forward")
                if forward is None:
                    raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
                return getattr(ScriptMethod(self, forward), name)
            plain = not (name.startswith("__") and name.endswith("__")) or name in kind.methods
            if plain and all(name not in table for table in (self._parameters, self._buffers, self._modules)):
                found = self._script_attribute(kind, name)
                if found is not _ABSENT:
                    return found
        return super().__getattr__(name)

    def _script_attribute(self, kind: ClassType, name: str) -> Any:
        if name in kind.methods:
            return ScriptMethod(self, kind.methods[name])
        if name in kind.constants:
            return kind.constants[name]
        if name in kind.properties:
            return kind.properties[name][0](self)
        return kind.static_methods.get(name, _ABSENT)

    # -- programs ---------------------------------------------------------------------------------------------------------
    def get_debug_state(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("there is no executor with a debug state in Flambeau")

    def save(self, f: Any, **kwargs: Any) -> None:
        """Write the module to a file that `load` reads."""
        archive.write_module(self, f, **kwargs)

    def save_to_buffer(self, **kwargs: Any) -> bytes:
        """Return the bytes that `save` would write."""
        buffer = io.BytesIO()
        self.save(buffer, **kwargs)
        return buffer.getvalue()

    def define(self, src: str) -> None:
        """Compile methods from their source text; in a constructor, when the module is complete."""
        names = compilation.seen_by_caller(1)
        if "script_type" in self.__dict__:
            compilation.define_methods(self, src, names)
        else:
            self.__dict__.setdefault("_texts", []).append((src, names))

    @property
    def _c(self) -> Any:
        return _Inner(self)

    def __copy__(self) -> Any:
        return self._copy_module({}, lambda value: value)

    def __deepcopy__(self, memo: dict) -> Any:
        return self._copy_module(memo, lambda value: copy.deepcopy(value, memo))

    def _copy_module(self, memo: dict, copied: Any) -> Any:
        made = RecursiveScriptModule._make(self.script_type)
        memo[id(self)] = made
        for name, value in self.__dict__.items():
            if name in ("script_type", "_initialized") or isinstance(value, ScriptMethod):
                continue
            if inspect.ismethod(value):
                made.__dict__[name] = value.__func__.__get__(made)
            else:
                made.__dict__[name] = copied(value)
        return made

    # -- what programs see -----------------------------------------------------------------------------------------------
    def _slot(self, name: str) -> Any:
        own = self.__dict__
        for table in ("_parameters", "_buffers", "_modules"):
            if name in own[table]:
                return own[table][name]
        return own[name]

    def _set_slot(self, name: str, value: Any) -> None:
        own = self.__dict__
        for table in ("_parameters", "_buffers", "_modules"):
            if name in own[table]:
                own[table][name] = value
                return
        own[name] = value


def _compile_old_style(self: Any) -> None:
    recursive._check_ready(self)
    marked = {
        name: value.__wrapped_script__
        for name in dir(type(self))
        if hasattr(value := inspect.getattr_static(type(self), name, None), "__wrapped_script__")
    }
    texts = self.__dict__.pop("_texts", ())
    concrete = recursive._read_module(self, True, {})
    kind = recursive._make_type(concrete)
    concrete.script_type = kind
    self.__dict__["script_type"] = kind
    for name, inner in list(self._modules.items()):
        if inner is not None:
            self._modules[name] = (
                recursive.script_module(RecursiveScriptModule, inner) if not isinstance(inner, ScriptModule) else inner
            )
    for name, kind_of in concrete.attributes.items():
        if name in self.__dict__:
            value = self.__dict__[name]
            self.__dict__[name] = to_script(
                getattr(value, "value", value) if type(value).__name__ == "Attribute" else value, kind_of
            )
    for name, function in marked.items():
        kind.methods[name] = recursive.method_for(kind, function, name)
    for text, names in texts:
        compilation.define_methods(self, text, names)
    for name, method in list(kind.methods.items()):
        self.__dict__[name] = ScriptMethod(self, method.ensure(), marked[name].__doc__ if name in marked else None)


class ScriptMethod:
    """A method of a compiled module, bound to it."""

    def __init__(self, owner: Any, function: Function, doc: str | None = None):
        self.owner, self.function, self.__doc__ = owner, function, doc

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        overriding = overrides.overriding_arguments(args, kwargs)
        if overriding:
            return overrides.call_override(self, args, kwargs, overriding)
        return self.function(self.owner, *args, **kwargs)

    def __deepcopy__(self, memo: dict) -> ScriptMethod:
        return ScriptMethod(copy.deepcopy(self.owner, memo), self.function, self.__doc__)

    @property
    def __name__(self) -> str:
        return self.function.base_name

    @property
    def name(self) -> str:
        return self.function.base_name

    @property
    def graph(self) -> Graph:
        return self.function.graph

    @property
    def inlined_graph(self) -> Graph:
        return inlining.inlined(self.function.graph)

    @property
    def code(self) -> str:
        return printing.method_code(self.function)[0]

    @property
    def code_with_constants(self) -> Any:
        return printing.code_with_constants(self.function)

    @property
    def schema(self) -> Any:
        return self.function.schema

    @property
    def __self__(self) -> Any:
        return self.owner

    def graph_for(self, *args: Any, **kwargs: Any) -> Graph:
        return self.inlined_graph


class RecursiveScriptModule(ScriptModule):
    """A module made by `script`, `trace` or `load`."""

    original_module: Any

    def __init__(self, *_: Any) -> None:
        raise RuntimeError("RecursiveScriptModule is made by torch.jit.script, trace or load")

    @classmethod
    def _make(cls, kind: ClassType, original: Any = None) -> RecursiveScriptModule:
        made = cls.__new__(cls)
        _Module.__init__(made)
        made.__dict__["script_type"] = kind
        made.__dict__["_initialized"] = True
        return made

    def _fill(self, module: Any, concrete: Any) -> None:
        """Copy parameters, buffers and attributes of a Python module."""
        own = self.__dict__
        own["training"] = module.training
        for name in concrete.parameters:
            self._parameters[name] = module._parameters[name]
        ordered = {n: self._parameters[n] for n in module._parameters if n in self._parameters}
        self._parameters.clear()
        self._parameters.update(ordered)
        for name in module._buffers:
            if name in concrete.buffers:
                self._buffers[name] = module._buffers[name]
        own["_non_persistent_buffers_set"] = set(module._non_persistent_buffers_set)
        for name, kind in concrete.attributes.items():
            if name in self._parameters or name in self._buffers or name in self._modules:
                continue
            value: Any = getattr(module, name, None)
            if type(value).__name__ == "Attribute" and hasattr(value, "value"):
                value = value.value
            try:
                own[name] = to_script(value, kind)
            except TypeError as problem:
                raise RuntimeError(
                    f"Could not convert attribute '{name}' of '{type(module).__name__}' to {kind.repr_str()}: {problem}"
                ) from None

    def _bind_python_methods(self, module: Any) -> None:
        """Bind the methods that stay in Python: those that are marked as ignored or unused, and those that containers need."""
        kind = type(module)
        for name in dir(kind):
            function = inspect.getattr_static(kind, name, None)
            own = module.__dict__.get(name)
            function = own.__func__ if inspect.ismethod(own) else function
            if inspect.isfunction(function) and mark_of(function) in (Mark.IGNORE, Mark.UNUSED, Mark.COPY):
                self.__dict__[name] = function.__get__(self)

    @property
    def original_name(self) -> str:
        return self.script_type.name.rpartition(".")[2]

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        return f"original_name={self.original_name}"

    @property
    def forward(self) -> Any:  # type: ignore[override]
        """The compiled method, without hooks; calling the module runs its hooks as well."""
        found = self.script_type.find_method("forward")
        return self._forward_overloaded if found is None else ScriptMethod(self, found)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kind = self.script_type
        if kind.forward_pre_hooks or kind.forward_hooks:
            return self._forward_with_hooks(kind.find_method("forward"), args, kwargs)
        return super().__call__(*args, **kwargs)

    def _forward_overloaded(self, *args: Any, **kwargs: Any) -> Any:
        found = self._overload(args, kwargs)
        if found is None:
            raise NotImplementedError(f'Module [{self.original_name}] is missing the required "forward" function')
        return ScriptMethod(self, found)(*args, **kwargs)

    def _overload(self, args: tuple, kwargs: dict) -> Function | None:
        """Return the first of `forward__0`, `forward__1`... that the arguments fit."""
        for name, method in self.script_type.methods.items():
            if name.startswith("forward__"):
                try:
                    method.bind((self, *args), kwargs)
                except RuntimeError:
                    continue
                return method
        return None

    def _forward_with_hooks(self, forward: Function, args: tuple, kwargs: dict) -> Any:
        for hook in self.script_type.forward_pre_hooks:
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        result = forward(self, *args, **kwargs)
        for hook in self.script_type.forward_hooks:
            changed = hook(self, args, result)
            result = result if changed is None else changed
        return result

    def forward_magic_method(self, name: str, *args: Any) -> Any:
        found = self.script_type.find_method(name)
        if found is None:
            raise NotImplementedError(name)
        return found(self, *args)

    def __len__(self) -> int:
        if self.script_type.find_method("__len__") is not None and "__len__" in self.script_type.methods:
            return self.forward_magic_method("__len__")
        return len(self._modules)

    def __iter__(self) -> Any:
        names = list(self._modules)
        return iter(names if _is_dict(self.script_type) else self._modules.values())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            return self._modules[index]
        items = list(self._modules.values())
        return items[index]

    def __contains__(self, key: Any) -> bool:
        return key in self._modules

    def items(self) -> Any:
        return self._modules.items()

    def keys(self) -> Any:
        return self._modules.keys()

    def values(self) -> Any:
        return self._modules.values()

    def __bool__(self) -> bool:
        return True

    def __dir__(self) -> list[str]:
        kind = self.script_type
        return sorted({*super().__dir__(), *kind.methods, *kind.attributes, *dir(kind.python_class)})

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        kind: ClassType = own["script_type"]
        if name in kind.constants:
            raise AttributeError(f"Cannot mutate TorchScript constant value: '{name}'. Value: '{value}'")
        if name in self._modules and isinstance(value, ScriptModule):
            _check_module(name, kind.attributes.get(name), value)
        if name in self._modules and isinstance(value, _Module) and not isinstance(value, ScriptModule):
            raise RuntimeError(f"Cannot re-assign modules in a ScriptModule with non-scripted module, tried to replace existing module '{name}': {value}")  # fmt: skip
        if name in kind.attributes and name not in self._modules:
            if isinstance(value, Tensor) and name in self._parameters and not isinstance(value, Parameter):
                self._parameters[name] = value  # type: ignore[assignment]
                return
            try:
                self._set_slot(name, to_script(value, kind.attributes[name]))
            except TypeError as problem:
                raise RuntimeError(f"Could not convert value for attribute '{name}': {problem}") from None
            return
        super().__setattr__(name, value)

    # -- programs ---------------------------------------------------------------------------------------------------------
    def _method_names(self) -> list[str]:
        return list(self.script_type.methods)

    def graph_for(self, *args: Any, **kwargs: Any) -> Graph:
        return self.inlined_graph

    def get_method(self, name: str) -> ScriptMethod:
        return ScriptMethod(self, self.script_type.methods[name])

    def __reduce__(self) -> Any:
        raise RuntimeError("ScriptModules cannot be deepcopied using copy.deepcopy or saved using torch.save. Mixed serialization of script and non-script modules is not supported. For purely script modules use my_script_module.save(<filename>) instead.")  # fmt: skip


def _check_module(name: str, wanted: Any, value: Any) -> None:
    """Raise unless a compiled module has the type that an attribute declares."""
    if isinstance(wanted, InterfaceType):
        try:
            to_script(value, wanted)
        except TypeError as problem:
            raise RuntimeError(str(problem)) from None
    elif isinstance(wanted, ClassType) and value.script_type is not wanted:
        units = [f"'{t} (of Python compilation unit at: {id(t):#x})'" for t in (wanted, value.script_type)]
        raise RuntimeError(f"Expected a value of type {units[0]} for field '{name}', but found {units[1]}")


class TracedModule(RecursiveScriptModule):
    """A submodule of a traced module."""

    def _get_name(self) -> str:
        return self.original_name


class TopLevelTracedModule(TracedModule):
    """Module that `trace` returns for a module."""


class _Inner:
    """The methods of PyTorch's C++ module object (`module._c`)."""

    def __init__(self, owner: ScriptModule):
        self._owner = owner

    def _has_method(self, name: str) -> bool:
        return name in self._owner.script_type.methods

    def __str__(self) -> str:
        return f"ScriptObject <{self._owner.script_type.name}>"

    def _method_names(self) -> list[str]:
        return list(self._owner.script_type.methods)

    def _get_method(self, name: str) -> ScriptMethod:
        return ScriptMethod(self._owner, self._owner.script_type.methods[name])

    def getattr(self, name: str) -> Any:
        return self._owner._slot(name)

    def setattr(self, name: str, value: Any) -> None:
        self._owner._set_slot(name, value)

    def hasattr(self, name: str) -> bool:
        return name in self._owner.script_type.attributes

    def _type(self) -> ClassType:
        return self._owner.script_type

    @property
    def qualified_name(self) -> str:
        return unmangled(self._owner.script_type.name)

    def dump_to_str(self, *_: Any) -> str:
        return repr(self._owner)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Inner) and other._owner is self._owner

    def __hash__(self) -> int:
        return id(self._owner)


def _is_dict(kind: ClassType) -> bool:
    concrete = getattr(kind, "concrete", None)
    return concrete is not None and concrete.container == "dict"
