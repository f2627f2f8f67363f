"""Contract of functions that change a model for distributed training without wrapping it or changing names.

>>> @contract()
... def frozen(module):
...     frozen.state(module).when = "now"
...     return module
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from ...nn import Module
from .._composable_state import _State
from ..utils import _get_root_modules

REGISTRY_KEY = "__composable_api_registry_key"
STATE_KEY = "__composable_api_state_key"
P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Applicable(Protocol[P, R]):
    """A function under the contract, with access to the state it has given a module."""

    state: Callable[[Any], Any]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


class RegistryItem:
    """Entry of a module's registry for a function that was applied to it."""


def contract(state_cls: type = _State) -> Callable[[Callable[P, R]], Applicable[P, R]]:
    """Return a decorator for functions of a module (or a list of modules). Each can be applied to a module once; its state is
    `function.state(module)`; a function that changes the names of parameters, buffers or modules is an error."""

    def decorate(function: Callable[P, R]) -> Applicable[P, R]:
        @functools.wraps(function)
        def applied(module: Any, *args: Any, **kwargs: Any) -> Any:
            roots = [module] if isinstance(module, Module) else _get_root_modules(list(module))
            _register(function, roots, state_cls())
            before = [_names(root) for root in roots]
            result = function(module, *args, **kwargs)
            result = module if result is None else result
            after = [_names(m) for m in ([result] if isinstance(result, Module) else roots)]
            if len(before) != len(after):
                raise AssertionError(
                    f"{function.__name__} should return the same number of modules as input modulesInputs: {len(before)} modules\n"
                    f"Outputs: {len(after)} modules"
                )
            for old, new in zip(before, after):
                for kind in old:
                    _compare(old[kind], new[kind], f"Checking {kind}: ")
            return result

        made = cast(Applicable[P, R], applied)
        made.state = lambda module: module.__dict__.setdefault(STATE_KEY, {}).get(function)
        return made

    return decorate


def _register(function: Callable, modules: Sequence[Module], state: Any) -> None:
    item = RegistryItem()
    for module in modules:
        states = module.__dict__.setdefault(STATE_KEY, {})
        registry = module.__dict__.setdefault(REGISTRY_KEY, {})
        if not isinstance(states, dict):
            raise AssertionError(f"Distributed composable API states corrupted: {states}")
        if not isinstance(registry, dict):
            raise AssertionError(f"Distributed composable API registry corrupted: {registry}")
        if function in states or function.__name__ in registry:
            raise AssertionError(
                "Each distinct composable distributed API can only be applied to a module once."
                f" {function.__name__} has already been applied to the following module:\n{module}"
            )
        states[function], registry[function.__name__] = state, item


def _names(module: Module) -> dict[str, list[str]]:
    return {
        "parameters": [name for name, _ in module.named_parameters()],
        "buffers": [name for name, _ in module.named_buffers()],
        "modules": [name for name, _ in module.named_modules()],
    }


def _compare(old: list[str], new: list[str], what: str) -> None:
    if old == new:
        return
    gone, come = set(old) - set(new), set(new) - set(old)
    if gone or come:
        raise RuntimeError(
            f"{what}Composable distributed API implementations cannot modify FQNs.\nFQNs only in original: {gone}\n"
            f"FQNs only in new: {come}"
        )
    raise RuntimeError(
        f"{what}Composable distributed API implementations cannot modify the order of FQNs.\nOriginal FQNs: {gone}\n"
        f"New FQNs: {come}"
    )


def _get_registry(module: Module) -> dict[str, RegistryItem] | None:
    """Return the functions that have been applied to a module, by name."""
    return getattr(module, REGISTRY_KEY, None)
