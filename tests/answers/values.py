"""Plain data in a form that JSON and a block of bytes can keep, and digests of it."""

from __future__ import annotations

import builtins
import collections
import hashlib
import importlib
import inspect
import linecache
import types
from collections.abc import Callable
from typing import Any

import numpy as np

PLAIN = (bool, int, float, str, type(None))
CONTAINERS = {"tuple": tuple, "list": list, "set": set, "frozenset": frozenset}
SMALLER = {"float64": ["float32"], "int64": ["int8", "int16", "int32"], "int32": ["int8", "int16"]}


class Size(tuple):
    """A recorded torch.Size: prints as one."""

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(repr, self))}])"

    def numel(self) -> int:
        return int(np.prod(self, dtype=np.int64))

    def __add__(self, other: Any) -> Size:
        return Size(tuple(self) + tuple(other))

    def __getitem__(self, place: Any) -> Any:
        found = tuple.__getitem__(self, place)
        return Size(found) if isinstance(place, slice) else found


def named(name: str, fields: tuple[str, ...], items: tuple, real: Any = None) -> Any:
    """A tuple with names, such as torch.max returns; while recording it keeps the real one."""
    places = {field: property(lambda self, i=i: self[i]) for i, field in enumerate(fields)}
    return type(name, (tuple,), {**places, "_fields": fields, "answers_real": real})(items)


def fields_of(value: tuple) -> tuple[str, ...] | None:
    """The names of a tuple's items, of a named tuple or of PyTorch's structures."""
    if hasattr(value, "_fields"):
        return tuple(value._fields)
    if not hasattr(value, "n_sequence_fields"):
        return None
    places = {}
    for name, member in vars(type(value)).items():
        if isinstance(member, types.MemberDescriptorType):
            places[name] = member
    return tuple(
        sorted(places, key=lambda n: next(i for i, item in enumerate(value) if item is places[n].__get__(value)))
    )


class Arrays:
    """A block of bytes that keeps each different array once."""

    def __init__(self, block: bytes = b"") -> None:
        self.block = bytearray(block)
        self.places: dict[bytes, int] = {}

    def keep(self, array: np.ndarray) -> list:
        """[dtype, shape, place, dtype in the block]: doubles that are floats are kept as floats, bytes of equal rank side by side."""
        kept = array
        for name in SMALLER.get(array.dtype.name, ()):
            with np.errstate(all="ignore"):
                small = array.astype(name)
            if small.astype(array.dtype).tobytes() == array.tobytes():
                kept = small
                break
        raw = kept.tobytes()
        shuffled = np.frombuffer(raw, np.uint8).reshape(-1, kept.dtype.itemsize).T.tobytes()
        place = self.places.get(shuffled)
        if place is None:
            place = self.places[shuffled] = len(self.block)
            self.block += shuffled
        return [array.dtype.str, list(array.shape), place, kept.dtype.str]

    def load(self, dtype: str, shape: list[int], place: int, stored: str) -> np.ndarray:
        kind, count = np.dtype(stored), int(np.prod(shape, dtype=np.int64))
        raw = np.frombuffer(self.block, np.uint8, count * kind.itemsize, place)
        values = np.frombuffer(raw.reshape(kind.itemsize, -1).T.tobytes(), kind)
        return values.astype(dtype).reshape(shape)


def encode(value: Any, arrays: Arrays, opaque: Callable[[Any], Any]) -> Any:
    """JSON for a value; `opaque` says what stands for whatever is no plain data."""
    again = lambda v: encode(v, arrays, opaque)  # noqa: E731
    if type(value) in PLAIN:
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufcSU":
        return {"array": arrays.keep(np.asarray(value, order="C"))}
    if isinstance(value, np.generic):
        return {"scalar": arrays.keep(np.asarray(value))}
    if isinstance(value, np.dtype):
        return {"dtype": value.str}
    if type(value) is Size:
        return {"Size": list(value)}
    if type(value) is list and len(value) > 2 and (numbers := _floats(value)) is not None:
        return {"floats": arrays.keep(numbers)}
    if type(value) in (tuple, list, set, frozenset):
        return {type(value).__name__: [again(v) for v in value]}
    if isinstance(value, tuple):
        return {"named": [type(value).__name__, list(fields_of(value) or ()), [again(v) for v in value]]}
    if type(value) in (dict, collections.OrderedDict):
        return {type(value).__name__: [[again(k), again(v)] for k, v in value.items()]}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, slice):
        return {"slice": [again(v) for v in (value.start, value.stop, value.step)]}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if value is Ellipsis or value is NotImplemented:
        return {"constant": repr(value)}
    if isinstance(value, type) and value.__module__ in ("builtins", "collections", "numpy"):
        return {"type": [value.__module__, value.__name__]}
    if isinstance(value, inspect.Signature):
        return {"signature": [_parameter(p, again) for p in value.parameters.values()]}
    if is_image(value):
        return {
            "image": [value.mode, arrays.keep(np.asarray(value)), value.getpalette() if value.mode == "P" else None]
        }
    return opaque(value)


def decode(kept: Any, arrays: Arrays, opaque: Callable[[dict], Any]) -> Any:
    """What `encode` was given."""
    if not isinstance(kept, dict):
        return kept
    ((kind, content),) = kept.items()
    again = lambda v: decode(v, arrays, opaque)  # noqa: E731
    if kind == "array":
        return arrays.load(*content)
    if kind == "scalar":
        return arrays.load(*content)[()]
    if kind == "floats":
        return arrays.load(*content).tolist()
    if kind == "dtype":
        return np.dtype(content)
    if kind == "Size":
        return Size(content)
    if kind in CONTAINERS:
        return CONTAINERS[kind](again(v) for v in content)
    if kind == "named":
        return named(content[0], tuple(content[1]), tuple(again(v) for v in content[2]))
    if kind in ("dict", "OrderedDict"):
        made = collections.OrderedDict() if kind == "OrderedDict" else {}
        made.update((again(k), again(v)) for k, v in content)
        return made
    if kind == "complex":
        return complex(*content)
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "slice":
        return slice(*map(again, content))
    if kind == "range":
        return range(*content)
    if kind == "constant":
        return {"Ellipsis": Ellipsis, "NotImplemented": NotImplemented}[content]
    if kind == "type":
        return getattr(importlib.import_module(content[0]), content[1])
    if kind == "signature":
        return inspect.Signature([_made_parameter(p, again) for p in content])
    if kind == "image":
        return _image(content[0], arrays.load(*content[1]), content[2])
    return opaque(kept)


def _parameter(p: inspect.Parameter, encoded: Callable[[Any], Any]) -> list:
    return [p.name, int(p.kind), *([] if p.default is p.empty else [encoded(p.default)])]


def _made_parameter(kept: list, decoded: Callable[[Any], Any]) -> inspect.Parameter:
    default = decoded(kept[2]) if len(kept) > 2 else inspect.Parameter.empty
    return inspect.Parameter(kept[0], inspect._ParameterKind(kept[1]), default=default)


def _floats(value: list) -> np.ndarray | None:
    """The array of a list of floats, or of such lists; None if it is anything else."""
    flat = value
    while flat and all(type(v) is list for v in flat):
        flat = [w for v in flat for w in v]
    if not flat or any(type(v) is not float for v in flat):
        return None
    try:
        array = np.array(value)
    except ValueError:  # of unequal lengths
        return None
    return array if array.size == len(flat) else None


def is_image(value: Any) -> bool:
    """Whether a value is a picture of Pillow's, which need not be installed."""
    return any(base.__module__ == "PIL.Image" and base.__name__ == "Image" for base in type(value).__mro__)


def _image(mode: str, array: np.ndarray, palette: list[int] | None) -> Any:
    pillow = importlib.import_module("PIL.Image")
    if mode == "1":
        return pillow.fromarray(array.astype(np.uint8) * 255).convert("1", dither=0)
    if mode in ("P", "LAB", "HSV", "CMYK", "YCbCr", "LA", "RGBA", "RGB", "L", "I;16", "I", "F"):
        size = (array.shape[1], array.shape[0])
        made = pillow.frombytes(mode, size, np.ascontiguousarray(array).tobytes())
        if palette is not None:
            made.putpalette(palette)
        return made
    return pillow.fromarray(array)


def describe(value: Any, known: Callable[[Any], str | None]) -> str:
    """A text that is the same for equal questions, on any Python: what the digest of a tape is made of."""
    again = lambda v: describe(v, known)  # noqa: E731
    name = known(value)
    if name is not None:
        return name
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        return repr(value)
    if isinstance(value, (np.ndarray, np.generic)):
        value = np.asarray(value)
        if value.dtype.kind == "O":
            return "objects" + again(value.tolist())
        if value.dtype.char in "gG":  # long doubles have bytes that nobody writes
            return f"{value.dtype.str}{value.shape}{value.astype(str).tolist()}"
        return f"{value.dtype.str}{value.shape}{value.tobytes().hex() if value.size < 9 else _digest(value)}"
    if isinstance(value, (tuple, list)):
        return f"{'(' if isinstance(value, tuple) else '['}{','.join(map(again, value))})"
    if isinstance(value, dict):
        return "{" + ",".join(f"{again(k)}:{again(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (set, frozenset)):
        return "{" + ",".join(sorted(map(again, value))) + "}"
    if isinstance(value, (slice, range)):
        return f"{type(value).__name__}({again(value.start)},{again(value.stop)},{again(value.step)})"
    if isinstance(value, types.FunctionType):
        return _function(value, again)
    if isinstance(value, type):
        return value.__qualname__
    if is_image(value):
        return f"image {value.mode} {again(np.asarray(value))}"
    if isinstance(value, np.dtype):
        return value.str
    return f"<{type(value).__qualname__}>"


def _digest(array: np.ndarray) -> str:
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=12).hexdigest()


def _function(function: types.FunctionType, again: Callable[[Any], str]) -> str:
    """A function given to PyTorch: its text, and the plain data it closes over. Its code would depend on the Python."""
    code = function.__code__
    lines = [line for _, _, line in code.co_lines() if line]
    spoken = code.co_filename == "<string>"  # since Python 3.13 its lines are those of the process's own `python -c`
    numbers = range(0) if spoken else range(code.co_firstlineno, max(lines) + 1)
    text = "".join(linecache.getline(code.co_filename, n).strip() for n in numbers)
    held = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    plain = [again(v) for v in held if isinstance(v, (*PLAIN, complex, tuple, np.ndarray))]
    return f"function {text} {plain}"


def base_of(kind: type[BaseException]) -> str:
    """The first of an exception's classes that Python has."""
    return next(base.__name__ for base in kind.__mro__ if base.__module__ == "builtins")


def exception(name: str, base: str) -> type[BaseException]:
    """A class of exceptions that prints as PyTorch's of that name."""
    found = getattr(builtins, name, None)
    if isinstance(found, type) and issubclass(found, BaseException):
        return found
    if name not in _MADE:
        _MADE[name] = type(name, (getattr(builtins, base),), {})
    return _MADE[name]


_MADE: dict[str, type[BaseException]] = {}
