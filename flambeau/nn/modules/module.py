"""nn.Module: parameters, buffers and submodules under names, and a forward that hooks can watch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ...core.compile_options import check_compile_options
from ...core.graph import mode
from ...core.tensor import Tensor
from ..parameter import Buffer, Parameter
from .conversion import Conversion
from .hooks import (
    BackwardHook,
    GlobalHooks,
    RemovableHandle,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from .state import State
from .traversal import Traversal

__all__ = [
    "Module",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

_HOOK_TABLES = (
    "_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip


def _forward_unimplemented(self: Any, *args: Any) -> Any:
    raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')


class Module(Traversal, State, Conversion):
    """Base class of all networks and layers.

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
            _forget(own, name, ("_buffers", "_modules"))
            self.register_parameter(name, value)
        elif parameters is not None and name in parameters:
            if value is not None:
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
        _forget(self.__dict__, name, ("_parameters", "_buffers"))
        for hook in GlobalHooks.module_registration.values():
            changed = hook(self, name, value)
            value = value if changed is None else changed
        modules[name] = value

    def _set_buffer(self, name: str, value: Any) -> None:
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(
                f"cannot assign '{_type_name(value)}' as buffer '{name}' (torch.nn.Buffer, torch.Tensor or None"
                " expected)"
            )
        buffers = self.__dict__["_buffers"]
        if isinstance(value, Buffer):
            _forget(self.__dict__, name, ("_parameters", "_modules"))
            self.register_buffer(name, value, value.persistent)
            return
        for hook in GlobalHooks.buffer_registration.values():
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

    def _check_new_name(self, kind: str, name: Any, table: dict) -> None:
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
            for hook in GlobalHooks.parameter_registration.values():
                changed = hook(self, name, param)
                param = param if changed is None else changed
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but not trained; only persistent ones are saved."""
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_new_name("buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{_type_name(tensor)}' object to buffer '{name}' (torch Tensor or None required)"
            )
        for hook in GlobalHooks.buffer_registration.values():
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
        for hook in GlobalHooks.module_registration.values():
            changed = hook(self, name, module)
            module = module if changed is None else changed
        self._modules[name] = module

    def register_module(self, name: str, module: Module | None) -> None:
        self.add_module(name, module)

    # -- calling ------------------------------------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
            or GlobalHooks.any()
        ):
            return self.forward(*args, **kwargs)
        return self._call_with_hooks(args, kwargs)

    _call_impl = __call__

    def _call_with_hooks(self, args: tuple, kwargs: dict) -> Any:
        done: set[int] = set()
        result = None
        try:
            args, kwargs = self._run_pre_hooks(args, kwargs)
            watcher = self._backward_watcher()
            if watcher is not None:
                args = watcher.setup_input(args)
            result = self.forward(*args, **kwargs)
            for key, hook in self._all_forward_hooks():
                done.add(key)
                changed = self._run_forward_hook(key, hook, args, kwargs, result)
                result = result if changed is None else changed
            if watcher is not None:
                result = watcher.setup_output(result)
        except Exception:
            for key, hook in self._all_forward_hooks():  # hooks that asked to see failures too
                always = key in self._forward_hooks_always_called or key in GlobalHooks.forward_always
                if always and key not in done:
                    self._run_forward_hook(key, hook, args, kwargs, result)
            raise
        return result

    def _run_pre_hooks(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        for key, hook in (*GlobalHooks.forward_pre.items(), *self._forward_pre_hooks.items()):
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

    def _all_forward_hooks(self) -> list[tuple[int, Callable]]:
        return [*GlobalHooks.forward.items(), *self._forward_hooks.items()]

    def _run_forward_hook(self, key: int, hook: Callable, args: tuple, kwargs: dict, result: Any) -> Any:
        if key in self._forward_hooks_with_kwargs or key in GlobalHooks.forward_with_kwargs:
            return hook(self, args, kwargs, result)
        return hook(self, args, result)

    def _backward_watcher(self) -> BackwardHook | None:
        hooks = [*GlobalHooks.backward.values(), *self._backward_hooks.values()]
        pre_hooks = [*GlobalHooks.backward_pre.values(), *self._backward_pre_hooks.values()]
        return BackwardHook(self, hooks, pre_hooks) if (hooks or pre_hooks) and mode.enabled else None

    # -- hooks --------------------------------------------------------------------------------------------------------
    def register_forward_pre_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call hook(module, args) before forward; it may return new arguments."""
        handle = _register(self._forward_pre_hooks, hook, prepend, self._forward_pre_hooks_with_kwargs)
        if with_kwargs:
            self._forward_pre_hooks_with_kwargs[handle.id] = True
        return handle

    def register_forward_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call hook(module, args, output) after forward; it may return another output."""
        extra = [self._forward_hooks_with_kwargs, self._forward_hooks_always_called]
        handle = _register(self._forward_hooks, hook, prepend, extra)
        if with_kwargs:
            self._forward_hooks_with_kwargs[handle.id] = True
        if always_call:
            self._forward_hooks_always_called[handle.id] = True
        return handle

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call hook(module, grad_input, grad_output) when the gradients of the inputs are known."""
        if self._is_full_backward_hook is False:
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single Module. Please use only"
                " one of them."
            )
        self._is_full_backward_hook = True
        return _register(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Callable) -> RemovableHandle:
        """The older name of register_full_backward_hook."""
        if self._is_full_backward_hook is True:
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single Module. Please use only"
                " one of them."
            )
        self._is_full_backward_hook = False
        return _register(self._backward_hooks, hook, False)

    def register_full_backward_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call hook(module, grad_output) before the module's backward."""
        return _register(self._backward_pre_hooks, hook, prepend)

    # -- training -----------------------------------------------------------------------------------------------------
    def train(self, mode: bool = True) -> Module:
        """Switch this module and all below it to training (or evaluation) behaviour."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self) -> Module:
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Switch recording on or off for all parameters."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget (or zero) the gradients of all parameters."""
        for p in self.parameters():
            if p.grad is None:
                continue
            if set_to_none:
                p.grad = None
            else:
                if p.grad.grad_fn is not None:
                    p.grad.detach_()
                else:
                    p.grad.requires_grad_(False)
                p.grad.zero_()

    def apply(self, fn: Callable[[Module], None]) -> Module:
        """Call fn on every submodule, then on this one."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def share_memory(self) -> Module:
        return self._apply(lambda t: t.share_memory_())

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Ask for calls of this module to be compiled: see `flambeau.compile`, which runs eagerly for now."""
        check_compile_options(*args, **kwargs)

    # -- text ---------------------------------------------------------------------------------------------------------
    def extra_repr(self) -> str:
        """What stands between the parentheses of the printed module."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        child_lines = []
        for name, child in self._modules.items():
            text = repr(child).replace("\n", "\n  ")
            child_lines.append(f"({name}): {text}")
        lines = extra_lines + child_lines
        if not lines:
            return self._get_name() + "()"
        if len(extra_lines) == 1 and not child_lines:
            return f"{self._get_name()}({extra_lines[0]})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"

    # -- copying ------------------------------------------------------------------------------------------------------
    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        for table in _HOOK_TABLES:
            self.__dict__.setdefault(table, OrderedDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        self.__dict__.setdefault("_is_full_backward_hook", None)

    def __getstate__(self) -> dict:
        state = self.__dict__.copy()
        state.pop("_compiled_call_impl", None)
        return state


def _register(table: OrderedDict, hook: Callable, prepend: bool, extra: Any = None) -> RemovableHandle:
    handle = RemovableHandle(table, extra_dict=extra)
    table[handle.id] = hook
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle


def _forget(own: dict, name: str, tables: tuple[str, ...]) -> None:
    """A name lives in one table only: drop it from the instance and from the other tables."""
    own.pop(name, None)
    for table in tables:
        if table in own:
            own[table].pop(name, None)
    own.get("_non_persistent_buffers_set", set()).discard(name)


def _type_name(value: Any) -> str:
    cls = type(value)
    if cls is Tensor:
        return "torch.FloatTensor" if value.dtype.name == "float32" else value.type()
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
