"""The operators of graphs on numbers, strings, lists and dictionaries."""

from __future__ import annotations

import cmath
import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from ..expr.functions import ELEMENTARY
from .types import result_type

# -- numbers ----------------------------------------------------------------------------------------------------------------


def _integer_power(a: Any, b: Any) -> Any:
    return float(a) ** b if not isinstance(a, complex) and not isinstance(b, complex) else a**b


def _math(name: str) -> Callable:
    real, both = getattr(math, name, None), getattr(cmath, name, None)

    def run(a: Any, *more: Any) -> Any:
        if isinstance(a, complex) and both is not None:
            return both(a, *more)
        try:
            assert real is not None
            return real(a, *more)
        except OverflowError:
            return math.inf
        except ValueError:  # outside the function's domain, C's answer is a number too
            return -math.inf if name.startswith("log") and a == 0 else math.nan

    return run


def _logarithm(a: Any, b: Any = None) -> Any:
    return _math("log")(a) if b is None else _math("log")(a) / _math("log")(b)


def _remainder(a: Any, b: Any) -> Any:
    if b == 0 and not isinstance(a, float) and not isinstance(b, float):
        raise RuntimeError("ZeroDivisionError: integer division or modulo by zero")
    return a % b


def _divided_twice(a: Any, b: Any) -> tuple:
    if b == 0:
        whole = not isinstance(a, float) and not isinstance(b, float)
        raise RuntimeError(f"ZeroDivisionError: {'integer division or modulo by zero' if whole else 'float divmod()'}")
    return divmod(a, b)


def _to_zero(a: int, b: int) -> int:
    return int(a / b) if b else 0


def _range_length(start: int, stop: int, step: int) -> int:
    if step == 0:
        raise RuntimeError("range() arg 3 must not be zero")
    return len(range(start, stop, step))


def _implicit(kind: type, word: str) -> Callable:
    def run(a: Tensor) -> Any:
        if a.requires_grad:
            raise RuntimeError("Cannot input a tensor that requires grad as a scalar argument")
        if a.dim() != 0:
            raise RuntimeError("Cannot input a tensor of dimension other than 0 as a scalar argument")
        if kind is int and a.is_floating_point():
            raise RuntimeError(f"Cannot input a tensor of type {word} as an integral argument")
        return a.item() if kind is object else kind(a.item())

    return run


# -- lists, strings, dictionaries -------------------------------------------------------------------------------------------


def _item(container: Any, index: Any) -> Any:
    if isinstance(container, (list, str)):
        if not -len(container) <= index < len(container):
            raise IndexError("string index out of range" if isinstance(container, str) else "list index out of range")
    elif index not in container:
        raise RuntimeError(f"KeyError: {index}")
    return container[index]


def _set_item(container: Any, index: Any, value: Any) -> Any:
    if isinstance(container, list) and not -len(container) <= index < len(container):
        raise IndexError("list index out of range")
    container[index] = value
    return container


def _delete(container: Any, index: Any) -> None:
    if isinstance(container, list) and not -len(container) <= index < len(container):
        raise IndexError("list index out of range")
    if isinstance(container, dict) and index not in container:
        raise RuntimeError(f"KeyError: {index}")
    del container[index]


def _slice(sequence: Any, start: Any = None, stop: Any = None, step: int = 1) -> Any:
    if step == 0:
        raise RuntimeError("slice should have non-zero step")
    if step == -(2**63):
        raise RuntimeError("slice step is out of bounds")
    return sequence[start:stop:step]


def _sort(items: list, reverse: bool = False) -> None:
    for item in items:
        _check_sortable(items[0], item)
    items.sort(key=sort_key, reverse=reverse)


def _check_sortable(first: Any, item: Any) -> None:
    if type(first) is not type(item):
        raise RuntimeError("Only values of same type can be compared")
    if isinstance(first, tuple):
        for pair in zip(first, item):
            _check_sortable(*pair)
    elif isinstance(first, (dict, list)):
        raise RuntimeError(f"values of type {type(first).__name__} are not sortable")
    elif hasattr(first, "slots"):
        order = first.script_type.find_method("__lt__")
        if order is None or str(result_type(order.schema)) != "bool" or len(order.schema.arguments) != 2:
            raise RuntimeError(f"To sort objects of {first.script_type}, the class must define a __lt__ that takes another one and returns a bool")  # fmt: skip


def sort_key(item: Any) -> Any:
    if isinstance(item, tuple):
        return tuple(map(sort_key, item))
    return _Ordered(item) if hasattr(item, "slots") else item


class _Ordered:
    """Orders objects of compiled classes by their own __lt__."""

    __slots__ = ("item",)

    def __init__(self, item: Any):
        self.item = item

    def __lt__(self, other: _Ordered) -> bool:
        return bool(self.item.call("__lt__", other.item))


def _extended(items: list, more: list) -> list:
    items += more
    return items


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, list) and a and isinstance(a[0], Tensor):
        return len(a) == len(b) and all(bool(x.eq(y)) for x, y in zip(a, b))
    return a == b


def _is(a: Any, b: Any) -> bool:
    """Return whether two values are identical; for numbers and strings, whether they are equal and of one type."""
    return a is b or (type(a) is type(b) and isinstance(a, (int, float, complex, str)) and a == b)


def _contains(container: Any, item: Any) -> bool:
    return any(item is x or _equal(item, x) for x in container) if isinstance(container, list) else item in container


def _list_remove(items: list, item: Any) -> None:
    for place, other in enumerate(items):
        if bool(other.eq(item).all()) if isinstance(item, Tensor) and other.shape == item.shape else other is item or (not isinstance(item, Tensor) and other == item):  # fmt: skip
            del items[place]
            return
    raise ValueError("list.remove(x): x not in list")


def _pop(items: Any, *args: Any) -> Any:
    if isinstance(items, dict):
        if len(args) == 1 and args[0] not in items:
            raise RuntimeError(f"KeyError: {args[0]}")
        return items.pop(*args)
    if not items:
        raise IndexError("pop from empty list")
    return items.pop(*args)


def _find(text: str, part: str, start: int = 0, end: int = -1) -> int:
    return text.find(part, start, len(text) if end == -1 else end)


def _rfind(text: str, part: str, start: int = 0, end: int = -1) -> int:
    return text.rfind(part, start, len(text) if end == -1 else end)


def _index(items: Any, item: Any, start: int = 0, end: int = -1) -> int:
    if isinstance(items, str):
        found = _find(items, item, start, end)
        if found < 0:
            raise ValueError("ValueError: substring not found")
        return found
    for place, x in enumerate(items):
        if _equal(x, item):
            return place
    raise ValueError(f"'{item}' is not in list")


def _rindex(text: str, part: str, start: int = 0, end: int = -1) -> int:
    found = _rfind(text, part, start, end)
    if found < 0:
        raise ValueError("ValueError: substring not found")
    return found


def _format(text: str, *values: Any) -> str:
    out, rest, number = "", text, 0
    while "{}" in rest:
        before, _, rest = rest.partition("{}")
        if number >= len(values):
            raise RuntimeError("Too few arguments for format string: " + text)
        out += before + str(values[number])
        number += 1
    return out + rest


def _percent(text: str, *values: Any) -> str:
    """`text % values` with the directives of TorchScript: %s %d %i %x %X %e %f %g %c %%."""
    out, place, used = [], 0, 0
    while place < len(text):
        if text[place] != "%":
            out.append(text[place])
            place += 1
            continue
        if place + 1 == len(text):
            raise RuntimeError("Incomplete format specifier")
        letter = text[place + 1]
        place += 2
        if letter == "%":
            out.append("%")
            continue
        if used == len(values):
            raise RuntimeError(f"Too few arguments for format string: {text}")
        out.append(_percent_one(letter, values[used]))
        used += 1
    if used < len(values):
        raise RuntimeError(f"Too many arguments for format string: {text}")
    return "".join(out)


def _percent_one(letter: str, value: Any) -> str:
    word = "String" if isinstance(value, str) else type(value).__name__
    if letter in "dixXeEfFgG":
        if not isinstance(value, (int, float)):
            raise RuntimeError(f"%{letter} requires a number for formatting, but got {word}")
        return f"%{letter}" % (int(value) if letter in "xX" else value)
    if letter == "c":
        if not isinstance(value, int) and not (isinstance(value, str) and len(value) == 1):
            raise RuntimeError(f"%c requires an int or char for formatting, but got {word}")
        return value if isinstance(value, str) else chr(value)
    if letter == "s":
        return str(value)
    raise RuntimeError(f"The specifier %{letter} is not supported in TorchScript format strings")


def _warn(message: str, stacklevel: int = 2) -> None:
    warnings.warn(message, UserWarning, stacklevel=2)


# What holds where no tensor takes part; there are operators on tensors under these names.
NUMBERS: dict[str, Callable] = {
    "aten::sub": operator.sub, "aten::mul": operator.mul, "aten::div": operator.truediv,
    "aten::add": operator.add, "aten::add_.t": _extended, "aten::mul_.t": operator.imul,
    "aten::floordiv": operator.floordiv, "aten::remainder": _remainder, "aten::mod": _remainder, "aten::neg": operator.neg,
    "aten::pow": _integer_power, "aten::pow.int_to_int": operator.pow, "aten::fmod": math.fmod, "aten::mathremainder": math.remainder,
    "aten::divmod": _divided_twice, "aten::eq": _equal, "aten::ne": lambda a, b: not _equal(a, b), "aten::lt": operator.lt,
    "aten::le": operator.le, "aten::gt": operator.gt, "aten::ge": operator.ge, "aten::__and__": operator.and_,
    "aten::__or__": operator.or_, "aten::__xor__": operator.xor, "aten::__lshift__": operator.lshift,
    "aten::__rshift__": operator.rshift, "aten::__not__": operator.not_,
    "prim::id": id, "aten::__round_to_zero_floordiv": _to_zero, "aten::__range_length": _range_length,
    "aten::__derive_index": lambda index, start, step: start + index * step,
    "aten::log": _logarithm, "aten::round": lambda a: float(round(a)), "aten::floor": math.floor, "aten::ceil": math.ceil,
    "aten::fabs": math.fabs, "aten::angle": cmath.phase, "aten::polar": cmath.rect, "aten::modf": math.modf, "aten::frexp": math.frexp,
    "aten::ldexp": math.ldexp, "aten::copysign": math.copysign, "aten::factorial": math.factorial, "aten::gcd": math.gcd,
    "aten::isnan": cmath.isnan, "aten::isinf": cmath.isinf, "aten::isfinite": cmath.isfinite, "aten::degrees": math.degrees,
    "aten::radians": math.radians,
    **{f"aten::{name}": _math(name) for name in (*ELEMENTARY, "sqrt", "gamma", "atan2") if hasattr(math, name) and name != "log"},
    "aten::count": lambda items, item, *span: items.count(item) if not span else items.count(item, span[0], len(items) if span[1] == -1 else span[1]),
    "aten::remove": _list_remove, "aten::index": _index, "aten::sort": _sort, "aten::slice": _slice, "aten::sum": sum, "aten::any": any,
    "aten::all": all, "prim::abs": abs,
}  # fmt: skip
PLAIN: dict[str, Callable] = {
    "aten::__is__": _is, "aten::__isnot__": lambda a, b: not _is(a, b),
    "aten::Bool": bool, "aten::Int": int, "aten::Float": float, "aten::Complex": complex,
    "aten::FloatImplicit": _implicit(float, "Float"), "aten::IntImplicit": _implicit(int, "Float"),
    "aten::ComplexImplicit": _implicit(complex, "Complex"), "aten::ScalarImplicit": _implicit(object, "Scalar"),
    "prim::max": max, "prim::min": min,
    "aten::len": len, "aten::append": lambda items, item: (items.append(item), items)[1], "aten::extend": list.extend,
    "aten::insert": lambda items, place, item: items.insert(place, item), "aten::reverse": lambda items: items.reverse(),
    "aten::clear": lambda c: c.clear(), "aten::copy": lambda c: c.copy(),
    "aten::pop": _pop, "aten::sorted": lambda items: sorted(items, key=sort_key),
    "aten::__getitem__": _item, "aten::_set_item": _set_item, "aten::Delete": _delete,
    "aten::__contains__": _contains, "aten::list": list,
    "prim::rangelist": lambda n: list(range(n)), "aten::keys": list, "aten::values": lambda d: list(d.values()), "aten::items": lambda d: list(d.items()),
    "aten::get": lambda d, key, *default: d.get(key, *default), "aten::setdefault": lambda d, key, value: d.setdefault(key, value),
    "aten::update": lambda d, more: d.update(more), "aten::popitem": lambda d: d.popitem(),
    "aten::dict": lambda *items: dict(*items), "aten::hash": hash, "aten::str": str, "aten::format": _format,
    "aten::percentFormat": _percent, "aten::find": _find, "aten::rfind": _rfind, "aten::rindex": _rindex,
    "aten::split.str": lambda text, separator=None, count=-1: text.split(separator, count),
    "aten::rsplit": lambda text, separator=" ", count=-1: text.rsplit(separator, count),
    "aten::splitlines": lambda text, keep=False: text.splitlines(keep), "aten::join": lambda text, items: text.join(items),
    "aten::ord": ord, "aten::chr": chr, "aten::bin": bin, "aten::oct": oct, "aten::hex": hex,
    "aten::startswith": lambda s, part, start=0, end=-1: s.startswith(part, start, len(s) if end == -1 else end),
    "aten::endswith": lambda s, part, start=0, end=-1: s.endswith(part, start, len(s) if end == -1 else end),
    "aten::partition": lambda s, part: s.partition(part), "aten::rpartition": lambda s, part: s.rpartition(part),
    "aten::replace": lambda s, old, new, count=-1: s.replace(old, new, count),
    "aten::strip": lambda s, chars=" \n\t\f\v": s.strip(chars), "aten::lstrip": lambda s, chars=" \n\t\f\v": s.lstrip(chars),
    "aten::rstrip": lambda s, chars=" \n\t\f\v": s.rstrip(chars), "aten::expandtabs": lambda s, n=8: s.expandtabs(n),
    "aten::center": lambda s, n, fill=" ": s.center(n, fill), "aten::ljust": lambda s, n, fill=" ": s.ljust(n, fill),
    "aten::rjust": lambda s, n, fill=" ": s.rjust(n, fill), "aten::zfill": lambda s, n: s.zfill(n),
    **{f"aten::{name}": getattr(str, name) for name in ["lower", "upper", "capitalize", "title", "swapcase", "isalnum", "isalpha", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper"]},
    "prim::StringIndex": _item, "aten::warn": _warn,
}  # fmt: skip
