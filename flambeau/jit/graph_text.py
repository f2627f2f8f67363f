"""Graphs as PyTorch prints them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..ops.machinery.schema import number_text, quoted
from .types import BOOL, EnumType, FutureType, ListType, OptionalType, TupleType, Type

if TYPE_CHECKING:
    from .ir import Graph, Node, Value


def constant_text(value: Any, type: Type) -> str:
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, (bool, int, float, complex)):
        return number_text(value)
    if isinstance(type, TupleType) and isinstance(value, tuple):
        return (
            "("
            + ", ".join(_part_text(v, t) for v, t in zip(value, type.elements))
            + ("," if len(value) == 1 else "")
            + ")"
        )
    if isinstance(type, ListType) and isinstance(value, (list, tuple)):
        return "[" + ", ".join(_part_text(v, type.element) for v in value) + "]"
    if isinstance(type, EnumType):
        return f"{type.enum_name}.{value.name}"
    if hasattr(value, "dim") and hasattr(value, "tolist"):
        if value.dim() == 0:
            number = value.item()
            return "{" + (f"{number:g}" if isinstance(number, float) else number_text(number)) + "}"
        return "<Tensor>"
    if hasattr(value, "index") and hasattr(value, "type") and not isinstance(value, (list, tuple)):
        return quoted(str(value))
    return str(value)


def _part_text(value: Any, type: Type) -> str:
    if value is None:
        return "None"
    if isinstance(value, bool):
        return str(value)
    return constant_text(value, type)


def _attributes_text(node: Node) -> str:
    parts = []
    for name, value in node.attributes.items():
        if name in ("function", "code", "python", "keywords", "unannotated"):
            continue
        type = node.outputs_[0].type if node.outputs_ and name == "value" else BOOL
        text = constant_text(value, type)
        if isinstance(value, (list, tuple)) and name != "value":
            text = "[" + ", ".join(quoted(v) if isinstance(v, str) else str(v) for v in value) + "]"
        parts.append(f"{name}={text}")
    return f"[{', '.join(parts)}]" if parts else ""


def _values_text(values: Sequence[Value]) -> str:
    return ", ".join(f"%{v.name}" for v in values)


def _typed_values(values: Sequence[Value], separator: str = ", ") -> str:
    return separator.join(f"%{v.name} : {shown(v.type)}" for v in values)


def print_node(node: Node, level: int, show_source: bool = True, forks: list[Graph] | None = None) -> str:
    indent = "  " * level
    if node.kind_ == "prim::fork" and forks is not None:
        values = [v for v in node.captured() if v.node.kind_ != "prim::Constant"]
        head = f"{indent}{_typed_values(node.outputs_)} = prim::fork_{len(forks)}({_values_text(values)})"
        forks.append(node.forked())
        return head + (f" # {node.range}\n" if show_source and node.range is not None and str(node.range) else "\n")
    left = f"{_typed_values(node.outputs_)} = " if node.outputs_ else " = "
    kind = node.kind_
    if kind == "prim::PythonOp":
        kind = f"^{node.attributes.get('name', '?')}"
        head = f"{indent}{left}{kind}[]()({_values_text(node.inputs_)})"
    else:
        head = f"{indent}{left}{kind}{_attributes_text(node)}({_values_text(node.inputs_)})"
    if node.scope:
        head += f", scope: {node.scope}"
    if show_source and node.range is not None and str(node.range):
        head += f" # {node.range}"
    out = [head + "\n"]
    for number, block in enumerate(node.blocks_):
        out.append(f"{indent}  block{number}({_typed_values(block.inputs_)}):\n")
        out += [print_node(n, level + 2, show_source, forks) for n in block.nodes_]
        out.append(f"{indent}    -> ({_values_text(block.outputs_)})\n")
    return "".join(out)


class _SourceText(threading.local):
    on = True


shows_source = _SourceText()


def print_graph(graph: Graph, show_source: bool | None = None) -> str:
    show_source = shows_source.on if show_source is None else show_source
    head = f"graph({_typed_values(graph.inputs_, ',' + chr(10) + ' ' * 6)}):\n"
    forks: list[Graph] = []
    body = "".join(print_node(n, 1, show_source, forks) for n in graph.nodes_)
    rest = "".join(f"with prim::fork_{i} = {print_graph(f, show_source)}" for i, f in enumerate(forks))
    return f"{head}{body}  return ({_values_text(graph.outputs_)})\n{rest}"


def shown(t: Type) -> str:
    """Return a type as printed graphs show it: NamedTuples with their fields, futures in brackets."""
    if isinstance(t, FutureType):
        return f"Future[{shown(t.element)}]"
    if isinstance(t, (ListType, OptionalType)):
        return t.graph_form.format(shown(t.element))
    if not isinstance(t, TupleType):
        return str(t)
    parts = [shown(e) for e in t.elements]
    if t.tuple_name:
        first = len(t.fields) - len(t.defaults)
        parts = [f"{name} : {part}" for name, part in zip(t.fields, parts)]
        parts = [p if i < first else f"{p} = {_default_text(t.defaults[i - first])}" for i, p in enumerate(parts)]
    return f"{'NamedTuple' if t.tuple_name else ''}({', '.join(parts)})"


def _default_text(value: Any) -> str:
    """Return the default of a NamedTuple's field as printed graphs show it: strings without quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_default_text(k)}: {_default_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_default_text, value)) + "]"
    return str(value)
