"""Base of all optimizers: parameter groups, state, hooks, saving and loading."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import chain
from typing import Any, cast

from ..autograd.grad_mode import Function, enable_grad, no_grad
from ..compat.legacy import typename
from ..core import dtype as dt
from ..core import modes
from ..core.graph import grad_mode
from ..core.hook_tables import RemovableHandle, register
from ..core.overrides import refuse_real_tensors, with_attributes
from ..core.promotion import get_default_dtype
from ..core.tensor import Tensor

StateDict = dict[str, Any]
ParamsT = Iterable[Any]  # tensors, (name, tensor) pairs, or dicts that describe groups

_global_optimizer_pre_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_optimizer_post_hooks: OrderedDict[int, Callable] = OrderedDict()
_HOOK_TABLES = (
    "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks",
)  # fmt: skip


class _RequiredParameter:
    """The default of an option that every group has to give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter()


def register_optimizer_step_pre_hook(hook: Callable) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before the step of every optimizer. It may return new (args, kwargs)."""
    return register(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after the step of every optimizer."""
    return register(_global_optimizer_post_hooks, hook)


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `step` to call the registered hooks before and after it."""

    @with_attributes
    @functools.wraps(step)
    def hooked_step(*args: Any, **kwargs: Any) -> Any:
        self = args[0]
        observer = modes.observing() if modes.active else None
        event = None if observer is None else observer.begin(f"Optimizer.step#{type(self).__name__}.step", modes.USER)
        try:
            if _global_optimizer_pre_hooks or self._optimizer_step_pre_hooks:
                args, kwargs = _run_pre_hooks(self, step, args, kwargs)
            result = step(*args, **kwargs)
            if _global_optimizer_post_hooks or self._optimizer_step_post_hooks:
                hooks = chain(self._optimizer_step_post_hooks.values(), _global_optimizer_post_hooks.values())
                for hook in list(hooks):
                    hook(self, args, kwargs)
        finally:
            if observer is not None:
                observer.end(event)
        return result

    hooked_step.hooked = True
    return hooked_step


def _forget_gradient(p: Tensor, set_to_none: bool) -> None:
    grad = p.grad
    assert grad is not None
    if set_to_none:
        p.grad = None
        return
    if grad.grad_fn is not None:
        grad.detach_()
    else:
        grad.requires_grad_(False)
    grad.zero_()


def _run_pre_hooks(self: Optimizer, step: Callable, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    hooks = chain(_global_optimizer_pre_hooks.values(), self._optimizer_step_pre_hooks.values())
    for hook in list(hooks):
        result = hook(self, args, kwargs)
        if result is None:
            continue
        if not (isinstance(result, tuple) and len(result) == 2):
            raise RuntimeError(f"{step} must return None or a tuple of (new_args, new_kwargs), but got {result}.")
        args, kwargs = result
    return args, kwargs


class Optimizer:
    """Base of all optimizers.

    `param_groups` is a list of dicts: "params" (a list of tensors) and the options that hold for them. `state` maps a
    parameter to what the optimizer remembers about it. A subclass calls `super().__init__(params, defaults)` with
    defaults of its options, and defines `step(closure=None)`."""

    defaults: dict[str, Any]
    state: defaultdict[Any, Any]
    param_groups: list[dict[str, Any]]
    _optimizer_step_pre_hooks: OrderedDict[int, Callable]
    _optimizer_step_post_hooks: OrderedDict[int, Callable]
    _optimizer_state_dict_pre_hooks: OrderedDict[int, Callable]
    _optimizer_state_dict_post_hooks: OrderedDict[int, Callable]
    _optimizer_load_state_dict_pre_hooks: OrderedDict[int, Callable]
    _optimizer_load_state_dict_post_hooks: OrderedDict[int, Callable]

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self._prepare()
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                + typename(params)
            )
        self.state = defaultdict(dict)
        self.param_groups = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _prepare(self) -> None:
        """Create the hook tables, and wrap this class's step in hooks."""
        for table in _HOOK_TABLES:
            self.__dict__.setdefault(table, OrderedDict())
        cls = type(self)
        if not getattr(cls.step, "hooked", False):
            cls.step = _with_hooks(cls.step)  # type: ignore[method-assign]

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.param_groups):
            options = "".join(f"    {key}: {group[key]}\n" for key in sorted(group) if key != "params")
            text += f"\nParameter Group {i}\n{options}"
        return text + ")"

    profile_hook_step = staticmethod(_with_hooks)

    # -- hooks ------------------------------------------------------------------------------------------------------
    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before every step. It may return new (args, kwargs)."""
        return register(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after every step."""
        return register(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` before `state_dict` collects anything."""
        return register(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` on the result of `state_dict`. It may return another one."""
        return register(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before loading. It may return another state_dict."""
        return register(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` after loading."""
        return register(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    # -- saving and loading -----------------------------------------------------------------------------------------
    def state_dict(self) -> StateDict:
        """Return options and state with numbers in place of parameters: {"state": ..., "param_groups": [...]}."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        start = 0
        for group in self.param_groups:
            params = group["params"]
            for i, p in enumerate(params, start):
                numbers.setdefault(id(p), i)
            start += len(params)
            packed = {key: value for key, value in group.items() if key != "params"}
            groups.append({**packed, "params": [numbers[id(p)] for p in params]})
        state = {numbers[id(k)] if isinstance(k, Tensor) else k: v for k, v in self.state.items()}
        result: StateDict = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            changed = hook(self, result)
            if changed is not None:
                result = changed
        return result

    @staticmethod
    def _group_tensors_by_device_and_dtype(
        tensorlistlist: list[list[Any]], with_indices: bool = False
    ) -> dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]]:
        """Split corresponding lists of tensors (parameters, their gradients, ...) by the device and dtype of the first list's."""
        groups: dict[tuple[Any, Any], list[int]] = {}
        for i, t in enumerate(tensorlistlist[0]):
            groups.setdefault((t.device, t.dtype), []).append(i)
        return {
            key: (
                [[each[i] if each else None for i in chosen] for each in tensorlistlist],
                chosen if with_indices else [],
            )
            for key, chosen in groups.items()
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore options and state from the result of `state_dict`. Parameters are matched by their order."""
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            if changed is not None:
                state_dict = changed
        saved_groups = state_dict["param_groups"]
        self._check_same_sizes(saved_groups)
        state = self._matched_state(state_dict["state"], saved_groups)
        groups = []
        for group, saved in zip(self.param_groups, deepcopy(saved_groups)):
            saved["params"] = group["params"]
            if "param_names" in group:
                saved.setdefault("param_names", group["param_names"])
            groups.append(saved)
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def _check_same_sizes(self, saved_groups: list[dict[str, Any]]) -> None:
        if len(self.param_groups) != len(saved_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(self.param_groups, saved_groups)):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )

    def _matched_state(self, saved: dict, saved_groups: list[dict[str, Any]]) -> defaultdict[Any, Any]:
        """Return saved state by parameter, in the parameter's dtype and on its device."""
        params: dict[Any, tuple[Tensor, bool]] = {}
        for group, saved_group in zip(self.param_groups, saved_groups):
            single_step = bool(saved_group.get("capturable") or saved_group.get("fused"))
            for number, p in zip(saved_group["params"], group["params"]):
                params.setdefault(number, (p, single_step))
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in saved.items():
            if key in params:
                p, single_step = params[key]
                state[p] = _cast_state(p, value, single_step)
            else:
                state[key] = value
        return state

    # -- use --------------------------------------------------------------------------------------------------------
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients (or, with `set_to_none=False`, fill them with zeros)."""
        with modes.named_range(f"Optimizer.zero_grad#{type(self).__name__}.zero_grad"):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        _forget_gradient(p, set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters once. `closure` computes the loss and its gradients again, and returns the loss."""
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with their own options: `{"params": [...], "lr": ...}`."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        _separate_names(param_group)
        params = param_group["params"]
        for p in params:
            if not isinstance(p, Tensor):
                refuse_real_tensors([p])
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {typename(p)}")
            if not self.defaults.get("differentiable") and not (p.is_leaf or p.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        if len(params) != len(set(params)):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this will cause an error;"
                " see github.com/pytorch/pytorch/issues/40967 for more information",
                stacklevel=3,
            )
        named = "param_names" in param_group
        for group in self.param_groups:
            if ("param_names" in group) != named:
                raise ValueError(
                    "all optimizer param groups should be with/without names. cannot add param group"
                    f" {'with names' if named else 'without names'} to the optimizer"
                )
        if not set(params).isdisjoint(chain.from_iterable(group["params"] for group in self.param_groups)):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)


def _separate_names(param_group: dict[str, Any]) -> None:
    """Make "params" a list of tensors; names of (name, tensor) pairs go to "param_names"."""
    given = param_group["params"]
    if isinstance(given, Tensor):
        given = [given]
    elif isinstance(given, set):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets"
            " will change between runs. Please use a list instead."
        )
    given = list(given)
    names = [p[0] for p in given if isinstance(p, tuple)]
    if names and len(names) != len(given):
        raise ValueError("all optimizer params should be with/without names. Some param names are missing")
    param_group["params"] = [p[1] if isinstance(p, tuple) else p for p in given]
    if names:
        param_group["param_names"] = names


def _cast_state(p: Tensor, value: Any, single_step: bool, key: Any = None) -> Any:
    """Return a loaded value in the dtype and on the device of parameter `p`. Step counts keep their own dtype."""
    if isinstance(value, Tensor):
        if key == "step":
            return value.to(dtype=dt.float32, device=p.device) if single_step else value
        if p.is_floating_point():
            return value.to(dtype=p.dtype, device=p.device)
        return value.to(device=p.device)
    if isinstance(value, dict):
        return {k: _cast_state(p, v, single_step, k) for k, v in value.items()}
    if isinstance(value, Iterable):
        return type(value)(_cast_state(p, v, single_step) for v in value)  # type: ignore[call-arg]
    return value


def evaluated(closure: Callable[[], Any] | None) -> Any:
    """Return the closure's result, computed with gradients enabled."""
    if closure is None:
        return None
    with enable_grad():
        return closure()


class EachParameter(Optimizer):
    """An optimizer that changes one parameter after the other, each by `_update(parameter, gradient, group)`."""

    _update: Callable[..., None]

    @no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters once. `closure` computes the loss and its gradients again, and returns the loss."""
        loss = evaluated(closure)
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad, group)
        return loss


def without_grad(step: Function) -> Function:
    """Run a step without recording, unless the optimizer was made with differentiable=True."""

    @functools.wraps(step)
    def wrapped(self: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        before = grad_mode.enabled
        grad_mode.enabled = bool(self.defaults.get("differentiable"))
        try:
            return step(self, closure)
        finally:
            grad_mode.enabled = before

    return cast(Function, wrapped)


def scalar_dtype(fused: Any = None) -> Any:
    """Return the dtype of step counts and other numbers in the state."""
    return dt.float64 if not fused and get_default_dtype() is dt.float64 else dt.float32


def to_scalar(x: Any) -> Any:
    """Return a one-element tensor without dimensions; other values unchanged."""
    return x.squeeze() if isinstance(x, Tensor) and x.dim() != 0 else x


def number(x: Any) -> Any:
    """Return the value of a one-element tensor; numbers unchanged."""
    return x.item() if isinstance(x, Tensor) else x


def check_one_element(name: str, value: Any) -> None:
    if isinstance(value, Tensor) and value.numel() != 1:
        raise ValueError(f"Tensor {name} must be 1-element")


__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]


# -- what optimizers of other libraries ask for -------------------------------------------------------------------------------

_use_grad_for_differentiable = without_grad


def _default_to_fused_or_foreach(
    params: list[Tensor], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Return which of its two faster implementations PyTorch would choose: fused if requested, foreach for parameters on a GPU."""
    if differentiable:
        return False, False
    plain = [p for p in params if p is not None]
    fused = use_fused and all(p.dtype.is_floating_point for p in plain)
    return fused, not fused and all(p.device.type == "cuda" for p in plain)


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """Return the types of devices whose steps PyTorch can capture in graphs."""
    return ["cuda", "xpu", "hpu", "privateuseone", *(["xla"] if supports_xla else [])]


_group_tensors_by_device_and_dtype = Optimizer._group_tensors_by_device_and_dtype
