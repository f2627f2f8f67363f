"""From Python's syntax tree to a graph: comprehensions of lists and dictionaries."""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING, Any

from .ir import Value
from .source import NotSupportedError, Range, error
from .type_joins import unify_all, unshaped
from .types import ANY, INT, STRING, TENSOR, DictType, ListType, OptionalType, Type, UnionType, is_subtype
from .values import SimpleValue, Sugared


class Comprehensions:
    """The part of the emitter that compiles comprehensions."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    # -- comprehensions --------------------------------------------------------------------------------------------------
    def _own_variables(self: Any, node: Any) -> Any:
        """Rename the comprehension's variables that clash with variables of the function, so that those keep their values."""
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
        hint = hinted(wanted, ListType, place)
        iterable = self.sugared(part.iter).iterate(place, self)
        if iterable.unrolled:
            values = self._unroll(place, node, part, iterable, hint)
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

        self._emit_loop(place, part, iterable, body)
        return SimpleValue(made)

    def _list_of_values(self: Any, place: Range, values: list[Value], hint: ListType | None) -> Sugared:
        element = (
            hint.element if hint is not None else unify_all([unshaped(v.type) for v in values]) if values else TENSOR
        )
        if element is None:
            raise error(place, "the elements of a comprehension have no common type")
        return SimpleValue(self.graph.list_of(element, values, place))

    def _unroll(
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
        hint = hinted(wanted, DictType, place)
        made = self.graph.dict_of(hint or DictType(STRING, TENSOR), [], place)
        iterable = self.sugared(part.iter).iterate(place, self)

        def body() -> None:
            key = self.expression(node.key, hint.key if hint is not None else None)
            value = self.expression(node.value, hint.value if hint is not None else None)
            self.add_pair(place, made, hint, key, value)

        self._emit_loop(place, part, iterable, body)
        return SimpleValue(made)

    def add_pair(self: Any, place: Range, made: Value, hint: DictType | None, key: Value, value: Value) -> None:
        """Add a pair to a dictionary that is being built; without an annotation, the first pair determines the types."""
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

    def _emit_loop(self: Any, place: Range, part: ast.comprehension, iterable: Sugared, body: Any) -> None:
        self.for_each(place, part.target, iterable, body)

    def _generator(self: Any, node: Any) -> ast.comprehension:
        if len(node.generators) != 1:
            raise error(self.at(node), "Only a single generator is currently supported", NotSupportedError)
        if node.generators[0].ifs:
            raise error(self.at(node).first(), "Comprehension ifs are not supported yet", NotSupportedError)
        return node.generators[0]


def hinted(wanted: Type | None, kind: Any, place: Range) -> Any:
    """Return the list (or dictionary) type in the expected type; None if there is no unique one, an error if none fits."""
    if wanted is None or wanted is ANY:
        return None
    if isinstance(wanted, OptionalType):
        return hinted(wanted.element, kind, place)
    fitting = [m for m in (wanted.members if isinstance(wanted, UnionType) else (wanted,)) if isinstance(m, kind)]
    if not fitting:
        word = "List" if kind is ListType else "Dict"
        raise error(place, f"Expected an annotation of type {word} but got {wanted.repr_str()}")
    return fitting[0] if len(fitting) == 1 else None
