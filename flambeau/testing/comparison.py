"""`assert_close`: whether two results are equal up to rounding, and where they differ most.

Containers are walked in parallel until tensors or numbers are met; each pair is compared by the class it belongs to (`_PAIRS`, the first
that accepts both values), and the first difference is reported with its path in the containers.
"""

from __future__ import annotations

import cmath
import numbers
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.dtype import BY_NAME, OF_PYTHON, dtype
from ..core.layout import jagged, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr, strided
from ..core.layout import layout as Layout
from ..core.promotion import promote_types
from ..core.sharded import SpreadTensor
from ..core.sparse import SparseTensor
from ..core.tensor import Tensor, from_array
from ..ops.pointwise.comparison import isclose

# What rounding may change, relatively and absolutely; integers and booleans must be equal.
TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}


class _Difference(Exception):
    """Raised where values differ: the error to raise, its message, and the path in the containers."""

    def __init__(self, message: str, place: tuple = (), kind: type[Exception] = AssertionError) -> None:
        super().__init__(message)
        self.message, self.place, self.kind = message, place, kind

    def error(self, msg: str | Callable[[str], str] | None) -> Exception:
        text = self.message
        if self.place:
            text += f"\n\nThe failure occurred for item {''.join(f'[{key!r}]' for key in self.place)}"
        return self.kind(msg(text) if callable(msg) else msg if msg else text)


@dataclass(frozen=True)
class _Options:
    rtol: float | None = None
    atol: float | None = None
    equal_nan: bool = False
    check_device: bool = True
    check_dtype: bool = True
    check_layout: bool = True
    check_stride: bool = False
    allow_subclasses: bool = True

    def tolerances(self, *dtypes: dtype) -> tuple[float, float]:
        """Return the given tolerances, otherwise the widest that the dtypes need."""
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        both = [TOLERANCES.get(str(d).split(".")[-1], (0.0, 0.0)) for d in dtypes]
        return max(r for r, _ in both), max(a for _, a in both)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise AssertionError unless |actual - expected| <= atol + rtol * |expected| for every element.

    The tolerances follow from the dtypes unless both are given. Sequences and mappings are compared item by item.
    `msg` replaces the message, or is called with it.
    """
    if (rtol is None) != (atol is None):
        absent = "rtol" if rtol is None else "atol"
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {absent}.")
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and value < 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {value}")
    options = _Options(rtol, atol, equal_nan, check_device, check_dtype, check_layout, check_stride, allow_subclasses)
    problem = None
    try:
        for first, second, place, compare in list(_pairs(actual, expected, (), options)):
            try:
                compare(first, second, options)
            except _Difference as difference:
                difference.place = place
                raise
    except _Difference as difference:
        problem = difference.error(msg)
    if problem is not None:  # raised out here, so that the traceback shows one error and not how it was found
        raise problem


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """Compare like the former `assert_close`: takes anything convertible to a tensor, and ignores devices, dtypes and layouts."""
    warnings.warn(
        "`torch.testing.assert_allclose()` is deprecated since 1.12 and will be removed in a future release."
        " Please use `torch.testing.assert_close()` instead.",
        FutureWarning,
        stacklevel=2,
    )
    actual, expected = [v if isinstance(v, Tensor) else from_array(np.asarray(v)) for v in (actual, expected)]
    if rtol is None and atol is None:
        rtol, atol = _Options().tolerances(actual.dtype, expected.dtype)
    assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=True,
        check_dtype=False,
        msg=msg or None,
    )


def _pairs(actual: Any, expected: Any, place: tuple, options: _Options) -> Iterator[tuple]:
    """Yield (actual, expected, path, comparison) for all values in the two containers."""
    actual, expected = parts_of_spread(actual, expected)
    if _are_both(Sequence, actual, expected) and not isinstance(actual, str) and not isinstance(expected, str):
        if len(actual) != len(expected):
            raise _Difference(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", place)
        for i in range(len(actual)):
            yield from _pairs(actual[i], expected[i], (*place, i), options)
    elif _are_both(Mapping, actual, expected):
        _require_same_keys(actual, expected, place)
        for key in _sorted_if_possible(list(expected)):
            yield from _pairs(actual[key], expected[key], (*place, key), options)
    else:
        yield actual, expected, place, _comparison(actual, expected, place, options)


def parts_of_spread(actual: Any, expected: Any) -> tuple[Any, Any]:
    """Return this rank's shards of distributed tensors, which must have equal placements."""
    spread = [isinstance(t, SpreadTensor) for t in (actual, expected)]
    if not any(spread):
        return actual, expected
    if not all(spread):
        raise TypeError(
            "Comparing a DTensor to a non-DTensor is ambiguous. Call .full_tensor() to compare the full logical tensor or .to_local() to"
            " compare the local shard."
        )
    for what, name in (("placements", "placements"), ("device meshes", "device_mesh")):
        first, second = getattr(actual, name), getattr(expected, name)
        if first != second:
            raise AssertionError(f"DTensor {what} do not match: {first} != {second}")
    return actual.to_local(), expected.to_local()


def _are_both(cls: type, actual: Any, expected: Any) -> bool:
    return isinstance(actual, cls) and isinstance(expected, cls)


def _require_same_keys(actual: Mapping, expected: Mapping, place: tuple) -> None:
    missing, additional = [k for k in expected if k not in actual], [k for k in actual if k not in expected]
    if missing or additional:
        lines = ["The keys of the mappings do not match:"]
        if missing:
            lines.append(f"Missing keys in the actual mapping: {_sorted_if_possible(missing)}")
        if additional:
            lines.append(f"Additional keys in the actual mapping: {_sorted_if_possible(additional)}")
        raise _Difference("\n".join(lines), place)


def _sorted_if_possible(keys: list) -> list:
    try:
        return sorted(keys)
    except TypeError:  # keys of several kinds have no order
        return keys


def _comparison(actual: Any, expected: Any, place: tuple, options: _Options) -> Callable[[Any, Any, _Options], None]:
    for accepts, compare in _PAIRS:
        if accepts(actual, expected, options):
            return compare
    raise _Difference(
        f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.", place, TypeError
    )


def _compare_none(actual: Any, expected: Any, options: _Options) -> None:
    if actual is not expected:
        raise _Difference(f"None mismatch: {actual} is not {expected}")


def _compare_booleans(actual: Any, expected: Any, options: _Options) -> None:
    if bool(actual) is not bool(expected):
        raise _Difference(f"Booleans mismatch: {bool(actual)} is not {bool(expected)}")


def _as_number(value: Any) -> Any:
    return value.item() if isinstance(value, np.number) else value


def _number_dtype(value: Any) -> dtype:
    for cls, d in OF_PYTHON.items():
        if isinstance(value, cls):
            return d
    raise _Difference(f"Unknown number type {type(value)}.", kind=TypeError)


def _compare_numbers(actual: Any, expected: Any, options: _Options) -> None:
    first, second = _as_number(actual), _as_number(expected)
    if options.check_dtype and type(first) is not type(second):
        raise _Difference(f"The (d)types do not match: {type(first)} != {type(second)}.")
    rtol, atol = options.tolerances(_number_dtype(first), _number_dtype(second))
    if first == second or (options.equal_nan and cmath.isnan(first) and cmath.isnan(second)):
        return
    difference = abs(first - second)
    if cmath.isfinite(first) and cmath.isfinite(second) and difference <= atol + rtol * abs(second):
        return
    raise _Difference(_scalar_message(first, second, difference, rtol, atol))


def _scalar_message(first: Any, second: Any, difference: Any, rtol: float, atol: float) -> str:
    relative = difference / abs(second) if second else float("inf")
    equality = not rtol and not atol
    lines = [f"Scalars are not {'equal' if equality else 'close'}!", "", f"Expected {second} but got {first}."]
    lines.append(f"Absolute difference: {difference}" + ("" if equality else f" (up to {atol} allowed)"))
    lines.append(f"Relative difference: {relative}" + ("" if equality else f" (up to {rtol} allowed)"))
    return "\n".join(lines)


def _are_related(actual: Any, expected: Any, options: _Options) -> bool:
    """Return whether both are tensors, or values a tensor can be made of, of related classes. Sparse layouts count as plain tensors."""
    first, second = (Tensor if isinstance(v, SparseTensor) else type(v) for v in (actual, expected))
    direct = issubclass(first, second) or issubclass(second, first)
    if not direct or (not options.allow_subclasses and first is not second):
        return False
    return all(isinstance(v, (Tensor, np.ndarray)) for v in (actual, expected))


def _compare_tensor_likes(actual: Any, expected: Any, options: _Options) -> None:
    first, second = [v.detach() if isinstance(v, Tensor) else from_array(v) for v in (actual, expected)]
    _compare_attributes(first, second, options)
    if any(t.device.type == "meta" for t in (first, second)):
        return  # no values to compare
    first, second = [t.dequantize() if t.is_quantized else t for t in (first, second)]
    rtol, atol = options.tolerances(first.dtype, second.dtype)
    if first.dtype != second.dtype:
        common = promote_types(first.dtype, second.dtype)
        first, second = first.to(common), second.to(common)
    if first.layout != second.layout:
        first, second = [t if t.layout is strided else t.to_dense() for t in (first, second)]
    _compare_values(first, second, rtol, atol, options.equal_nan)


def _compare_attributes(first: Tensor, second: Tensor, options: _Options) -> None:
    def differ(name: str, a: Any, b: Any) -> None:
        if a != b:
            raise _Difference(f"The values for attribute '{name}' do not match: {a} != {b}.")

    differ("shape", first.shape, second.shape)
    if options.check_layout:
        differ("layout", first.layout, second.layout)
    if options.check_device:
        differ("device", first.device, second.device)
    if options.check_dtype:
        differ("dtype", first.dtype, second.dtype)
    if options.check_stride:
        differ("stride()", first.stride(), second.stride())


# Of each sparse layout: its name in messages, what it calls its indices, and how to read them.
_SPARSE: dict[Layout, tuple[str, tuple[str, ...]]] = {
    sparse_coo: ("COO", ("indices",)),
    sparse_csr: ("CSR", ("crow_indices", "col_indices")),
    sparse_csc: ("CSC", ("ccol_indices", "row_indices")),
    sparse_bsr: ("BSR", ("crow_indices", "col_indices")),
    sparse_bsc: ("BSC", ("ccol_indices", "row_indices")),
}


def _compare_values(first: Tensor, second: Tensor, rtol: float, atol: float, equal_nan: bool) -> None:
    if first.layout is strided:
        return _compare_strided(first, second, rtol, atol, equal_nan)
    if first.layout is jagged:
        nested: Any = (first, second)
        _compare_strided(nested[0].offsets(), nested[1].offsets(), 0, 0, False, "Offsets")
        return _compare_strided(first.values(), second.values(), rtol, atol, equal_nan)
    if first.layout not in _SPARSE:
        raise ValueError(f"Unsupported tensor layout {first.layout}")
    name, parts = _SPARSE[first.layout]
    if first.layout is sparse_coo:
        first, second = first.coalesce(), second.coalesce()
    counts = [t._nnz() for t in (first, second)]
    if counts[0] != counts[1]:
        raise _Difference(
            f"The number of specified values in sparse {name} tensors does not match: {counts[0]} != {counts[1]}"
        )
    for part in parts:
        title = f"Sparse {name} {part}"
        _compare_strided(getattr(first, part)(), getattr(second, part)(), 0, 0, False, title)
    _compare_strided(first.values(), second.values(), rtol, atol, equal_nan, f"Sparse {name} values")


def _compare_strided(
    first: Tensor, second: Tensor, rtol: float, atol: float, equal_nan: bool, title: str | None = None
) -> None:
    if rtol or atol or equal_nan:
        matches = isclose(first, second, rtol=rtol, atol=atol, equal_nan=equal_nan)
    else:  # exact also where integers are too large for the differences that `isclose` takes
        matches = first == second
    if bool(matches.all()):
        return
    if first.dim() == 0:
        pair = first.item(), second.item()
        raise _Difference(_scalar_message(*pair, abs(pair[0] - pair[1]), rtol, atol))
    raise _Difference(_tensor_message(first, second, matches, rtol, atol, title or "Tensor-likes"))


def _tensor_message(first: Tensor, second: Tensor, matches: Tensor, rtol: float, atol: float, title: str) -> str:
    total, wrong = matches.numel(), int((~matches).sum())
    if not first.is_floating_point() and not first.is_complex():
        first, second = first.to(BY_NAME["int64"]), second.to(BY_NAME["int64"])
    absolute = (first - second).abs().masked_fill(matches, 0)
    relative = (absolute / second.abs()).masked_fill(matches, 0)
    equality = not rtol and not atol
    lines = [f"{title} are not {'equal' if equality else 'close'}!", ""]
    lines.append(f"Mismatched elements: {wrong} / {total} ({wrong / total:.1%})")
    for word, values, allowed in (("absolute", absolute, atol), ("relative", relative, rtol)):
        flat = int(values.flatten().argmax())
        where = tuple(int(i) for i in np.unravel_index(flat, tuple(values.shape)))
        bound = "" if equality else f" (up to {allowed} allowed)"
        lines.append(f"Greatest {word} difference: {values.flatten()[flat].item()} at index {where}{bound}")
    return "\n".join(lines)


def _is_boolean(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


def _is_number(value: Any) -> bool:
    return isinstance(value, (numbers.Number, np.number))


_PAIRS: tuple[tuple[Callable[[Any, Any, _Options], bool], Callable[[Any, Any, _Options], None]], ...] = (
    (lambda a, b, options: a is None or b is None, _compare_none),
    (lambda a, b, options: _is_boolean(a) and _is_boolean(b), _compare_booleans),
    (lambda a, b, options: _is_number(a) and _is_number(b), _compare_numbers),
    (_are_related, _compare_tensor_likes),
)
