"""Check of a call's arguments against PyTorch's schemas: which values each type takes, and PyTorch's TypeError for others.

A call that failed is checked as a whole (`refusal`), so that the error names the argument and not what became of it. Before a call only those
arguments are looked at which a body might take although PyTorch does not: flags, numbers, words (`guard`)."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.aliases import Values
from ...core.device import device
from ...core.dtype import dtype
from ...core.generator import Generator
from ...core.layout import layout, memory_format
from ...core.size import Size
from ...core.tensor import Tensor
from ...core.typenames import type_name
from ...core.written import written
from .record import Op
from .schema import Argument
from .schema_table import overloads_of, schema_of

# -- types ----------------------------------------------------------------------------------------------------------------------


def _is_number_tensor(value: Any) -> bool:
    return isinstance(value, Tensor) and value.shape == () and not value.requires_grad


def _is_int(value: Any) -> bool:
    if isinstance(value, (int, np.integer)):
        return not isinstance(value, bool)
    return (_is_number_tensor(value) and value.dtype.category == 1) or type(value).__name__ == "SymInt"


def _is_size(value: Any) -> bool:
    """Return whether a value may be a size: anything with an index, but no bool."""
    if isinstance(value, Tensor):
        return value.dtype.category < 2 and value.numel() == 1
    if isinstance(value, np.ndarray):
        return value.shape == () and value.dtype.kind in "iu"
    return hasattr(value, "__index__") and not isinstance(value, (bool, np.bool_))


def _is_float(value: Any) -> bool:
    return isinstance(value, (float, int, np.generic)) or _is_number_tensor(value) or type(value).__name__ in _SYMBOLS


def _is_scalar(value: Any) -> bool:
    return _is_float(value) or isinstance(value, complex)


_SYMBOLS = ("SymInt", "SymFloat", "SymBool")


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ == "SymBool"


def _is_dtype(value: Any) -> bool:
    return isinstance(value, dtype) or (isinstance(value, type) and value in dt.OF_PYTHON)


def _is_device(value: Any) -> bool:
    return isinstance(value, (device, str)) or _is_int(value)


def _among(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


# By type: its name in messages, and whether it takes a value. Of the others nothing is known.
_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("int", _is_int), "SymInt": ("int", _is_size), "float": ("float", _is_float), "bool": ("bool", _is_bool),
    "Scalar": ("Number", _is_scalar), "str": ("str", _among(str)), "Tensor": ("Tensor", _among(Tensor)),
    "ScalarType": ("torch.dtype", _is_dtype), "Device": ("torch.device", _is_device), "Dimname": ("name", _among(str)),
    "Layout": ("torch.layout", _among(layout)), "MemoryFormat": ("torch.memory_format", _among(memory_format)),
    "Generator": ("torch.Generator", _among(Generator)),
}  # fmt: skip


class Kind:
    """Type of an argument in PyTorch's notation: "SymInt[2]?" is a list of two sizes, one number for both, or None."""

    def __init__(self, argument: Argument) -> None:
        text = str(argument.real_type)
        self.base = text.rstrip("?").removesuffix("[]").rstrip("?")
        self.is_list, self.single = "[]" in text, bool(argument.N)
        self.optional = text.endswith("?") or (self.single and argument.default == [])
        self.elements_optional = "?[" in text
        name, takes = _TYPES.get(self.base, (self.base, None))
        self.name = f"tuple of {name}s" if self.is_list else name
        self.takes: Callable[[Any], bool] | None = _is_size if self.is_list and self.base == "int" else takes

    def fits(self, value: Any) -> bool:
        takes = self.takes
        if takes is None or (value is None and self.optional):
            return True
        if not self.is_list:
            return takes(value)
        if isinstance(value, (tuple, list)):  # as in PyTorch, the first element tells whether it is a list of such
            return not value or takes(value[0]) or (self.elements_optional and value[0] is None)
        return self.single and takes(value)

    def number(self, value: Any) -> Any:
        """Return a value that fits as Python's number, or list of numbers, where this is a type of numbers; others as they are."""
        if self.is_list and isinstance(value, (tuple, list)):
            found = type(value)([self.number(v) for v in value]) if type(value) in (tuple, list) else value
            return value if all(a is b for a, b in zip(found, value)) else found
        if value is None or type(value) in (int, float, bool, complex) or type(value).__name__ in _SYMBOLS:
            return value
        if self.base in ("int", "SymInt"):
            return operator.index(value)
        return value.item() if self.base in ("float", "Scalar") and hasattr(value, "item") else value

    def refused(self, value: Any) -> str:
        """Return what a message says about a value that does not fit."""
        if self.is_list and isinstance(value, (tuple, list)) and value:
            return f"must be {self.name}, but found element of type {type_name(value[0])} at pos 0"
        return f"must be {self.name}, not {type_name(value)}"


# -- operators ------------------------------------------------------------------------------------------------------------------


def _declared(op: Op) -> Op:
    """Return the operator whose declaration tells the arguments: the other one, for an in-place form that passes on what it is given."""
    return op.plain if op.plain is not None and any(p.kind is p.VAR_POSITIONAL for p in op.arguments.values()) else op


@functools.cache
def kinds(op: Op) -> dict[str, list[Kind]]:
    """Return the types that PyTorch's overloads of an operator give to its arguments, by the names that they have here. Those whose default
    does not fit mean something else here, and are left out."""
    plain = _declared(op)
    if not plain.namespaces and plain.method is None:
        return {}
    found: dict[str, list[Kind]] = {}
    own_defaults = plain.defaults
    for own, argument in _counterparts(plain):
        kind = Kind(argument)
        # None where it is the own default: it stands for what is not given, and calls in canonical form (`Op.bind`) give it.
        kind.optional |= own_defaults.get(own, own) is None
        found.setdefault(own, []).append(kind)
    if op.kind == "creation":  # tensors may be given as nested lists there, which PyTorch's schemas do not say
        found = {name: types for name, types in found.items() if all(k.base != "Tensor" for k in types)}
    return {
        name: types
        for name, types in found.items()
        if name in plain.arguments
        and all(k.takes for k in types)
        and (own_defaults.get(name) is None or any(k.fits(own_defaults[name]) for k in types))
    }


def _counterparts(op: Op) -> list[tuple[str, Argument]]:
    """Return pairs of an own argument's name and PyTorch's argument for it."""
    forms = op.aten_forms
    if forms and not forms[0].only_names:
        return [pair for form in forms for pair in form.counterparts()]
    schemas = [schema_of(op.aten_name, overload) for overload in overloads_of(op.aten_name)]
    schemas = [schema for schema in schemas if all(a.base != "t" for a in schema.arguments)]  # else TorchScript's lists
    if (
        not schemas
    ):  # PyTorch's function is Python, where only tensors are sure to be needed, or reads its arguments itself
        return [(a.name, a) for a in op.schema.arguments if op.kind == "creation" or a.base == "Tensor"]
    own = [p.name for p in op.arguments.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    known = {a.name for schema in schemas for a in schema.arguments}
    pairs = []
    for schema in schemas:
        taken = {a.name for a in schema.arguments}
        for place, argument in enumerate(schema.positional[: len(own)]):
            # By place, too: `self`, and what another overload calls otherwise, as scatter's `value`, which may be given for `src`.
            if own[place] not in taken and (place == 0 or own[place] in known):
                pairs.append((own[place], argument))
        pairs += [(a.name, a) for a in schema.arguments]
    return pairs


def refusal(op: Op, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """Return PyTorch's message about the first argument of a call that is of a wrong type; None if there is none. Raise its ValueError if there
    is an int of more than 64 bits."""
    plain = _declared(op)
    known = kinds(op)
    numbers = getattr(plain.impl, "numbers", ())
    for position, (name, parameter) in enumerate(plain.arguments.items()):
        if parameter.kind is parameter.VAR_POSITIONAL:
            return None
        by_position = parameter.kind is not parameter.KEYWORD_ONLY and position < len(args)
        if name not in known or not (by_position or name in kwargs):
            continue
        value = args[position] if by_position else kwargs[name]
        types = known[name]
        too_large = type(value) is int and not -(2**63) <= value < 2**63
        if too_large and types[0].base in ("int", "SymInt") and types[0].fits(value):
            raise ValueError("Overflow when unpacking long long") from None
        if not any(kind.fits(value) for kind in types) and not (name in numbers and _is_scalar(value)):
            where = f" (position {position + (not op.in_place)})" if by_position else ""
            return f"{public_name(op)}(): argument '{name}'{where} {types[0].refused(value)}"
    return None


def plain_numbers(op: Op, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Values, dict[str, Any]] | None:
    """Return the arguments of a call with Python's numbers for 0-dim tensors, NumPy's numbers and other objects with an index, where PyTorch
    takes a number; None if there are no such objects."""
    plain = _declared(op)
    known, names = kinds(op), list(plain.arguments)
    changed = False

    def read(name: str, value: Any) -> Any:
        nonlocal changed
        fitting = [kind for kind in known.get(name, ()) if kind.fits(value)]
        found = fitting[0].number(value) if fitting and all(kind.base != "Tensor" for kind in fitting) else value
        changed = changed or found is not value
        return found

    given = tuple([read(name, value) for name, value in zip(names, args)])
    named = {name: read(name, value) for name, value in kwargs.items()}
    return ((*given, *args[len(given) :]), named) if changed else None


def public_name(op: Op) -> str:
    """Return the operator's name as PyTorch's messages give it: "fft_fft"."""
    if op.aten_forms:
        return op.aten_name
    return op.key.removeprefix("nn.functional.").removeprefix("Tensor.").replace(".", "_") or op.name


# Source of the tests of `_sure`, by type.
_SURE = {
    "int": "type({0}) is int", "SymInt": "type({0}) is int", "float": "type({0}) is float or type({0}) is int",
    "Scalar": "type({0}) is float or type({0}) is int", "bool": "{0} is False or {0} is True", "str": "type({0}) is str",
    "ScalarType": "type({0}) is dtype_type", "MemoryFormat": "type({0}) is memory_format_type",
}  # fmt: skip
_GUARDED = frozenset((*_SURE, "Device", "Layout", "Generator"))


def guard(op: Op) -> Callable[[Values, dict[str, Any]], None] | None:
    """Return a function of the positional and the named arguments of a call that raises TypeError if one is of a type which the operator's body
    might take, though PyTorch does not; None if there is nothing to check."""
    parameters = list(_declared(op).arguments.values())
    known = {n: types for n, types in kinds(op).items() if all(k.base in _GUARDED for k in types)}
    if not known:
        return None
    lines, margin = ["def compute(args, named):", "    count = len(args)"], "    "
    tests = {n: f"if not ({_sure(types, n)}): look({n!r}, {n})" for n, types in known.items()}
    for place, p in enumerate(parameters):
        if p.kind is not p.POSITIONAL_OR_KEYWORD:
            break
        if p.name in known:  # one block inside the other: most calls give few
            lines.append(f"{margin}if count > {place}:")
            margin += "    "
            lines += [f"{margin}{p.name} = args[{place}]", f"{margin}{tests[p.name]}"]
    lines.append("    if named: by_name(**named)")
    lines.append(f"def by_name(*, {', '.join(f'{n}=not_given' for n in known)}, **others):")
    lines += [
        f"    if {n} is not not_given and not ({_sure(types, n)}): look({n!r}, {n})" for n, types in known.items()
    ]

    def look(name: str, value: Any) -> None:
        if not any(kind.fits(value) for kind in known[name]):
            raise TypeError(f"{public_name(op)}(): argument '{name}' {known[name][0].refused(value)}")

    space: dict[str, Any] = {"look": look, "not_given": _NOT_GIVEN, "lists": _LISTS, "dtype_type": dtype}
    space["memory_format_type"] = memory_format
    return written(lambda: "\n".join(lines), space)


_NOT_GIVEN = object()
_LISTS = frozenset((tuple, list, Size))


def _sure(types: list[Kind], name: str) -> str:
    """Return the source of a test whether a value is surely of one of these types: fast, and false for many that are."""
    tests = [f"{name} is None"] if any(kind.optional for kind in types) else []
    for kind in types:
        test = _SURE.get(kind.base, "False")
        if not kind.is_list or kind.single:
            tests.append(test.format(name))
        if kind.is_list:
            tests.append(f"(type({name}) in lists and (not {name} or {test.format(f'{name}[0]')}))")
    return " or ".join(dict.fromkeys(tests))
