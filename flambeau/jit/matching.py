"""Matching of a call with the overloads of an operator, and the conversions that its arguments need.

Matching changes the graph only when it has succeeded: each argument becomes a plan (a closure) that is run at the end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..ops.machinery.matching import FUNCTION_NAMES, NoMatch, first_match, matched, mismatch, told
from . import types as T
from .ir import Graph, Value
from .schema import Argument, Schema
from .source import Range, error
from .type_joins import unify, unify_all, without_none


class Named(NamedTuple):
    """An argument of a call: its value, and its name if it was given by name."""

    value: Value
    place: Range | None = None
    name: str | None = None


Plan = Callable[[], Value]


class Match(NamedTuple):
    schema: Schema
    plans: list[Plan]
    returns: list[T.Type]


# -- conversions ------------------------------------------------------------------------------------------------------------


def convertible_to_list(actual: T.Type, wanted: T.Type) -> bool:
    """Return whether a tuple converts to a list type: all its elements fit."""
    if not isinstance(wanted, T.ListType):
        return False
    if isinstance(actual, T.ListType):
        return True
    if isinstance(actual, T.TupleType):
        return all(T.is_subtype(e, wanted.element) for e in actual.elements)
    return False


def plan_conversion(
    graph: Graph, place: Range | None, wanted: T.Type, value: Value, allow: bool
) -> tuple[Plan, T.Type]:
    """Plan the conversion of a value to a type; return also the resulting type, which may still not fit."""
    actual = value.type
    if isinstance(wanted, T.OptionalType) and not isinstance(actual, T.OptionalType) and actual is not T.NONE:
        return plan_conversion(graph, place, wanted.element, value, allow)
    if value.node.kind_ == "prim::EmptyListLiteral" and isinstance(wanted, T.ListType):
        element = wanted.element
        return (lambda: graph.list_of(element, [], place)), wanted
    if isinstance(actual, T.TupleType):
        target = without_none(wanted)
        if isinstance(target, T.ListType) and convertible_to_list(actual, target):
            element = target.element
            return (lambda: graph.list_of(element, graph.unpack(value, place), place)), target
        if (
            isinstance(wanted, T.TupleType)
            and len(wanted.elements) == len(actual.elements)
            and not T.is_subtype(actual, wanted)
        ):
            return _plan_tuple(graph, place, wanted, value, allow)
    if allow:
        to = _implicit(actual, wanted)
        if to is not None:
            kind, result = to
            return (lambda: graph.op(kind, [value], result, place)), result
    return (lambda: value), actual


def _plan_tuple(
    graph: Graph, place: Range | None, wanted: T.TupleType, value: Value, allow: bool
) -> tuple[Plan, T.Type]:
    actual = value.type
    assert isinstance(actual, T.TupleType)
    if value.node.kind_ == "prim::TupleConstruct":
        parts = [plan_conversion(graph, place, w, v, allow) for w, v in zip(wanted.elements, value.node.inputs_)]
        made = T.TupleType([t for _, t in parts])
        return (lambda: graph.tuple_of([p() for p, _ in parts], place)), made
    return (lambda: value), actual


def _implicit(actual: T.Type, wanted: T.Type) -> tuple[str, T.Type] | None:
    """Return the operator of an implicit conversion and its result type; None if there is none."""
    if isinstance(actual, T.TensorType):
        words = {
            T.FLOAT: "FloatImplicit",
            T.COMPLEX: "ComplexImplicit",
            T.INT: "IntImplicit",
            T.NUMBER: "ScalarImplicit",
        }
        return (f"aten::{words[wanted]}", wanted) if wanted in words else None
    if actual is T.NUMBER:
        words = {T.FLOAT: "Float", T.COMPLEX: "Complex", T.INT: "Int"}
        return (f"aten::{words[wanted]}", wanted) if wanted in words else None
    if actual is T.BOOL:
        if wanted is T.FLOAT:
            return "aten::Float", T.FLOAT
        return ("aten::Int", T.INT) if wanted in (T.INT, T.NUMBER) else None
    if actual is T.STRING and wanted is T.DEVICE:
        return "aten::device", T.DEVICE
    return None


def convert(graph: Graph, place: Range | None, wanted: T.Type, value: Value, allow: bool = False) -> Value:
    """Convert a value to a type as far as TorchScript does so implicitly."""
    plan, _ = plan_conversion(graph, place, wanted, value, allow)
    return plan()


# -- type variables ---------------------------------------------------------------------------------------------------------


def bind_variables(formal: T.Type, actual: T.Type, known: dict[str, T.Type]) -> str | None:
    """Bind a schema's type variables to types; return an error message, or None."""
    if isinstance(formal, T.VarType):
        before = known.get(formal.name)
        joined = actual if before is None else unify(before, actual)
        if joined is None:
            return f"Type variable '{formal.name}' previously matched to type {before} is matched to type {actual}"
        known[formal.name] = joined
        return None
    if isinstance(formal, T.OptionalType):
        if isinstance(actual, T.OptionalType):
            return bind_variables(formal.element, actual.element, known)
        if actual is not T.NONE:
            return bind_variables(formal.element, actual, known)
        return None
    if isinstance(formal, T.ListType) and isinstance(actual, T.TupleType):
        if not actual.elements:
            return "Cannot match empty tuple"
        joined = unify_all(list(actual.elements))
        return f"Cannot match {formal} to {actual}" if joined is None else bind_variables(formal.element, joined, known)
    pairs = list(zip(formal.contained(), actual.contained()))
    if type(formal) is not type(actual) or len(formal.contained()) != len(actual.contained()):
        return f"Cannot match {formal.repr_str()} to {actual.repr_str()}"
    for f, a in pairs:
        wrong = bind_variables(f, a, known) if has_variables(f) else None
        if wrong is not None:
            return wrong
    return None


def has_variables(t: T.Type) -> bool:
    return isinstance(t, T.VarType) or any(map(has_variables, t.contained()))


def filled(t: T.Type, known: dict[str, T.Type]) -> T.Type:
    """Return a type with its type variables replaced by the types they are bound to."""
    if isinstance(t, T.VarType):
        return known.get(t.name, T.ANY)
    parts = t.contained()
    return t.with_contained([filled(p, known) for p in parts]) if parts and has_variables(t) else t


# -- arguments --------------------------------------------------------------------------------------------------------------


def plan_argument(
    graph: Graph,
    place: Range | None,
    argument: Argument,
    given: Named,
    allow: bool,
    known: dict[str, T.Type],
) -> Plan:
    """Plan the conversion of a value to the type of its argument; raises NoMatch."""
    value = given.value
    actual = value.type
    formal = argument.type
    bare = without_none(formal)
    if argument.N is not None and isinstance(bare, T.ListType):
        element = bare.element
        if actual is element or (actual in T.INT_LIKE and element in T.INT_LIKE):
            size = argument.N
            one, _ = plan_conversion(graph, place, element, value, allow)
            return lambda: graph.list_of(element, [one()] * size, place)
    if has_variables(formal):
        problem = bind_variables(formal, actual, known) if value.node.kind_ != "prim::EmptyListLiteral" else None
        if problem is not None:
            raise NoMatch(
                "said",
                f"Could not match type {actual.repr_str()} to {formal.repr_str()} in argument '{argument.name}': {problem}.\n",
            )
        wanted = filled(formal, known)
    else:
        wanted = formal
    plan, result = plan_conversion(graph, place, wanted, value, allow)
    why: list[str] = []
    if T.is_subtype(result, wanted, why):
        return plan
    message = mismatch(argument.name, formal if formal is T.INFERRED else wanted, actual.repr_str())
    if actual is T.INFERRED:
        message += f"Inferred the value for argument '{argument.name}' to be of type 'Tensor' because it was not annotated with an explicit type.\n"
    if (
        isinstance(wanted, T.ListType)
        and isinstance(actual, T.ListType)
        and value.node.kind_ == "prim::ListConstruct"
        and not value.node.inputs_
    ):
        message += "Empty lists default to List[Tensor]. Add a variable annotation to the assignment to create an empty list of another type (torch.jit.annotate(List[T, []]) where T is the type of elements in the list for Python 2)\n"
    if why:
        message += why[0] + "\n"
    raise NoMatch("said", message)


def match_schema(
    graph: Graph,
    place: Range | None,
    args: Sequence[Named],
    kwargs: Sequence[Named],
    owner: Named | None,
    allow: bool,
    schema: Schema,
) -> Match:
    """Match a call with one schema; raises NoMatch if it does not fit."""
    if owner is not None:
        place_of_self = schema.index_of("self")
        if place_of_self is None:
            raise NoMatch("said", "Provided self argument not used in schema.\n")
        args = [*args[:place_of_self], owner, *args[place_of_self:]]
    known: dict[str, T.Type] = {}

    def convert(argument: Argument, given: Any) -> Plan:
        if isinstance(given, list):
            return _plan_rest(graph, place, argument, given, allow)
        return plan_argument(graph, place, argument, given, allow, known)

    def omitted(argument: Argument) -> Plan:
        return functools.partial(insert_constant, graph, argument.default, filled(argument.type, known))

    args = _with_rest_joined(schema, args)
    also = FUNCTION_NAMES if "::" in schema.name else {}
    plans = matched(schema, args, {k.name or "": k for k in kwargs}, convert, omitted, also)
    plans += [functools.partial(_describe_given, a.value) for a in args[len(schema.positional) :]]  # those of ...
    return Match(schema, plans, [filled(t, known) for t in schema.result_types])


def _with_rest_joined(schema: Schema, args: Sequence[Named]) -> Sequence[Any]:
    """Return the positional arguments, with trailing elements of one list joined to it: `torch.zeros(2, 3)`."""
    last = len(schema.positional) - 1
    if not 0 <= last < len(args) or schema.positional[last].N is not None:
        return args
    kind, first = schema.positional[last].type, args[last].value.type
    spreads = (
        isinstance(kind, T.ListType)
        and not has_variables(kind)
        and not isinstance(kind.element, (T.ListType, T.TupleType))
    )
    whole = first is T.NONE or isinstance(first, (T.ListType, T.TupleType, T.OptionalType, T.UnionType))
    return [*args[:last], list(args[last:])] if spreads and not whole else args


# The compiler's messages about a call that does not match a schema.
_MESSAGES = {
    "missing": "Argument {0} not provided.\n",
    "positional": "Expected at most {0} arguments but found {1} positional arguments.\n",
    "unknown": "Keyword argument {0} unknown.\n",
    "twice": "Argument {0} specified twice in schema.\n",
    "said": "{0}",
}


def _describe_given(value: Value) -> Value:
    return value


def _plan_rest(graph: Graph, place: Range | None, argument: Argument, rest: Sequence[Named], allow: bool) -> Plan:
    element = argument.type.element
    plans = []
    for given in rest:
        plan, result = plan_conversion(graph, place, element, given.value, allow)
        if not T.is_subtype(result, element):
            raise NoMatch("said", mismatch(argument.name, argument.type, given.value.type.repr_str()))
        plans.append(plan)
    return lambda: graph.list_of(element, [p() for p in plans], place)


def insert_constant(graph: Graph, value: Any, kind: T.Type, place: Range | None = None) -> Value:
    """Insert a constant for a Python value, converted to the type `kind` where that differs (an int to float)."""
    target = without_none(kind)
    if isinstance(value, list) and isinstance(target, T.ListType):
        return graph.constant(list(value), T.ListType(T.INT if target.element in T.INT_LIKE else target.element), place)
    if type(value) is int and target is T.FLOAT:
        value = float(value)
    return graph.constant(value, T.OF_PYTHON.get(type(value), target), place)


def match_call(
    graph: Graph,
    place: Range | None,
    schemas: Sequence[Schema],
    args: Sequence[Named],
    kwargs: Sequence[Named],
    owner: Named | None = None,
) -> Match:
    """Return the match with the first schema that a call fits, preferably without conversions; raises an error that names all schemas."""
    problems: list[tuple[Schema, NoMatch]] = []
    for allow in (False, True) if len(schemas) > 1 else (True,):
        problems.clear()
        found = first_match(
            schemas, functools.partial(match_schema, graph, place, args, kwargs, owner, allow), problems
        )
        if found is not None:
            return found
    reasons = [told(*problem, _MESSAGES) for problem in problems]
    if len(schemas) == 1:
        raise error(place, f"\n{schemas[0]}:\n{reasons[0].rstrip(chr(10))}")
    lines = ["Arguments for call are not valid.\nThe following variants are available:\n"]
    lines += [f"  \n  {schema}:\n  {text}" for schema, text in zip(schemas, reasons)]
    lines.append("\nThe original call is")
    raise error(place, "".join(lines))


def carry_out(graph: Graph, kind: str, match: Match, place: Range | None) -> Value:
    """Insert the node of a matched call and return its result (a tuple if there are several)."""
    inputs = [plan() for plan in match.plans]
    node = graph.create(kind, inputs, len(match.returns), place)
    node.schema_ = match.schema
    for out, t in zip(node.outputs_, match.returns):
        out.type = t
    graph.insert(node)
    if len(match.returns) == 1:
        return node.outputs_[0]
    if not match.returns:
        return graph.constant(None, T.NONE, place)
    fields = match.schema.fields
    type = T.TupleType(match.returns, None, fields if len(fields) == len(match.returns) else ())
    return graph.tuple_of(list(node.outputs_), place, type)
