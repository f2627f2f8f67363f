"""Nested Python data to elements: the conversion of lists, numbers and NumPy values by `tensor(data)`.

Plain data (equal-length lists and tuples of Python numbers, NumPy arrays) is converted in bulk. All other data goes to `_Walker`, which
follows PyTorch's element-by-element rules and raises its errors.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np

from . import dtype as dt
from .dtype import FROM_NUMPY, dtype
from .float8 import readable, storable
from .promotion import promote_types
from .typenames import type_name

Parsed = tuple[tuple[int, ...], dtype, np.ndarray]
TensorToNumpy = Callable[[Any], "np.ndarray | None"]

_MAX_DIMS = 128
_FLOAT32_MAX = 3.4028234663852886e38
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

_SUPPORTED_NUMPY = (
    "float64, float32, float16, complex64, complex128, int64, int32, int16, int8,"
    " uint64, uint32, uint16, uint8, and bool"
)


def _no_tensors(value: Any) -> None:
    return None


def infer(
    data: Any, target: dtype | None = None, *, default_dtype: dtype, tensor_to_numpy: TensorToNumpy = _no_tensors
) -> Parsed:
    """Return shape, dtype and elements of `data`.

    The elements come as a new one-dimensional array in row-major order, in the bytes of the dtype (bfloat16 as uint16
    bits). `target` is the dtype asked for; without one it is inferred: Python floats give `default_dtype`, ints int64,
    NumPy values and tensors their own type, mixtures are promoted.

    tensor_to_numpy: returns the elements of a tensor found inside a list (bfloat16 as bits) and None for anything else; the tensor's `dtype`
    attribute is its type.

    >>> infer([[1, 2], [3, 4.5]], default_dtype=dt.float32)[:2]
    ((2, 2), torch.float32)
    """
    if isinstance(data, np.ndarray):
        return _from_ndarray(data, target)
    if type(data) in _PYTHON_SCALARS:
        found = _from_numbers((), [data], {type(data)}, target, default_dtype)
    else:
        found = _convert_by_level(data, target, default_dtype)
    if found is None:
        # Array libraries' objects are often sequences too; their memory is the better source.
        if hasattr(type(data), "__dlpack__") and tensor_to_numpy(data) is None:
            return _from_ndarray(np.from_dlpack(data), target)
        found = _Walker(target, default_dtype, tensor_to_numpy).parse(data)
    return found


# In bulk --------------------------------------------------------------------------------------------------------------

_CONTAINERS = frozenset({list, tuple, range})
_PYTHON_SCALARS = frozenset({bool, int, float, complex})
_REAL_SCALARS = frozenset({bool, int, float})
_INTEGER_SCALARS = frozenset({bool, int})


def _convert_by_level(data: Any, target: dtype | None, default: dtype) -> Parsed | None:
    """Convert level by level: every node of a level must be a container of one length, until the level holds numbers; else None."""
    shape: list[int] = []
    level: Any = (data,)
    kinds = {type(data)}
    while kinds <= _CONTAINERS:
        lengths = set(map(len, level))
        if len(lengths) != 1 or len(shape) >= _MAX_DIMS:
            return None
        shape.append(lengths.pop())
        if shape[-1] == 0:
            return tuple(shape), *_empty(target or default)
        level = level[0] if len(level) == 1 else list(chain.from_iterable(level))
        kinds = set(map(type, level))
    if kinds <= _PYTHON_SCALARS:
        return _from_numbers(tuple(shape), level, kinds, target, default)
    if len(kinds) == 1:
        return _from_numpy_values(shape, level, kinds.pop(), target)
    return None


def _empty(target: dtype) -> tuple[dtype, np.ndarray[Any, Any]]:
    return target, np.empty(0, target.numpy)


def _numbers_dtype(kinds: set[type], default: dtype) -> dtype:
    if complex in kinds:
        return _default_complex(default)
    if float in kinds:
        return default
    return dt.int64 if int in kinds else dt.bool_


def _default_complex(default: dtype) -> dtype:
    if default is dt.bfloat16 or default in dt.FLOAT8:
        raise RuntimeError(f"invalid default scalar type for complex: {default}")
    return default.to_complex()


def _from_numbers(
    shape: tuple[int, ...], numbers: Any, kinds: set[type], target: dtype | None, default: dtype
) -> Parsed | None:
    target = target or _numbers_dtype(kinds, default)
    try:
        packed = _pack_numbers(numbers, kinds, target)
    except OverflowError:
        return None
    return None if packed is None else (shape, target, packed)


def _pack_numbers(numbers: Any, kinds: set[type], target: dtype) -> np.ndarray[Any, Any] | None:
    """Return Python numbers as elements of `target`; None if `_Walker` has to decide on the result or the error."""
    if target.is_floating_point:
        return _pack_floats(numbers, target) if kinds <= _REAL_SCALARS else None
    if target.is_complex:
        return _narrow(np.array(numbers, np.complex128), target)
    if target is dt.bool_:
        return np.array(numbers, np.bool_)
    if kinds <= _INTEGER_SCALARS:
        if target is dt.uint64:
            return np.array(numbers, np.uint64) if min(numbers) >= 0 else None
        return _fit_integers(np.array(numbers, np.int64), target)
    return _fit_floats(np.array(numbers, np.float64), target) if kinds == {float} else None


def _pack_floats(numbers: Any, target: dtype) -> np.ndarray[Any, Any]:
    # Leaving `errstate` out (it costs as much as the rest) is safe when nothing can overflow.
    if target is dt.float32 and len(numbers) <= 16 and max(numbers) <= _FLOAT32_MAX and min(numbers) >= -_FLOAT32_MAX:
        return np.array(numbers, np.float32)
    return _narrow(np.array(numbers, np.float64), target)


def _narrow(wide: np.ndarray[Any, Any], target: dtype) -> np.ndarray[Any, Any]:
    """Return float64 or complex128 elements rounded to a floating or complex `target`; too large ones become infinite."""
    if target.numpy == wide.dtype:
        return wide
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if target is dt.complex32:
            return storable(wide, target)
        if target.is_complex or target is dt.float32:
            return wide.astype(target.numpy)
        # PyTorch reaches the 16-bit types through float32, rounding twice.
        single = wide.astype(np.float32)
        return single.astype(np.float16) if target is dt.float16 else storable(single, target)


def _integer_range(target: dtype) -> tuple[int, int]:
    """Return the range of ints that PyTorch accepts: negative numbers wrap around in unsigned types."""
    limits = np.iinfo(target.numpy)
    return (int(limits.min) if target.is_signed else -int(limits.max)), int(limits.max)


def _fit_integers(wide: np.ndarray[Any, Any], target: dtype) -> np.ndarray[Any, Any] | None:
    """Return int64 elements in an integer type other than uint64, or None if one does not fit."""
    if target is dt.int64:
        return wide
    low, high = _integer_range(target)
    if wide.size and (wide.min() < low or wide.max() > high):
        return None
    return wide.astype(target.numpy)


def _fit_floats(wide: np.ndarray[Any, Any], target: dtype) -> np.ndarray[Any, Any] | None:
    """Return float64 elements truncated to an integer type, or None if one does not fit or is NaN."""
    if target is dt.uint64:
        return None
    limits = np.iinfo(target.numpy)
    inside = (wide >= float(limits.min)) & (wide <= float(limits.max))
    if not inside.all() or (target is dt.int64 and (wide == 2.0**63).any()):
        return None
    return wide.astype(target.numpy)


def _from_numpy_values(shape: list[int], level: Any, kind: type, target: dtype | None) -> Parsed | None:
    """Convert a level of NumPy scalars of one type, or of equal arrays; else return None."""
    if kind is np.ndarray:
        first = level[0]
        dims = first.shape
        if not dims or any(a.shape != dims or a.dtype != first.dtype for a in level):
            return None
        if len(shape) + len(dims) > _MAX_DIMS or 0 in dims:
            return None
        values = np.concatenate([a.reshape(-1) for a in level])
        shape = [*shape, *dims]
    elif issubclass(kind, np.generic):
        values = np.array(level)
    else:
        return None
    source: Any = FROM_NUMPY.get(values.dtype)
    packed = _pack_numpy(values, source, target or source) if source is not None else None
    return None if packed is None else (tuple(shape), target or source, packed)


def _pack_numpy(values: np.ndarray[Any, Any], source: dtype, target: dtype | None) -> np.ndarray[Any, Any] | None:
    """Return NumPy numbers as elements of `target`, by the rules for single values; None leaves it to `_Walker`."""
    if target is None or source is target:
        return values
    if target.is_complex:
        return _narrow(values.astype(np.complex128), target)
    if target.is_floating_point:
        return None if source.is_complex else _narrow(values.astype(np.float64), target)
    if source.kind not in "iu" or source is dt.uint64:
        return None
    if target is dt.bool_:
        return values != 0
    if target is dt.uint64:
        return values.astype(np.uint64) if values.min() >= 0 else None
    return _fit_integers(values.astype(np.int64), target)


# NumPy arrays ---------------------------------------------------------------------------------------------------------


def _numpy_dtype(given: np.dtype) -> dtype:
    found = FROM_NUMPY.get(given.newbyteorder("="))
    if found is None:
        name = f"numpy.{given.type.__name__}"
        raise TypeError(f"can't convert np.ndarray of type {name}. The only supported types are: {_SUPPORTED_NUMPY}.")
    return found


def check_ndarray(array: np.ndarray[Any, Any]) -> dtype:
    """Return the dtype of a NumPy array; raise PyTorch's error if no tensor can hold its elements unconverted."""
    source = FROM_NUMPY.get(array.dtype)  # holds native byte order only
    if source is not None and array.flags.c_contiguous:
        return source
    source = _numpy_dtype(array.dtype)
    if not array.dtype.isnative:
        raise ValueError(
            "given numpy array has byte order different from the native byte order."
            " Conversion between byte orders is currently not supported."
        )
    if any(stride < 0 for stride in array.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are not"
            " currently supported. (You can probably work around this by making a copy of your array"
            " with array.copy().)"
        )
    if any(stride % array.itemsize for stride in array.strides):
        raise ValueError(
            "given numpy array strides not a multiple of the element byte size. Copy the numpy array to reallocate the"
            " memory."
        )
    return source


def _from_ndarray(array: np.ndarray[Any, Any], target: dtype | None) -> Parsed:
    source = check_ndarray(array)
    flat = np.array(array, order="C", subok=False).reshape(-1)
    return array.shape, target or source, cast_elements(flat, source, target or source)


def cast_elements(values: np.ndarray[Any, Any], source: dtype, target: dtype) -> np.ndarray[Any, Any]:
    """Return `values` converted as `tensor.to(target)` does: no range checks, integers wrap around."""
    if source is target:
        return values
    values = readable(values, source)
    if target is dt.bool_:
        return values != 0
    with np.errstate(all="ignore"):
        if source.is_complex and not target.is_complex:
            values = values.real
        if not target.has_numpy:
            return storable(values, target)
        if target.kind in "iu" and values.dtype.kind == "f":
            # Through the integer the processor converts to, so that narrow types wrap around as PyTorch's do.
            values = values.astype(np.int64 if target.itemsize == 8 or not target.is_signed else np.int32)
        return values.astype(target.numpy)


# Element by element ---------------------------------------------------------------------------------------------------


def _is_sequence(value: Any) -> bool:
    """Return whether a value is indexable and not a mapping, as CPython's PySequence_Check does. NumPy numbers only look indexable."""
    if isinstance(value, (list, tuple, str, bytes)):
        return True
    if isinstance(value, (dict, np.generic)) or not hasattr(type(value), "__getitem__"):
        return False
    return hasattr(type(value), "__len__") and type(value).__name__ != "mappingproxy"


def _overflow(target: dtype) -> RuntimeError:
    return RuntimeError(f"value cannot be converted to type {target.name} without overflow")


class _Walker:
    """Parser of irregular data, in PyTorch's order: sizes from the first branch, then the dtype, then the values."""

    def __init__(self, target: dtype | None, default: dtype, tensor_to_numpy: TensorToNumpy):
        self.target, self.default, self.tensor_to_numpy = target, default, tensor_to_numpy
        self.sizes: list[int] = []
        self.values: list[Any] = []

    def parse(self, data: Any) -> Parsed:
        if isinstance(data, (str, bytes)):
            raise TypeError(f"new(): invalid data type '{type_name(data)}'")
        self._measure(data)
        target = self.target if self.target is not None else self._infer(data)
        if 0 in self.sizes:
            return tuple(self.sizes), *_empty(target)
        self._convert = _converter(target)
        self.target = target
        self._store(data, 0)
        packed = _pack_checked(self.values, target)
        return tuple(self.sizes), target, packed

    def _measure(self, node: Any) -> None:
        while self.tensor_to_numpy(node) is None and _is_sequence(node):
            self.sizes.append(len(node))
            if len(self.sizes) > _MAX_DIMS:
                raise ValueError(f"too many dimensions '{type_name(node)}'")
            if self.sizes[-1] == 0:
                return
            try:
                node = node[0]
            except Exception as problem:
                raise ValueError(f"could not determine the shape of object type '{type_name(node)}'") from problem

    def _infer(self, node: Any) -> dtype:
        if isinstance(node, (str, bytes)):
            raise TypeError(f"new(): invalid data type '{type_name(node)}'")
        if isinstance(node, (np.ndarray, np.generic)):
            return _numpy_dtype(node.dtype)
        if isinstance(node, (bool, int, float, complex)):
            kind = next(k for k in (bool, int, float, complex) if isinstance(node, k))
            return _numbers_dtype({kind}, self.default)
        if self.tensor_to_numpy(node) is not None:
            return node.dtype
        if not _is_sequence(node):
            raise RuntimeError(f"Could not infer dtype of {type_name(node)}")
        return self._infer_sequence(node)

    def _infer_sequence(self, node: Any) -> dtype:
        found: dtype | None = None
        for item in node:
            if item is node:
                raise TypeError("new(): self-referential lists are incompatible")
            one = self._infer(item)
            found = one if found is None else promote_types(found, one)
            if found is dt.complex128:
                break  # nothing is wider
        return found or self.default

    def _store(self, node: Any, dim: int) -> None:
        elements = self.tensor_to_numpy(node)
        if elements is not None:
            self._store_tensor(elements, node.dtype, dim)
        elif dim == len(self.sizes):
            self.values.append(self._convert(node))
        else:
            try:
                items = list(node)
            except TypeError:
                raise TypeError("not a sequence") from None
            self._check_length(len(items), dim)
            for item in items:
                self._store(item, dim + 1)

    def _check_length(self, length: int, dim: int) -> None:
        if length != self.sizes[dim]:
            raise ValueError(f"expected sequence of length {self.sizes[dim]} at dim {dim} (got {length})")

    def _store_tensor(self, elements: np.ndarray[Any, Any], source: dtype, dim: int) -> None:
        """Store the elements of a tensor, which stands for the sequences below `dim`, and at the bottom for its single element."""
        missing = len(self.sizes) - dim
        for offset in range(missing):
            if offset >= elements.ndim:
                raise TypeError("not a sequence")
            self._check_length(elements.shape[offset], dim + offset)
        target = self.target
        assert target is not None
        single = math.prod(elements.shape[missing:]) == 1
        if target.category < 2 and not (single and source.category < 2):
            raise TypeError("only integer tensors of a single element can be converted to an index")
        if not single:
            raise ValueError("only one element tensors can be converted to Python scalars")
        values = readable(elements, source).reshape(-1).tolist()
        if source.is_complex and not target.is_complex:
            values = [_real_part(value) for value in values]
        self.values.extend(map(self._convert, values))


def _real_part(value: complex) -> float:
    if value.imag != 0:
        raise RuntimeError("value cannot be converted to type double without overflow")
    return value.real


def _pack_checked(values: list[Any], target: dtype) -> np.ndarray[Any, Any]:
    """Return values from `_converter(target)` as an array; they fit by construction."""
    if target.is_floating_point:
        return _narrow(np.array(values, np.float64), target)
    if target.is_complex:
        return _narrow(np.array(values, np.complex128), target)
    if target.is_signed or target in (dt.bool_, dt.uint64):
        return np.array(values, target.numpy)
    return np.array(values, np.int64).astype(target.numpy)


def _converter(target: dtype) -> Callable[[Any], Any]:
    """Return the function that converts one Python object to a number for `target`, or raises."""
    if target.is_floating_point:
        return _to_float
    if target.is_complex:
        return _to_complex
    if target is dt.bool_:
        return _to_bool
    if target is dt.uint64:
        return _to_uint64
    return lambda value: _to_integer(value, target)


def _to_float(value: Any) -> float:
    # `ldexp` takes exactly what C's number conversion takes (not strings), with its error messages.
    return math.ldexp(value, 0)


def _to_complex(value: Any) -> complex:
    if isinstance(value, complex):
        return complex(value)
    if hasattr(type(value), "__complex__"):
        return value.__complex__()
    return complex(_to_float(value))


def _to_bool(value: Any) -> bool:
    if isinstance(value, (bool, int, float, complex, np.bool_)):
        return bool(value)
    return operator.index(value) != 0


def _to_integer(value: Any, target: dtype) -> int:
    if isinstance(value, float):
        limits = np.iinfo(target.numpy)
        # NaN fails the comparison too. The largest int64 is 2**63 as a float, which would wrap: it is refused.
        if not float(limits.min) <= value <= float(limits.max) or value == 2.0**63:
            raise _overflow(target)
        return int(value)
    number = operator.index(value)
    if not _INT64_MIN <= number <= _INT64_MAX:
        raise ValueError("Overflow when unpacking long long")
    low, high = _integer_range(target)
    if not low <= number <= high:
        raise _overflow(target)
    return number


def _to_uint64(value: Any) -> int:
    # NumPy's integers are welcome here, though PyTorch itself refuses even its own uint64 scalars.
    if not isinstance(value, (int, np.integer)):
        raise TypeError(f"an integer is required, got {type_name(value)}")
    number = int(value)
    if number < 0:
        raise OverflowError("can't convert negative int to unsigned")
    if number >= 2**64:
        raise OverflowError("int too big to convert")
    return number
