"""Matching of calls with signatures: the parameter that each argument is for."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import nn
from ..core.naming import torch_name
from .names import home_of

__all__ = [
    "ArgsKwargsPair", "check_for_mutable_operation", "create_type_hint", "get_signature_for_torch_op",
    "normalize_function", "normalize_module", "type_matches",
]  # fmt: skip


class ArgsKwargsPair(NamedTuple):
    """Positional and keyword arguments of a call."""

    args: tuple
    kwargs: dict[str, Any]


def get_signature_for_torch_op(op: Callable, return_schemas: bool = False) -> Any:
    """Return the signatures of an operator; None if it is not an operator."""
    schema = getattr(op, "_schema", None)
    if home_of(op) is None and schema is None:
        return (None, None) if return_schemas else None
    signatures = [inspect.signature(op)]
    return (signatures, [schema]) if return_schemas else signatures


def check_for_mutable_operation(target: Callable, args: tuple, kwargs: dict[str, Any]) -> None:
    """Raise an error if the operator writes to one of its arguments."""
    home = home_of(target)
    schema = getattr(target, "_schema", None)
    if schema is not None:
        mutable = schema.is_mutable
    elif home is not None:
        mutable = (home.name.endswith("_") and not home.name.endswith("__")) or kwargs.get("out") is not None
    else:
        return
    if mutable:
        raise RuntimeError(
            f"Tried to trace mutable operation {schema or _aten_name(home, kwargs)}. FX only supports functional code, so"
            " operations that mutate operands in-place (e.g. via `out` arguments) are not supported"
        )


def _aten_name(home: Any, kwargs: dict[str, Any]) -> str:
    return f"aten::{home.name}.out" if kwargs.get("out") is not None else f"aten::{home.name}"


def create_type_hint(x: Any) -> Any:
    """Return a type that covers all members of a list or tuple of types."""
    if not isinstance(x, (list, tuple)):
        return x
    make = (lambda kind: list[kind]) if isinstance(x, list) else (lambda kind: tuple[kind, ...])  # type: ignore[valid-type]
    if not x:
        return make(Any)
    common = x[0]
    for kind in x:
        if issubclass(kind, common):
            continue
        common = kind if issubclass(common, kind) else Any
        if common is Any:
            break
    return make(common)


def type_matches(signature_type: Any, argument_type: Any) -> bool:
    """Return whether a value of one type may be passed where the other is declared."""
    origin = typing.get_origin(signature_type)
    if signature_type is argument_type:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(type_matches(kind, argument_type) for kind in typing.get_args(signature_type))
    if origin in (list, tuple) or typing.get_origin(argument_type) in (list, tuple):
        return _containers_match(signature_type, argument_type)
    if signature_type is inspect.Parameter.empty:
        return True
    return (
        inspect.isclass(argument_type) and inspect.isclass(signature_type) and issubclass(argument_type, signature_type)
    )


def _containers_match(wanted: Any, given: Any) -> bool:
    wanted_item = (typing.get_args(wanted) or (None,))[0]
    if typing.get_origin(wanted) is list and wanted_item is int and given is int:
        return True  # one int stands for a list of them
    if typing.get_origin(given) not in (list, tuple) or typing.get_origin(wanted) is not list:
        return False
    return all(item is ... or type_matches(wanted_item, item) for item in typing.get_args(given))


def normalize_function(
    target: Callable,
    args: tuple,
    kwargs: dict[str, Any] | None = None,
    arg_types: tuple | None = None,
    kwarg_types: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """Return the call's arguments by the names of the parameters, with the defaults; None if the function has no signature that fits them,
    or takes any number of arguments."""
    module = torch_name(getattr(target, "__module__", None) or "")
    if not (home_of(target) or module.startswith("torch.") or hasattr(target, "_schema") or inspect.isfunction(target)):
        return None
    try:
        signature = inspect.signature(inspect.unwrap(target))
        return _normalize(signature, args, kwargs or {}, normalize_to_only_use_kwargs)
    except (TypeError, ValueError):
        return None


def normalize_module(
    root: Any,
    target: str,
    args: tuple,
    kwargs: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """Normalize the arguments of a call of a submodule that is one of PyTorch's own layers."""
    try:
        module = root.get_submodule(target)
    except AttributeError as problem:
        raise RuntimeError(
            f"Tried to normalize node with target {target} but root did not have that target!"
        ) from problem
    if getattr(nn, type(module).__name__, None) is not type(module):
        return None
    signature = inspect.signature(module.forward)
    return _normalize(signature, args, kwargs or {}, normalize_to_only_use_kwargs)


def _normalize(
    signature: inspect.Signature, args: tuple, kwargs: dict[str, Any], only_kwargs: bool
) -> ArgsKwargsPair | None:
    fixed = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if any(p.kind not in fixed for p in signature.parameters.values()):
        return None
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    positional = []
    named: dict[str, Any] = {}
    for position, (name, value) in enumerate(bound.arguments.items()):
        if not only_kwargs and position < len(args):
            positional.append(value)
        else:
            named[name] = value
    return ArgsKwargsPair(tuple(positional), named)
