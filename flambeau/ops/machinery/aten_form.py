"""PyTorch's name of an operator and the order of its arguments: the field `aten` of a declaration.

    aten="instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, False)"

names one of PyTorch's operators (`softmax.int`: one overload) and says for each argument of its schema, in order, what it is: one of the
operator's own arguments by name, a constant, or a conversion of one: `number(mode, "bilinear", "nearest")` is its index among these words.
`*broadcast_tensors(input, target)`: another operator of PyTorch is called first. Arguments of its own that are not mentioned must have their
defaults, or the value given after the list, as in `max_pool2d_with_indices(..., return_indices=True)`. `adaptive_max_pool2d(input,
output_size)[0]` is the first result, `[0, 3]` two of them. Of several forms in a tuple the first that fits is used.

The same text is read backwards when PyTorch's operator is called: its arguments become those of this one."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any

from ...core.tensor import Tensor
from .matching import NoMatch, bind
from .schema import REQUIRED, Argument, Schema
from .schema_table import overloads_of, schema_of

REDUCTIONS = ("none", "mean", "sum")


def _number(value: Any, *words: Any) -> Any:
    if value not in words:
        raise NoMatch("word", value)
    return words.index(value)


def _word(number: int, *words: Any) -> Any:
    return words[number]


def _filled(size: Any, input: Tensor) -> Any:
    """Return an output size with each None replaced by the input's size in that dimension."""
    if not isinstance(size, (list, tuple)):
        return size
    return [s if wanted is None else wanted for wanted, s in zip(size, input.shape[-len(size) :])]


def _row(index: int | None, table: Tensor) -> int:
    """Return the index of a table's row counted from the front; -1 for None."""
    return -1 if index is None else index % table.shape[0]


# Conversions by name: to PyTorch's argument, and back.
_CONVERSIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "number": (_number, _word),
    "filled": (_filled, lambda size, *_: size),
    "row": (_row, lambda index, *_: None if index < 0 else index),
    "last": (lambda t, count: list(t.shape[len(t.shape) - count :]), lambda shape, *_: len(shape)),
    "list": (list, list),
    "tuple": (list, tuple),
    "bool": (bool, bool),
    "float": (float, float),
}


class AtenForm:
    """A parsed `aten=` form: PyTorch's operator and what each of its arguments is."""

    def __init__(self, text: str) -> None:
        tree: Any = ast.parse(text, mode="eval").body
        self.text, self.item = text, None
        if isinstance(tree, ast.Subscript):
            self.item, tree = ast.literal_eval(tree.slice), tree.value
        called: Any = tree.func if isinstance(tree, ast.Call) else tree
        one = isinstance(called, ast.Attribute)
        self.name = called.value.id if one else called.id
        self.overload = called.attr if one else None
        self.parts: list[Any] | None = tree.args if isinstance(tree, ast.Call) else None
        conditions = tree.keywords if isinstance(tree, ast.Call) else ()
        self.conditions: dict[str, Any] = {str(k.arg): ast.literal_eval(k.value) for k in conditions}

    @property
    def only_names(self) -> bool:
        """Return whether the form says nothing about arguments."""
        return self.parts is None

    def is_plain(self, arguments: list[str]) -> bool:
        """Return whether PyTorch's operator differs from this one in name only, with the same arguments in the same order."""
        return [p.id for p in self.parts or () if isinstance(p, ast.Name)] == arguments and len(
            self.parts or ()
        ) == len(arguments)

    def schema(self, inplace: bool = False) -> Schema:
        name = self.name + ("_" if inplace else "")
        return schema_of(
            name, overloads_of(name)[0] if self.overload is None else self.overload.removeprefix("default")
        )

    def counterparts(self) -> list[tuple[str, Argument]]:
        """Return pairs of an own argument's name and the argument of PyTorch's operator that it is given for as it is."""
        parts = [getattr(part, "id", "") for part in self.parts or ()]
        return [pair for pair in zip(parts, self.schema().arguments) if pair[0]]

    def mentioned(self) -> set[str]:
        """Return the operator's own arguments that the form mentions."""
        nodes = [n for part in self.parts or () for n in ast.walk(part)]
        called = {id(n.func) for n in nodes if isinstance(n, ast.Call)}
        found = {n.id for n in nodes if isinstance(n, ast.Name) and id(n) not in called}
        return found | self.conditions.keys() | {"inplace"}

    def taken(self, result: Any) -> Any:
        """Return those of PyTorch's results that are the operator's own."""
        if isinstance(self.item, tuple):
            return tuple(result[i] for i in self.item)
        return result if self.item is None else result[self.item]

    # -- from here to PyTorch -------------------------------------------------------------------------------------------------
    def values(self, own: dict[str, Any], defaults: dict[str, Any], aten: Any) -> tuple[Schema, list[Any]]:
        """Return PyTorch's schema and the values of its arguments for a call with the arguments `own`; raise NoMatch if the form does not
        apply."""
        mentioned = self.mentioned()
        for name, value in own.items():
            wanted = self.conditions.get(name, defaults.get(name))
            if (name not in mentioned or name in self.conditions) and value is not wanted and not _equal(value, wanted):
                raise NoMatch("other", name)
        schema = self.schema(bool(own.get("inplace", False)))
        found: list[Any] = []
        for part in self.parts or ():
            if not isinstance(part, ast.Starred):
                found.append(_value(part, own))
            else:  # several at once: what another operator returns, or `*dim`
                found += own[part.value.id] if isinstance(part.value, ast.Name) else self._called(part.value, own, aten)
        found = [_given(value, argument) for value, argument in zip(found, schema.arguments)]
        positional, named = schema.as_call(found)
        return schema, bind(schema, positional, named, exact=True)

    def _called(self, part: Any, own: dict[str, Any], aten: Any) -> list[Any]:
        return list(getattr(aten, part.func.id).default([own[a.id] for a in part.args]))

    # -- and back -------------------------------------------------------------------------------------------------------------
    def own(self, schema: Schema, values: list[Any], defaults: dict[str, Any]) -> dict[str, Any]:
        """Return the operator's own arguments for those of a call of PyTorch's operator."""
        parts: list[Any] = []
        for part in self.parts or ():
            inner: Any = part.value if isinstance(part, ast.Starred) else None
            parts += [part] if inner is None else inner.args
        found: dict[str, Any] = {}
        for part, argument, value in zip(parts, schema.arguments, values):
            if isinstance(part, ast.Name):
                found[part.id] = _taken(value, argument, defaults.get(part.id, REQUIRED))
            elif isinstance(part, ast.Call):
                operand: Any = part.args[0]
                found[operand.id] = _conversion(part)[1](value, *_constants(part))
        return found | self.conditions


def _equal(a: Any, b: Any) -> bool:
    return not isinstance(a, Tensor) and not isinstance(b, Tensor) and a == b


def _conversion(call: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the two directions of the conversion that a call in a declaration names."""
    return _CONVERSIONS[call.func.id]


def _constants(part: Any) -> list[Any]:
    return [a.value for a in part.args[1:] if isinstance(a, ast.Constant)]


def _value(part: Any, own: dict[str, Any]) -> Any:
    if isinstance(part, ast.Name):
        return own[part.id]
    if isinstance(part, ast.Call):
        given = [_value(a, own) for a in part.args]
        return _conversion(part)[0](*given)
    return ast.literal_eval(part)


def _given(value: Any, argument: Argument) -> Any:
    """Convert a value to what PyTorch's argument takes: reductions are numbers, and None is the default if None is not allowed."""
    if argument.name == "reduction" and isinstance(value, str):
        return _number(value, *REDUCTIONS)
    if value is None and not argument.is_optional:
        return argument.default if argument.default is not REQUIRED else False if argument.base == "bool" else value
    return value


def _taken(value: Any, argument: Argument, default: Any) -> Any:
    """Convert back from PyTorch's argument: its default becomes None where None is the own default."""
    if argument.name == "reduction" and isinstance(value, int) and isinstance(default, str):
        return REDUCTIONS[value]
    replaced = default is None and not argument.is_optional and argument.default is not REQUIRED
    return None if replaced and _equal(value, argument.default) else value


def operator_of(label: str) -> str:
    """Return PyTorch's name of the operator with a derivative whose node has this label: reflection_pad2d for ReflectionPad2DBackward0."""
    name = "_".join(re.findall("[A-Z][a-z]*(?:[0-9]D)?", label.removesuffix("Backward0"))).lower()
    return name if overloads_of(f"{name}_backward") else f"_{name}"


def unread(recorder: Any, like: Tensor, shape: Sequence[int]) -> Tensor:
    """Return what stands for an argument of which PyTorch's operator reads only the shape, and which was not saved for it."""
    return recorder.aten.empty.memory_format(list(shape), dtype=like.dtype, device=like.device, pin_memory=False)


# -- operators that only PyTorch's graphs name ------------------------------------------------------------------------------------

ATEN_ONLY: dict[str, Callable[..., Any]] = {}
ATEN_PARTS: dict[str, Callable[..., Any]] = {}
ATEN_BACKWARD: dict[str, str | tuple[str, ...]] = {}  # the derivatives of these, as in `Op.aten_backward`


def aten_only(*names: str, backward: str | tuple[str, ...] = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare the function that runs for operators of PyTorch (`native_layer_norm`) or overloads (`slice.Tensor`) that are no public function
    here under this name and with these arguments, and which operator of PyTorch computes the derivative."""

    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            if name in ATEN_ONLY:
                raise ValueError(f"aten::{name} is declared twice")
            ATEN_ONLY[name] = function
            if backward:
                ATEN_BACKWARD[name] = backward
        return function

    return note


def aten_parts(*names: str, unseen: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare the calls that PyTorch makes of one of its composite operators, if they are not the calls of the operator's own body here:
    `parts(aten, *args, **kwargs)`, with the arguments of PyTorch's schema. So core operators are decomposed, too. `unseen`: PyTorch's own
    graphs never contain the operator."""

    def note(parts: Callable[..., Any]) -> Callable[..., Any]:
        ATEN_PARTS.update(dict.fromkeys(names, parts))
        vars(parts)["unseen"] = unseen
        return parts

    return note
