"""Regular sequences and index patterns: arange, linspace, logspace, eye, tril_indices, meshgrid, vander."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.aliases import AnyFunction
from ...core.device import default_device
from ...core.dtype import dtype
from ...core.float8 import readable, storable
from ...core.layout import has_internal_overlap
from ...core.promotion import default_complex, get_default_dtype
from ...core.size import make_size
from ...core.tensor import Tensor, contiguous_strides, copy_of_array, numel_of
from ...core.tensor import empty as raw_empty
from ...core.typenames import type_name
from ...kernels.library.ranges import between, counted, whole_steps
from ..machinery.arguments import Options, as_int, as_number, read_options
from ..machinery.declare import composite, effect
from ..machinery.dtype_rules import unsupported
from ..machinery.inplace import raw_copy
from ..shape.joining import cat, stack
from .convert import copy_raw
from .filled import fill_raw, finish, new, prepare_out

_VECTOR_BYTES = 32  # PyTorch computes floating ranges in blocks of this many bytes, which shows in the last bit


def _stored(values: np.ndarray, d: dtype) -> np.ndarray:
    """Return numbers in the representation of `d`; 16-bit types are converted through float32."""
    with np.errstate(all="ignore"):
        return values.astype(d.numpy) if d.has_numpy else storable(values, d)


def _rounded(values: np.ndarray, d: dtype) -> np.ndarray:
    """Return numbers rounded to `d`, for further arithmetic."""
    return readable(_stored(values, d), d)


def deliver(name: str, count: int, d: dtype, options: Options, out: Any, write: Callable[[Tensor], None]) -> Tensor:
    """Return a vector that `write` fills: a new one, or `out`, which keeps its shape if it has that many elements."""
    shape = make_size((count,))
    keeps = isinstance(out, Tensor) and numel_of(out.shape) == count
    if name == "arange" and isinstance(out, Tensor) and numel_of(out.shape) not in (0, count):
        warnings.warn(
            f"The out tensor of shape {list(out.shape)} has {numel_of(out.shape)} elements, the range {count} (rounding"
            f" can cause that). The out tensor will be resized to a tensor of shape ({count},).",
            UserWarning,
            stacklevel=4,
        )
        out.resize_(count)
        keeps = True
    target = new(shape, options, d) if out is None else prepare_out(name, out, out.shape if keeps else shape, options)
    if has_internal_overlap(target.shape, target._strides):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location."
            " Please clone() the tensor before performing the operation."
        )
    if count:
        if target._contig:
            write(target._view(shape, (1,), target._offset))
        else:
            dense = raw_empty(shape, target.dtype, target.device)
            write(dense)
            copy_raw(target, dense._view(target.shape, contiguous_strides(target.shape), 0))
    if out is not None:
        target._bump(name)
        return target
    return finish(target, options.requires_grad)


# -- arange --------------------------------------------------------------------------------------------------------


def _arange_bounds(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return start, end and step of arange(end), arange(start, end) or arange(start, end, step); each may be named."""
    names = ("end",) if len(args) == 1 and "end" not in named else ("start", "end", "step")
    if len(args) > 3:
        raise TypeError(f"arange() takes at most 3 positional arguments ({len(args)} given)")
    values: dict[str, Any] = {"start": 0, "end": None, "step": 1}
    values.update(zip(names, args))
    for key in ("start", "end", "step"):
        if key in named:
            values[key] = named.pop(key)
    if values["end"] is None:
        raise TypeError('arange() missing 1 required positional arguments: "end"')
    position = {name: i + 1 for i, name in enumerate(names)}
    start, end, step = (as_number(values[k], "arange", k, position.get(k, 1)) for k in ("start", "end", "step"))
    return start, end, step


def _real(value: Any) -> Any:
    if isinstance(value, complex):
        if value.imag:
            raise RuntimeError("value cannot be converted to type double without overflow")
        return value.real
    return value


def _range_count(start: Any, end: Any, step: Any, inclusive: bool) -> int:
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (step > 0 and end < start) or (step < 0 and end > start):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if inclusive:
        return int((end - start) / step + 1)
    if all(isinstance(v, int) for v in (start, end, step)):
        return -((start - end) // step)
    return math.ceil((end - start) / step)


def _half_range(start: float, step: float, count: int, d: dtype) -> np.ndarray:
    """Compute a range in a 16-bit dtype: in float32, as PyTorch does."""
    one = np.float32
    exact = _rounded((one(start) + one(step) * np.arange(count).astype(one)), d)
    lanes = _VECTOR_BYTES // d.itemsize
    blocks = count // (2 * lanes) * 2 * lanes
    if blocks:
        base = exact[:blocks:lanes, None].astype(one)
        exact[:blocks] = _rounded((base + one(step) * np.arange(lanes).astype(one)).reshape(-1), d)
    return _stored(exact, d)


def _store(t: Tensor, values: np.ndarray) -> None:
    """Store numbers computed on the host as t's elements, in its dtype."""
    raw_copy(t, copy_of_array(values, t.dtype))


@effect(batching="each")
def _write_range(t: Tensor, start: float, step: float, name: str) -> Tensor:
    """Write start, start + step, ... with PyTorch's rounding."""


@_write_range.on("any")
def _(t: Tensor, start: float, step: float, name: str) -> None:
    d, count = t.dtype, t.shape[0]
    if d is dt.bool_ or d.is_complex:
        raise unsupported(f"{name}_cpu", d)
    if d in (dt.float32, dt.float64):
        counted(t, float(start), float(step), count, _VECTOR_BYTES // d.itemsize)
    elif d.is_floating_point:
        _store(t, _half_range(float(start), float(step), count, d))
    else:
        whole_steps(t, int(np.int64(int(start))), int(np.int64(int(step))), count)  # or OverflowError


def _range_dtype(values: tuple[Any, ...]) -> dtype:
    return dt.int64 if all(isinstance(v, int) for v in values) else get_default_dtype()


@composite(kind="creation", method=False)
def arange(*args: Any, out: Any = None, **options: Any) -> Tensor:
    """arange(start, end=None, step=1, *, out=None, **options): numbers from start up to, not including, end in steps of step.
    `arange(end)` starts with 0.

    >>> arange(1, 7, 2)
    tensor([1, 3, 5])
    """
    simple = len(args) == 1 and type(args[0]) is int and 0 <= args[0] < 2**31 and out is None and not options
    if simple:
        return _write_range(raw_empty(args, dt.int64, default_device()), 0, 1, "arange")
    bounds = _arange_bounds(args, options)
    chosen = read_options("arange", options)
    d = chosen.dtype or (out.dtype if isinstance(out, Tensor) else _range_dtype(bounds))
    start, end, step = map(_real, bounds)
    if d is dt.int64:  # computed in integers; narrower ones are counted as given, then truncated
        if step != 0 and int(step) == 0:
            raise ValueError("step must be nonzero")
        start, end, step = int(start), int(end), int(step)
    count = _range_count(start, end, step, False)
    if d is dt.bool_ and count <= 2:
        raise unsupported("arange_cpu", dt.bool_)
    return deliver("arange", count, d, chosen, out, lambda t: _write_range(t, start, step, "arange"))


@composite(kind="creation", method=False, name="range")
def range_(start: Any, end: Any, step: Any = 1, *, out: Any = None, **options: Any) -> Tensor:
    """Numbers from start to end, both included (deprecated: use arange)."""
    warnings.warn(
        "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with"
        " Python's range builtin. Instead, use torch.arange, which produces values in [start, end).",
        UserWarning,
        stacklevel=3,
    )
    chosen = read_options("range", options)
    d = out.dtype if isinstance(out, Tensor) else chosen.dtype or get_default_dtype()
    count = _range_count(start, end, step, True)
    return deliver("range", count, d, chosen, out, lambda t: _write_range(t, start, step, "range"))


# -- linspace, logspace --------------------------------------------------------------------------------------------


def _line(start: Any, end: Any, steps: int, d: dtype) -> np.ndarray:
    """Return equally spaced numbers, counted from the nearer end so that both ends are exact; one rounding per element."""
    if d.is_complex:
        kind = d.numpy.type
        start, end = kind(start), kind(end)
        step = kind((end - start) / kind(max(steps - 1, 1)))
    elif d.category == 1:
        start, end = float(int(start)), float(int(end))
        step = (end - start) / max(steps - 1, 1)
    else:
        one = _rounded(np.array([start, end], np.float64), d)
        start, end = one[0], one[1]
        gap = _rounded(np.array([end - start]), d)[0]
        step = _rounded(np.array([gap / one.dtype.type(max(steps - 1, 1))]), d)[0]
    i = np.arange(steps)
    if steps == 1:
        end = start
    low, near, far = i < steps // 2, i, steps - 1 - i
    if d.is_complex:
        return np.where(low, start + step * near.astype(d.numpy), end - step * far.astype(d.numpy)).astype(d.numpy)
    if d.itemsize == 2 and d.is_floating_point:
        up = _rounded(start + _rounded(step * _rounded(near, d), d), d)
        down = _rounded(end - _rounded(step * _rounded(far, d), d), d)
        return _stored(np.where(low, up, down), d)
    wide = np.float64 if d is dt.float32 else np.longdouble  # the product is exact, as in a fused multiply-add
    start, end, step = wide(start), wide(end), wide(step)
    values = np.where(low, start + step * near.astype(wide), end - step * far.astype(wide))
    return _stored(values, d) if d.is_floating_point else values.astype(np.float64).astype(np.int64).astype(d.numpy)


@effect(batching="each")
def _write_line(t: Tensor, start: complex, end: complex) -> Tensor:
    """Write equally spaced numbers from start to end."""


@_write_line.on("any")
def _(t: Tensor, start: Any, end: Any) -> None:
    d, count = t.dtype, t.shape[0]
    if d in (dt.float32, dt.float64):
        a, b = d.numpy.type(start), d.numpy.type(end)
        if count == 1:
            b = a
        step = (b - a) / d.numpy.type(max(count - 1, 1))
        between(t, float(a), float(b), float(step), count)
    elif count == 1:
        fill_raw(t, start)
    else:
        _store(t, _line(start, end, count, d))


def _power_line(start: Any, end: Any, steps: int, base: float, d: dtype) -> np.ndarray:
    wide = dt.complex128 if d.is_complex else (dt.float32 if d.is_floating_point and d.itemsize < 8 else dt.float64)
    if d is dt.complex64:
        wide = dt.complex64
    if d.category == 1:
        start, end = int(start), int(end)
    exponents = _line(start, end, steps, wide)
    with np.errstate(all="ignore"):
        powers = np.power(
            wide.numpy.type(base) if not d.is_complex else complex(base),
            exponents.astype(np.complex128 if d.is_complex else np.float64),
        )
        if d.category == 1:
            return powers.astype(np.int64).astype(d.numpy)
        return _stored(powers, d)


@effect(batching="each")
def _write_powers(t: Tensor, start: complex, end: complex, base: float) -> Tensor:
    """Write base to the power of equally spaced numbers from start to end."""


@_write_powers.on("any")
def _(t: Tensor, start: complex, end: complex, base: float) -> None:
    _store(t, _power_line(start, end, t.shape[0], base, t.dtype))


def _end_point(value: Any, name: str, argument: str, position: int) -> Any:
    if isinstance(value, Tensor):
        if value.shape != ():
            raise RuntimeError(
                f"{name} only supports 0-dimensional start and end tensors, but got {argument} with {len(value.shape)}"
                " dimension(s)."
            )
        return value.item()
    return as_number(value, name, argument, position)


def _spaced(
    name: str, start: Any, end: Any, steps: Any, out: Any, options: dict[str, Any], write: AnyFunction
) -> Tensor:
    a, b = _end_point(start, name, "start", 1), _end_point(end, name, "end", 2)
    count = as_int(steps, name, "steps", 3)
    if count < 0:
        raise RuntimeError("number of steps must be non-negative")
    chosen = read_options(name, options)
    is_complex = isinstance(a, complex) or isinstance(b, complex)
    d = chosen.dtype or (
        out.dtype if isinstance(out, Tensor) else default_complex() if is_complex else get_default_dtype()
    )
    if is_complex and not d.is_complex:
        raise RuntimeError(
            f"torch.{name}(): inferred dtype {default_complex()} can't be safely cast to passed dtype {d}"
        )
    if count > 1 and (d in (dt.bool_, dt.complex32) or d in dt.FLOAT8):
        raise unsupported(f"{name}_cpu", d)
    return deliver(name, count, d, chosen, out, lambda t: write(t, a, b))


@composite(kind="creation", method=False)
def linspace(start: Any, end: Any, steps: Any, *, out: Any = None, **options: Any) -> Tensor:
    """`steps` equally spaced numbers from start to end, both included."""
    return _spaced("linspace", start, end, steps, out, options, _write_line)


@composite(kind="creation", method=False)
def logspace(start: Any, end: Any, steps: Any, base: float = 10.0, *, out: Any = None, **options: Any) -> Tensor:
    """base ** linspace(start, end, steps)."""
    return _spaced("logspace", start, end, steps, out, options, lambda t, a, b: _write_powers(t, a, b, base))


# -- matrices and indices ------------------------------------------------------------------------------------------


@composite(kind="creation", method=False)
def eye(n: int, m: int | None = None, *, out: Any = None, **options: Any) -> Tensor:
    """Ones on the diagonal, zeros elsewhere."""
    rows = as_int(n, "eye", "n", 1)
    columns = rows if m is None else as_int(m, "eye", "m", 2)
    for name, value in (("n", rows), ("m", columns)):
        if value < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {value}")
    chosen = read_options("eye", options)
    shape = make_size((rows, columns))
    t = prepare_out("eye", out, shape, chosen) if out is not None else new(shape, chosen, get_default_dtype())
    fill_raw(t, 0)
    side = min(rows, columns)
    if side:
        fill_raw(t._view(make_size((side,)), (t._strides[0] + t._strides[1],), t._offset), 1)
    if out is not None:
        t._bump("eye")
        return t
    return finish(t, chosen.requires_grad)


@effect(batching="each")
def _write_numbers(t: Tensor, values: np.ndarray) -> Tensor:
    """Write numbers computed on the host into a tensor."""


_write_numbers.on("any")(_store)


def _triangle_indices(name: str, row: Any, col: Any, offset: Any, options: dict[str, Any], pick: AnyFunction) -> Tensor:
    rows, columns = as_int(row, name, "row", 1), as_int(col, name, "col", 2)
    if rows < 0 or columns < 0:
        which, value = ("row", rows) if rows < 0 else ("col", columns)
        raise RuntimeError(f"{which} must be non-negative, got{value}")
    chosen = read_options(name, options)
    d = chosen.dtype or dt.int64
    if d not in (dt.int32, dt.int64):
        raise unsupported(name, d)
    i, j = pick(rows, as_int(offset, name, "offset", 3), columns)
    t = new(make_size((2, len(i))), chosen, d)
    return finish(_write_numbers(t, np.stack([i, j])), chosen.requires_grad)


@composite(kind="creation", method=False)
def tril_indices(row: int, col: int, offset: int = 0, **options: Any) -> Tensor:
    """Row and column numbers of a matrix's lower triangle."""
    return _triangle_indices("tril_indices", row, col, offset, options, np.tril_indices)


@composite(kind="creation", method=False)
def triu_indices(row: int, col: int, offset: int = 0, **options: Any) -> Tensor:
    """Row and column numbers of a matrix's upper triangle."""
    return _triangle_indices("triu_indices", row, col, offset, options, np.triu_indices)


@composite(method=False)
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinate grids from coordinate vectors."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    if indexing is None:
        warnings.warn(
            "torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.",
            UserWarning,
            stacklevel=3,
        )
        indexing = "ij"
    _check_grid(given, indexing)
    vectors = [t.reshape(1) if not t.shape else t for t in given]
    swap = indexing == "xy" and len(vectors) >= 2
    if swap:
        vectors[0], vectors[1] = vectors[1], vectors[0]
    shape = tuple(v.numel() for v in vectors)
    grids = []
    for i, v in enumerate(vectors):
        column = v.view(tuple(-1 if k == i else 1 for k in range(len(vectors))))
        grids.append(column.expand(shape))
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


@meshgrid.op.as_aten
def _(recorder: Any, *tensors: Any, indexing: Any = None) -> Any:
    given = tensors[0] if isinstance(tensors[0], (list, tuple)) else tensors
    return recorder.aten.meshgrid.indexing(list(given), indexing=indexing or "ij")


def _check_grid(tensors: Any, indexing: str) -> None:
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for t in tensors:
        if not isinstance(t, Tensor):
            raise TypeError(f"meshgrid(): argument 'tensors' must be tuple of Tensors, not {type_name(t)}")
        if len(t.shape) > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {list(t.shape)}")
        if t.dtype is not tensors[0].dtype:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same dtype")
        if t.device is not tensors[0].device:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same device")
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')


@composite(method=False)
def cartesian_prod(*tensors: Any) -> Tensor:
    """All combinations of one element from each vector, one per row."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    for t in given:
        if len(t.shape) != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(t.shape)}")
    if not given:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if len(given) == 1:
        return given[0]
    return stack([g.flatten() for g in meshgrid(*given, indexing="ij")], 1)


@composite(method=False)
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All combinations of r elements of a vector, one per row."""
    if len(input.shape) != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return input.new_empty((0,))
    grids = meshgrid(*[input] * r, indexing="ij")
    positions = np.meshgrid(*[np.arange(input.numel())] * r, indexing="ij")
    keep = np.ones(positions[0].shape, bool)
    for a, b in zip(positions, positions[1:]):
        keep &= (a <= b) if with_replacement else (a < b)
    mask = input.new_tensor(keep, dtype=dt.bool_)
    return stack([g.masked_select(mask) for g in grids], 1)


@composite(method=False)
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of a vector's elements as columns."""
    if len(x.shape) != 1:
        raise RuntimeError(f"x must be a one-dimensional tensor; got {len(x.shape)} dimensions")
    count = numel_of(x.shape) if N is None else N
    if count < 0:
        raise RuntimeError("N must be non-negative.")
    kind = x.dtype if x.dtype.category > 1 else dt.int64
    if not count:
        return x.new_empty((x.numel(), 0), dtype=kind)
    factors = x.to(kind).unsqueeze(-1).expand(x.shape[0], count - 1)
    result = cat([x.new_ones((x.shape[0], 1), dtype=kind), factors], -1).cumprod(-1)
    return result if increasing else result.flip(-1)
