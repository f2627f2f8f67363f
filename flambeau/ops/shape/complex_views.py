"""Complex tensors and their real and imaginary parts."""

from __future__ import annotations

from typing import Any

from ...core import dtype as dt
from ...core.dtype import dtype
from ...core.layout import broadcast_two, output_strides
from ...core.size import make_size
from ...core.tensor import OpenTensor, Tensor
from ..machinery.arguments import need_tensors
from ..machinery.declare import composite, internal, view
from ..machinery.inplace import raw_copy
from ..machinery.out import write_out
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor


@view(grads={"input": lambda g: view_as_complex(g.contiguous())}, method=False, batching="fronted", sharding="pairs")
def view_as_real(input: Tensor) -> Tensor:
    """A view of a complex tensor as pairs of real numbers in a new last dimension."""
    if not input.dtype.is_complex:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    out = input._view(make_size((*input.shape, 2)), (*(2 * s for s in input._strides), 1), 2 * input._offset)
    out.dtype = input.dtype.to_real()
    return out


@view(
    grads={"input": lambda g: view_as_real(g.resolve_conj() if hasattr(g, "resolve_conj") else g)},
    method=False,
    autocast="float32",
    batching="fronted",
    sharding="pairs",
)
def view_as_complex(input: Tensor) -> Tensor:
    """A view of pairs of real numbers in the last dimension as complex numbers."""
    if input.dtype not in (dt.float16, dt.float32, dt.float64):
        raise RuntimeError(
            f"view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type:"
            f" {input.dtype.scalar_type}"
        )
    if not input.shape:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if input.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if input._strides[-1] != 1:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    if any(s % 2 for n, s in zip(input.shape[:-1], input._strides) if n > 1):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    if input._offset % 2:
        raise RuntimeError("Tensor must have a storage_offset divisible by 2")
    strides = tuple(s // 2 for s in input._strides[:-1])
    out = input._view(make_size(input.shape[:-1]), strides, input._offset // 2)
    out.dtype = input.dtype.to_complex()
    return out


@composite
def real(input: Tensor) -> Tensor:
    """The real parts, as a view; a real tensor itself."""
    return view_as_real(input).select(-1, 0) if input.dtype.is_complex else input


@composite
def imag(input: Tensor) -> Tensor:
    """The imaginary parts, as a view."""
    if not input.dtype.is_complex:
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return view_as_real(input).select(-1, 1)


def _set_real(self: Tensor, value: Any) -> None:
    real(self).copy_(_as_tensor(self, value))


def _set_imag(self: Tensor, value: Any) -> None:
    imag(self).copy_(_as_tensor(self, value))


def _as_tensor(like: Tensor, value: Any) -> Any:
    return value if isinstance(value, Tensor) else like.new_tensor(value, dtype=like.dtype.to_real())


OpenTensor.real = property(real, _set_real)
OpenTensor.imag = property(imag, _set_imag)


def _check_parts(name: str, names: tuple[str, str], first: Any, second: Any) -> dtype:
    need_tensors(name, **dict(zip(names, (first, second))))
    if not all(x.dtype in (dt.float16, dt.float32, dt.float64) for x in (first, second)):
        raise RuntimeError(
            f"Expected both inputs to be Half, Float or Double tensors but got {first.dtype.scalar_type} and"
            f" {second.dtype.scalar_type}"
        )
    if first.dtype is not second.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {first.dtype.scalar_type} but got scalar type {second.dtype.scalar_type}"
            " for second argument"
        )
    return first.dtype.to_complex()


def _parts_layout(first: Tensor, second: Tensor, d: dtype) -> tuple[Any, ...]:
    shape = broadcast_two(first.shape, second.shape)
    strides = output_strides(shape, [(x.shape, x._strides) for x in (first, second)])
    return shape, d, first.device, strides


def _put_parts(out: Tensor, first: Any, second: Any) -> None:
    pairs = view_as_real(out)
    raw_copy(pairs.select(-1, 0), first)
    raw_copy(pairs.select(-1, 1), second)


def _complex_backward(g: Tensor, real_shape: Any, imag_shape: Any, needs: dict[str, bool]) -> tuple[Any, ...]:
    return (
        g.real.sum_to_size(real_shape) if needs["real"] else None,
        g.imag.sum_to_size(imag_shape) if needs["imag"] else None,
    )


def _check_out(out: Any, d: dtype) -> None:
    if isinstance(out, Tensor) and out.dtype is not d:
        raise RuntimeError(
            f"Expected object of scalar type {d.scalar_type} but got scalar type {out.dtype.scalar_type} for argument"
            " 'out'"
        )


@internal(grads={("real", "imag"): _complex_backward}, quirks=Quirks(label="ComplexBackward0"), batching="leading")
def joined(real: Tensor, imag: Tensor) -> NewTensor:
    """A complex tensor from its real and imaginary parts."""
    return _parts_layout(real, imag, _check_parts("complex", ("real", "imag"), real, imag))


joined.on("any")(_put_parts)


@composite(name="complex", method=False)
def complex_(real: Tensor, imag: Tensor, *, out: Any = None) -> Tensor:
    """A complex tensor from its real and imaginary parts."""
    if out is None:
        return joined(real, imag)
    _check_out(out, _check_parts("complex", ("real", "imag"), real, imag))
    return write_out("complex", out, joined(real, imag))


def _polar_backward(g: Any, abs: Any, angle: Any, needs: dict[str, bool]) -> tuple[Any, ...]:
    cosine, sine = angle.cos(), angle.sin()
    radial = (g.real * cosine + g.imag * sine).sum_to_size(abs.shape) if needs["abs"] else None
    turning = (abs * (g.imag * cosine - g.real * sine)).sum_to_size(angle.shape) if needs["angle"] else None
    return radial, turning


@composite(method=False, autocast="float32")
def polar(abs: Any, angle: Any, *, out: Any = None) -> Tensor:
    """A complex tensor from absolute values and angles."""
    if out is None:
        return turned(abs, angle)
    _check_out(out, _check_parts("polar", ("abs", "angle"), abs, angle))
    return write_out("polar", out, turned(abs, angle))


@internal(grads={("abs", "angle"): _polar_backward}, quirks=Quirks(label="PolarBackward0"), batching="leading")
def turned(abs: Any, angle: Any) -> NewTensor:
    """A complex tensor from absolute values and angles."""
    return _parts_layout(abs, angle, _check_parts("polar", ("abs", "angle"), abs, angle))


@turned.on("any")
def _(out: Tensor, abs: Any, angle: Any) -> None:
    _put_parts(out, abs * angle.cos(), abs * angle.sin())
