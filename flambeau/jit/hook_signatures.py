"""Checks that the hooks of a module fit its forward: PyTorch's rules for compiled hooks, with its messages."""

from __future__ import annotations

from typing import Any

from .types import NONE, ClassType, TupleType, Type, is_subtype, result_type


def check_hooks(module_name: str, kind: ClassType) -> None:
    """Raise if the types of a compiled hook do not fit the compiled forward."""
    forward = kind.find_method("forward") if kind.forward_pre_hooks or kind.forward_hooks else None
    if forward is None:
        return
    arguments = [a.type for a in forward.schema.arguments[1:]]
    given = TupleType(arguments)
    for hook in kind.forward_pre_hooks:
        _check_pre_hook(module_name, hook, arguments, given)
    result = result_type(forward.schema)
    for hook in kind.forward_hooks:
        _check_hook(module_name, hook, given, result)
        result = result_type(hook.schema)


def _fail(head: str, text: str, tail: str) -> None:
    raise RuntimeError(f"{head} {text}\n{tail}")


def _check_input(head: str, hook: Any, given: TupleType, count: int, tail: str) -> None:
    found = hook.schema.arguments
    if len(found) != count:
        _fail(head, f"was expected to only have exactly {count} inputs but it had {len(found)} inputs", tail)
    actual = found[1].type
    if not isinstance(actual, TupleType):
        _fail(head, f"expected the input argument to be typed as a Tuple but found type: '{actual.code}' instead.", tail)  # fmt: skip
    elif len(actual.elements) != len(given.elements):
        _fail(head, f"has the wrong number of contained types for the input argument's Tuple. Received type: '{actual.code}'.", tail)  # fmt: skip
    elif not all(map(is_subtype, given.elements, actual.elements)):
        _fail(head, f"has the wrong inner types for the input tuple argument. Received type: '{actual.code}'.", tail)  # fmt: skip


def _check_pre_hook(module: str, hook: Any, arguments: list[Type], given: TupleType) -> None:
    name, head = hook.base_name, f"Pre-hook '{hook.base_name}' on module '{module}'"
    alone = arguments[0] if len(arguments) == 1 else None
    choices = f"'None', '{alone.code}', or '{given.code}'" if alone is not None else f"'None' or '{given.code}'"
    tail = f"This error occurred while scripting the forward pre-hook '{name}' on module '{module}'. If you did not want to script this pre-hook remove it from the original NN module before scripting. Pre-hooks for module '{module}' are expected to have the following signature: {name}(self, input: {given.code}) with a return type of either {choices}."
    _check_input(head, hook, given, 2, tail)
    if hook.definition is not None and hook.definition.tree.returns is None:
        _fail(head, "is missing a return annotation. Return annotations are required, please add one.", tail)
    result = result_type(hook.schema)
    if isinstance(alone, TupleType) and result is not NONE and result != given:
        _fail(head, f"returned the wrong type of: '{result.code}'. When forward has a single tuple input argument, the return needs to be 'None' or a nested tuple containing forward's input tuple argument as in: '{given.code}'.", tail)  # fmt: skip
    if result is not NONE and not is_subtype(result, given) and not (alone is not None and is_subtype(result, alone)):
        _fail(head, f"returned the wrong type of: '{result.code}'.", tail)


def _check_hook(module: str, hook: Any, given: TupleType, result: Type) -> None:
    name, head = hook.base_name, f"Hook '{hook.base_name}' on module '{module}'"
    tail = f"This error occurred while scripting the forward hook '{name}' on module {module}. If you did not want to script this hook remove it from the original NN module before scripting. This hook was expected to have the following signature: {name}(self, input: {given.code}, output: {result.code}). The type of the output arg is the returned type from either the forward method or the previous hook if it exists. Note that hooks can return anything, but if the hook is on a submodule the outer module is expecting the same return type as the submodule's forward."
    _check_input(head, hook, given, 3, tail)
    actual = hook.schema.arguments[2].type
    if not is_subtype(result, actual):
        _fail(head, f"has the wrong type for the output argument. Received type: '{actual.code}'. Expected type: '{result.code}'.", tail)  # fmt: skip
