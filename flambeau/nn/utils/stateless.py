"""Calls of a module with other parameters than its own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...core.tensor import Tensor
from ..modules.module import Module

__all__ = ["call_with", "functional_call"]

_ABSENT = object()  # marks an attribute that the module does not have


def _named_tensors(module: Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _tied_names(module: Module) -> dict[str, set[str]]:
    """Return all names of each tensor that has several, by name."""
    names: dict[int, set[str]] = {}
    for name, value in _named_tensors(module):
        names.setdefault(id(value), set()).add(name)
    return {name: group for group in names.values() if len(group) > 1 for name in group}


def _add_tied_names(module: Module, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the given tensors, also under the other names of the parameters they replace."""
    ties = _tied_names(module)
    result: dict[str, Tensor] = {}
    for name, value in given.items():
        group = ties.get(name, {name})
        if any(other in given and given[other] is not value for other in group):
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(n for n in group if n in given)}, which are"
                " tied. Consider using tie_weights=False"
            )
        result.update(dict.fromkeys(group, value))
    return result


def _check_names(module: Module, given: Mapping[str, Tensor]) -> None:
    own = {name for name, _ in _named_tensors(module)}
    missing, unexpected = sorted(own - set(given)), sorted(set(given) - own)
    problems = []
    if unexpected:
        problems.append(f"Unexpected key(s): {', '.join(map(repr, unexpected))}.")
    if missing:
        problems.append(f"Missing key(s): {', '.join(map(repr, missing))}.")
    if problems:
        raise RuntimeError(f"Error(s) in reparametrizing for {module._get_name()}:\n\t" + "\n\t".join(problems))


def _swap(module: Module, name: str, value: Any) -> Any:
    """Set the tensor at a dotted name without the checks of assignment; return the old value."""
    path, _, last = name.rpartition(".")
    if not last:
        raise KeyError('tensor name can\'t be empty string ""')
    if not isinstance(value, Tensor) and value is not None and value is not _ABSENT:
        raise TypeError(f"{value} is not an instance of torch.Tensor")
    owner = module.get_submodule(path)
    if value is _ABSENT:
        before = getattr(owner, last)
        delattr(owner, last)
        return before
    for table in (owner._parameters, owner._buffers):
        if last in table:
            before = table[last]
            table[last] = value
            return before
    before = getattr(owner, last, _ABSENT)
    if before is not _ABSENT and before is not None and not isinstance(before, Tensor):
        raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    setattr(owner, last, value)
    return before


@contextmanager
def _replace_tensors(module: Module, given: dict[str, Tensor]) -> Iterator[None]:
    """Context manager: put the given tensors into the module, and its own back on exit."""
    before: dict[str, Any] = {}
    try:
        for name, value in given.items():
            before[name] = _swap(module, name, value)
        yield
    finally:
        for name, value in before.items():
            given[name] = _swap(module, name, value)  # a forward may have assigned another tensor


def call_with(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with other parameters and buffers: the body of both functional_calls."""
    given = dict(parameters_and_buffers)
    if tie_weights:
        given = _add_tied_names(module, given)
    if strict:
        _check_names(module, given)
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    try:
        with _replace_tensors(module, given):
            return module(*args, **(kwargs or {}))
    finally:
        parameters_and_buffers.update({name: given[name] for name in parameters_and_buffers})


def functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with other parameters: the older name of flambeau.func.functional_call."""
    warnings.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in a future"
        " version of PyTorch. Please use `torch.func.functional_call` instead which is a drop-in replacement.",
        FutureWarning,
        stacklevel=2,
    )
    return call_with(module, parameters_and_buffers, args, kwargs, tie_weights, strict)


_functional_call = call_with  # the name that programs older than torch.func use
