"""nn.Module: parameters, buffers and submodules under names, and a forward with hooks."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

from ...core import naming
from ...core.hook_tables import RemovableHandle, register
from ...core.overrides import refuse_real_tensors
from ...core.tensor import Tensor
from ..parameter import Buffer, Parameter
from .conversion import Conversion
from .hooks import BackwardHook, attach_to_last_node
from .state import _EXTRA_STATE_KEY as _EXTRA_STATE_KEY_SUFFIX  # noqa: F401  programs look for it here
from .state import IncompatibleKeys as _IncompatibleKeys  # noqa: F401
from .state import State
from .text import Text
from .training import Training
from .traversal import Traversal

__all__ = [
    "Module", "register_module_backward_hook", "register_module_buffer_registration_hook",
    "register_module_forward_hook", "register_module_forward_pre_hook", "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook", "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]  # fmt: skip

_HOOK_TABLES = (
    "_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip

AfterForward = Callable[[Any, Any, Any], Any] | Callable[[Any, Any, Any, Any], Any]  # four with the keyword arguments
_Given = ParamSpec("_Given")
_Made = TypeVar("_Made", covariant=True)


class _Forward(Protocol[_Given, _Made]):
    """Protocol for type checkers: calling a module takes and returns what its forward does."""

    def forward(self, *args: _Given.args, **kwargs: _Given.kwargs) -> _Made: ...


# Hooks that run for every module. Programs that clean up after themselves assign to these names, as in PyTorch.
_global_backward_pre_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_backward_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_is_full_backward_hook: bool | None = None
_global_forward_pre_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_forward_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_forward_hooks_always_called: OrderedDict[int, bool] = OrderedDict()
_global_forward_hooks_with_kwargs: OrderedDict[int, bool] = OrderedDict()
_global_buffer_registration_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_module_registration_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_parameter_registration_hooks: OrderedDict[int, Callable] = OrderedDict()

_MIXED_HOOKS = "Cannot use both regular backward hooks and full backward hooks {}. Please use only one of them."


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, args) before the forward of every module."""
    return register(_global_forward_pre_hooks, hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call hook(module, args, output) after the forward of every module."""
    extra = [_global_forward_hooks_with_kwargs, _global_forward_hooks_always_called]
    handle = register(_global_forward_hooks, hook, extra=extra)
    if with_kwargs:
        _global_forward_hooks_with_kwargs[handle.id] = True
    if always_call:
        _global_forward_hooks_always_called[handle.id] = True
    return handle


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, grad_output) before the backward of every module."""
    return register(_global_backward_pre_hooks, hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, grad_input, grad_output) when the gradients of a module's inputs are known."""
    return _register_global_backward_hook(hook, True)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Register a backward hook for all modules that sees only the last operation of each. Deprecated."""
    return _register_global_backward_hook(hook, False)


def _register_global_backward_hook(hook: Callable[..., Any], full: bool) -> RemovableHandle:
    global _global_is_full_backward_hook
    if _global_is_full_backward_hook is (not full):
        raise RuntimeError(_MIXED_HOOKS.format("as global Module hooks"))
    _global_is_full_backward_hook = full
    return register(_global_backward_hooks, hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, name, parameter) when a module gets a parameter; it may return another."""
    return register(_global_parameter_registration_hooks, hook)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, name, buffer) when a module gets a buffer; it may return another."""
    return register(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call hook(module, name, submodule) when a module gets a submodule; it may return another."""
    return register(_global_module_registration_hooks, hook)


def _forward_unimplemented(self: Any, *args: Any) -> Any:
    raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')


class Module(Traversal, State, Conversion, Training, Text):
    """Base class of all networks and layers: make layers in `__init__`, use them in `forward`, and call the module itself.

    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layer = nn.Linear(4, 2)
    ...     def forward(self, x):
    ...         return self.layer(x).relu()
    """

    dump_patches = False
    _version = 1
    training: bool
    call_super_init = False
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _is_full_backward_hook: bool | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init:
            if kwargs:
                raise TypeError(
                    f"{type(self).__name__}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'"
                )
            if args:
                raise TypeError(
                    f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given"
                )
        put = super().__setattr__
        put("training", True)
        put("_parameters", {})
        put("_buffers", {})
        put("_non_persistent_buffers_set", set())
        for table in _HOOK_TABLES:
            put(table, OrderedDict())
        put("_is_full_backward_hook", None)
        put("_modules", {})
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    forward: Callable[..., Any] = _forward_unimplemented

    # -- attributes ---------------------------------------------------------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        if "_parameters" in own:  # before __init__ there are no tables
            if name in (held := own["_parameters"]):
                return held[name]
            if name in (held := own["_buffers"]):
                return held[name]
            if name in (held := own["_modules"]):
                return held[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self)

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        parameters = own.get("_parameters")
        if isinstance(value, Parameter):
            if parameters is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            _remove_name(own, name, ("_buffers", "_modules"))
            self.register_parameter(name, value)
        elif parameters is not None and name in parameters:
            if value is not None:
                refuse_real_tensors([value])
                raise TypeError(
                    f"cannot assign '{_type_name(value)}' as parameter '{name}' (torch.nn.Parameter or None expected)"
                )
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self._set_module(name, value)
        elif own.get("_modules") is not None and name in own["_modules"]:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_type_name(value)}' as child module '{name}' (torch.nn.Module or None expected)"
                )
            own["_modules"][name] = value
        elif isinstance(value, Buffer) or (own.get("_buffers") is not None and name in own["_buffers"]):
            self._set_buffer(name, value)
        else:
            object.__setattr__(self, name, value)

    def _set_module(self, name: str, value: Module) -> None:
        modules = self.__dict__.get("_modules")
        if modules is None:
            raise AttributeError("cannot assign module before Module.__init__() call")
        _remove_name(self.__dict__, name, ("_parameters", "_buffers"))
        for hook in _global_module_registration_hooks.values():
            changed = hook(self, name, value)
            value = value if changed is None else changed
        modules[name] = value

    def _set_buffer(self, name: str, value: Any) -> None:
        if value is not None and not _is_tensor_like(value):
            raise TypeError(
                f"cannot assign '{_type_name(value)}' as buffer '{name}' (torch.nn.Buffer, torch.Tensor or None"
                " expected)"
            )
        buffers = self.__dict__["_buffers"]
        if isinstance(value, Buffer):
            # By the shorter call where it will do: subclasses may have overridden the method as it was before `persistent`.
            self.register_buffer(name, value, *(() if value.persistent else (False,)))  # type: ignore[attr-defined]
            return
        for hook in _global_buffer_registration_hooks.values():
            changed = hook(self, name, value)
            value = value if changed is None else changed
        buffers[name] = value

    def __delattr__(self, name: str) -> None:
        for table in (self._parameters, self._buffers, self._modules):
            if name in table:
                del table[name]
                self._non_persistent_buffers_set.discard(name)
                return
        super().__delattr__(name)

    def __dir__(self) -> list[str]:
        names = (
            dir(type(self)) + list(self.__dict__) + list(self._parameters) + list(self._modules) + list(self._buffers)
        )
        return sorted({n for n in names if not n[0].isdigit()})

    def _check_new_name(self, kind: str, name: Any, table: dict[Any, Any]) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {type(name).__name__}")
        if "." in name:
            raise KeyError(
                f'{kind} name can\'t contain "."'
                if kind != "module"
                else f'module name can\'t contain ".", got: {name}'
            )
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if hasattr(self, name) and name not in table:
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter under `name`."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self._check_new_name("parameter", name, self._parameters)
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot assign '{_type_name(param)}' object to parameter '{name}' (torch.nn.Parameter or None"
                    " required)"
                )
            if param.grad_fn:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created"
                    " explicitly. To express"
                    f" '{name}' as a function of another Tensor, compute the value in the forward() method."
                )
            for hook in _global_parameter_registration_hooks.values():
                changed = hook(self, name, param)
                param = param if changed is None else changed
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but not trained; only persistent ones are saved."""
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_new_name("buffer", name, self._buffers)
        if tensor is not None and not _is_tensor_like(tensor):
            raise TypeError(
                f"cannot assign '{_type_name(tensor)}' object to buffer '{name}' (torch Tensor or None required)"
            )
        for hook in _global_buffer_registration_hooks.values():
            changed = hook(self, name, tensor)
            tensor = tensor if changed is None else changed
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a submodule under `name`."""
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{_type_name(module)} is not a Module subclass")
        self._check_new_name("module", name, self._modules)
        for hook in _global_module_registration_hooks.values():
            changed = hook(self, name, module)
            module = module if changed is None else changed
        self._modules[name] = module

    def register_module(self, name: str, module: Module | None) -> None:
        self.add_module(name, module)

    # -- calling ------------------------------------------------------------------------------------------------------
    def __call__(self: _Forward[_Given, _Made], *args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        module: Any = self
        if not (
            module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
            or _global_forward_hooks or _global_forward_pre_hooks or _global_backward_hooks or _global_backward_pre_hooks
            or module._compiled_call_impl
        ):  # fmt: skip
            return module.forward(*args, **kwargs)
        if module._compiled_call_impl is not None:
            return module._compiled_call_impl(*args, **kwargs)
        return module._call_with_hooks(args, kwargs)

    _compiled_call_impl: Any = None  # what `compile` makes

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        """Call forward with all hooks, not compiled."""
        return self._call_with_hooks(args, kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile this module in place: later calls run through `flambeau.compile` with these arguments."""
        self._compiled_call_impl = naming.above("compiler").compile(self._call_impl, *args, **kwargs)

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
        done: set[int] = set()
        result = None
        try:
            args, kwargs = self._run_pre_hooks(args, kwargs)
            full, plain = self._backward_hooks_by_kind()
            pre_hooks = [*_global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]
            watcher = BackwardHook(self, full, pre_hooks) if full or pre_hooks else None
            if watcher is not None:
                args = watcher.setup_input(args)
            result = self.forward(*args, **kwargs)
            for key, hook in self._all_forward_hooks():
                done.add(key)
                changed = self._run_forward_hook(key, hook, args, kwargs, result)
                result = result if changed is None else changed
            if watcher is not None:
                result = watcher.setup_output(result)
            if plain:
                attach_to_last_node(self, plain, args, result)
        except Exception:
            self._run_skipped_hooks(done, args, kwargs, result)
            raise
        return result

    def _run_skipped_hooks(self, done: set[int], args: tuple[Any, ...], kwargs: dict[Any, Any], result: Any) -> None:
        """Run, after a failure, the hooks that asked to be called in any case. Their errors are not raised."""
        for key, hook in self._all_forward_hooks():
            always = key in self._forward_hooks_always_called or key in _global_forward_hooks_always_called
            if not always or key in done:
                continue
            try:
                changed = self._run_forward_hook(key, hook, args, kwargs, result)
                result = result if changed is None else changed
            except Exception as error:
                warnings.warn(
                    "module forward hook with ``always_call=True`` raised an exception that was silenced as another"
                    f" error was raised in forward: {error}",
                    stacklevel=2,
                )

    def _run_pre_hooks(self, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> tuple[tuple[Any, ...], dict[Any, Any]]:
        for key, hook in (*_global_forward_pre_hooks.items(), *self._forward_pre_hooks.items()):
            if key in self._forward_pre_hooks_with_kwargs:
                changed = hook(self, args, kwargs)
                if changed is not None:
                    if not (isinstance(changed, tuple) and len(changed) == 2):
                        raise RuntimeError(
                            "forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got"
                            f" {changed}."
                        )
                    args, kwargs = changed
            else:
                changed = hook(self, args)
                if changed is not None:
                    args = changed if isinstance(changed, tuple) else (changed,)
        return args, kwargs

    def _all_forward_hooks(self) -> list[tuple[int, Callable[..., Any]]]:
        return [*_global_forward_hooks.items(), *self._forward_hooks.items()]

    def _run_forward_hook(self, key: int, hook: Callable, args: tuple, kwargs: dict, result: Any) -> Any:
        if key in self._forward_hooks_with_kwargs or key in _global_forward_hooks_with_kwargs:
            return hook(self, args, kwargs, result)
        return hook(self, args, result)

    def _backward_hooks_by_kind(self) -> tuple[list[Callable[..., Any]], list[Callable[..., Any]]]:
        """Return the active backward hooks: (those that see the whole module, those that see its last operation)."""
        kinds: tuple[list[Callable], list[Callable]] = [], []
        if _global_backward_hooks:
            kinds[not _global_is_full_backward_hook].extend(_global_backward_hooks.values())
        if self._backward_hooks:
            kinds[not self._is_full_backward_hook].extend(self._backward_hooks.values())
        return kinds

    # -- hooks --------------------------------------------------------------------------------------------------------
    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call hook(module, args) before forward; it may return new arguments."""
        handle = register(self._forward_pre_hooks, hook, prepend, self._forward_pre_hooks_with_kwargs)
        if with_kwargs:
            self._forward_pre_hooks_with_kwargs[handle.id] = True
        return handle

    def register_forward_hook(
        self, hook: AfterForward, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call hook(module, args, output) after forward; it may return another output."""
        extra = [self._forward_hooks_with_kwargs, self._forward_hooks_always_called]
        handle = register(self._forward_hooks, hook, prepend, extra)
        if with_kwargs:
            self._forward_hooks_with_kwargs[handle.id] = True
        if always_call:
            self._forward_hooks_always_called[handle.id] = True
        return handle

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call hook(module, grad_input, grad_output) when the gradients of the inputs are known."""
        if self._is_full_backward_hook is False:
            raise RuntimeError(_MIXED_HOOKS.format("on a single Module"))
        self._is_full_backward_hook = True
        return register(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Register a backward hook that sees only the last operation of the module. Deprecated: use `register_full_backward_hook`."""
        if self._is_full_backward_hook is True:
            raise RuntimeError(_MIXED_HOOKS.format("on a single Module"))
        self._is_full_backward_hook = False
        return register(self._backward_hooks, hook)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call hook(module, grad_output) before the module's backward."""
        return register(self._backward_pre_hooks, hook, prepend)

    # -- copying ------------------------------------------------------------------------------------------------------
    def __setstate__(self, state: dict[Any, Any]) -> None:
        self.__dict__.update(state)
        for table in _HOOK_TABLES:
            self.__dict__.setdefault(table, OrderedDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        self.__dict__.setdefault("_is_full_backward_hook", None)

    def __getstate__(self) -> dict[Any, Any]:
        state = self.__dict__.copy()
        state.pop("_compiled_call_impl", None)
        return state


def _remove_name(own: dict[Any, Any], name: str, tables: tuple[str, ...]) -> None:
    """Remove a name from the instance and from the given tables, since it may be in one table only."""
    own.pop(name, None)
    for table in tables:
        if table in own:
            own[table].pop(name, None)
    own.get("_non_persistent_buffers_set", set()).discard(name)


def _is_tensor_like(value: Any) -> bool:
    return isinstance(value, Tensor) or hasattr(value, "__torch_function__")


def _type_name(value: Any) -> str:
    cls = type(value)
    if cls is Tensor:
        return "torch.FloatTensor" if value.dtype.name == "float32" else value.type()
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
