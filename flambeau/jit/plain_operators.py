"""The operators of graphs on numbers, strings, lists and dictionaries."""

from __future__ import annotations

import cmath
import ctypes
import functools
import math
import operator
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..expr.functions import ELEMENTARY
from ..ops.machinery.schema import number_text
from .types import result_type

# -- numbers ----------------------------------------------------------------------------------------------------------------

_HALF = 2**63


def _wrapping(run: Callable) -> Callable:
    """Make an operation on numbers wrap integers to 64 bits, as the machine does."""

    def call(*args: Any) -> Any:
        found = run(*args)
        return found if type(found) is not int or -_HALF <= found < _HALF else (found + _HALF) % (2 * _HALF) - _HALF

    return call


def _as_in_c(run: Callable, other: Callable) -> Callable:
    """Make a function of numbers return what C's does, which is `other`, where Python raises an error: an infinity or nan."""

    def call(*args: Any) -> Any:
        try:
            return run(*args)
        except (ArithmeticError, ValueError):
            with np.errstate(all="ignore"):
                return other(*(np.asarray(a) * 1.0 for a in args)).item()

    return call


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, complex) or isinstance(b, complex):
        return a**b
    if a == 0 and b < 0:
        raise RuntimeError("0.0 cannot be raised to a negative power")
    return _real_power(float(a), float(b))


_real_power = _as_in_c(math.pow, np.power)
_quotient = _as_in_c(operator.truediv, np.true_divide)
_fmod = _as_in_c(math.fmod, np.fmod)
_NUMPY_FUNCTIONS: dict[str, Callable] = {
    "atanh": np.arctanh, "gamma": lambda a: np.where(a < 0, np.nan, np.divide(np.inf, a)), "lgamma": lambda a: np.asarray(np.inf),
    "ldexp": lambda a, b: np.copysign(np.inf, a),
}  # fmt: skip


def _math(name: str) -> Callable:
    other: Any = _NUMPY_FUNCTIONS.get(name) or getattr(np, name, lambda *args: np.asarray(np.nan))
    real, both = _as_in_c(getattr(math, name), other), getattr(cmath, name, None)
    return lambda a, *more: both(a, *more) if both is not None and isinstance(a, complex) else real(a, *more)


_log = _math("log")


def _logarithm(a: Any, b: Any = None) -> Any:
    return _log(a) if b is None else _quotient(_log(a), _log(b))


def _floor_quotient(a: Any, b: Any) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        found = _quotient(a, b)
        return found // 1.0 if math.isfinite(found) else found
    if b == 0:
        raise RuntimeError("division by 0")
    return a // b


def _remainder(a: Any, b: Any) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        return _fmod(b + _fmod(a, b), b)
    return a % b


def _divide_twice(a: Any, b: Any) -> tuple:
    whole = not isinstance(a, float) and not isinstance(b, float)
    if b == 0:
        raise RuntimeError(f"ZeroDivisionError: {'integer division or modulo by zero' if whole else 'float divmod()'}")
    if whole:
        return divmod(a, b)
    rest = _fmod(a, b)
    rest += b if rest and (b < 0) != (rest < 0) else 0.0
    return (a - rest) / b, rest


def _make_extreme(choose: Callable) -> Callable:
    """Make `max` or `min` of two numbers float if one of them is, and the second if they have no order, as nan."""

    def run(a: Any, *more: Any) -> Any:
        if not more or isinstance(a, list):
            return choose(a, *more)
        found = choose(more[0], a)
        return float(found) if isinstance(a, float) or isinstance(more[0], float) else +found

    return run


def _to_integer(a: Any) -> int:
    """Convert a number or a text to an integer as C does: what has none is the least one."""
    if isinstance(a, str):
        a = _parse_number(int, a, r"\s*[+-]?\d+", "invalid literal for int() with base 10")
        if not -_HALF <= a < _HALF:
            raise RuntimeError("stoll")
    if isinstance(a, complex):
        if a.imag:
            raise RuntimeError("value cannot be converted to type int without overflow")
        a = a.real
    return int(a) if not isinstance(a, float) or -_HALF <= a < _HALF else -_HALF


def _to_real(a: Any) -> float:
    if isinstance(a, str):
        return _parse_number(float, a, r"[^_]*\S", "could not convert string to float")
    return a.real if isinstance(a, complex) else float(a)


def _parse_number(kind: Callable, text: str, form: str, refusal: str) -> Any:
    try:
        return kind(text if re.fullmatch(form, text, re.ASCII | re.DOTALL) else "")
    except ValueError:
        raise RuntimeError(f"{refusal}: '{text}'") from None


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
    if isinstance(container, str) and not -len(container) <= index < len(container):
        place = (index + len(container) if index < 0 else index) % (2 * _HALF)
        raise IndexError(f"basic_string::at: __n (which is {place}) >= this->size() (which is {len(container)})")
    return container[_find_index(container, index)]


def _find_index(container: Any, index: Any, problem: str = "list index out of range") -> Any:
    """Return the index, or the key, if the container has it."""
    if isinstance(container, dict) and index not in container:
        raise RuntimeError(f"KeyError: {shown(index)}")
    if isinstance(container, list) and not -len(container) <= index < len(container):
        raise IndexError(problem)
    return index


def _set_item(container: Any, index: Any, value: Any) -> Any:
    container[_find_index(container, index) if isinstance(container, list) else index] = value
    return container


def _delete(container: Any, index: Any) -> None:
    del container[_find_index(container, index, "list index out of range" if container else "pop index out of range")]


def _slice(sequence: Any, start: Any = None, stop: Any = None, step: int = 1) -> Any:
    if step == 0:
        raise RuntimeError(f"{'List ' if isinstance(sequence, list) else ''}slice should have non-zero step")
    if step == -(2**63):
        raise RuntimeError("slice step is out of bounds")
    return sequence[start:stop:step]


def _sort(items: list, reverse: bool = False) -> list:
    for item in items:
        _check_sortable(items[0], item)
    items.sort(key=sort_key, reverse=reverse)
    return items


def _check_sortable(first: Any, item: Any) -> None:
    if type(first) is not type(item):
        raise RuntimeError("Only values of same type can be compared")
    if isinstance(first, tuple):
        for pair in zip(first, item):
            _check_sortable(*pair)
    elif first is None or isinstance(first, (dict, list, complex)):
        raise RuntimeError("Only list of Tensors, ints, floats, bools, strs, a User Defined Class that defines the __lt__ compare method or Tuples of those can be sorted")  # fmt: skip
    elif hasattr(first, "slots"):
        order = first.script_type.find_method("__lt__")
        if order is None or str(result_type(order.schema)) != "bool" or len(order.schema.arguments) != 2:
            raise RuntimeError(f"To sort objects of {first.script_type}, the class must define a __lt__ that takes another one and returns a bool")  # fmt: skip


def sort_key(item: Any) -> Any:
    if isinstance(item, tuple):
        return tuple(map(sort_key, item))
    return _ByOwnOrder(item) if hasattr(item, "slots") else item


class _ByOwnOrder:
    """Orders objects of compiled classes by their own __lt__."""

    __slots__ = ("item",)

    def __init__(self, item: Any):
        self.item = item

    def __lt__(self, other: _ByOwnOrder) -> bool:
        return bool(self.item.call("__lt__", other.item))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, list):  # in which nan is not nan, though it may be one object
        return len(a) == len(b) and all(bool(_equal(x, y)) for x, y in zip(a, b))
    return a == b


def _is(a: Any, b: Any) -> bool:
    """Return whether two values are identical; for numbers and strings, whether they are equal and of one type."""
    return a is b or (type(a) is type(b) and isinstance(a, (int, float, complex, str)) and a == b)


def _contains(container: Any, item: Any) -> bool:
    return any(bool(_equal(item, x)) for x in container) if isinstance(container, list) else item in container


def _list_remove(items: list, item: Any) -> None:
    place = next((place for place, x in enumerate(items) if _equal(x, item)), None)
    if place is None:
        raise ValueError("list.remove(x): x not in list")
    del items[place]


def _pop(items: Any, *args: Any) -> Any:
    if isinstance(items, dict):
        return items.pop(args[0] if len(args) > 1 else _find_index(items, args[0]), *args[1:])
    if not items:
        raise IndexError("pop from empty list")
    return items.pop(_find_index(items, *args or (-1,)))


def _pop_first(items: dict) -> tuple:
    if not items:
        raise RuntimeError("popitem(): dictionary is empty")
    key = next(iter(items))
    return key, items.pop(key)


def _span(text: Any, start: int, end: int) -> tuple[int, int]:
    """Return the bounds of a part of a text; the end counts backwards from -1, the end of the text."""
    return start, max(0, len(text) + end + 1) if end < 0 else end


def _find(text: str, part: str, start: int = 0, end: int = -1) -> int:
    return text.find(part, *_span(text, start, end))


def _rfind(text: str, part: str, start: int = 0, end: int = -1) -> int:
    return text.rfind(part, *_span(text, start, end))


def _affix(test: Callable) -> Callable:
    def run(text: str, part: str, start: int = 0, end: int = -1) -> bool:
        start, end = _span(text, max(0, len(text) + start) if start < 0 else start, end)
        if start > len(text):
            raise RuntimeError(f"basic_string::substr: __pos (which is {start}) > this->size() (which is {len(text)})")
        return test(text[start : end if end >= start else None], part)

    return run


def _count(items: Any, item: Any, *span: int) -> int:
    return (
        items.count(item, *_span(items, *span)) if isinstance(items, str) else sum(bool(_equal(x, item)) for x in items)
    )


def _index(items: Any, item: Any, *span: int, find: Callable = _find) -> int:
    if isinstance(items, str):
        found = find(items, item, *span)
        if found < 0:
            raise ValueError("ValueError: substring not found")
        return found
    for place, x in enumerate(items):
        if _equal(x, item):
            return place
    raise ValueError(f"'{item if isinstance(item, str) else format(float(item), 'g')}' is not in list")


def shown(value: Any) -> str:
    """Return a value as programs print it."""
    if isinstance(value, float):
        return number_text(value + 0.0)  # zero has no sign
    if isinstance(value, complex):
        return f"{shown(value.real)}{'+' if value.imag >= 0 else '-'}{shown(abs(value.imag))}j"
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(shown, value))}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{shown(k)}: {shown(v)}' for k, v in value.items())}}}"
    return str(value)


def _format(text: str, *values: Any) -> str:
    first, *parts = text.split("{}")
    if len(parts) > len(values):
        raise RuntimeError("Too few arguments for format string: " + text)
    return first + "".join(shown(value) + part for value, part in zip(values, parts))


def _percent(text: str, *values: Any) -> str:
    """`text % values` with the directives of TorchScript: %s %d %i %e %f %c %%."""
    rest = list(values)

    def one(found: re.Match) -> str:
        if not found[1]:
            raise RuntimeError("Incomplete format specifier")
        if found[1] == "%":
            return "%"
        if not rest:
            raise RuntimeError("Too few arguments for format string")
        return _percent_one(found[1], rest.pop(0))

    made = re.sub("%(.?)", one, text, flags=re.DOTALL)
    if rest:
        raise RuntimeError("Too many arguments for format string")
    return made


_TYPE_NAMES = {float: "Double", str: "String", type(None): "None", bool: "Bool", complex: "ComplexDouble"}


def _percent_one(letter: str, value: Any) -> str:
    word = _TYPE_NAMES.get(type(value), type(value).__name__)
    if letter in "dieEfF":
        if type(value) not in (int, float):
            raise RuntimeError(f"%{letter} requires a number for formatting, but got {word}")
        if letter not in "di":
            return f"%{letter}" % ctypes.c_float(value).value
        return str(
            value if type(value) is int else int(value) if -(2**31) <= value < 2**31 else -(2**31)
        )  # an int of C
    if letter == "c":
        if not isinstance(value, int) and not (isinstance(value, str) and len(value) == 1):
            raise RuntimeError(f"%c requires an int or char for formatting, but got {word}")
        return value if isinstance(value, str) else chr(value)
    if letter == "s":
        return shown(value)
    raise RuntimeError(f"The specifier %{letter} is not supported in TorchScript format strings")


def _one_code(text: str) -> int:
    if len(text) != 1:
        raise RuntimeError(f"String for ord() must be 1 character, found {len(text)}")
    return ord(text)


def _warn(message: str, stacklevel: int = 2) -> None:
    warnings.warn(message, UserWarning, stacklevel=2)


# What holds where no tensor takes part; there are operators on tensors under these names.
NUMBERS: dict[str, Callable] = {
    "aten::sub": _wrapping(operator.sub), "aten::mul": _wrapping(operator.mul), "aten::div": _quotient,
    "aten::add": _wrapping(operator.add), "aten::add_.t": operator.iadd, "aten::mul_.t": operator.imul,
    "aten::floordiv": _floor_quotient, "aten::remainder": _remainder, "aten::mod": _remainder, "aten::neg": _wrapping(operator.neg),
    "aten::pow": _power, "aten::pow.int_to_int": _wrapping(operator.pow), "aten::fmod": _fmod, "aten::mathremainder": _math("remainder"),
    "aten::divmod": _divide_twice, "aten::eq": _equal, "aten::ne": lambda a, b: not _equal(a, b), "aten::lt": operator.lt,
    "aten::le": operator.le, "aten::gt": operator.gt, "aten::ge": operator.ge, "aten::__and__": operator.and_,
    "aten::__or__": operator.or_, "aten::__xor__": operator.xor, "aten::__lshift__": _wrapping(lambda a, b: a << (b & 63)),
    "aten::__rshift__": lambda a, b: a >> (b & 63), "aten::__not__": operator.not_,
    "prim::id": id, "aten::__round_to_zero_floordiv": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1), "aten::__range_length": _range_length,
    "aten::__derive_index": lambda index, start, step: start + index * step,
    "aten::log": _logarithm, "aten::round": lambda a: math.copysign(round(a), a) if math.isfinite(a) else a, "aten::floor": lambda a: _to_integer(math.floor(a) if math.isfinite(a) else a), "aten::ceil": lambda a: _to_integer(math.ceil(a) if math.isfinite(a) else a),
    "aten::fabs": math.fabs, "aten::angle": cmath.phase, "aten::polar": cmath.rect, "aten::modf": math.modf, "aten::frexp": math.frexp,
    "aten::ldexp": _math("ldexp"), "aten::copysign": math.copysign, "aten::factorial": _wrapping(lambda n: math.factorial(min(n, 66))), "aten::gcd": _wrapping(math.gcd),
    "aten::isnan": cmath.isnan, "aten::isinf": cmath.isinf, "aten::isfinite": cmath.isfinite, "aten::degrees": math.degrees,
    "aten::radians": math.radians,
    **{f"aten::{name}": _math(name) for name in (*ELEMENTARY, "sqrt", "gamma", "atan2") if hasattr(math, name) and name != "log"},
    "aten::count": _count,
    "aten::remove": _list_remove, "aten::index": _index, "aten::sort": _sort, "aten::slice": _slice, "aten::sum": _wrapping(sum), "aten::sum.float": lambda items: sum(items, 0.0), "aten::any": any,
    "aten::all": all, "prim::abs": _wrapping(abs),
}  # fmt: skip
PLAIN: dict[str, Callable] = {
    "aten::__is__": _is, "aten::__isnot__": lambda a, b: not _is(a, b),
    "aten::Bool": bool, "aten::Int": _to_integer, "aten::Float": _to_real, "aten::Complex": complex,
    "aten::FloatImplicit": _implicit(float, "Float"), "aten::IntImplicit": _implicit(int, "Float"),
    "aten::ComplexImplicit": _implicit(complex, "Complex"), "aten::ScalarImplicit": _implicit(object, "Scalar"),
    "prim::max": _make_extreme(max), "prim::min": _make_extreme(min),
    "aten::len": len, "aten::append": lambda items, item: (items.append(item), items)[1], "aten::extend": list.extend,
    "aten::insert": lambda items, place, item: items.insert(place, item), "aten::reverse": lambda items: items.reverse(),
    "aten::clear": lambda c: c.clear(), "aten::copy": lambda c: c.copy(),
    "aten::pop": _pop, "aten::sorted": lambda items: _sort(items.copy()),
    "aten::__getitem__": _item, "aten::_set_item": _set_item, "aten::Delete": _delete,
    "aten::__contains__": _contains, "aten::list": list,
    "prim::rangelist": lambda n: list(range(n)), "aten::keys": list, "aten::values": lambda d: list(d.values()), "aten::items": lambda d: list(d.items()),
    "aten::get": lambda d, key, *default: d.get(key, *default), "aten::setdefault": lambda d, key, value: d.setdefault(key, value),
    "aten::update": lambda d, more: d.update(more), "aten::popitem": _pop_first,
    "aten::dict": lambda *items: dict(*items), "aten::hash": hash, "aten::str": shown, "aten::format": _format,
    "aten::percentFormat": _percent, "aten::find": _find, "aten::rfind": _rfind, "aten::rindex": functools.partial(_index, find=_rfind),
    "aten::split.str": lambda text, separator=None, count=-1: text.split(separator, count),
    "aten::rsplit": lambda text, separator=" ", count=-1: text.rsplit(separator, count),
    "aten::splitlines": lambda text, keep=False: text.splitlines(keep), "aten::join": lambda text, items: text.join(items),
    "aten::ord": _one_code, "aten::chr": chr, "aten::bin": bin, "aten::oct": oct, "aten::hex": hex,
    "aten::startswith": _affix(str.startswith), "aten::endswith": _affix(str.endswith),
    "aten::partition": lambda s, part: s.partition(part), "aten::rpartition": lambda s, part: s.rpartition(part),
    "aten::replace": lambda s, old, new, count=-1: s.replace(old, new, count),
    "aten::strip": lambda s, chars=" \n\t\f\v": s.strip(chars), "aten::lstrip": lambda s, chars=" \n\t\f\v": s.lstrip(chars),
    "aten::rstrip": lambda s, chars=" \n\t\f\v": s.rstrip(chars), "aten::expandtabs": lambda s, n=8: s.expandtabs(n),
    "aten::center": lambda s, n, fill=" ": s.center(n, fill), "aten::ljust": lambda s, n, fill=" ": s.ljust(n, fill),
    "aten::rjust": lambda s, n, fill=" ": s.rjust(n, fill), "aten::zfill": lambda s, n: s.rjust(n, "0"),
    **{f"aten::{name}": getattr(str, name) for name in ["lower", "upper", "capitalize", "title", "swapcase", "isalnum", "isalpha", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper"]},
    "prim::StringIndex": _item, "aten::warn": _warn,
}  # fmt: skip
