"""Calls of aten operators, translated by torchlib's functions."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from dis import get_instructions
from typing import Any

import flambeau

from ...core.dtype import dtype as DType  # noqa: N812
from ..builder import Builder, Value
from ..dtypes import NUMBER
from .library import functions, names_of
from .opset import operand, plain, writing


def function_of(name: str, overload: str, record: Any) -> Callable[..., Any] | None:
    """Return torchlib's function for an overload of an operator, or of an operator with another name for it; None if it has none."""
    ending = f".{overload}" if overload not in ("", "default") else ""
    found = (functions().get(f"{word}{ending}") for word in names_of(name, record))
    return next(filter(None, found), None)


@functools.cache
def _parameters(function: Callable) -> dict[str, Any]:
    return dict(inspect.signature(function).parameters)


def call(g: Builder, function: Callable, schema: Any, arguments: dict[str, Any], record: Any, result: Any) -> Any:
    """Run a function of torchlib on arguments by name, in the schema's order. `result` describes the result of the call."""
    if _complex(arguments, result):
        raise NotImplementedError("complex numbers")
    wanted = _parameters(function)
    arguments = _promote_operands(g, schema, arguments, record, result, wanted)
    given = _bind_arguments(function, schema, arguments)
    with writing(g):
        try:
            return plain(function(**given))
        except (TypeError, AttributeError, ValueError, IndexError, KeyError, AssertionError) as error:
            raise NotImplementedError(f"torchlib's function: {type(error).__name__}: {error}") from error


def _bind_arguments(function: Callable, schema: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Bind arguments to a function's parameters: by position, and keyword-only ones by name. An argument that the function does not take,
    or never reads, must have the schema's default."""
    wanted, read = _parameters(function), _read(function)
    given: dict[str, Any] = {}
    free = iter(wanted)
    for argument in schema.arguments:
        thing = arguments.get(argument.name)
        place = argument.name if argument.kwarg_only else next(free, "")
        default, heard = argument.default_value, place in read or argument.name in SAYS_HOW | _CHANGES_NOTHING
        if not (heard or thing is None or thing == default or (thing is False and default is None)):
            raise NotImplementedError(f"its argument {argument.name}={thing!r}")
        if place in wanted and (thing is not None or wanted[place].default is inspect.Parameter.empty):
            given[place] = NUMBER[thing] if isinstance(thing, DType) else operand(thing)
    return given


@functools.cache
def _read(function: Callable) -> frozenset[str]:
    """Return the names that a function's code reads: many functions of torchlib ignore some of their parameters."""
    read = [step.argval for step in get_instructions(function) if "LOAD_FAST" in step.opname]
    single = [[names] if isinstance(names, str) else names for names in read]  # newer Pythons read two at once
    return frozenset(itertools.chain(function.__code__.co_cellvars, *single))


# Arguments that say where or how, never what.
SAYS_HOW = frozenset([
    "layout", "device", "pin_memory", "memory_format", "requires_grad", "non_blocking", "copy", "generator",
    "implicit", "stable", "sparse_grad", "unsafe", "cudnn_enabled", "cudnn_enable",
])  # fmt: skip

# Arguments that torchlib's functions may ignore: gradients alone depend on them, they allow an order without asking for one, repeat what
# other arguments say, or choose between real and complex results, of which complex ones are refused.
_CHANGES_NOTHING = frozenset([
    "padding_idx", "scale_grad_by_freq", "sparse", "sorted", "path", "stride", "output_size", "C", "HxW", "return_complex",
])  # fmt: skip


def _complex(arguments: dict[str, Any], result: Any) -> bool:
    """Return whether an argument or the result is complex: torchlib's functions represent complex numbers as pairs."""
    things = (*arguments.values(), *(result if isinstance(result, (list, tuple)) else (result,)))
    return any(getattr(getattr(thing, "dtype", None), "is_complex", False) for thing in things)


def _promote_operands(
    g: Builder, schema: Any, arguments: dict[str, Any], record: Any, result: Any, wanted: dict[str, Any]
) -> dict[str, Any]:
    """Convert arguments that share a type variable in torchlib to one dtype: that in which the operator computes."""
    variables = dict(
        zip((a.name for a in schema.arguments if not a.kwarg_only), (_type_variable(p) for p in wanted.values()))
    )
    changed = dict(arguments)
    for variable in dict.fromkeys(filter(None, variables.values())):
        group = {k: v for k, v in arguments.items() if variables.get(k) == variable and isinstance(v, _OPERANDS)}
        if not group:
            continue
        compute = getattr(result, "dtype", None) if getattr(record, "kind", "") == "pointwise" else None
        if compute is None or compute == flambeau.bool:
            numbers = [
                v for k, v in arguments.items() if k not in group and isinstance(v, (int, float)) and k in _NUMBERS
            ]
            compute = _widened_dtype(promoted(*group.values(), *numbers), variable, record, result)
        changed.update((key, g.number(thing, compute)) for key, thing in group.items())
    return changed


def _widened_dtype(compute: DType, variable: str, record: Any, result: Any) -> DType:
    """Return the dtype to convert integer operands to, if the result has another: torchlib's functions convert too late, or not at all."""
    wanted = getattr(result, "dtype", None)
    if compute.is_floating_point or wanted is None or wanted == flambeau.bool or variable.startswith("TInt"):
        return compute
    return wanted if wanted.is_floating_point or getattr(record, "kind", "") == "reduction" else compute


_OPERANDS = (Value, int, float)
_NUMBERS = ("other", "exponent", "min", "max")  # the operands that torchlib takes as Python numbers


def _type_variable(parameter: inspect.Parameter) -> str:
    """Return the type variable of a parameter's annotation, or "" if it has none."""
    text = str(parameter.annotation).removeprefix("Optional[").removesuffix("]")
    return text if text.startswith("T") and not text.startswith("Tensor") else ""


def promoted(*values: Any) -> DType:
    """Return the dtype in which an operator on these values computes."""
    examples = [_example(v) for v in values if v is not None]
    found = examples[0].dtype if isinstance(values[0], Value) else flambeau.result_type(examples[0], examples[0])
    if len(examples) > 1:
        found = flambeau.result_type(examples[0], examples[1])
    for other in examples[2:]:
        found = flambeau.promote_types(
            found, flambeau.result_type(flambeau.empty(0, dtype=found, device="meta"), other)
        )
    return found


def _example(value: Any) -> Any:
    """Return a stand-in of a value for type promotion: a meta tensor, or the number itself."""
    if isinstance(value, Value):
        return flambeau.empty((0,) if value.rank != 0 else (), dtype=value.dtype, device="meta")
    return value
