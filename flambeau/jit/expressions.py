"""Expressions: literals, operators, comparisons, subscripts, comprehensions."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import types as T
from .comprehensions import hinted
from .frames import Condition, Refinements
from .ir import Value
from .matching import Named
from .named_values import CastValue
from .source import FrontendError, Range, UnsupportedNodeError, error
from .type_joins import unify, unify_all, unshaped, without_none
from .values import MethodValue, SimpleValue, Sugared

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

    def expression(self: Any, node: ast.expr, wanted: T.Type | None = None) -> Value:
        """Emit an expression and return its value; `wanted` is the expected type, where that helps to choose one."""
        return self.sugared(node, wanted).as_value(self.at(node), self)

    def sugared(self: Any, node: ast.expr, wanted: T.Type | None = None, size: int | None = None) -> Sugared:
        """Return the meaning of an expression: a graph value or a compile-time object."""
        method = getattr(self, f"of_{type(node).__name__}", None)
        if method is None:
            raise error(self.at(node).first(), f"{_describe_node(node)} aren't supported", UnsupportedNodeError)
        return method(node, wanted)

    # -- literals --------------------------------------------------------------------------------------------------------
    def of_Constant(self: Any, node: ast.Constant, wanted: T.Type | None) -> Sugared:
        value, place = node.value, self.at(node)
        if value is None:
            return SimpleValue(self.none(place))
        kind = T.OF_PYTHON.get(type(value))
        if value is ...:
            return SimpleValue(self.constant("...", T.STRING, place))
        if kind is None:
            raise error(place, f"{type(value).__name__} literals aren't supported", FrontendError)
        if type(value) is int and value > 2**63 - 1:
            raise error(place, "Integral constant out of range (must fit in a signed 64 bit integer)")
        return SimpleValue(self.constant(value, kind, place))

    def of_JoinedStr(self: Any, node: ast.JoinedStr, wanted: T.Type | None) -> Sugared:
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
        head = self.constant(text, T.STRING, place)
        return SimpleValue(self.builtin(place, "aten::format", [head, *(self.expression(v) for v in values)]))

    def of_Name(self: Any, node: ast.Name, wanted: T.Type | None) -> Sugared:
        return self.get(node.id, self.at(node))

    def of_Attribute(self: Any, node: ast.Attribute, wanted: T.Type | None) -> Sugared:
        return self.sugared(node.value).attr(self.at(node), self, node.attr)

    def of_Tuple(self: Any, node: ast.Tuple, wanted: T.Type | None) -> Sugared:
        place = self.at(node)
        kinds: Sequence[T.Type | None] = [None] * len(node.elts)
        if isinstance(wanted, T.TupleType) and len(wanted.elements) == len(node.elts):
            kinds = wanted.elements
        values: list[Value] = []
        for element, kind in zip(node.elts, kinds):
            if isinstance(element, ast.Starred):
                values += [s.as_value(place, self) for s in self.sugared(element.value).as_tuple(place, self)]
            else:
                values.append(self.expression(element, kind))
        return SimpleValue(self.graph.tuple_of(values))

    def of_List(self: Any, node: ast.List, wanted: T.Type | None) -> Sugared:
        place = self.at(node)
        hint = hinted(wanted, T.ListType, place)
        element = hint.element if hint is not None else None
        values: list[Value] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                values += [s.as_value(place, self) for s in self.sugared(item.value).as_tuple(place, self)]
            else:
                values.append(self.expression(item, element))
        if element is None:
            kinds = [unshaped(v.type) for v in values]
            joined = unify_all(kinds) if kinds else T.TENSOR
            if joined is None:
                joined = unify_all(kinds, to_union=True)
                assert joined is not None
            element = joined
        elif element is not T.ANY:
            converted = []
            for v in values:
                v = self.convert(place, element, v, False)
                if not T.is_subtype(v.type, element):
                    raise error(
                        place,
                        f"List type annotation `{hint.repr_str()}` did not match the types of the given list elements",
                    )
                converted.append(v)
            values = converted
        return SimpleValue(self.graph.list_of(element, values, place))

    def of_Dict(self: Any, node: ast.Dict, wanted: T.Type | None) -> Sugared:
        place = self.at(node)
        hint = hinted(wanted, T.DictType, place)
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
            return SimpleValue(self.graph.dict_of(T.DictType(T.STRING, T.TENSOR), [], place))
        key = unify_all([k.type for k in keys])
        if key is None:
            raise error(place, "Dict keys must contain only a single type.")
        _check_key(place, key)
        value = unify_all([unshaped(v.type) for v in values], to_union=True)
        assert value is not None
        return SimpleValue(self.graph.dict_of(T.DictType(key, value), list(zip(keys, values)), place))

    def check_pair(self: Any, place: Range, hint: T.DictType, key: T.Type, value: T.Type) -> None:
        """Raise unless the types of a key and a value fit a dictionary's annotation."""
        _check_key(place, hint.key)
        for word, actual, wanted in (("key", key, hint.key), ("value", value, hint.value)):
            if not T.is_subtype(actual, wanted):
                raise error(
                    place,
                    f"Dict type annotation `{hint.repr_str()}` did not match the type of an actual {word} type `{actual.repr_str()}`",
                )

    # -- operators -------------------------------------------------------------------------------------------------------
    def of_BinOp(self: Any, node: ast.BinOp, wanted: T.Type | None) -> Sugared:
        entry = _BINARY.get(type(node.op))
        place = self.at(node)
        if entry is None:
            raise error(place, f"unsupported binary operator: {type(node.op).__name__}", FrontendError)
        symbol, magic = entry
        if isinstance(node.op, ast.Mod):
            left = self.sugared(node.left)
            if isinstance(left, SimpleValue) and left.value.type is T.STRING:
                return SimpleValue(self._percent(node, left.value))
            return SimpleValue(
                self.binary_values(place, symbol, left.as_value(place, self), self.expression(node.right), magic)
            )
        left_value = self.expression(node.left, wanted if isinstance(wanted, T.ListType) else None)
        right_value = self.expression(node.right, wanted if isinstance(wanted, T.ListType) else None)
        return SimpleValue(self.binary_values(place, symbol, left_value, right_value, magic))

    def _percent(self: Any, node: ast.BinOp, text: Value) -> Value:
        right = self.sugared(node.right)
        place = self.at(node)
        value = right.as_value(place, self)
        parts = self.graph.unpack(value, place) if isinstance(value.type, T.TupleType) else [value]
        return self.builtin(place, "aten::percentFormat", [text, *parts])

    def binary_values(self: Any, place: Range, symbol: str, left: Value, right: Value, magic: str = "") -> Value:
        if symbol == "aten::add" and isinstance(left.type, T.TupleType) and isinstance(right.type, T.TupleType):
            return self.graph.tuple_of([*self.graph.unpack(left, place), *self.graph.unpack(right, place)])
        if isinstance(left.type, T.ClassType):
            return MethodValue(left, [magic]).call(place, self, [Named(right, place)], []).as_value(place, self)
        if symbol == "aten::floordiv" and (isinstance(left.type, T.TensorType) or isinstance(right.type, T.TensorType)):
            symbol = "aten::floor_divide"
        if isinstance(right.type, T.TensorType) and not isinstance(left.type, T.TensorType) and symbol in _REVERSED:
            return self._emit_reversed(place, symbol, left, right)
        return self.builtin(place, symbol, [left, right])

    def _emit_reversed(self: Any, place: Range, symbol: str, left: Value, right: Value) -> Value:
        """Emit an operator with a number before a tensor: `2 - x`."""
        if symbol in ("aten::add", "aten::mul"):
            return self.builtin(place, symbol, [right, left])
        if symbol == "aten::sub":
            return self.builtin(place, "aten::rsub", [right, left])
        if symbol == "aten::div":
            return self.builtin(place, "aten::mul", [self.builtin(place, "aten::reciprocal", [right]), left])
        return self.builtin(place, symbol, [left, right])

    def of_UnaryOp(self: Any, node: ast.UnaryOp, wanted: T.Type | None) -> Sugared:
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
        if isinstance(value.type, T.ClassType):
            return MethodValue(value, [magic]).call(place, self, [], [])
        return SimpleValue(self.builtin(place, symbol, [value]))

    def of_BoolOp(self: Any, node: ast.BoolOp, wanted: T.Type | None) -> Sugared:
        return SimpleValue(self.condition(node).value)

    def of_Compare(self: Any, node: ast.Compare, wanted: T.Type | None) -> Sugared:
        return (
            SimpleValue(self.condition(node).value)
            if len(node.ops) > 1 or isinstance(node.ops[0], (ast.Is, ast.IsNot))
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
        if isinstance(a.type, T.ClassType) and a.type.find_method(magic) is not None:
            return MethodValue(a, [magic]).call(place, self, [Named(b, place)], []).as_value(place, self)
        if (
            isinstance(b.type, T.TensorType)
            and not isinstance(a.type, T.TensorType)
            and a.type in (T.INT, T.FLOAT, T.BOOL, T.COMPLEX)
        ):
            turned = {"aten::lt": "aten::gt", "aten::le": "aten::ge", "aten::gt": "aten::lt", "aten::ge": "aten::le"}
            return self.builtin(place, turned.get(symbol, symbol), [b, a])
        return self.builtin(place, symbol, [a, b])

    def _contains(self: Any, place: Range, item: Value, container: Sugared) -> Value:
        names = container.member_names()
        if names is not None:
            known, word = self.known(item)
            if known:
                return self.constant(word in names, T.BOOL, place)
        value = container.as_value(place, self)
        if isinstance(value.type, T.ClassType):
            return (
                MethodValue(value, ["__contains__"]).call(place, self, [Named(item, place)], []).as_value(place, self)
            )
        if value.type is T.STRING and item.type is T.STRING:  # archives have no operator for it
            found = self.builtin(place, "aten::find", [value, item])
            return self.builtin(place, "aten::ge", [found, self.constant(0, T.INT, place)])
        return self.builtin(place, "aten::__contains__", [value, item])

    # -- conditions ------------------------------------------------------------------------------------------------------
    def to_bool(self: Any, place: Range | None, value: Value) -> Value:
        if value.type is T.BOOL:
            return value
        if isinstance(value.type, (T.ListType, T.DictType)) or value.type is T.STRING:
            size = self.builtin(place, "aten::len", [value])
            return self.builtin(place, "aten::gt", [size, self.constant(0, T.INT, place)])
        try:
            out = CastValue(T.BOOL, "aten::Bool").call(place, self, [Named(value, place)], []).as_value(place, self)
        except RuntimeError as problem:
            raise error(place, f"Could not cast value of type {value.type.repr_str()} to bool") from problem
        if out.type is not T.BOOL:
            raise error(place, f"expected a bool expression for condition but found {out.type.repr_str()}")
        return out

    def condition(self: Any, node: ast.expr) -> Condition:
        place = self.at(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.condition(node.operand)
            static = None if inner.static is None else not inner.static
            value = (
                self.constant(static, T.BOOL, place)
                if static is not None and inner.value.node.kind_ == "prim::Constant"
                else self.builtin(place, "aten::__not__", [inner.value])
            )
            return Condition(value, inner.refinements.inverted(), static)
        if isinstance(node, ast.BoolOp):
            return self._short_circuit(node, node.values, isinstance(node.op, ast.Or))
        if isinstance(node, ast.Compare):
            if len(node.ops) > 1:
                return self._emit_chain(node)
            if isinstance(node.ops[0], (ast.Is, ast.IsNot)):
                return self._emit_identity(node)
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

    def _emit_chain(self: Any, node: ast.Compare) -> Condition:
        """Emit `a < b < c` as `a < b and b < c`."""
        lefts = [node.left, *node.comparators[:-1]]
        parts: list[ast.expr] = [
            ast.copy_location(ast.Compare(left, [op], [right]), node)
            for left, op, right in zip(lefts, node.ops, node.comparators)
        ]
        return self._short_circuit(node, parts, False)

    def _emit_identity(self: Any, node: ast.Compare) -> Condition:
        """Emit `x is None` (or `is not`): constant if x's type decides it; otherwise it refines the type of x."""
        place, negated = self.at(node), isinstance(node.ops[0], ast.IsNot)
        left, right = self.expression(node.left), self.expression(node.comparators[0])
        symbol = "aten::__isnot__" if negated else "aten::__is__"
        pairs = ((left, right, node.left), (right, left, node.comparators[0]))
        for value, other, tree in pairs:
            if other.type is not T.NONE:
                continue
            if value.type is T.NONE:
                return Condition(self.constant(not negated, T.BOOL, place), Refinements(), not negated)
            if not (
                isinstance(value.type, T.OptionalType)
                or value.type is T.ANY
                or (isinstance(value.type, T.UnionType) and T.NONE in value.type.members)
            ):
                return Condition(self.constant(negated, T.BOOL, place), Refinements(), negated)
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
                    block.add_output(self.constant(is_or, T.BOOL, place))
                else:
                    self.refine(place, first.refinements.when(truth))
                    rest_condition = self._short_circuit(node, parts[1:], is_or)
                    block.add_output(rest_condition.value)
            self.pop()
        out = made.add_output(T.BOOL)
        assert rest_condition is not None
        joined = (
            first.refinements.either(rest_condition.refinements)
            if is_or
            else first.refinements.both(rest_condition.refinements)
        )
        static = rest_condition.static if rest_condition.static == is_or and rest_condition.static is not None else None
        return Condition(out, joined, static)

    def refine_here(self: Any, place: Range, types: dict[str, T.Type]) -> None:
        self.refine(place, types)

    def of_IfExp(self: Any, node: ast.IfExp, wanted: T.Type | None) -> Sugared:
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
            values[0].type,
            values[1].type,
            to_union=isinstance(wanted, (T.UnionType, T.OptionalType)) or wanted is T.ANY,
        )
        if joined is None:
            raise error(
                place,
                f"if-expression's true branch has type {values[0].type.repr_str()} but false branch has type {values[1].type.repr_str()}",
            )
        for block, value in zip(blocks, values):
            block.add_output(value)
        return SimpleValue(made.add_output(unshaped(joined)))

    def of_Lambda(self: Any, node: ast.Lambda, wanted: T.Type | None) -> Sugared:
        raise error(self.at(node).first(), "lambda expressions aren't supported", FrontendError)

    def of_Call(self: Any, node: ast.Call, wanted: T.Type | None) -> Sugared:
        return self.call(node, wanted)


_REVERSED = ("aten::add", "aten::sub", "aten::mul", "aten::div")


def _check_key(place: Range, kind: T.Type) -> None:
    simple = kind in (T.INT, T.FLOAT, T.COMPLEX, T.BOOL, T.STRING, T.DEVICE)
    if not simple and not isinstance(kind, (T.TensorType, T.EnumType)):
        raise error(
            place,
            f"Cannot create dict for key type '{kind.repr_str()}', only int, float, complex, Tensor, device and string keys are supported",
        )


def _describe_node(node: ast.expr) -> str:
    words = {
        "Yield": "yield expressions", "YieldFrom": "yield from expressions", "Await": "await expressions",
        "Set": "set literals", "SetComp": "set comprehensions", "GeneratorExp": "GeneratorExp", "NamedExpr": "assignment expressions",
        "Starred": "starred expressions", "Slice": "slices",
    }  # fmt: skip
    return words.get(type(node).__name__, type(node).__name__)
