"""Symbolic tracing: run a program with proxies and keep what it does as a graph.

>>> traced = symbolic_trace(lambda x: flambeau.relu(x) + 1)
>>> traced(flambeau.tensor([-1.0, 2.0]))
tensor([1., 3.])
"""

from __future__ import annotations

import collections
import copy
import functools
import inspect
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import flambeau

from ..core import overrides
from ..core.naming import torch_name
from ..core.tensor import Tensor
from ..nn import Module, Parameter, Sequential
from ..utils import _pytree as pytree
from .graph import Graph
from .graph_module import GraphModule
from .node import base_types
from .patching import _autowrap_check, _holds_proxy, _patch_wrapped_functions, _Patcher, wrap
from .patching import _create_wrapped_func as _create_wrapped_func
from .patching import _create_wrapped_method as _create_wrapped_method
from .patching import _maybe_revert_all_patches as _maybe_revert_all_patches
from .patching import _wrapped_fns_to_patch as _wrapped_fns_to_patch
from .patching import _wrapped_methods_to_patch as _wrapped_methods_to_patch
from .proxy import ParameterProxy, Proxy, Scope, ScopeContextManager, TracerBase
from .pytree_codegen import _PyTreeCodeGen, _PyTreeInfo

__all__ = ["PH", "ProxyableClassMeta", "Tracer", "is_fx_symbolic_tracing", "is_fx_tracing", "symbolic_trace", "wrap"]

_VARIABLE_ARGUMENTS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_proxyable_classes: dict[type, None] = {}


class _State:
    tracing = False


def is_fx_tracing() -> bool:
    """Return whether a program is being traced now."""
    return _State.tracing


def is_fx_symbolic_tracing() -> bool:
    """Return whether a program is being traced with proxies now."""
    return _State.tracing and not flambeau.compiler.is_compiling()


class ProxyableClassMeta(type):
    """Metaclass of classes whose construction from proxies is recorded as a call during tracing."""

    def __init__(cls, name: str, bases: tuple[Any, ...], attrs: dict[Any, Any]) -> None:
        _proxyable_classes.setdefault(cls)
        super().__init__(name, bases, attrs)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        proxy = _holds_proxy(args, kwargs) if _State.tracing else None
        if proxy is not None:
            return proxy.tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)


def _patch_function(fn: FunctionType, nargs: int) -> FunctionType:
    """Return the function with *args, **kwargs and keyword-only parameters as plain ones, so that proxies can be passed for them."""
    code: CodeType = fn.__code__.replace(
        co_argcount=nargs,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=fn.__code__.co_flags & ~_VARIABLE_ARGUMENTS,
    )
    return FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)


class PHBase:
    """Placeholder in `concrete_args` for an argument that stays an input."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


def _transfer_attrs(fr: Any, to: Any) -> None:
    for name in dir(fr):
        value = getattr(fr, name)
        if not callable(value) and not name.startswith("__") and not hasattr(to, name):
            setattr(to, name, value)


# -- tracing --------------------------------------------------------------------------------------------------------------

_CONSTANTS = (Tensor, pytree.TreeSpec)


def _annotations_of(function: Any) -> dict[str, Any]:
    """Return a function's annotations. Those of this library are evaluated, without `Any`, where PyTorch's layers have none."""
    if (getattr(function, "__module__", None) or "").partition(".")[0] not in ("flambeau", "torch"):
        return inspect.get_annotations(function)
    try:
        found = inspect.get_annotations(function, eval_str=True)
    except NameError:  # a name that only type checkers know
        return {}
    return {name: kind for name, kind in found.items() if kind is not Any}


class Tracer(TracerBase):
    """Traces a module or function. Subclasses decide which modules stay calls (`is_leaf_module`), and more."""

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        contents = itertools.chain.from_iterable(vars(m).items() for m in autowrap_modules)
        wrapped = {id(value) for name, value in contents if not name.startswith("_") and callable(value)}
        self._autowrap_function_ids = wrapped | {id(f) for f in autowrap_functions}
        self._autowrap_search = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Module, str] | None = None
        self.root_module_name = ""
        self.scope = Scope("", None)
        self.module_stack = collections.OrderedDict()
        self.num_calls: dict[str, int] = {}
        self.node_name_to_scope = {}
        self._qualname_counter: dict[str, int] = collections.defaultdict(int)

    root: Module

    def get_fresh_qualname(self, prefix: str) -> str:
        """Return a name for an attribute that the root module does not have yet."""
        for number in itertools.count(self._qualname_counter[prefix]):
            if not hasattr(self.root, f"{prefix}{number}"):
                self._qualname_counter[prefix] = number
                return f"{prefix}{number}"
        raise AssertionError

    def create_arg(self, a: Any) -> Any:
        """Convert a value to a node's argument: tensors and modules are looked up in the root module, or added to it."""
        path = self._path_of_value(a)
        if path is not None:
            return self.create_node("get_attr", path, (), {})
        if isinstance(a, Parameter):
            raise NameError("parameter is not a member of this module")
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return self.create_node("call_function", type(a), tuple(self.create_arg(x) for x in a), {})
        if isinstance(a, _CONSTANTS):
            return self.create_node("get_attr", self._constant(a), (), {})
        if type(a) in _proxyable_classes:
            name = self.get_fresh_qualname(f"_{type(a).__name__}_constant_")
            setattr(self.root, name, a)
            return self.create_node("get_attr", name, (), {})
        return super().create_arg(a)

    def _path_of_value(self, a: Any) -> str | None:
        members: Iterable[tuple[str, Any]] = ()
        if isinstance(a, Parameter):
            members = self.root.named_parameters()
        elif isinstance(a, Tensor):
            members = self.root.named_buffers()
        elif isinstance(a, Module):
            members = self.root.named_modules()
        return next((path for path, value in members if value is a), None)

    def _constant(self, a: Any) -> str:
        known = next((name for value, name in self.tensor_attrs if value is a), None)
        if known is None:
            known = self.get_fresh_qualname("_tensor_constant" if isinstance(a, Tensor) else "_tree_spec_constant")
            self.tensor_attrs.append((a, known))
            setattr(self.root, known, a)
        return known

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Return whether calls of this module are recorded as one node; by default, those of PyTorch's own layers are."""
        module = torch_name(type(m).__module__)
        return module.startswith(("torch.nn", "torch.ao.nn")) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """Return the path of a module in the root module."""
        members = self.submodule_paths or {m: name for name, m in self.root.named_modules()}
        if mod not in members:
            raise NameError("module is not installed as a submodule")
        return members[mod]

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Trace a call of a module: record it as a node if it is a leaf, else run `forward` and record its operations."""
        path = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(path, type(m))):
            calls = self.num_calls.get(path, 0)
            key = f"{path}@{calls}" if calls else path
            self.module_stack[key] = (path, type(m))
            self.num_calls[path] = calls + 1
            if self.is_leaf_module(m, path):
                result: Any = self.create_proxy("call_module", path, args, kwargs)
            else:
                result = forward(*args, **kwargs)
            if self.module_stack.popitem(last=True)[0] != key:
                raise AssertionError(f"calls of modules are not nested at {key}")
        return result

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]) -> Any:
        """Return the value of a module's attribute during tracing: parameters are proxies."""
        members: Iterable[tuple[str, Any]] = ()
        if isinstance(attr_val, Parameter):
            members = self.root.named_parameters()
        elif self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            members = self.root.named_buffers()
        for path, value in members:
            if value is not attr_val:
                continue
            if path not in parameter_proxy_cache:
                extra: dict[str, Any] = {}
                if self.param_shapes_constant:
                    extra["proxy_factory_fn"] = lambda node: ParameterProxy(self, node, path, attr_val)  # noqa: B023
                parameter_proxy_cache[path] = self.create_proxy("get_attr", path, (), {}, **extra)
            return parameter_proxy_cache[path]
        return attr_val

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:
        """Return placeholders for the function's parameters, and the function adapted to take all of them by position."""
        analysed = inspect.unwrap(root_fn)
        code = analysed.__code__
        total = code.co_argcount + code.co_kwonlyargcount
        names = list(code.co_varnames)
        args: list[Any] = []
        if is_module:
            if total == 0:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            args.append(self.root)
        wanted = names[len(args) : total]
        if isinstance(concrete_args, tuple):
            if concrete_args and code.co_flags & _VARIABLE_ARGUMENTS and total == 1:
                return root_fn, args + [self._numbered_input(i, c) for i, c in enumerate(concrete_args)]
            if len(wanted) != len(concrete_args):
                raise RuntimeError(
                    f"Tracing expected {len(wanted)} arguments but got {len(concrete_args)} concrete arguments"
                )
            concrete_args = dict(zip(wanted, concrete_args))
        signature = inspect.signature(analysed)
        rest = iter(names[total:])
        if code.co_flags & inspect.CO_VARARGS:
            wanted.append("*" + next(rest))
        if code.co_flags & inspect.CO_VARKEYWORDS:
            wanted.append("**" + next(rest))
        args += [self._proxy_placeholder(name, concrete_args, signature, analysed) for name in wanted]
        if code.co_kwonlyargcount or code.co_flags & _VARIABLE_ARGUMENTS:
            root_fn = _patch_function(root_fn, len(args))
        return self._flatten_inputs(root_fn, args, names[:total])

    def _numbered_input(self, position: int, given: Any) -> Proxy:
        proxy = self.create_proxy("placeholder", f"input_{position}", (), {})
        if isinstance(given, PHBase) and given is not PH:
            _transfer_attrs(given, proxy.node)
        return proxy

    def _flatten_inputs(self, root_fn: Callable, args: list, names: list[str]) -> tuple[Callable, list]:
        """Return a function of all leaves, with the leaves, that returns the leaves of the result; as given if no argument is nested."""
        leaves, shape = pytree.tree_flatten(tuple(args))
        if all(child.is_leaf() for child in shape.children()):
            return root_fn, args
        codegen = _PyTreeCodeGen(_PyTreeInfo(names, shape, None))
        self.graph._codegen = codegen

        def of_leaves(*values: Any) -> list:
            result = root_fn(*pytree.tree_unflatten(list(values), shape))
            out, out_shape = pytree.tree_flatten(result)
            codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_shape)
            return out

        return of_leaves, leaves

    def _proxy_placeholder(self, name: str, concrete_args: Any, signature: inspect.Signature, fn: Any) -> Any:
        default: tuple = ()
        if name[0] != "*" and signature.parameters[name].default is not inspect.Parameter.empty:
            default = (signature.parameters[name].default,)
        if concrete_args is None or name not in concrete_args:
            kind = _annotations_of(fn).get(name, None)
            return self.create_proxy("placeholder", name, default, {}, type_expr=kind)
        counter = itertools.count(1)

        def specialise(value: Any) -> Any:
            proxy = self.create_proxy("placeholder", f"{name}_{next(counter)}", default, {})
            return self._specialise_input(name, proxy, value)

        return pytree.tree_map(specialise, concrete_args[name])

    def _specialise_input(self, name: str, proxy: Proxy, value: Any) -> Any:
        """Return the concrete value of an input, and add a check to the graph that later calls pass the same value."""
        if isinstance(value, PHBase):
            if value is not PH:
                _transfer_attrs(value, proxy.node)
            return proxy
        message = f"{name} has been specialized to have value {value} but got another value"
        if type(value) in base_types and not isinstance(value, Tensor):
            self.create_proxy("call_function", flambeau._assert, (proxy == value, message), {})
        elif value is None:
            self.create_proxy("call_function", _assert_is_none, (proxy, message), {})
        else:
            warnings.warn(
                f"Was not able to add assertion to guarantee correct input {name} to "
                f"specialized function. It is up to the user to make sure that your inputs match the "
                f"inputs you specialized the function with.",
                stacklevel=2,
            )
        return value

    def trace(self, root: Any, concrete_args: Any = None) -> Graph:
        """Return the graph of a module's forward, or of a function. `concrete_args` fixes the values of some arguments, which then are no
        inputs of the program; `PH` among them marks an input."""
        function = self._start(root)
        is_module = isinstance(root, Module)
        code = function.__code__
        self.graph._co_fields = {
            "co_name": code.co_name,
            "co_filename": code.co_filename,
            "co_firstlineno": code.co_firstlineno,
        }
        globals_of_function = function.__globals__
        annotations = _annotations_of(inspect.unwrap(function))
        was_tracing, _State.tracing = _State.tracing, True
        try:
            with overrides.registered_for_a_while(Proxy), _Patcher() as patcher:
                run, args = self.create_args_for_root(function, is_module, concrete_args)
                self._patch(patcher, globals_of_function)
                result = self.create_arg(run(*args))
            self.create_node("output", "output", (result,), {}, type_expr=annotations.get("return"))
        finally:
            _State.tracing = was_tracing
            self.submodule_paths = None
        return self.graph

    def _start(self, root: Any) -> Any:
        if isinstance(root, Module):
            self.root = root
            if not hasattr(type(root), self.traced_func_name):
                raise AssertionError(f"traced_func_name={self.traced_func_name} doesn't exist in {type(root).__name__}")
            function = getattr(type(root), self.traced_func_name)
            self.root_module_name = root._get_name()
            self.submodule_paths = {module: name for name, module in root.named_modules()}
        else:
            self.root, function = Module(), root
        self.graph = Graph(tracer_cls=type(self))
        # A list, not a dict: tensors are compared by identity.
        self.tensor_attrs = list(_constants_of(self.root))
        if not isinstance(function, FunctionType):
            raise AssertionError(f"Expected FunctionType, got {type(function)}")
        return function

    def _patch(self, patcher: _Patcher, globals_of_function: dict[str, Any]) -> None:
        """Patch calls of modules, their attributes, and wrapped functions, to record them."""
        proxies: dict[str, Proxy] = {}
        original_getattr = Module.__getattr__
        original_call: Any = Module.__call__

        @functools.wraps(original_getattr)
        def read_attribute(module: Module, attr: str) -> Any:
            return self.getattr(attr, original_getattr(module, attr), proxies)

        @functools.wraps(original_call)
        def call(module: Module, *args: Any, **kwargs: Any) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                return original_call(module, *args, **kwargs)

            space = getattr(getattr(module, "forward", module), "__globals__", {})
            _autowrap_check(patcher, space, self._autowrap_function_ids)
            return self.call_module(module, forward, args, kwargs)

        patcher.patch_method(Module, "__getattr__", read_attribute, deduplicate=False)
        patcher.patch_method(Module, "__call__", call, deduplicate=False)
        _patch_wrapped_functions(patcher)
        _autowrap_check(patcher, globals_of_function, self._autowrap_function_ids)
        for module in self._autowrap_search:
            _autowrap_check(patcher, vars(module), self._autowrap_function_ids)

    def __deepcopy__(self, memo: dict) -> Tracer:
        copied = Tracer.__new__(Tracer)
        for name, value in vars(self).items():
            vars(copied)[name] = copy.copy(value) if name == "_autowrap_search" else copy.deepcopy(value, memo)
        return copied


def _constants_of(module: Module, prefix: str = "") -> Iterator[tuple[Any, str]]:
    """Yield the tensors that modules hold as plain attributes, with their paths."""
    for name, value in vars(module).items():
        if isinstance(value, _CONSTANTS):
            yield value, prefix + name
    for name, child in module.named_children():
        yield from _constants_of(child, f"{prefix}{name}.")


def symbolic_trace(root: Any, concrete_args: Any = None) -> GraphModule:
    """Return a GraphModule that computes the same as `root`, a module or function, by a graph that can be read and changed."""
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    return GraphModule(tracer.root, graph, type(root).__name__ if isinstance(root, Module) else root.__name__)


@wrap
def _assert_is_none(value: Any, msg: str) -> None:
    if value is not None:
        raise AssertionError(msg)
