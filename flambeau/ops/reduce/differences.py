"""Differences of neighbours, numerical gradients, and integrals by the trapezoid rule."""

from __future__ import annotations

from typing import Any

from ...core import dtype as dt
from ...core.layout import wrap_dim
from ...core.tensor import Tensor
from ..machinery.arguments import as_int, as_number, need_tensor
from ..machinery.declare import composite
from ..machinery.record import lookup
from ..machinery.reduction import reduced_dims
from .scan import cumsum


def _cat(parts: list[Tensor], dim: int) -> Tensor:
    return lookup("cat").function(parts, dim)


# -- diff --------------------------------------------------------------------------------------------------------------


def _check_neighbour(input: Tensor, other: Tensor, d: int) -> None:
    if len(other.shape) != len(input.shape):
        raise RuntimeError("diff expects prepend or append to be the same dimension as input")
    for i, (n, m) in enumerate(zip(input.shape, other.shape)):
        if n != m and i != d:
            raise RuntimeError(
                "diff expects the shape of tensor to prepend or append to match that of input except along the"
                f" differencing dimension; input.size({i}) = {n}, but got tensor.size({i}) = {m}"
            )


@composite(out="exact")
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The n-th difference of neighbours along a dimension."""
    if not input.shape:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    d = wrap_dim(dim, len(input.shape))
    for other in (prepend, append):
        if other is not None:
            _check_neighbour(input, other, d)
    if as_int(n, "diff", "n", 2) < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    if n == 0:
        return input.clone()
    parts = [t for t in (prepend, input, append) if t is not None]
    x = parts[0] if len(parts) == 1 else _cat(parts, d)
    for _ in range(min(n, x.shape[d])):
        x = _step(x, d)
    return x


def _step(x: Tensor, d: int) -> Tensor:
    n = x.shape[d]
    length = max(n - 1, 0)
    high, low = x.narrow(d, min(1, n), length), x.narrow(d, 0, length)
    return high.logical_xor(low) if x.dtype is dt.bool_ else high - low


# -- gradient ----------------------------------------------------------------------------------------------------------


def _gradient_dims(input: Tensor, dim: Any, edge_order: int) -> tuple[int, ...]:
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    dims = reduced_dims(dim, len(input.shape), "gradient")
    for d in dims:
        if (input.shape[d] if input.shape else 1) < edge_order + 1:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    return dims


def _gradient_spacing(input: Tensor, spacing: Any, dim: Any, count: int) -> list[Any]:
    if spacing is None:
        return [1] * count
    if not isinstance(spacing, (tuple, list)):
        return [spacing] * count
    if len(spacing) == count:
        return list(spacing)
    if dim is not None:
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar or it's spacing and dim arguments to have the same"
            f" length, but got a spacing argument of length {len(spacing)} and a dim argument of length {count}."
        )
    raise RuntimeError(
        "torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to"
        f" 'self.dim() = {len(input.shape)}', since dim argument was not given, but got a list of length {len(spacing)}"
    )


def _even_gradient(x: Tensor, d: int, h: Any, edge_order: int) -> Tensor:
    n = x.shape[d]

    def at(i: int) -> Tensor:
        return x.narrow(d, i % n, 1)

    middle = (x.narrow(d, 2, n - 2) - x.narrow(d, 0, n - 2)) / (2 * h)
    if edge_order == 1:
        first, last = (at(1) - at(0)) / h, (at(-1) - at(-2)) / h
    else:
        first = (at(0) * -1.5 + at(1) * 2 - at(2) * 0.5) / h
        last = (at(-3) * 0.5 - at(-2) * 2 + at(-1) * 1.5) / h
    return _cat([first, middle, last], d)


def _uneven_gradient(x: Tensor, d: int, places: Tensor, edge_order: int) -> Tensor:
    n = x.shape[d]
    if len(places.shape) != 1 or places.shape[0] != n:
        raise RuntimeError(
            "torch.gradient expected each element of spacing to have the same length as the corresponding dimension"
        )
    shape = [1] * len(x.shape)
    shape[d] = -1
    steps = diff(places)

    def at(i: int) -> Tensor:
        return x.narrow(d, i % n, 1)

    before, after = steps[:-1].reshape(shape), steps[1:].reshape(shape)
    a, b = -after / (before * (before + after)), (after - before) / (before * after)
    c = before / (after * (before + after))
    middle = a * x.narrow(d, 0, n - 2) + b * x.narrow(d, 1, n - 2) + c * x.narrow(d, 2, n - 2)
    if edge_order == 1:
        first, last = (at(1) - at(0)) / steps[0], (at(-1) - at(-2)) / steps[-1]
    else:
        h, k = steps[0], steps[1]
        first = at(0) * (-(2 * h + k) / (h * (h + k))) + at(1) * ((h + k) / (h * k)) - at(2) * (h / (k * (h + k)))
        h, k = steps[-2], steps[-1]
        last = at(-3) * (k / (h * (h + k))) - at(-2) * ((h + k) / (h * k)) + at(-1) * ((2 * k + h) / (k * (h + k)))
    return _cat([first, middle, last], d)


@composite(method=False)
def gradient(input: Tensor, *, spacing: Any = None, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """Numerical derivatives along each dimension, of second order inside."""
    dims = _gradient_dims(input, dim, edge_order)
    results = []
    for d, h in zip(dims, _gradient_spacing(input, spacing, dim, len(dims))):
        if isinstance(h, Tensor) and h.shape:
            results.append(_uneven_gradient(input, d, h, edge_order))
        else:
            results.append(_even_gradient(input, d, h.item() if isinstance(h, Tensor) else h, edge_order))
    return tuple(results)


# -- trapezoid rule ----------------------------------------------------------------------------------------------------


def _checked(name: str, y: Tensor, x: Tensor | None, dx: Any, dim: int) -> tuple[Any, int]:
    """Return the widths between samples, and the wrapped dimension."""
    need_tensor(name, y)
    if y.dtype is dt.bool_:
        raise RuntimeError(f"{name}: received a bool input for `y`, but bool is not supported")
    d = wrap_dim(dim, len(y.shape), allow_scalar=False)
    return (dx if x is None else _widths(name, y, x, d)), d


def _pair_sums(y: Tensor, d: int) -> Tensor:
    """Return the sums of neighbouring samples."""
    n = y.shape[d]
    return y.narrow(d, min(1, n), max(n - 1, 0)) + y.narrow(d, 0, max(n - 1, 0))


def _widths(name: str, y: Tensor, x: Tensor, d: int) -> Tensor:
    if x.dtype is dt.bool_:
        raise RuntimeError(f"{name}: received a bool input for `x`, but bool is not supported")
    if len(x.shape) == 1:
        if x.shape[0] != y.shape[d]:
            raise RuntimeError(f"{name}: There must be one `x` value for each sample point")
        return diff(x).reshape([-1 if i == d else 1 for i in range(len(y.shape))])
    if len(x.shape) < len(y.shape):
        x = x.reshape((1,) * (len(y.shape) - len(x.shape)) + tuple(x.shape))
    return diff(x, dim=d)


def _points(name: str, x: Any, dx: Any) -> tuple[Tensor | None, Any]:
    """Return the points of trapezoid(y, x) or the distance of trapezoid(y, dx=...)."""
    if x is not None and dx is not None:
        raise TypeError(f"{name}() received an invalid combination of arguments: both `x` and `dx`")
    if isinstance(x, Tensor):
        return x, 1
    width = 1 if x is None and dx is None else as_number(dx if x is None else x, name, "dx", 2)
    if isinstance(width, complex):
        raise RuntimeError(f"{name}: Currently, we only support dx as a real number.")
    return None, width


@composite(method=False)
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The integral of samples y by the trapezoid rule, at points x or at the distance dx (1)."""
    x, dx = _points("trapezoid", x, dx)
    if y.shape and y.shape[wrap_dim(dim, len(y.shape))] == 0:
        return _nothing(y, dim)
    widths, d = _checked("trapezoid", y, x, dx, dim)
    if x is None:  # every sample counts twice but the first and the last
        return (y.sum(d) - (y.select(d, 0) + y.select(d, -1)) * 0.5) * dx
    return (_pair_sums(y, d) * widths).sum(d) / 2.0


def _nothing(y: Tensor, dim: int) -> Tensor:
    """Return the integral of no samples: zeros."""
    d = wrap_dim(dim, len(y.shape))
    return y.new_zeros([n for i, n in enumerate(y.shape) if i != d])


@composite(method=False)
def trapz(y: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """Alias of trapezoid."""
    return trapezoid(y, x, dx=dx, dim=dim)


@composite(method=False)
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The running integral of samples y by the trapezoid rule."""
    x, dx = _points("cumulative_trapezoid", x, dx)
    widths, d = _checked("cumulative_trapezoid", y, x, dx, dim)
    sums = _pair_sums(y, d)
    return cumsum(sums * (widths / 2.0) if x is None else sums * widths / 2.0, d)
