"""pad: constants, reflection, replication or wrapping around the borders of a tensor."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...core import dtype as dt
from ...core.aliases import AnyFunction
from ...core.dtype import opmath
from ...core.tensor import Tensor, empty, numel_of
from ...core.typenames import type_name
from ...kernels.library import padding as kernels
from ..machinery.arguments import as_ints, as_number
from ..machinery.aten_form import operator_of, unread
from ..machinery.declare import composite, internal
from ..machinery.dtype_rules import unsupported
from ..machinery.inplace import raw_copy
from ..machinery.memory import Table, bare, layout_in_format_of
from ..machinery.quirks import Quirks
from .complex_views import view_as_complex, view_as_real
from .joining import stack
from .rearrange import constant_pad_nd

_COMBINATIONS = """Supported combinations for non-constant padding:
  - 2D or 3D input: padding size = 2 (pads last dimension)
  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)
  - 4D or 5D input: padding size = 6 (pads last 3 dimensions)"""


class Border(NamedTuple):
    """Padding of one dimension: the source of each output (`table`); those in [low, high) come from their own place less `shift`."""

    size: int
    out: int
    table: Table
    low: int
    high: int
    shift: int


Borders = tuple[Border, ...]


@lru_cache(512)
def _border(mode: str, size: int, before: int, after: int) -> Border:
    out = size + before + after
    place = np.arange(out) - before
    if mode == "reflect":
        place = np.abs(place)
        index = np.where(place >= size, 2 * (size - 1) - place, place)
    elif mode == "replicate":
        index = np.clip(place, 0, size - 1)
    else:
        cut = max(-before, 0)  # negative padding crops first; the rest wraps around
        left = size - cut - max(-after, 0)
        index = cut + (np.arange(out) - max(before, 0)) % max(left, 1)
    low = max(before, 0)
    high = max(out - max(after, 0), low)
    return Border(size, out, Table(index, dt.int64), low, high, before)


def _geometry(borders: Borders) -> tuple[Any, ...]:
    last = borders[-1]
    return (*(b.size for b in borders), *(b.out for b in borders), last.low, last.high, last.shift)


def _in_three(borders: Borders) -> tuple[Border, ...]:
    return (_border("replicate", 1, 0, 0),) * (3 - len(borders)) + borders


def _widths(borders: Borders) -> list[int]:
    """Return the widths before and after each dimension, the last one first."""
    return [n for b in reversed(borders) for n in (b.shift, b.out - b.size - b.shift)]


def _unwrapped(grad: Tensor, dim: int, border: Border) -> Tensor:
    """Return the gradient of one dimension that was padded circularly: the borders are added to the places they came from."""
    before, after = border.shift, border.out - border.size - border.shift
    first, last = max(-before, 0), border.size - max(-after, 0)  # what was left by negative padding
    total = _placed(grad.narrow(dim, max(before, 0), last - first), dim, first, border.size)
    if before > 0:
        total = total + _placed(grad.narrow(dim, 0, before), dim, last - before, border.size)
    if after > 0:
        total = total + _placed(grad.narrow(dim, border.out - after, after), dim, first, border.size)
    return total


def _placed(part: Tensor, dim: int, start: int, size: int) -> Tensor:
    """Return zeros of `size` along a dimension, with a part of them."""
    further = len(part.shape) - 1 - dim
    return constant_pad_nd(part, [0, 0] * further + [start, size - start - part.shape[dim]])


def _padding_op(label: str) -> Any:
    name = label.removesuffix("Backward0")
    circular = "Circular" in name

    def forward_layout(input: Tensor, borders: Borders) -> tuple[Any, ...]:
        return layout_in_format_of(input, (*input.shape[: len(input.shape) - len(borders)], *(b.out for b in borders)))

    def run(input: Tensor, borders: Borders) -> Tensor:
        """The input with borders made of its own elements."""

    def backward_layout(input: Tensor, borders: Borders) -> tuple[Any, ...]:
        lead = input.shape[: len(input.shape) - len(borders)]
        return (*lead, *(b.size for b in borders)), input.dtype, input.device

    def run_back(input: Tensor, borders: Borders) -> Tensor:
        """Add the values in the borders to the places they came from."""

    forward: Any = internal(
        run,
        layout=forward_layout,
        grads={"input": lambda g, borders: backward(g, borders)},
        quirks=Quirks(label=label),
        name=name,
        batching="folded",
    )
    backward: Any = internal(
        run_back,
        layout=backward_layout,
        grads={"input": lambda g, borders: forward(g, borders)},
        quirks=Quirks(label=f"{name}BackwardBackward0"),
        name=f"{name}_backward",
        batching="folded",
    )

    @forward.op.as_aten
    def _(recorder: Any, input: Tensor, borders: Borders) -> Tensor:
        widths = _widths(borders)
        if not circular:
            return getattr(recorder.aten, operator_of(label)).default(input, widths)
        for dim, (before, after) in enumerate(zip(widths[-2::-2], widths[::-2]), len(input.shape) - len(borders)):
            inner = input.narrow(dim, max(-before, 0), input.shape[dim] + min(before, 0) + min(after, 0))
            first = [input.narrow(dim, input.shape[dim] - before, before)] if before > 0 else []
            last = [input.narrow(dim, 0, after)] if after > 0 else []
            input = recorder.aten.cat.default([*first, inner, *last], dim)
        return input

    @backward.op.as_aten
    def _(recorder: Any, input: Tensor, borders: Borders) -> Tensor:
        if not circular:
            shape = [*input.shape[: len(input.shape) - len(borders)], *(b.size for b in borders)]
            given = input, unread(recorder, input, shape), _widths(borders)
            return getattr(recorder.aten, f"{operator_of(label)}_backward").default(*given)
        for dim, border in enumerate(borders, len(input.shape) - len(borders)):
            input = recorder.again(_unwrapped, (input, dim, border), {})
        return input

    forward.on("any")(_pad)
    backward.on("any")(_pad_transposed)
    return forward


def _pad(out: Tensor, input: Tensor, borders: Borders) -> None:
    three, planes = _in_three(borders), numel_of(input.shape[: len(input.shape) - len(borders)])
    target = out if out._contig else empty(out.shape, out.dtype, out.device)
    kernels.pad_planes(target, bare(input), *(b.table.on(out.device) for b in three), planes, *_geometry(three))
    if target is not out:
        raw_copy(out, target)


def _pad_transposed(out: Tensor, input: Tensor, borders: Borders) -> None:
    three, planes = _in_three(borders), numel_of(input.shape[: len(input.shape) - len(borders)])
    wide = opmath(out.dtype)
    target = out if wide is out.dtype else empty(out.shape, wide, out.device)
    kernels.pad_planes_backward(
        target, bare(input), *(b.table.on(out.device) for b in three), planes, *_geometry(three)
    )
    if target is not out:
        raw_copy(out, target)


_NAMES = {"reflect": "reflection_pad", "replicate": "replication_pad", "circular": "_pad_circular"}
_OPS = {
    **{("reflect", d): _padding_op(f"ReflectionPad{d}DBackward0") for d in (1, 2, 3)},
    **{("replicate", d): _padding_op(f"ReplicationPad{d}DBackward0") for d in (1, 2, 3)},
    **{("circular", d): _padding_op(f"PadCircular{d}DBackward0") for d in (1, 2, 3)},
}


# -- checks ---------------------------------------------------------------------------------------------------------------


def _check_circular(sizes: tuple[int, ...], widths: tuple[int, ...]) -> None:
    for i, size in enumerate(reversed(sizes)):
        before, after = widths[2 * i], widths[2 * i + 1]
        if before > size or after > size:
            raise RuntimeError("Padding value causes wrapping around more than once.")
        if size + before + after < 0:
            raise RuntimeError("Negative padding value is resulting in an empty dimension")


def _check_mirror(mode: str, input: Tensor, widths: tuple[int, ...]) -> None:
    dims = len(widths) // 2
    rank = len(input.shape)
    if 0 in input.shape[1 if rank == dims + 2 else 0 :]:
        raise RuntimeError(
            f"Expected {dims + 1}D or {dims + 2}D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions"
            f" for input, but got: {list(input.shape)}"
        )
    if mode == "reflect":
        for i in range(dims):
            before, after, d = widths[2 * i], widths[2 * i + 1], rank - 1 - i
            if before >= input.shape[d] or after >= input.shape[d]:
                raise RuntimeError(
                    f"Argument #{4 + 2 * i}: Padding size should be less than the corresponding input dimension, but got:"
                    f" padding ({before}, {after}) at dimension {d} of input {list(input.shape)}"
                )
    sizes = input.shape[rank - dims :]
    wanted = [n + widths[2 * (dims - 1 - i)] + widths[2 * (dims - 1 - i) + 1] for i, n in enumerate(sizes)]
    if max(wanted) < 1 or min(wanted) < 0:
        axes = "DHW"[-dims:]
        shown = [" ".join(f"{a}: {n}" for a, n in zip(axes, values)) for values in (sizes, wanted)]
        raise RuntimeError(f"input ({shown[0]}) is too small. Calculated output {shown[1]}")
    if input.dtype is dt.bool_:
        raise unsupported(f"{_NAMES[mode]}{dims}d", input.dtype)


def _pad_by_itself(input: Tensor, widths: tuple[int, ...], mode: str) -> Tensor:
    rank, dims = len(input.shape), len(widths) // 2
    if not (1 <= dims <= 3 and rank in (dims + 1, dims + 2)):
        raise NotImplementedError(
            f"Padding size {len(widths)} is not supported for {rank}D input tensor.\n{_COMBINATIONS}"
        )
    sizes = tuple(input.shape[rank - dims :])
    if mode == "circular":
        _check_circular(sizes, widths)
    else:
        _check_mirror(mode, input, widths)
    if input.dtype.is_complex:
        return _complex_pad(input, widths, mode)
    borders = tuple(
        _border(mode, n, widths[2 * (dims - 1 - i)], widths[2 * (dims - 1 - i) + 1]) for i, n in enumerate(sizes)
    )
    return _OPS[mode, dims](input, borders)


def _complex_pad(input: Any, widths: tuple[int, ...], mode: str) -> Tensor:
    """Pad a complex tensor: real and imaginary part alike."""
    parts = view_as_real(input.resolve_conj())
    halves = [_pad_by_itself(parts.select(-1, i), widths, mode) for i in range(2)]
    return view_as_complex(stack(halves, -1))


# -- the public function --------------------------------------------------------------------------------------------------


def _autocast_pad(run: AnyFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, AnyFunction]:
    """Choose float32 for mirrored and repeated borders, except mirrored ones of volumes."""
    widths = kwargs.get("pad", args[1] if len(args) > 1 else ())
    mode = kwargs.get("mode", args[2] if len(args) > 2 else "constant")
    in_float32 = mode == "replicate" or (mode == "reflect" and len(widths) < 6)
    return ("float32" if in_float32 else "parts"), run


@composite(method=False, namespaces=("nn.functional",), autocast=_autocast_pad, sharding="pad")
def pad(input: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    """The input with elements added around the last dimensions: pad is (before, after) of the last one, then of the one before it, ...

    >>> pad(tensor([[1, 2, 3]]), (1, 2))
    tensor([[0, 1, 2, 3, 0, 0]])
    """
    widths = as_ints(pad, "pad", "pad", 2)
    if not isinstance(mode, str):
        raise TypeError(f"pad(): argument 'mode' (position 3) must be str, not {type_name(mode)}")
    if len(widths) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(widths) > 2 * len(input._strides):  # which a tensor that is spread over ranks does not have
        raise RuntimeError(
            "Padding length should be less than or equal to two times the input dimension but got padding length"
            f" {len(widths)} and input of dimension {len(input.shape)}"
        )
    fill = 0 if value is None else as_number(value, "pad", "value", 4)
    if mode == "constant":
        return constant_pad_nd(input, widths, fill)
    if fill != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if mode not in _NAMES:
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    return _pad_by_itself(input, widths, mode)
