"""From Python's syntax tree to a graph: assignments."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from . import signatures as notes
from .ir import Value
from .matching import Named
from .source import FrontendError, Range, error
from .types import ClassType, DictType, ListType, TensorType, Type, is_subtype
from .values import MethodValue, SimpleValue, Sugared, SugaredTuple

_LONE_STAR = "A Starred expression may only appear on the lhs within the presence of another non-starred expression"


_AUGMENTED = {
    ast.Add: "+=", ast.Sub: "-=", ast.Mult: "*=", ast.Div: "/=", ast.Mod: "%=", ast.BitOr: "|=", ast.BitAnd: "&=",
    ast.BitXor: "^=", ast.LShift: "<<=", ast.RShift: ">>=", ast.Pow: "**=",
}  # fmt: skip


INPLACE = {
    "+=": ("aten::add_", "aten::add", "__iadd__"), "-=": ("aten::sub_", "aten::sub", "__isub__"),
    "*=": ("aten::mul_", "aten::mul", "__imul__"), "/=": ("aten::div_", "aten::div", "__itruediv__"),
    "%=": ("aten::fmod_", "aten::remainder", "__imod__"), "|=": ("aten::bitwise_or_", "aten::__or__", "__ior__"),
    "&=": ("aten::bitwise_and_", "aten::__and__", "__iand__"), "^=": ("aten::bitwise_xor_", "aten::__xor__", "__ixor__"),
    "<<=": ("aten::__ilshift__", "aten::__lshift__", "__ilshift__"), ">>=": ("aten::__irshift__", "aten::__rshift__", "__irshift__"),
    "**=": ("aten::pow_", "aten::pow", "__ipow__"),
}  # fmt: skip


class Assignments:
    """The part of the emitter that compiles assignments."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    # -- assignments -----------------------------------------------------------------------------------------------------
    def do_Assign(self: Any, node: ast.Assign) -> None:
        comment = notes.comment_type(self, node)
        if len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name):
                thing = self.sugared(node.value, comment)
                if comment is not None:
                    thing = SimpleValue(self.convert(self.at(node), comment, thing.as_value(self.at(node), self)))
                self.assign(self.at(node), target.id, thing, comment)
            else:
                size = len(target.elts) if isinstance(target, (ast.Tuple, ast.List)) and not _starred(target) else None
                self.assign_target(target, self.sugared(node.value, comment, size), self.at(node))
            return
        thing = self.sugared(node.value)
        if not isinstance(thing, SimpleValue):
            thing = SimpleValue(thing.as_value(self.at(node), self)) if isinstance(thing, SugaredTuple) else thing
        hidden = self.fresh("multi")
        self.assign(self.at(node), hidden, thing)
        for target in node.targets:
            found = self.find(hidden)
            assert found is not None
            self.assign_target(target, found)

    def do_AnnAssign(self: Any, node: ast.AnnAssign) -> None:
        place = self.at(node)
        if node.value is None:
            raise error(place, "Variable annotations without assigned value aren't supported", FrontendError)
        kind = notes.type_of(self, node.annotation)
        if isinstance(node.target, ast.Attribute):
            value = self.convert(place, kind, self.expression(node.value, kind))
            self._check_annotated(place, node.target.attr, kind, value)
            owner = self.sugared(node.target.value)
            if isinstance(owner, SimpleValue) and isinstance(owner.value.type, ClassType) and self.initializing is None:
                raise ValueError(
                    f"Type annotations on instance attributes must be declared in __init__, not '{self.name}': {self.at(node.target).highlight()}"
                )
            if isinstance(owner, SimpleValue) and self.is_initializing(owner.value):
                owned = owner.value.type
                assert isinstance(owned, ClassType)
                owned.attributes.setdefault(node.target.attr, kind)
            owner.set_attr(place, self, node.target.attr, value)
            return
        if not isinstance(node.target, ast.Name):
            raise error(place, "Type annotations are only allowed on names and attributes", FrontendError)
        thing = self.sugared(node.value, kind)
        value = self.convert(place, kind, thing.as_value(place, self))
        self.assign(place, node.target.id, SimpleValue(value), kind)

    def _check_annotated(self: Any, place: Range, name: str, kind: Type, value: Value) -> None:
        if not is_subtype(value.type, kind):
            raise error(
                place,
                f"Variable '{name}' is annotated with type {kind.repr_str()} but is being assigned to a value of type {value.type.repr_str()}",
            )

    def assign_target(self: Any, target: ast.expr, thing: Sugared, place: Range | None = None) -> None:
        place = place or self.at(target)
        if isinstance(target, ast.Name):
            self.assign(place, target.id, thing)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._assign_several(place, target, thing)
        elif isinstance(target, ast.Attribute):
            self.sugared(target.value).set_attr(place, self, target.attr, thing.as_value(place, self))
        elif isinstance(target, ast.Subscript):
            self.assign_item(place, target, thing.as_value(place, self))
        elif isinstance(target, ast.Starred):
            raise error(place, _LONE_STAR)
        else:
            raise error(place, "unexpected expression on left-hand side of assignment")

    def _assign_several(self: Any, place: Range, target: ast.Tuple | ast.List, thing: Sugared) -> None:
        star = next((i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)), None)
        wanted = len(target.elts)
        if star is not None and sum(isinstance(t, ast.Starred) for t in target.elts) > 1:
            raise error(place, "Only one starred expression is allowed on the lhs")
        if star is not None and wanted == 1:
            raise error(place, _LONE_STAR)
        size = wanted if star is None else None
        items = thing.as_tuple(place, self, size)
        if star is None and len(items) != wanted:
            raise error(place, self._count_text(wanted, len(items)))
        if star is not None:
            after = wanted - star - 1
            if len(items) < wanted - 1:
                raise error(place, self._count_text(wanted - 1, len(items)))
            middle = [i.as_value(place, self) for i in items[star : len(items) - after]]
            packed: Sugared = SimpleValue(self.graph.tuple_of(middle, place))
            starred = target.elts[star]
            assert isinstance(starred, ast.Starred)
            items = [*items[:star], packed, *items[len(items) - after :]]
            targets = [*target.elts[:star], starred.value, *target.elts[star + 1 :]]
        else:
            targets = list(target.elts)
        for inner, item in zip(targets, items):
            self.assign_target(inner, item)

    @staticmethod
    def _count_text(wanted: int, found: int) -> str:
        if found > wanted:
            return f"too many values to unpack: need {wanted} but found {found}"
        return f"need {wanted} values to unpack but found only {found}"

    def do_AugAssign(self: Any, node: ast.AugAssign) -> None:
        place, target = self.at(node), node.target
        word = _AUGMENTED.get(type(node.op))
        if word is None:
            raise error(place, f"unsupported kind of augmented assignment: {type(node.op).__name__}", FrontendError)
        if isinstance(target, ast.Name):
            thing = self.sugared(ast.copy_location(ast.Name(target.id, ast.Load()), target))
            self.assign(
                place, target.id, SimpleValue(self.augmented(place, word, thing.as_value(place, self), node.value))
            )
        elif isinstance(target, ast.Attribute):
            owner = self.sugared(target.value)
            before = owner.attr(place, self, target.attr).as_value(place, self)
            after = self.augmented(place, word, before, node.value)
            if not (isinstance(before.type, TensorType) and after is before):
                owner.set_attr(place, self, target.attr, after)
        elif isinstance(target, ast.Subscript):
            self.augment_item(place, word, target, node.value)
        else:
            raise error(place, "left-hand side of augmented assignment must be a variable, an attribute or an item")

    def augmented(self: Any, place: Range, word: str, before: Value, right: ast.expr) -> Value:
        """`before += right`: in place for tensors and lists, a new value for the rest."""
        inplace, plain, magic = INPLACE[word]
        wanted = before.type if isinstance(before.type, ListType) else None
        value = self.expression(right, wanted)
        if isinstance(before.type, ClassType):
            return self._augmented_object(place, word, before, value, magic)
        if isinstance(before.type, TensorType) or (isinstance(before.type, ListType) and word in ("+=", "*=")):
            return self.builtin(place, inplace, [before, value])
        return self.binary_values(place, plain, before, value)

    def _augmented_object(self: Any, place: Range, word: str, before: Value, value: Value, magic: str) -> Value:
        kind = before.type
        assert isinstance(kind, ClassType)
        for name in (magic, magic.replace("__i", "__", 1)):
            if kind.find_method(name) is not None:
                return MethodValue(before, [name]).call(place, self, [Named(value, place)], []).as_value(place, self)
        raise error(
            place,
            f"Cannot emit inplace op on {kind.repr_str()} since it does not define an {magic} or {magic.replace('__i', '__', 1)} method",
        )

    def do_Delete(self: Any, node: ast.Delete) -> None:
        for target in node.targets:
            place = self.at(target)
            if isinstance(target, ast.Subscript):
                if isinstance(target.slice, ast.Slice):
                    raise error(
                        place,
                        "del statements only support deletion at a single index, slicing is not supported (see https://github.com/pytorch/pytorch/issues/31430)",
                    )
                container = self.expression(target.value)
                if isinstance(container.type, (ListType, DictType)):
                    index = self.expression(target.slice)
                    self.builtin(place, "aten::Delete", [container, index])
                    continue
                if isinstance(container.type, ClassType):
                    if container.type.find_method("__delitem__") is None:
                        raise error(place, "Class does not define __delitem__")
                    index = self.expression(target.slice)
                    MethodValue(container, ["__delitem__"]).call(place, self, [Named(index, place)], [])
                    continue
                raise error(place, "Tried to call __delitem__ on a " + container.type.repr_str())
            if isinstance(target, ast.Name):
                assert self.frame is not None
                holder = self.frame.holder(target.id)
                if holder is None:
                    raise error(place, f"undefined value {target.id}")
                holder.types.pop(target.id, None)
                holder.sugared.pop(target.id, None)
                continue
            raise error(place, "del statements are only supported for deleting list and dict items and variables")


def _starred(target: ast.Tuple | ast.List) -> bool:
    return any(isinstance(t, ast.Starred) for t in target.elts)
