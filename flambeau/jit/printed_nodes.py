"""Printing of nodes other than operator calls as expressions of the source that `.code` shows."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..ops.machinery.schema import quoted
from .ir import Node, Value
from .types import DictType, InterfaceType, ListType, OptionalType, TupleType, Type, UnionType

if TYPE_CHECKING:
    from .printing import Body


def is_identifier(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def _list(body: Body, node: Node, inputs: list[str]) -> str:
    kind = node.outputs_[0].type
    assert isinstance(kind, ListType)
    text = f"[{', '.join(inputs)}]"
    if not inputs or not _is_inferable(kind.element, node.inputs_):
        return f"annotate({body.printer.type_name(kind)}, {text})"
    return text


def _is_inferable(element: Type, values: Sequence[Value]) -> bool:
    return not isinstance(element, (OptionalType, UnionType, InterfaceType)) and str(element) != "Any"


def _tuple(body: Body, node: Node, inputs: list[str]) -> str:
    kind = node.outputs_[0].type
    assert isinstance(kind, TupleType)
    if kind.tuple_name:
        return f"{body.printer.type_name(kind)}({', '.join(inputs)})"
    return f"({', '.join(inputs)},)" if len(inputs) == 1 else f"({', '.join(inputs)})"


def _dict(body: Body, node: Node, inputs: list[str]) -> str:
    kind = node.outputs_[0].type
    assert isinstance(kind, DictType)
    pairs = ", ".join(f"{k}: {v}" for k, v in zip(inputs[::2], inputs[1::2]))
    text = "{" + pairs + "}"
    if not inputs or not _is_inferable(kind.value, node.inputs_):
        return f"annotate({body.printer.type_name(kind)}, {text})"
    return text


def _attribute(body: Body, node: Node, inputs: list[str]) -> str:
    name = node.attributes["name"]
    return f"{inputs[0]}.{name}" if is_identifier(name) else f"getattr({inputs[0]}, {quoted(name)})"


def _method(body: Body, node: Node, inputs: list[str]) -> str:
    body.printer.type_name(node.inputs_[0].type)
    return f"({inputs[0]}).{node.attributes['name']}({''.join(f'{i}, ' for i in inputs[1:])})"


def _call(body: Body, node: Node, inputs: list[str]) -> str:
    return f"{inputs[0]}({''.join(f'{i}, ' for i in inputs[1:])})"


def _create(body: Body, node: Node, inputs: list[str]) -> str:
    name = body.printer.type_name(node.outputs_[0].type)
    return f"{name}.__new__({name})"


def _cast(word: str) -> Any:
    return lambda body, node, inputs: f"{word}({inputs[0]})"


def _unchecked_cast(body: Body, node: Node, inputs: list[str]) -> str:
    return f"unchecked_cast({body.printer.type_name(node.outputs_[0].type)}, {inputs[0]})"


def _isinstance(body: Body, node: Node, inputs: list[str]) -> str:
    kinds = [body.printer.type_name(t) for t in node.attributes["types"]]
    return (
        f"isinstance({inputs[0]}, {kinds[0]})" if len(kinds) == 1 else f"isinstance({inputs[0]}, ({', '.join(kinds)}))"
    )


def _uninitialized(body: Body, node: Node, inputs: list[str]) -> str:
    return f"uninitialized({body.printer.type_name(node.outputs_[0].type)})"


def _item(body: Body, node: Node, inputs: list[str]) -> str:
    return f"{inputs[0]}[{inputs[1]}]" if is_identifier(inputs[0]) else f"({inputs[0]})[{inputs[1]}]"


def _tuple_index(body: Body, node: Node, inputs: list[str]) -> str:
    return f"({inputs[0]})[{inputs[1]}]"


def _implicit(body: Body, node: Node, inputs: list[str]) -> str:
    return f"annotate({node.outputs_[0].type.code}, {inputs[0]})"


def _to_list(body: Body, node: Node, inputs: list[str]) -> str:
    return f"annotate({body.printer.type_name(node.outputs_[0].type)}, ({inputs[0]}).tolist())"


EXPRESSIONS: dict[str, Any] = {
    "prim::ListConstruct": _list, "prim::TupleConstruct": _tuple, "prim::DictConstruct": _dict, "prim::GetAttr": _attribute,
    "prim::CallMethod": _method, "prim::CallFunction": _call, "prim::CreateObject": _create, "aten::Bool": _cast("bool"),
    "aten::Int": _cast("int"), "aten::Float": _cast("float"), "prim::unchecked_cast": _unchecked_cast,
    "prim::unchecked_unwrap_optional": _unchecked_cast, "prim::isinstance": _isinstance, "prim::Uninitialized": _uninitialized,
    "aten::__getitem__": _item, "prim::TupleIndex": _tuple_index, "aten::IntImplicit": _implicit, "aten::FloatImplicit": _implicit,
    "aten::ScalarImplicit": _implicit, "aten::ComplexImplicit": _implicit, "prim::tolist": _to_list, "aten::sorted": _cast("sorted"),
    "prim::EnumName": lambda body, node, inputs: f"({inputs[0]}).name",
    "prim::EnumValue": lambda body, node, inputs: f"({inputs[0]}).value",
    "prim::Print": lambda body, node, inputs: f"print({', '.join(inputs)})",
}  # fmt: skip
