"""From calls of aten operators to ONNX nodes: arguments by name, changes in place, views, and operators without a form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau

from ..core.dtype import dtype as DType  # noqa: N812
from ..core.tensor import Tensor
from ..utils import _pytree as pytree
from . import (
    forms,  # noqa: F401  they register themselves
    torchlib,
)
from .builder import Builder, Size, Value
from .errors import UnsupportedOperatorError
from .forms.indexing import places_of, put_at
from .functions import form_of_function
from .registry import custom_form, form_of, in_torchlib, operator_named, reason
from .scripted import call_function
from .torchlib.calls import SAYS_HOW


class Slot:
    """A tensor of the program: its current value, and for a view its base and how it is made from it."""

    def __init__(self, value: Value, base: Slot | None = None, steps: tuple = ()) -> None:
        self.value, self.base, self.steps = value, base, steps
        self.changes = 0  # of a base: how often; of a view: how many of them it has seen
        self.views: list[Slot] = []  # of a base
        if base is not None:
            self.changes = base.changes
            base.views.append(self)


class Described:
    """Description of a result: its dtype and shape as far as they are known."""

    __slots__ = ("dtype", "shape")

    def __init__(self, dtype: DType | None, shape: tuple[Size, ...] | None) -> None:
        self.dtype, self.shape = dtype, shape


class Converter:
    """Converts a program's calls to nodes of a graph."""

    def __init__(self, builder: Builder, table: dict[Any, Callable] | None = None) -> None:
        self.g = builder
        self.table = table or {}
        self.missing: dict[tuple[str, str], str] = {}
        self.changed: list[Slot] = []

    # -- values ----------------------------------------------------------------------------------------------------------------
    def current(self, slot: Slot) -> Value:
        """Return a tensor's current value; a view is recomputed if its base has changed."""
        base = slot.base
        if base is not None and slot.changes != base.changes:
            found = self._convert_steps(self.current(base), slot.steps)
            slot.value = slot.value if found is _MISSING else found
            slot.changes = base.changes
        return slot.value

    def _convert_steps(self, value: Any, steps: tuple) -> Any:
        for run in steps:
            value = value if value is _MISSING else run(value)
        return value

    def plain(self, thing: Any) -> Any:
        """Return an argument with slots and tensors replaced by their values."""
        if isinstance(thing, Slot):
            return self.current(thing)
        if isinstance(thing, (list, tuple)):
            return [self.plain(t) for t in thing]
        if isinstance(thing, Tensor):
            return self.g.value(thing)
        return thing

    def change(self, slot: Slot, value: Value) -> None:
        """Assign a new value to a tensor, and the corresponding part to its base."""
        value = self.g.cast(value, slot.value.dtype) if slot.value.dtype is not None else value
        if value.shape is None:
            torchlib.find_shape(value, self.g.opset)
        if value.shape != slot.value.shape and slot.value.shape is not None:
            value = self.g.op("Expand", value, self.g.shape_of(slot.value)).known(value.dtype, slot.value.shape)
        if slot.base is None:
            slot.value = value
            slot.changes += 1
            self.changed.append(slot)
            return
        base = slot.base
        whole = self.current(base)
        places = self._convert_steps(places_of(self.g, whole), slot.steps)
        if places is _MISSING:
            return
        base.value = put_at(self.g, whole, places, value)
        base.changes += 1
        slot.value, slot.changes = value, base.changes
        self.changed.append(base)

    # -- calls -----------------------------------------------------------------------------------------------------------------
    def call(self, schema: Any, arguments: dict[str, Any], described: Any, place: str = "", target: Any = None) -> Any:
        """Convert one operator call; `arguments` are by name in the schema's order. Returns slots, or numbers and lists of them."""
        name = schema.name
        first: Any = next(iter(arguments.values()), None)
        if name.endswith("_") and not name.endswith("__") and isinstance(first, Slot):
            if getattr(operator_named(name[:-1]), "is_view", False):
                self._turn(schema, first, arguments, place, described)
            else:
                self._in_place(schema, first, arguments, place, target)
            return first
        result = self._constant_call(name, arguments, described, target)
        if result is _MISSING:
            result = self._run(schema, name, arguments, place, target, described)
        if result is _MISSING:
            result = unknown(described)
        self._describe(result, described)
        if _is_view(operator_named(name), arguments) and _same_dtype(first, result):
            return self._views(schema, first, arguments, result, described)
        return slots(result)

    def _constant_call(self, name: str, arguments: dict[str, Any], described: Any, target: Any) -> Any:
        """Return a constant for a call that computes nothing, because its result or all of its arguments have no elements. Engines differ
        in how they handle that."""
        operator = operator_named(name)
        own = custom_form(name, self.g.opset) is not None or target in self.table or form_of_function(target)
        if own or not name.startswith("aten::") or not self._has_form(name) or _is_view(operator, arguments):
            return _MISSING
        results = described if isinstance(described, (list, tuple)) else [described]
        if all(isinstance(d, Described) and d.dtype is not None and _is_empty(d) for d in results):
            made = [self.g.value(flambeau.zeros(d.shape, dtype=d.dtype)) for d in results]
            return made if isinstance(described, (list, tuple)) else made[0]
        leaves, spec = pytree.tree_flatten({key: self.plain(value) for key, value in arguments.items()})
        values = [leaf for leaf in leaves if isinstance(leaf, Value)]
        if not values or not all(map(_is_empty, values)):
            return _MISSING
        filled = [flambeau.zeros(v.shape, dtype=v.dtype) if isinstance(v, Value) else v for v in leaves]
        result = operator(**pytree.tree_unflatten(filled, spec))
        return pytree.tree_map(lambda t: self.g.value(t) if isinstance(t, Tensor) else t, result)

    def _has_form(self, name: str) -> bool:
        return form_of(name) is not None or in_torchlib(name) or custom_form(name, self.g.opset) is not None

    def _in_place(self, schema: Any, first: Slot, arguments: dict[str, Any], place: str, target: Any) -> None:
        """Convert an in-place operator: compute its out-of-place result and assign that to the tensor."""
        name = schema.name
        own = custom_form(name, self.g.opset) is not None or target in self.table
        plain = name[:-1] if not own and self._has_form(name[:-1]) else name
        if name == "aten::copy_":
            value = self.g.number(self.plain(arguments["src"]), self.current(first).dtype)
        else:
            about = Described(first.value.dtype, first.value.shape)
            value = self._run(schema, plain, arguments, place, target, about)
        if value is not _MISSING:
            self.change(first, value)

    def _turn(self, schema: Any, first: Slot, arguments: dict[str, Any], place: str, described: Any) -> None:
        """Convert an in-place operator that changes no element (`t_`): from then on the tensor is a view of what it was."""
        if first.base is None:
            first.base = Slot(first.value)
            first.base.changes, first.base.views = first.changes, [*first.views, first]
            for view in first.views:
                view.base = first.base
        plain, overload = operator_named(schema.name[:-1]), schema.overload_name or "default"
        schema = getattr(plain, overload if overload in plain.overloads() else plain.overloads()[0])._schema
        result = self._run(schema, schema.name, arguments, place, None, described)
        if result is not _MISSING:
            self._describe(result, described)
            turned = self._views(schema, first, arguments, result, described)
            first.value, first.steps, first.changes = turned.value, turned.steps, turned.changes

    def _run(self, schema: Any, name: str, arguments: dict[str, Any], place: str, target: Any, described: Any) -> Any:
        try:
            plain = {key: self.plain(value) for key, value in arguments.items()}
            if target is not None and target in self.table:
                return self._call_translation(self.table[target], plain)
            custom = form_of_function(target) or custom_form(name, self.g.opset)
            if custom is not None:
                return custom(self.g, *_arguments_for_user(custom, list(plain.values())))
            form = form_of(name)
            if form is None:
                return self._from_torchlib(schema, name, plain, place, described)
            if self.g.opset < form.since:
                raise NotImplementedError(f"needs opset {form.since} or later")
            given = {"described": described} if "described" in form.wanted else {}
            made = form(self.g, **_wants_argument(name, form.wanted, _rename_first(plain, form.wanted)), **given)
            return self._from_torchlib(schema, name, plain, place, described) if made is NotImplemented else made
        except NotImplementedError as error:
            self.missing.setdefault((name, str(error)), place)
            return _MISSING

    def _from_torchlib(self, schema: Any, name: str, plain: dict[str, Any], place: str, described: Any) -> Any:
        record = getattr(operator_named(name), "op", None)
        function = torchlib.function_of(name, schema.overload_name, record) if not reason(name) else None
        if function is None:
            return self._constant_result(name, plain, place)
        made = torchlib.call(self.g, function, schema, plain, record, described)
        if isinstance(made, Value) and isinstance(described, Described) and name == schema.name:  # not in place
            self._check_rank(made, described)
        return made

    def _check_rank(self, made: Value, described: Described) -> None:
        """Raise if a result of torchlib's function has another number of dimensions than the operator's."""
        if made.shape is None:
            torchlib.find_shape(made, self.g.opset)
        if made.shape is not None and described.shape is not None and len(made.shape) != len(described.shape):
            raise NotImplementedError(f"torchlib's function: {len(made.shape)} dimensions, not {len(described.shape)}")

    def _constant_result(self, name: str, plain: dict[str, Any], place: str) -> Any:
        """Return an operator's result as a constant if it depends on numbers alone (a window, positions); else record a missing form."""
        record = getattr(operator_named(name), "op", None)
        if (
            record is not None
            and record.kind == "creation"
            and not any(isinstance(v, Value) for v in pytree.tree_leaves(plain))
            and not reason(name)
        ):
            return self.g.value(operator_named(name)(**plain))
        self.missing.setdefault((name, reason(name)), place)
        return _MISSING

    def _call_translation(self, function: Any, plain: dict[str, Any]) -> Any:
        """Call a user's translation: an onnxscript function, or one that takes the builder."""
        values = list(plain.values())
        proto = getattr(function, "to_function_proto", None)
        if proto is None:
            return function(self.g, *values)

        return call_function(self.g, function, values)

    def _describe(self, result: Any, described: Any) -> None:
        if isinstance(described, Described) and isinstance(result, Value):
            # What a form says of its nodes goes before what the trace saw.
            result.dtype = result.dtype or described.dtype
            own = result.producer is not None or result.shape is None  # else it is an argument, returned as it is
            if described.shape is not None and result.constant is None and own:
                seen, found = described.shape, result.shape
                known = found is not None and len(found) == len(seen)
                result.shape = tuple(f if s is None else s for s, f in zip(seen, found)) if known else tuple(seen)
        elif isinstance(described, (list, tuple)) and isinstance(result, (list, tuple)):
            for r, d in zip(result, described):
                self._describe(r, d)

    def _views(self, schema: Any, first: Slot, arguments: dict[str, Any], result: Any, described: Any) -> Any:
        rest = {key: value for i, (key, value) in enumerate(arguments.items()) if i}
        key = next(iter(arguments))
        base = first.base or first

        def step(number: int | None) -> Callable:
            def again(value: Value) -> Any:
                about = Described(value.dtype, described.shape) if isinstance(described, Described) else None
                made = self._run(schema, schema.name, {key: Slot(value), **rest}, "", None, about)
                return made if number is None or made is _MISSING else made[number]

            return again

        if isinstance(result, Value):
            return Slot(result, base, (*first.steps, step(None)))
        if isinstance(result, (list, tuple)):
            return [Slot(r, base, (*first.steps, step(i))) for i, r in enumerate(result)]
        return result

    def finish(self) -> None:
        """Raise one error about all operators without a form."""
        if self.missing:
            raise UnsupportedOperatorError(
                [(name, why, place) for (name, why), place in self.missing.items()], self.g.opset
            )


_MISSING = object()


def _is_view(operator: Any, arguments: dict[str, Any]) -> bool:
    """Return whether a call returns a view of its first argument."""
    return isinstance(next(iter(arguments.values()), None), Slot) and getattr(operator, "is_view", False)


def _is_empty(about: Any) -> bool:
    """Return whether a result is known to have no elements."""
    return bool(about.shape) and 0 in about.shape and all(isinstance(n, int) for n in about.shape)


def _same_dtype(first: Slot, result: Any) -> bool:
    """Return whether a result has the dtype of the first argument: `x.to(dtype)` is a view only without conversion."""
    return not isinstance(result, Value) or result.dtype == first.value.dtype


def slots(result: Any) -> Any:
    if isinstance(result, Value):
        return Slot(result)
    if isinstance(result, (list, tuple)):
        return [slots(r) for r in result]
    return result


def unknown(described: Any) -> Any:
    if isinstance(described, Described):
        return Value("", described.dtype, described.shape)
    if isinstance(described, (list, tuple)):
        return [unknown(d) for d in described]
    return Value()


def _rename_first(plain: dict[str, Any], wanted: frozenset[str]) -> dict[str, Any]:
    """Rename the first argument to the name that the form has for it: `self` (of in-place operators) or `input`."""
    first = next(iter(plain), "")
    other = {"self": "input", "input": "self"}.get(first, "")
    if first in wanted or other not in wanted or other in plain:
        return plain
    return {other if key == first else key: value for key, value in plain.items()}


def _wants_argument(name: str, wanted: frozenset[str], plain: dict[str, Any]) -> dict[str, Any]:
    given = {}
    for key, value in plain.items():
        if key in wanted:
            given[key] = value
        elif key not in SAYS_HOW and value is not None and value is not False:
            raise NotImplementedError(f"its argument {key}={value!r}")
    if "name" in wanted:
        given["name"] = name
    return given


def _arguments_for_user(function: Callable, values: list[Any]) -> list[Any]:
    """Return the arguments in order, without trailing None and False that the function has no parameters for."""
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    if code is None or code.co_flags & 4:
        return values
    room = code.co_argcount - 1
    while len(values) > room and (values[-1] is None or values[-1] is False):
        values = values[:-1]
    return values
