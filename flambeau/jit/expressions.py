"""Expressions: literals, operators, comparisons, subscripts, comprehensions."""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .conditions import Condition, Refinements
from .ir import Value
from .matching import Named
from .source import FrontendError, NotSupportedError, Range, UnsupportedNodeError, error
from .types import (
    ANY,
    BOOL,
    COMPLEX,
    DEVICE,
    FLOAT,
    INT,
    NONE,
    STRING,
    TENSOR,
    ClassType,
    DictType,
    EnumType,
    ListType,
    OptionalType,
    TensorType,
    TupleType,
    Type,
    UnionType,
    is_subtype,
    unify,
    unify_all,
    unshaped,
    without_none,
)
from .values import CastValue, MethodValue, PythonObject, SimpleValue, SliceValue, Sugared, SugaredTuple

_BINARY = {
    ast.Add: ("aten::add", "__add__"), ast.Sub: ("aten::sub", "__sub__"), ast.Mult: ("aten::mul", "__mul__"),
    ast.Div: ("aten::div", "__truediv__"), ast.FloorDiv: ("aten::floordiv", "__floordiv__"), ast.Mod: ("aten::remainder", "__mod__"),
    ast.Pow: ("aten::pow", "__pow__"), ast.MatMult: ("aten::matmul", "__matmul__"), ast.BitAnd: ("aten::__and__", "__and__"),
    ast.BitOr: ("aten::__or__", "__or__"), ast.BitXor: ("aten::__xor__", "__xor__"), ast.LShift: ("aten::__lshift__", "__lshift__"),
    ast.RShift: ("aten::__rshift__", "__rshift__"),
}  # fmt: skip
_COMPARE = {
    ast.Eq: ("aten::eq", "__eq__"), ast.NotEq: ("aten::ne", "__ne__"), ast.Lt: ("aten::lt", "__lt__"), ast.LtE: ("aten::le", "__le__"),
    ast.Gt: ("aten::gt", "__gt__"), ast.GtE: ("aten::ge", "__ge__"),
}  # fmt: skip


class Expressions:
    """The part of the emitter that makes values of expressions."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def expression(self: Any, node: ast.expr, wanted: Type | None = None) -> Value:
        """The value of an expression; `wanted` is the type it should have, where that helps to choose one."""
        return self.sugared(node, wanted).as_value(self.at(node), self)

    def sugared(self: Any, node: ast.expr, wanted: Type | None = None, size: int | None = None) -> Sugared:
        """What an expression stands for."""
        method = getattr(self, f"of_{type(node).__name__}", None)
        if method is None:
            raise error(self.at(node).first(), f"{_spoken(node)} aren't supported", UnsupportedNodeError)
        return method(node, wanted)

    # -- literals --------------------------------------------------------------------------------------------------------
    def of_Constant(self: Any, node: ast.Constant, wanted: Type | None) -> Sugared:
        value, place = node.value, self.at(node)
        if value is None:
            return SimpleValue(self.none(place))
        kinds: dict[type, Type] = {bool: BOOL, int: INT, float: FLOAT, complex: COMPLEX, str: STRING}
        kind = kinds.get(type(value))
        if value is ...:
            return SimpleValue(self.constant("...", STRING, place))
        if kind is None:
            raise error(place, f"{type(value).__name__} literals aren't supported", FrontendError)
        if type(value) is int and value > 2**63 - 1:
            raise error(place, "Integer constant out of range: it does not fit in 64 bits")
        return SimpleValue(self.constant(value, kind, place))

    def of_JoinedStr(self: Any, node: ast.JoinedStr, wanted: Type | None) -> Sugared:
        place, text, values = self.at(node), "", []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                if part.conversion != -1:
                    raise error(place, "Don't support conversion in JoinedStr", FrontendError)
                if part.format_spec is not None:
                    raise error(place, "Don't support formatting in JoinedStr", FrontendError)
                text += "{}"
                values.append(part.value)
            else:
                assert isinstance(part, ast.Constant)
                text += str(part.value)
        head = self.constant(text, STRING, place)
        return SimpleValue(self.builtin(place, "aten::format", [head, *(self.expression(v) for v in values)]))

    def of_Name(self: Any, node: ast.Name, wanted: Type | None) -> Sugared:
        return self.get(node.id, self.at(node))

    def of_Attribute(self: Any, node: ast.Attribute, wanted: Type | None) -> Sugared:
        return self.sugared(node.value).attr(self.at(node), self, node.attr)

    def of_Tuple(self: Any, node: ast.Tuple, wanted: Type | None) -> Sugared:
        place = self.at(node)
        kinds: Sequence[Type | None] = [None] * len(node.elts)
        if isinstance(wanted, TupleType) and len(wanted.elements) == len(node.elts):
            kinds = wanted.elements
        values: list[Value] = []
        for element, kind in zip(node.elts, kinds):
            if isinstance(element, ast.Starred):
                values += [s.as_value(place, self) for s in self.sugared(element.value).as_tuple(place, self)]
            else:
                values.append(self.expression(element, kind))
        return SimpleValue(self.graph.tuple_of(values))

    def of_List(self: Any, node: ast.List, wanted: Type | None) -> Sugared:
        place = self.at(node)
        hint = _hinted(wanted, ListType, place)
        element = hint.element if hint is not None else None
        values: list[Value] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                values += [s.as_value(place, self) for s in self.sugared(item.value).as_tuple(place, self)]
            else:
                values.append(self.expression(item, element))
        if element is None:
            kinds = [unshaped(v.type) for v in values]
            joined = unify_all(kinds) if kinds else TENSOR
            if joined is None:
                joined = unify_all(kinds, to_union=True)
                assert joined is not None
            element = joined
        elif element is not ANY:
            converted = []
            for v in values:
                v = self.convert(place, element, v, False)
                if not is_subtype(v.type, element):
                    raise error(
                        place,
                        f"List type annotation `{hint.repr_str()}` did not match the types of the given list elements",
                    )
                converted.append(v)
            values = converted
        return SimpleValue(self.graph.list_of(element, values, place))

    def of_Dict(self: Any, node: ast.Dict, wanted: Type | None) -> Sugared:
        place = self.at(node)
        hint = _hinted(wanted, DictType, place)
        key_hint, value_hint = (hint.key, hint.value) if hint is not None else (None, None)
        if any(k is None for k in node.keys):
            raise error(place, "Dict expansion (e.g. `{**dict}`) is not supported", FrontendError)
        keys = [self.expression(k, key_hint) for k in node.keys if k is not None]
        values = [self.expression(v, value_hint) for v in node.values]
        if hint is not None:
            values = [self.convert(place, hint.value, v, False) for v in values]
            for key, value in zip(keys, values):
                self.check_pair(place, hint, key.type, value.type)
            return SimpleValue(self.graph.dict_of(hint, list(zip(keys, values)), place))
        if not keys:
            return SimpleValue(self.graph.dict_of(DictType(STRING, TENSOR), [], place))
        key = unify_all([k.type for k in keys])
        if key is None:
            raise error(place, "Dict keys must contain only a single type.")
        _check_key(place, key)
        value = unify_all([unshaped(v.type) for v in values], to_union=True)
        assert value is not None
        return SimpleValue(self.graph.dict_of(DictType(key, value), list(zip(keys, values)), place))

    def check_pair(self: Any, place: Range, hint: DictType, key: Type, value: Type) -> None:
        """Complain unless a key and a value fit a dictionary's annotation."""
        _check_key(place, hint.key)
        for word, actual, wanted in (("key", key, hint.key), ("value", value, hint.value)):
            if not is_subtype(actual, wanted):
                raise error(
                    place,
                    f"Dict type annotation `{hint.repr_str()}` did not match the type of an actual {word} type `{actual.repr_str()}`",
                )

    # -- operators -------------------------------------------------------------------------------------------------------
    def of_BinOp(self: Any, node: ast.BinOp, wanted: Type | None) -> Sugared:
        entry = _BINARY.get(type(node.op))
        place = self.at(node)
        if entry is None:
            raise error(place, f"unsupported binary operator: {type(node.op).__name__}", FrontendError)
        symbol, magic = entry
        if isinstance(node.op, ast.Mod):
            left = self.sugared(node.left)
            if isinstance(left, SimpleValue) and left.value.type is STRING:
                return SimpleValue(self._percent(node, left.value))
            return SimpleValue(
                self.binary_values(place, symbol, left.as_value(place, self), self.expression(node.right), magic)
            )
        left_value = self.expression(node.left, wanted if isinstance(wanted, ListType) else None)
        right_value = self.expression(node.right, wanted if isinstance(wanted, ListType) else None)
        return SimpleValue(self.binary_values(place, symbol, left_value, right_value, magic))

    def _percent(self: Any, node: ast.BinOp, text: Value) -> Value:
        right = self.sugared(node.right)
        place = self.at(node)
        value = right.as_value(place, self)
        parts = self.graph.unpack(value, place) if isinstance(value.type, TupleType) else [value]
        return self.builtin(place, "aten::percentFormat", [text, *parts])

    def binary_values(self: Any, place: Range, symbol: str, left: Value, right: Value, magic: str = "") -> Value:
        if symbol == "aten::add" and isinstance(left.type, TupleType) and isinstance(right.type, TupleType):
            return self.graph.tuple_of([*self.graph.unpack(left, place), *self.graph.unpack(right, place)])
        if isinstance(left.type, ClassType):
            return MethodValue(left, [magic]).call(place, self, [Named(right, place)], []).as_value(place, self)
        if symbol == "aten::floordiv" and (isinstance(left.type, TensorType) or isinstance(right.type, TensorType)):
            symbol = "aten::floor_divide"
        if isinstance(right.type, TensorType) and not isinstance(left.type, TensorType) and symbol in _REVERSED:
            return self._reversed(place, symbol, left, right)
        return self.builtin(place, symbol, [left, right])

    def _reversed(self: Any, place: Range, symbol: str, left: Value, right: Value) -> Value:
        """A number before a tensor: `2 - x`."""
        if symbol in ("aten::add", "aten::mul"):
            return self.builtin(place, symbol, [right, left])
        if symbol == "aten::sub":
            return self.builtin(place, "aten::rsub", [right, left])
        if symbol == "aten::div":
            return self.builtin(place, "aten::mul", [self.builtin(place, "aten::reciprocal", [right]), left])
        return self.builtin(place, symbol, [left, right])

    def of_UnaryOp(self: Any, node: ast.UnaryOp, wanted: Type | None) -> Sugared:
        place = self.at(node)
        if isinstance(node.op, ast.Not):
            return SimpleValue(self.condition(node).value)
        if (
            isinstance(node.op, ast.USub)
            and isinstance(node.operand, ast.Constant)
            and not isinstance(node.operand.value, (bool, str))
        ):
            number = node.operand.value
            if isinstance(number, (int, float, complex)):
                return self.of_Constant(ast.copy_location(ast.Constant(-number), node), wanted)
        value = self.expression(node.operand)
        if isinstance(node.op, ast.UAdd):
            return SimpleValue(value)
        symbol, magic = (
            ("aten::neg", "__neg__") if isinstance(node.op, ast.USub) else ("aten::bitwise_not", "__invert__")
        )
        if isinstance(value.type, ClassType):
            return MethodValue(value, [magic]).call(place, self, [], [])
        return SimpleValue(self.builtin(place, symbol, [value]))

    def of_BoolOp(self: Any, node: ast.BoolOp, wanted: Type | None) -> Sugared:
        return SimpleValue(self.condition(node).value)

    def of_Compare(self: Any, node: ast.Compare, wanted: Type | None) -> Sugared:
        return (
            SimpleValue(self.condition(node).value)
            if len(node.ops) > 1 or _decides(node)
            else SimpleValue(self._compare(node, node.left, node.ops[0], node.comparators[0]))
        )

    def _compare(self: Any, node: ast.Compare, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Value:
        place = self.at(node)
        if isinstance(op, (ast.In, ast.NotIn)):
            item, container = self.expression(left), self.sugared(right)
            found = self._contains(place, item, container)
            return self.builtin(place, "aten::__not__", [found]) if isinstance(op, ast.NotIn) else found
        symbol, magic = _COMPARE[type(op)]
        return self.compare_values(place, symbol, magic, self.expression(left), self.expression(right))

    def compare_values(self: Any, place: Range, symbol: str, magic: str, a: Value, b: Value) -> Value:
        if isinstance(a.type, ClassType) and a.type.find_method(magic) is not None:
            return MethodValue(a, [magic]).call(place, self, [Named(b, place)], []).as_value(place, self)
        if isinstance(a.type, TupleType) and isinstance(b.type, TupleType):
            return self._compare_tuples(place, symbol, magic, a, b)
        if (
            isinstance(b.type, TensorType)
            and not isinstance(a.type, TensorType)
            and a.type in (INT, FLOAT, BOOL, COMPLEX)
        ):
            turned = {"aten::lt": "aten::gt", "aten::le": "aten::ge", "aten::gt": "aten::lt", "aten::ge": "aten::le"}
            return self.builtin(place, turned.get(symbol, symbol), [b, a])
        return self.builtin(place, symbol, [a, b])

    def _compare_tuples(self: Any, place: Range, symbol: str, magic: str, a: Value, b: Value) -> Value:
        left, right = self.graph.unpack(a, place), self.graph.unpack(b, place)
        if symbol not in ("aten::eq", "aten::ne"):
            return self.builtin(place, symbol, [a, b])
        if len(left) != len(right):
            return self.constant(symbol == "aten::ne", BOOL, place)
        same = self.constant(True, BOOL, place)
        for x, y in zip(left, right):
            each = self.compare_values(place, "aten::eq", "__eq__", x, y)
            same = self.builtin(place, "aten::__and__", [same, self.to_bool(place, each)])
        return same if symbol == "aten::eq" else self.builtin(place, "aten::__not__", [same])

    def _contains(self: Any, place: Range, item: Value, container: Sugared) -> Value:
        from .module_values import ModuleValue  # noqa: PLC0415  modules, classes and functions need one another

        if isinstance(container, ModuleValue):
            names = container.names()
            known, word = self.known(item)
            if known:
                return self.constant(word in names, BOOL, place)
        value = container.as_value(place, self)
        if isinstance(value.type, ClassType):
            return (
                MethodValue(value, ["__contains__"]).call(place, self, [Named(item, place)], []).as_value(place, self)
            )
        if value.type is STRING and item.type is STRING:  # archives know no operator for it
            found = self.builtin(place, "aten::find", [value, item])
            return self.builtin(place, "aten::ge", [found, self.constant(0, INT, place)])
        if isinstance(value.type, TupleType):
            found = self.constant(False, BOOL, place)
            for part in self.graph.unpack(value, place):
                if unify(part.type, item.type) is not None:
                    found = self.builtin(
                        place,
                        "aten::__or__",
                        [found, self.to_bool(place, self.builtin(place, "aten::eq", [part, item]))],
                    )
            return found
        return self.builtin(place, "aten::__contains__", [value, item])

    # -- conditions ------------------------------------------------------------------------------------------------------
    def to_bool(self: Any, place: Range | None, value: Value) -> Value:
        if value.type is BOOL:
            return value
        if isinstance(value.type, (ListType, DictType)):
            size = self.builtin(place, "aten::len", [value])
            return self.builtin(place, "aten::gt", [size, self.constant(0, INT, place)])
        try:
            out = CastValue(BOOL, "aten::Bool").call(place, self, [Named(value, place)], []).as_value(place, self)
        except RuntimeError as problem:
            raise error(place, f"Could not cast value of type {value.type.repr_str()} to bool") from problem
        if out.type is not BOOL:
            raise error(place, f"expected a bool expression for condition but found {out.type.repr_str()}")
        return out

    def condition(self: Any, node: ast.expr) -> Condition:
        place = self.at(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.condition(node.operand)
            static = None if inner.static is None else not inner.static
            value = (
                self.constant(static, BOOL, place)
                if static is not None and inner.value.node.kind_ == "prim::Constant"
                else self.builtin(place, "aten::__not__", [inner.value])
            )
            return Condition(value, inner.refinements.inverted(), static)
        if isinstance(node, ast.BoolOp):
            return self._short_circuit(node, node.values, isinstance(node.op, ast.Or))
        if isinstance(node, ast.Compare):
            if len(node.ops) > 1:
                return self._chain(node)
            if isinstance(node.ops[0], (ast.Is, ast.IsNot)):
                return self._identity(node)
            if isinstance(node.ops[0], (ast.In, ast.NotIn)):
                value = self._compare(node, node.left, node.ops[0], node.comparators[0])
                known, truth = self.known(value)
                return Condition(value, Refinements(), bool(truth) if known else None)
        if isinstance(node, ast.Call):
            special = self.condition_of_call(node)
            if special is not None:
                return special
        value = self.to_bool(place, self.expression(node))
        known, truth = self.known(value)
        static = bool(truth) if known else True if value.node.kind_ == "aten::is_scripting" else None
        return Condition(value, Refinements(), static)

    def _chain(self: Any, node: ast.Compare) -> Condition:
        """`a < b < c` is `a < b and b < c`."""
        lefts = [node.left, *node.comparators[:-1]]
        parts: list[ast.expr] = [
            ast.copy_location(ast.Compare(left, [op], [right]), node)
            for left, op, right in zip(lefts, node.ops, node.comparators)
        ]
        return self._short_circuit(node, parts, False)

    def _identity(self: Any, node: ast.Compare) -> Condition:
        """`x is None`, which may be known from x's type and tells x's type."""
        place, negated = self.at(node), isinstance(node.ops[0], ast.IsNot)
        left, right = self.expression(node.left), self.expression(node.comparators[0])
        symbol = "aten::__isnot__" if negated else "aten::__is__"
        pairs = ((left, right, node.left), (right, left, node.comparators[0]))
        for value, other, tree in pairs:
            if other.type is not NONE:
                continue
            if value.type is NONE:
                return Condition(self.constant(not negated, BOOL, place), Refinements(), not negated)
            if not _may_be_none(value.type):
                return Condition(self.constant(negated, BOOL, place), Refinements(), negated)
            refined = Refinements()
            if isinstance(tree, ast.Name):
                refined = Refinements({}, {tree.id: without_none(value.type)})
                refined = refined.inverted() if negated else refined
            return Condition(self.builtin(place, symbol, [value, other]), refined, None)
        return Condition(self.builtin(place, symbol, [left, right]), Refinements(), None)

    def _short_circuit(self: Any, node: ast.expr, parts: Sequence[ast.expr], is_or: bool) -> Condition:
        place = self.at(node)
        first = self.condition(parts[0])
        if len(parts) == 1:
            return first
        if first.static is not None:
            if first.static == is_or:
                return first
            self.refine_here(place, first.refinements.when(not is_or))
            rest = self._short_circuit(node, parts[1:], is_or)
            joined = first.refinements.either(rest.refinements) if is_or else first.refinements.both(rest.refinements)
            return Condition(rest.value, joined if rest.static is None else joined, rest.static)
        made = self.graph.insert(self.graph.create("prim::If", [first.value], 0, place))
        blocks = [made.add_block(), made.add_block()]
        rest_condition = None
        for block, truth in zip(blocks, (True, False)):
            self.push(block)
            with self.graph.at(block):
                if truth == is_or:
                    block.add_output(self.constant(is_or, BOOL, place))
                else:
                    self.refine(place, first.refinements.when(truth))
                    rest_condition = self._short_circuit(node, parts[1:], is_or)
                    block.add_output(rest_condition.value)
            self.pop()
        out = made.add_output(BOOL)
        assert rest_condition is not None
        joined = (
            first.refinements.either(rest_condition.refinements)
            if is_or
            else first.refinements.both(rest_condition.refinements)
        )
        static = rest_condition.static if rest_condition.static == is_or and rest_condition.static is not None else None
        return Condition(out, joined, static)

    def refine_here(self: Any, place: Range, types: dict[str, Type]) -> None:
        self.refine(place, types)

    def of_IfExp(self: Any, node: ast.IfExp, wanted: Type | None) -> Sugared:
        place = self.at(node)
        condition = self.condition(node.test)
        if condition.static is not None:
            return self.sugared(node.body if condition.static else node.orelse, wanted)
        made = self.graph.insert(self.graph.create("prim::If", [condition.value], 0, place))
        blocks, values = [made.add_block(), made.add_block()], []
        for block, tree, truth in zip(blocks, (node.body, node.orelse), (True, False)):
            self.push(block)
            with self.graph.at(block):
                self.refine(place, condition.refinements.when(truth))
                values.append(self.expression(tree, wanted))
            self.pop()
        joined = unify(
            values[0].type, values[1].type, to_union=isinstance(wanted, (UnionType, OptionalType)) or wanted is ANY
        )
        if joined is None:
            raise error(
                place,
                f"if-expression's true branch has type {values[0].type.repr_str()} but false branch has type {values[1].type.repr_str()}",
            )
        for block, value in zip(blocks, values):
            block.add_output(value)
        return SimpleValue(made.add_output(unshaped(joined)))

    # -- subscripts ------------------------------------------------------------------------------------------------------
    def of_Subscript(self: Any, node: ast.Subscript, wanted: Type | None) -> Sugared:
        place = self.at(node)
        owner = self.sugared(node.value)
        if isinstance(owner, SugaredTuple) or not isinstance(owner, SimpleValue):
            return self._sugared_item(place, node, owner, wanted)
        value = owner.value
        kind = value.type
        if isinstance(kind, TensorType):
            return SimpleValue(self.tensor_item(place, value, _indices(node.slice)))
        if isinstance(node.slice, ast.Slice):
            bounds = [
                None if p is None else self.expression(p) for p in (node.slice.lower, node.slice.upper, node.slice.step)
            ]
            return SimpleValue(self._slice(place, value, bounds))
        if isinstance(node.slice, (ast.Name, ast.Call)):
            thing = self.sugared(node.slice)
            if isinstance(thing, SliceValue):
                return SimpleValue(self._slice(place, value, thing.parts))
        if isinstance(kind, TupleType):
            return SimpleValue(self._tuple_subscript(place, value, node.slice))
        if isinstance(kind, (ListType, DictType)) or kind is STRING or isinstance(kind, ClassType):
            if isinstance(node.slice, ast.Tuple) and isinstance(kind, ListType):
                raise error(place, "cannot index a list with a tuple")
            return owner.item(place, self, self.expression(node.slice), wanted)
        raise error(place, f"'{kind.repr_str()}' object is not subscriptable")

    def _sugared_item(self: Any, place: Range, node: ast.Subscript, owner: Sugared, wanted: Type | None) -> Sugared:
        if isinstance(node.slice, ast.Slice):
            items = owner.as_tuple(place, self)
            return SugaredTuple(
                items[
                    slice(*(self._static_int(part) for part in (node.slice.lower, node.slice.upper, node.slice.step)))
                ]
            )
        return owner.item(place, self, self.expression(node.slice), wanted)

    def _static_int(self: Any, node: ast.expr | None) -> int | None:
        if node is None:
            return None
        known, number = self.known(self.expression(node))
        if not known:
            raise error(self.at(node), "Slices of modules and tuples need integer literals")
        return number

    def _slice(self: Any, place: Range, value: Value, bounds: Sequence[Value | None]) -> Value:
        if isinstance(value.type, TupleType):
            numbers = []
            for bound in bounds:
                known, number = (True, None) if bound is None else self.known(bound)
                if not known:
                    raise error(place, "Slices of modules and tuples need integer literals")
                numbers.append(number)
            return self.graph.tuple_of(self.graph.unpack(value, place)[slice(*numbers)], place)
        if not (isinstance(value.type, ListType) or value.type is STRING):
            raise error(place, f"Unsupported operation: attempted to use slicing on {value.type.repr_str()}")
        low, high = (self.none(place) if bound is None else bound for bound in bounds[:2])
        step = self.constant(1, INT, place) if bounds[2] is None or bounds[2].type is NONE else bounds[2]
        return self.builtin(place, "aten::slice", [value, low, high, step])

    def _tuple_subscript(self: Any, place: Range, value: Value, node: ast.expr) -> Value:
        index = self.expression(node)
        known, number = self.known(index)
        kinds = value.type.elements  # type: ignore[attr-defined]
        if index.type is not INT:
            raise error(place, "tuple index must be an integer")
        if not known:
            if unify_all(kinds) is None:
                raise error(
                    place,
                    "Cannot index into a tuple with a non-integer literal because we cannot resolve the output type",
                )
            return self.graph.op("prim::TupleIndex", [value, index], kinds[0], place)
        if not -len(kinds) <= number < len(kinds):
            raise error(place, "Tuple index out of range")
        return self.tuple_item(place, value, number % len(kinds))

    def tuple_item(self: Any, place: Range | None, value: Value, index: int) -> Value:
        number = self.constant(index, INT, place)
        return self.graph.op("prim::TupleIndex", [value, number], value.type.elements[index], place)  # type: ignore[attr-defined]

    def tensor_item(self: Any, place: Range, value: Value, indices: Sequence[ast.expr]) -> Value:
        """x[...]: selections and slices one after another, then one index operator for the tensors among them."""
        picked, tensors = self._index_parts(place, value, indices)
        if not any(t is not None for t in tensors):
            return picked
        return self._index_by(place, picked, tensors)

    def _index_by(self: Any, place: Range, value: Value, tensors: list[Value | None]) -> Value:
        return self.builtin(place, "aten::index", [value, self._index_list(place, tensors)])

    def _index_list(self: Any, place: Range, tensors: list[Value | None]) -> Value:
        filled = [self.none(place) if t is None else t for t in tensors]
        return self.graph.list_of(OptionalType(TENSOR), filled, place)

    def _index_parts(
        self: Any, place: Range, value: Value, indices: Sequence[ast.expr]
    ) -> tuple[Value, list[Value | None]]:
        parts: list[tuple[str, Any]] = [self._index_kind(place, index) for index in indices]
        if sum(kind == "dots" for kind, _ in parts) > 1:
            raise error(place, "an index can only have a single ellipsis")
        tensors: list[Value | None] = []
        behind = False  # behind the ellipsis, dimensions are counted from the end
        dim = 0
        for number, (kind, given) in enumerate(parts):
            if kind == "dots":
                behind, dim = True, -sum(k in ("int", "slice", "tensor") for k, _ in parts[number + 1 :])
                continue
            if kind == "int":
                value = self.builtin(place, "aten::select", [value, self.constant(dim, INT, place), given])
                dim += 1 if behind else 0
                continue
            if kind == "none":
                value = self.builtin(
                    place, "aten::unsqueeze", [value, self.constant(dim - 1 if behind else dim, INT, place)]
                )
                if not behind:
                    self._note(tensors, dim, None)
                    dim += 1
                continue
            if kind == "slice":
                low, high, step = given
                low = self.none(place) if low is None else low
                high = self.none(place) if high is None else high
                step = self.constant(1, INT, place) if step is None else step
                value = self.builtin(place, "aten::slice", [value, self.constant(dim, INT, place), low, high, step])
                if not behind:
                    self._note(tensors, dim, None)
            else:
                if behind:
                    raise error(place, "tensor indices behind an ellipsis are not supported here")
                self._note(tensors, dim, given)
            dim += 1
        return value, tensors

    @staticmethod
    def _note(tensors: list[Value | None], dim: int, value: Value | None) -> None:
        tensors.extend([None] * (dim - len(tensors)))
        tensors.append(value)

    def _index_kind(self: Any, place: Range, node: ast.expr) -> tuple[str, Any]:
        if isinstance(node, ast.Slice):
            return "slice", tuple(
                None if p is None else self.expression(p) for p in (node.lower, node.upper, node.step)
            )
        if isinstance(node, ast.Constant) and node.value is ...:
            return "dots", None
        thing = self.sugared(node)
        if isinstance(thing, PythonObject) and thing.thing is ...:
            return "dots", None
        if isinstance(thing, SliceValue):
            return "slice", tuple(None if p is None or p.type is NONE else p for p in thing.parts)
        value = thing.as_value(place, self)
        kind = value.type
        if kind is NONE:
            return "none", None
        if kind is INT:
            return "int", value
        if isinstance(kind, OptionalType) and isinstance(kind.element, TensorType) or isinstance(kind, TensorType):
            return "tensor", value
        innermost = kind
        while isinstance(innermost, ListType):
            innermost = innermost.element
        if isinstance(kind, ListType) and innermost in (
            INT,
            BOOL,
            FLOAT,
        ):  # of floats: an error when it runs, as in PyTorch
            number = {INT: 4, BOOL: 11, FLOAT: 6}[innermost]
            dtype = Named(self.constant(number, INT, place), place, "dtype")
            return "tensor", self.call_operator(place, "aten::tensor", [Named(value, place)], [dtype])
        raise error(
            place,
            f"Unsupported operation: indexing tensor with unsupported index type '{kind.repr_str()}'. Only ints, slices, lists and tensors are supported",
        )

    def assign_item(self: Any, place: Range, target: ast.Subscript, value: Value) -> None:
        """`x[...] = value`."""
        owner = self.sugared(target.value).as_value(place, self)
        kind = owner.type
        if isinstance(kind, TensorType):
            picked, tensors = self._index_parts(place, owner, _indices(target.slice))
            if not any(t is not None for t in tensors):
                self._copy_into(place, picked, value)
                return
            filled = value if isinstance(value.type, TensorType) else self._as_tensor(place, value, picked)
            flag = self.constant(False, BOOL, place)
            self.builtin(place, "aten::index_put_", [picked, self._index_list(place, tensors), filled, flag])
            return
        if isinstance(target.slice, ast.Slice):
            raise error(place, "Subscripted assign with slices is only supported for tensors")
        if isinstance(kind, ClassType):
            index = self.expression(target.slice)
            MethodValue(owner, ["__setitem__"]).call(place, self, [Named(index, place), Named(value, place)], [])
            return
        if not isinstance(kind, (ListType, DictType)):
            raise error(place, f"'{kind.repr_str()}' does not support subscripted assignment")
        index = self.expression(target.slice)
        element = kind.element if isinstance(kind, ListType) else kind.value
        self.builtin(place, "aten::_set_item", [owner, index, self.convert(place, element, value)])

    def _copy_into(self: Any, place: Range, picked: Value, value: Value) -> None:
        if isinstance(value.type, TensorType):
            flag = self.constant(False, BOOL, place)
            self.builtin(place, "aten::copy_", [picked, value, flag])
        else:
            number = value
            self.builtin(
                place,
                "aten::copy_",
                [picked, self._as_tensor(place, number, picked), self.constant(False, BOOL, place)],
            )

    def _as_tensor(self: Any, place: Range, value: Value, like: Value) -> Value:
        """A number as a tensor of another one's dtype."""
        if value.type not in (INT, FLOAT, BOOL, COMPLEX):
            raise error(place, f"Expected a Tensor or a number to assign, got {value.type.repr_str()}")
        dtype = self.builtin(place, "prim::dtype", [like])
        device = self.builtin(place, "prim::device", [like])
        named = [Named(dtype, place, "dtype"), Named(device, place, "device")]
        return self.call_operator(place, "aten::tensor", [Named(value, place)], named)

    def augment_item(self: Any, place: Range, word: str, target: ast.Subscript, right: ast.expr) -> None:
        owner = self.expression(target.value)
        if isinstance(owner.type, TensorType):
            picked, tensors = self._index_parts(place, owner, _indices(target.slice))
            if not any(t is not None for t in tensors):
                self.augmented(place, word, picked, right)
                return
            index = self._index_list(place, tensors)
            after = self.augmented(place, word, self.builtin(place, "aten::index", [picked, index]), right)
            self.builtin(place, "aten::index_put_", [picked, index, after, self.constant(False, BOOL, place)])
            return
        if isinstance(owner.type, TupleType):
            raise error(place, f"'{owner.type.repr_str()}' does not support augmented assignment")
        index = self.expression(target.slice)
        before = SimpleValue(owner).item(place, self, index).as_value(place, self)
        after = self.augmented(place, word, before, right)
        if isinstance(owner.type, ClassType):
            MethodValue(owner, ["__setitem__"]).call(place, self, [Named(index, place), Named(after, place)], [])
            return
        self.builtin(place, "aten::_set_item", [owner, index, after])

    # -- comprehensions --------------------------------------------------------------------------------------------------
    def _own_variables(self: Any, node: Any) -> Any:
        """The comprehension with other names for variables that the function has, too: those keep their values."""
        part = node.generators[0]
        names = {n.id for n in ast.walk(part.target) if isinstance(n, ast.Name)}
        new = {name: self.fresh(name) for name in names if self.frame.holder(name) is not None}
        if not new:
            return node
        made = copy.deepcopy(node)
        inside = [made.generators[0].target, *made.generators[0].ifs]
        inside += [made.elt] if isinstance(made, ast.ListComp) else [made.key, made.value]
        for tree in inside:
            for name in ast.walk(tree):
                if isinstance(name, ast.Name) and name.id in new:
                    name.id = new[name.id]
        return made

    def of_ListComp(self: Any, node: ast.ListComp, wanted: Type | None) -> Sugared:
        node = self._own_variables(node)
        place, part = self.at(node), self._generator(node)
        hint = _hinted(wanted, ListType, place)
        iterable = self.sugared(part.iter).iterate(place, self)
        if iterable.unrolled:
            values = self._unrolled(place, node, part, iterable, hint)
            return self._list_of_values(place, values, hint)
        made = self.graph.list_of(hint.element if hint is not None else TENSOR, [], place)
        hidden = self.fresh("list_acc")
        self.assign(place, hidden, SimpleValue(made))

        def body() -> None:
            value = self.expression(node.elt, hint.element if hint is not None else None)
            if hint is None:
                made.type = ListType(unshaped(value.type))
            elif not is_subtype(value.type, hint.element):
                raise error(
                    place,
                    f"List type annotation `{hint.repr_str()}` did not match the types of the given list elements, which were {value.type.repr_str()}",
                )
            self.builtin(place, "aten::append", [made, value])

        self._comprehend(place, part, iterable, body)
        return SimpleValue(made)

    def _list_of_values(self: Any, place: Range, values: list[Value], hint: ListType | None) -> Sugared:
        element = (
            hint.element if hint is not None else unify_all([unshaped(v.type) for v in values]) if values else TENSOR
        )
        if element is None:
            raise error(place, "the elements of a comprehension have no common type")
        return SimpleValue(self.graph.list_of(element, values, place))

    def _unrolled(
        self: Any, place: Range, node: Any, part: ast.comprehension, iterable: Sugared, hint: Any
    ) -> list[Value]:
        values = []
        for number in range(iterable.static_length() or 0):
            self.assign_target(part.target, iterable.item(place, self, self.constant(number, INT, place)))
            values.append(self.expression(node.elt, hint.element if hint is not None else None))
        return values

    def of_DictComp(self: Any, node: ast.DictComp, wanted: Type | None) -> Sugared:
        node = self._own_variables(node)
        place, part = self.at(node), self._generator(node)
        hint = _hinted(wanted, DictType, place)
        made = self.graph.dict_of(hint or DictType(STRING, TENSOR), [], place)
        iterable = self.sugared(part.iter).iterate(place, self)

        def body() -> None:
            key = self.expression(node.key, hint.key if hint is not None else None)
            value = self.expression(node.value, hint.value if hint is not None else None)
            self.add_pair(place, made, hint, key, value)

        self._comprehend(place, part, iterable, body)
        return SimpleValue(made)

    def add_pair(self: Any, place: Range, made: Value, hint: DictType | None, key: Value, value: Value) -> None:
        """Put a pair into a dictionary that is being built; without an annotation, the first one says the types."""
        if isinstance(key.type, (UnionType, OptionalType)):
            raise error(
                place,
                f"Dicts may only contain homogeneous keys, but the type of the first generated key was {key.type.repr_str()}",
            )
        if hint is None:
            made.type = DictType(key.type, unshaped(value.type))
        else:
            self.check_pair(place, hint, key.type, value.type)
        self.builtin(place, "aten::_set_item", [made, key, value])

    def _comprehend(self: Any, place: Range, part: ast.comprehension, iterable: Sugared, body: Any) -> None:
        self.for_each(place, part.target, iterable, body)

    def _generator(self: Any, node: Any) -> ast.comprehension:
        if len(node.generators) != 1:
            raise error(self.at(node), "Only a single generator is currently supported", NotSupportedError)
        if node.generators[0].ifs:
            raise error(self.at(node).first(), "Comprehension ifs are not supported yet", NotSupportedError)
        return node.generators[0]

    def of_Lambda(self: Any, node: ast.Lambda, wanted: Type | None) -> Sugared:
        raise error(self.at(node).first(), "lambda expressions aren't supported", FrontendError)

    def of_Call(self: Any, node: ast.Call, wanted: Type | None) -> Sugared:
        return self.call(node, wanted)


_REVERSED = ("aten::add", "aten::sub", "aten::mul", "aten::div")


def _decides(node: ast.Compare) -> bool:
    return isinstance(node.ops[0], (ast.Is, ast.IsNot))


def _may_be_none(kind: Type) -> bool:
    return isinstance(kind, OptionalType) or kind is ANY or (isinstance(kind, UnionType) and NONE in kind.members)


def _check_key(place: Range, kind: Type) -> None:
    simple = kind in (INT, FLOAT, COMPLEX, BOOL, STRING, DEVICE)
    if not simple and not isinstance(kind, (TensorType, EnumType)):
        raise error(
            place,
            f"Cannot create dict for key type '{kind.repr_str()}', only int, float, complex, Tensor, device and string keys are supported",
        )


def _hinted(wanted: Type | None, kind: Any, place: Range) -> Any:
    """The list (or dictionary) type among what is wanted."""
    if wanted is None or wanted is ANY:
        return None
    if isinstance(wanted, OptionalType):
        return _hinted(wanted.element, kind, place)
    fitting = [m for m in (wanted.members if isinstance(wanted, UnionType) else (wanted,)) if isinstance(m, kind)]
    if not fitting:
        word = "List" if kind is ListType else "Dict"
        raise error(place, f"Expected an annotation of type {word} but got {wanted.repr_str()}")
    return fitting[0] if len(fitting) == 1 else None


def _indices(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def _spoken(node: ast.expr) -> str:
    words = {
        "Yield": "yield expressions", "YieldFrom": "yield from expressions", "Await": "await expressions",
        "Set": "set literals", "SetComp": "set comprehensions", "GeneratorExp": "GeneratorExp", "NamedExpr": "assignment expressions",
        "Starred": "starred expressions", "Slice": "slices",
    }  # fmt: skip
    return words.get(type(node).__name__, type(node).__name__)
