"""From Python's syntax tree to a graph: `x[...]`, read and written."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import types as T
from .ir import Value
from .matching import Named
from .named_values import PythonObject, SliceValue
from .source import Range, error
from .type_joins import unify_all
from .values import MethodValue, SimpleValue, Sugared, SugaredTuple


class Subscripts:
    """The part of the emitter that compiles subscripts."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    # -- subscripts ------------------------------------------------------------------------------------------------------
    def of_Subscript(self: Any, node: ast.Subscript, wanted: T.Type | None) -> Sugared:
        place = self.at(node)
        owner = self.sugared(node.value)
        if isinstance(owner, SugaredTuple) or not isinstance(owner, SimpleValue):
            return self._sugared_item(place, node, owner, wanted)
        value = owner.value
        kind = value.type
        if isinstance(kind, T.TensorType):
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
        if isinstance(kind, T.TupleType):
            return SimpleValue(self._tuple_subscript(place, value, node.slice))
        if isinstance(kind, (T.ListType, T.DictType)) or kind is T.STRING or isinstance(kind, T.ClassType):
            if isinstance(node.slice, ast.Tuple) and isinstance(kind, T.ListType):
                raise error(place, "cannot index a list with a tuple")
            return owner.item(place, self, self.expression(node.slice), wanted)
        raise error(place, f"'{kind.repr_str()}' object is not subscriptable")

    def _sugared_item(self: Any, place: Range, node: ast.Subscript, owner: Sugared, wanted: T.Type | None) -> Sugared:
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
        if isinstance(value.type, T.TupleType):
            numbers = []
            for bound in bounds:
                known, number = (True, None) if bound is None else self.known(bound)
                if not known:
                    raise error(place, "Slices of modules and tuples need integer literals")
                numbers.append(number)
            if numbers[2:] == [0]:
                raise error(place, "List slice should have non-zero step")
            return self.graph.tuple_of(self.graph.unpack(value, place)[slice(*numbers)], place)
        if not (isinstance(value.type, T.ListType) or value.type is T.STRING):
            raise error(place, f"Unsupported operation: attempted to use slicing on {value.type.repr_str()}")
        low, high = (self.none(place) if bound is None else bound for bound in bounds[:2])
        step = self.constant(1, T.INT, place) if bounds[2] is None or bounds[2].type is T.NONE else bounds[2]
        return self.builtin(place, "aten::slice", [value, low, high, step])

    def _tuple_subscript(self: Any, place: Range, value: Value, node: ast.expr) -> Value:
        index = self.expression(node)
        known, number = self.known(index)
        assert isinstance(value.type, T.TupleType)
        kinds = value.type.elements
        if index.type is not T.INT:
            raise error(place, "tuple index must be an integer")
        if not known:
            if unify_all(kinds) is None:
                raise error(
                    place,
                    "Cannot index into a tuple with a non-integer literal because we cannot resolve the output type",
                )
            return self.graph.op("prim::TupleIndex", [value, index], kinds[0], place)
        if not -len(kinds) <= number < len(kinds):
            raise error(place, f"Tuple index out of range. Tuple is length {len(kinds)} and index is {number}")
        return self.tuple_item(place, value, number % len(kinds))

    def tuple_item(self: Any, place: Range | None, value: Value, index: int) -> Value:
        number = self.constant(index, T.INT, place)
        assert isinstance(value.type, T.TupleType)
        return self.graph.op("prim::TupleIndex", [value, number], value.type.elements[index], place)

    def tensor_item(self: Any, place: Range, value: Value, indices: Sequence[ast.expr]) -> Value:
        """Emit `x[...]`: selections and slices one after another, then one index operator for the tensors among the indices."""
        picked, tensors = self._index_parts(place, value, indices)
        if not any(t is not None for t in tensors):
            return picked
        return self.builtin(place, "aten::index", [picked, self._index_list(place, tensors)])

    def _index_list(self: Any, place: Range, tensors: list[Value | None]) -> Value:
        filled = [self.none(place) if t is None else t for t in tensors]
        return self.graph.list_of(T.OptionalType(T.TENSOR), filled, place)

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
                value = self.builtin(place, "aten::select", [value, self.constant(dim, T.INT, place), given])
                dim += 1 if behind else 0
                continue
            if kind == "none":
                value = self.builtin(
                    place, "aten::unsqueeze", [value, self.constant(dim - 1 if behind else dim, T.INT, place)]
                )
                if not behind:
                    self._store_index(tensors, dim, None)
                    dim += 1
                continue
            if kind == "slice":
                low, high, step = given
                low = self.none(place) if low is None else low
                high = self.none(place) if high is None else high
                step = self.constant(1, T.INT, place) if step is None else step
                value = self.builtin(place, "aten::slice", [value, self.constant(dim, T.INT, place), low, high, step])
                if not behind:
                    self._store_index(tensors, dim, None)
            else:
                if behind:
                    raise error(place, "tensor indices behind an ellipsis are not supported here")
                self._store_index(tensors, dim, given)
            dim += 1
        return value, tensors

    @staticmethod
    def _store_index(tensors: list[Value | None], dim: int, value: Value | None) -> None:
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
            return "slice", tuple(None if p is None or p.type is T.NONE else p for p in thing.parts)
        value = thing.as_value(place, self)
        kind = value.type
        if kind is T.NONE:
            return "none", None
        if kind is T.INT:
            return "int", value
        if (
            isinstance(kind, T.OptionalType)
            and isinstance(kind.element, T.TensorType)
            or isinstance(kind, T.TensorType)
        ):
            return "tensor", value
        innermost = kind
        while isinstance(innermost, T.ListType):
            innermost = innermost.element
        # Positions, whatever they are written as: a list of bools is no mask in PyTorch's language.
        if isinstance(kind, T.ListType) and innermost in (T.INT, T.BOOL, T.FLOAT):
            dtype = Named(self.constant(4, T.INT, place), place, "dtype")
            return "tensor", self.call_operator(place, "aten::tensor", [Named(value, place)], [dtype])
        raise error(
            place,
            f"Unsupported operation: indexing tensor with unsupported index type '{kind.repr_str()}'. Only ints, slices, lists and tensors are supported",
        )

    def assign_item(self: Any, place: Range, target: ast.Subscript, value: Value) -> None:
        """Emit `x[...] = value`."""
        owner = self.sugared(target.value).as_value(place, self)
        kind = owner.type
        if isinstance(kind, T.TensorType):
            picked, tensors = self._index_parts(place, owner, _indices(target.slice))
            if not any(t is not None for t in tensors):
                self._copy_into(place, picked, value)
                return
            filled = value if isinstance(value.type, T.TensorType) else self._as_tensor(place, value, picked)
            flag = self.constant(False, T.BOOL, place)
            self.builtin(place, "aten::index_put_", [picked, self._index_list(place, tensors), filled, flag])
            return
        if isinstance(target.slice, ast.Slice):
            raise error(
                place, "Sliced expression not yet supported for subscripted assignment. File a bug if you want this"
            )
        if isinstance(kind, T.ClassType):
            index = self.expression(target.slice)
            MethodValue(owner, ["__setitem__"]).call(place, self, [Named(index, place), Named(value, place)], [])
            return
        if not isinstance(kind, (T.ListType, T.DictType)):
            raise error(place, f"{kind.repr_str()} does not support subscripted assignment")
        index = self.expression(target.slice)
        element = kind.element if isinstance(kind, T.ListType) else kind.value
        self.builtin(place, "aten::_set_item", [owner, index, self.convert(place, element, value)])

    def _copy_into(self: Any, place: Range, picked: Value, value: Value) -> None:
        if isinstance(value.type, T.TensorType):
            flag = self.constant(False, T.BOOL, place)
            self.builtin(place, "aten::copy_", [picked, value, flag])
        else:
            number = value
            self.builtin(
                place,
                "aten::copy_",
                [picked, self._as_tensor(place, number, picked), self.constant(False, T.BOOL, place)],
            )

    def _as_tensor(self: Any, place: Range, value: Value, like: Value) -> Value:
        """Convert a number to a tensor with the dtype and device of `like`."""
        if value.type not in (T.INT, T.FLOAT, T.BOOL, T.COMPLEX):
            raise error(place, f"Expected a Tensor or a number to assign, got {value.type.repr_str()}")
        dtype = self.builtin(place, "prim::dtype", [like])
        device = self.builtin(place, "prim::device", [like])
        named = [Named(dtype, place, "dtype"), Named(device, place, "device")]
        return self.call_operator(place, "aten::tensor", [Named(value, place)], named)

    def augment_item(self: Any, place: Range, word: str, target: ast.Subscript, right: ast.expr) -> None:
        owner = self.expression(target.value)
        if isinstance(owner.type, T.TensorType):
            picked, tensors = self._index_parts(place, owner, _indices(target.slice))
            if not any(t is not None for t in tensors):
                self.augmented(place, word, picked, right)
                return
            index = self._index_list(place, tensors)
            after = self.augmented(place, word, self.builtin(place, "aten::index", [picked, index]), right)
            self.builtin(place, "aten::index_put_", [picked, index, after, self.constant(False, T.BOOL, place)])
            return
        if isinstance(owner.type, T.TupleType):
            raise error(place, f"'{owner.type.repr_str()}' does not support augmented assignment")
        index = self.expression(target.slice)
        before = SimpleValue(owner).item(place, self, index).as_value(place, self)
        after = self.augmented(place, word, before, right)
        if isinstance(owner.type, T.ClassType):
            MethodValue(owner, ["__setitem__"]).call(place, self, [Named(index, place), Named(after, place)], [])
            return
        self.builtin(place, "aten::_set_item", [owner, index, after])


def _indices(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]
