"""Policies that choose which modules of a model become separate units, and wrapping by them.

>>> FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Block}))
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...nn import Module, ModuleDict, ModuleList, MultiheadAttention

__all__ = [
    "CustomPolicy", "ModuleWrapPolicy", "always_wrap_policy", "enable_wrap", "lambda_auto_wrap_policy",
    "size_based_auto_wrap_policy", "transformer_auto_wrap_policy", "wrap",
]  # fmt: skip


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Policy that wraps every module."""
    return True


class _Policy(ABC):
    """Base of policies: which modules are wrapped, and with which options."""

    @abstractmethod
    def _run_policy(self, root_module: Module, ignored_modules: set, root_kwargs: dict) -> dict[Module, dict]:
        """Return the modules to wrap, with the options for each."""


class ModuleWrapPolicy(_Policy):
    """A policy that wraps all modules of the given classes."""

    def __init__(self, module_classes: Iterable[type[Module]]):
        self._module_classes = set(module_classes)

    def _run_policy(self, root_module: Module, ignored_modules: set, root_kwargs: dict) -> dict[Module, dict]:
        chosen = tuple(self._module_classes)
        return {
            m: dict(root_kwargs) for m in root_module.modules() if m not in ignored_modules and isinstance(m, chosen)
        }

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        return recurse or isinstance(module, tuple(self._module_classes))

    def __repr__(self) -> str:
        return f"{super().__repr__()}({self._module_classes})"


class CustomPolicy(_Policy):
    """Policy that wraps modules for which a function returns True, or a dict of options that override the root's."""

    def __init__(self, lambda_fn: Callable[[Module], bool | dict[str, Any]]):
        self._lambda_fn = lambda_fn

    def _run_policy(self, root_module: Module, ignored_modules: set, root_kwargs: dict) -> dict[Module, dict]:
        found = {}
        for module in root_module.modules():
            if module in ignored_modules:
                continue
            answer = self._lambda_fn(module)
            if not isinstance(answer, (dict, bool)):
                raise ValueError(
                    "The lambda_fn passed to CustomPolicy should return False/True or a kwarg dict, but it returned"
                    f" {answer}"
                )
            if answer:
                found[module] = {**root_kwargs, **(answer if isinstance(answer, dict) else {})}
        return found


def lambda_auto_wrap_policy(module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable) -> bool:
    """Policy that wraps modules for which lambda_fn returns True."""
    return recurse or lambda_fn(module)


def transformer_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: set[type[Module]]
) -> bool:
    """Wrap the layers of a transformer, given by their classes."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def _or_policy(module: Module, recurse: bool, nonwrapped_numel: int, policies: Iterable[Callable]) -> bool:
    return any(policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel) for policy in policies)


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: set[type[Module]] | None = None,
    exclude_wrap_modules: set[type[Module]] | None = None,
) -> bool:
    """Policy that wraps modules with at least `min_num_params` elements that are in no smaller unit."""
    own: Any = size_based_auto_wrap_policy
    leaves = own.FORCE_LEAF_MODULES if force_leaf_modules is None else force_leaf_modules
    excluded = own.EXCLUDE_WRAP_MODULES if exclude_wrap_modules is None else exclude_wrap_modules
    return nonwrapped_numel >= min_num_params and not isinstance(module, tuple(leaves if recurse else excluded))


size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES = {ModuleList, ModuleDict}  # type: ignore[attr-defined]
size_based_auto_wrap_policy.FORCE_LEAF_MODULES = {MultiheadAttention}  # type: ignore[attr-defined]


@contextlib.contextmanager
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any) -> Iterator[None]:
    """Context manager: `wrap(module)` inside wraps with this class and these options."""
    with _ConfigAutoWrap(wrapper_cls=wrapper_cls, **wrapper_kwargs):
        yield


def wrap(module: Module, **wrap_overrides: Any) -> Module:
    """Wrap a module with the settings of `enable_wrap`; outside of it return the module unchanged."""
    if not _ConfigAutoWrap.in_autowrap_context:
        return module
    if _ConfigAutoWrap.wrapper_cls is None:
        raise AssertionError("Expected _ConfigAutoWrap.wrapper_cls to be set")
    return _wrap(module, _ConfigAutoWrap.wrapper_cls, **{**_ConfigAutoWrap.kwargs, **wrap_overrides})


def _wrap(module: Module, wrapper_cls: Callable, **kwargs: Any) -> Module:
    return wrapper_cls(module, **{**kwargs, **getattr(module, "_wrap_overrides", {})})


class _ConfigAutoWrap:
    """Settings made by `enable_wrap`."""

    in_autowrap_context: bool = False
    wrapper_cls: Callable | None = None
    kwargs: dict[str, Any] = {}

    def __init__(self, **kwargs: Any):
        self.kwargs = kwargs

    def __enter__(self) -> None:
        if _ConfigAutoWrap.in_autowrap_context:
            raise NotImplementedError(
                "You are already within an autowrap context and we currently do not supported nested autowrap."
            )
        if "wrapper_cls" not in self.kwargs:
            raise AssertionError("Expected to pass in wrapper_cls arg into _ConfigAutoWrap.")
        rest = dict(self.kwargs)
        _ConfigAutoWrap.in_autowrap_context, _ConfigAutoWrap.wrapper_cls = True, rest.pop("wrapper_cls")
        _ConfigAutoWrap.kwargs = rest

    def __exit__(self, *details: Any) -> None:
        _ConfigAutoWrap.in_autowrap_context, _ConfigAutoWrap.wrapper_cls, _ConfigAutoWrap.kwargs = False, None, {}


def _recursive_wrap(
    module: Module,
    auto_wrap_policy: Callable,
    wrapper_cls: Any,
    ignored_modules: set[Module],
    ignored_params: set,
    only_wrap_children: bool = False,
    **kwargs: Any,
) -> tuple[Module, int]:
    """Wrap the modules that a policy chooses, inner ones first; return the module and the number of wrapped elements."""
    for _, child in module.named_modules():
        if child not in ignored_modules and isinstance(wrapper_cls, type) and isinstance(child, wrapper_cls):
            raise AssertionError(f"Child module {child} is already wrapped by {wrapper_cls}")
    ignored = {id(p) for p in ignored_params}
    left = sum(p.numel() for p in module.parameters() if id(p) not in ignored)
    if not auto_wrap_policy(module=module, recurse=True, nonwrapped_numel=left):
        return module, 0
    wrapped = 0
    for name, child in module.named_children():
        if child not in ignored_modules:
            fresh, count = _recursive_wrap(
                child, auto_wrap_policy, wrapper_cls, ignored_modules, ignored_params, **kwargs
            )
            setattr(module, name, fresh)
            wrapped += count
    if not only_wrap_children and auto_wrap_policy(module=module, recurse=False, nonwrapped_numel=left - wrapped):
        return _wrap(module, wrapper_cls, **kwargs), left
    return module, wrapped


def _post_order_apply(root_module: Module, fn: Callable[[Module], Module | None]) -> None:
    """Call fn for every module, inner ones first; a module that it returns replaces the original."""
    visited = {root_module}

    def visit(module: Module, name: str, parent: Module | None) -> None:
        for child_name, child in module.named_children():
            if child not in visited:
                visited.add(child)
                visit(child, child_name, module)
        instead = fn(module)
        if instead is None:
            return
        if not isinstance(parent, Module):
            raise AssertionError(f"Non-root modules should have their parent module set but got {parent} for {module}")
        if not name:
            raise AssertionError(
                f"Non-root modules should have their module name set but got an empty module name for {module}"
            )
        if not isinstance(instead, Module):
            raise AssertionError(f"fn should return None or an nn.Module but got {instead}")
        setattr(parent, name, instead)

    visit(root_module, "", None)


def _construct_wrap_fn(
    root_module: Module, target_module_to_kwargs: dict[Module, dict[str, Any]], fsdp_fn: Callable
) -> Callable[[Module], Module | None]:
    def function(module: Module) -> Module | None:
        if module in target_module_to_kwargs and module is not root_module:
            return fsdp_fn(module, **target_module_to_kwargs[module])
        return None

    return function


def _run_mixed_precision_override_policy(
    root_module: Module, module_classes: Iterable[type], ignored_modules: set, root_kwargs: dict, targets: dict
) -> dict:
    """Make modules of the given classes separate units without mixed precision."""
    chosen = tuple(set(module_classes))
    for module in root_module.modules():
        if module not in ignored_modules and isinstance(module, chosen):
            targets[module] = {**targets.get(module, root_kwargs), "mixed_precision": None}
    return targets
