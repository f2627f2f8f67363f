"""Application of bands (see `band`) along the last dimensions of a tensor: the basis of average pooling and interpolation.

The derivative of such an operator is the same operator with transposed bands, to any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.dtype import opmath
from ...core.tensor import Tensor, empty, numel_of
from ...kernels.library import resample as kernels
from ..machinery.aten_form import operator_of, unread
from ..machinery.declare import internal
from ..machinery.inplace import raw_copy
from ..machinery.memory import bare, is_last, layout_like, without_gaps
from ..machinery.quirks import Quirks
from .band import Band, Outline

Bands = tuple[Band, ...]
_TASKS = 32  # parallel pieces a map is cut into at least, if it is large
_GATHERED = 4  # taps that are written out in the kernel
_MOST_TAPS = 9  # inputs of an output, beyond which two passes are cheaper than one
_ONE = Band(1, np.zeros(1), np.ones(1), divisors=np.ones(1))  # a dimension of size 1 that stays


Outlines = tuple[Outline, ...]


def _layout(input: Tensor, bands: Outlines) -> tuple[Any, ...]:
    return layout_like(input, (*input.shape[: len(input.shape) - len(bands)], *(b.out for b in bands)))


def _resample(out: Tensor, input: Tensor, outlines: Outlines, divide: bool = True) -> None:
    """Apply one band along each of the last dimensions: the kernel."""
    bands = tuple([b.band for b in outlines])
    source = without_gaps(input)._bare_alias()
    if all(b.is_identity for b in bands):
        raw_copy(out, source)
    elif is_last(source):
        _apply_last(out, source, bands, divide)
    else:
        _apply(out, bare(source), bands, divide)


@internal(layout=_layout, batching="each")
def sums(input: Tensor, bands: Outlines) -> Tensor:
    """Compute the sums of which averages are made."""


@sums.on("any")
def _(out: Tensor, input: Tensor, bands: Outlines) -> None:
    _resample(out, input, bands, False)


def _apply(out: Tensor, x: Tensor, bands: Bands, divide: bool) -> None:
    """Apply bands to contiguous planes: along the leading dimension by lines, then by whole planes."""
    sizes, outer = list(x.shape[len(x.shape) - len(bands) :]), numel_of(x.shape[: len(x.shape) - len(bands)])
    if len(bands) == 3:
        if not bands[0].is_identity:
            done = all(b.is_identity for b in bands[1:])
            shape = (outer, bands[0].out, sizes[1], sizes[2])
            step = out if done else empty(shape, opmath(x.dtype), x.device)
            _lines(step, x, bands[0], outer, sizes[1] * sizes[2], divide)
            if done:
                return
            x = step
        outer *= bands[0].out
    if len(bands) == 1:
        bands, sizes = (_ONE if bands[0].flat else _ONE.weighted, *bands), [1, *sizes]
    _planes(out, x, bands[-2:], outer, sizes[-2], sizes[-1], divide)


def _planes(out: Tensor, x: Tensor, bands: Bands, planes: int, h: int, w: int, divide: bool) -> None:
    rows, columns = bands
    if rows.picks and columns.picks:
        d = opmath(x.dtype)
        kernels.pick_planes(
            out,
            x,
            rows.tables(d, x.device)[0],
            columns.tables(d, x.device)[0],
            planes,
            h,
            w,
            rows.out,
            columns.out,
            1,
            repeat=columns.repeat,
        )
        return
    if rows.flat != columns.flat:
        rows, columns = rows.weighted, columns.weighted
    kept = opmath(x.dtype)
    form, step, lead, tail, taps, ragged = "any", 0, 0, 0, 0, False
    if columns.steps is not None:
        step, lead, taps = columns.steps
        tail = max(0, (columns.out - 1) * step - lead + taps - w)
        form, columns = "steps", columns.stepped
    elif columns.taps <= _GATHERED and not columns.flat:
        form, taps, ragged = "gather", columns.taps, bool(columns.count.min() < columns.taps)
        lead = max(0, -int(columns.first.min()))
        tail = max(0, int(columns.first.max()) + taps - w)
    parts = min(rows.out, -(-_TASKS // planes))
    scratch = empty((planes * parts, lead + w + tail), kept, x.device)
    kernels.resample_planes(
        out, x, scratch, *rows.tables(kept, x.device), *columns.tables(kept, x.device), planes, parts, h, w, rows.out, columns.out, lead, tail,
        form=form, step=step, taps=taps, ragged=ragged, flat=rows.flat, divide=divide,
    )  # fmt: skip


def _apply_last(out: Tensor, x: Tensor, bands: Bands, divide: bool) -> None:
    """Resample a channels-last tensor, whose dimensions are all lines of adjacent channels."""
    n, channels = x.shape[:2]
    sizes = list(x.shape[2:])
    todo = [i for i, b in enumerate(bands) if not b.is_identity]
    if all(b.picks for b in bands) and len(bands) == 2:
        d = opmath(x.dtype)
        rows, columns = bands
        kernels.pick_planes(
            out,
            x,
            rows.tables(d, x.device)[0],
            columns.tables(d, x.device)[0],
            n,
            *sizes,
            rows.out,
            columns.out,
            channels,
            repeat=0,
        )
        return
    if len(bands) == 2 and bands[0].taps * bands[1].taps <= _MOST_TAPS and bands[0].flat == bands[1].flat:
        tables = (*bands[0].tables(opmath(x.dtype), x.device), *bands[1].tables(opmath(x.dtype), x.device))
        kernels.resample_channels(
            out, x, *tables, n, *sizes, channels, bands[0].out, bands[1].out, flat=bands[0].flat, divide=divide
        )
        return
    # Along dimensions that shrink first: less is left for the others.
    todo.sort(key=lambda i: bands[i].out / max(bands[i].size, 1))
    for i in todo:
        outer, inner = n * numel_of(tuple(sizes[:i])), numel_of(tuple(sizes[i + 1 :])) * channels
        sizes[i] = bands[i].out
        target = out if i == todo[-1] else empty((n, *sizes, channels), opmath(x.dtype), x.device)
        _lines(target, x, bands[i], outer, inner, divide)
        x = target


def _lines(out: Tensor, x: Tensor, band: Band, outer: int, inner: int, divide: bool) -> None:
    tables = band.tables(opmath(x.dtype), x.device)
    kernels.resample_lines(out, x, *tables, outer, band.size, band.out, inner, flat=band.flat, divide=divide)


def resampling_op(
    label: str, settings: Callable[[Outlines], list[Any]], sized: bool = True, resizes: bool = True
) -> Callable[[Tensor, Outlines], Tensor]:
    """Return a differentiable operator that applies bands, and whose grad_fn prints as `label`. PyTorch's takes the sizes of the result if
    it is `sized`, and `settings` of the bands; its derivative takes the sizes of both if it `resizes`, else the input."""
    name = label.removesuffix("Backward0")

    def backward_rule(g: Tensor, bands: Outlines) -> Tensor:
        return backward(g, tuple(b.transposed for b in bands))

    def run(input: Tensor, bands: Outlines) -> Tensor:
        """The input after applying bands along the last dimensions."""

    declared: dict[str, Any] = {"layout": _layout, "channels_last": lambda **arguments: 0.0, "batching": "folded"}
    forward: Any = internal(
        run, grads={"input": backward_rule}, quirks=Quirks(label=label), name=f"resample_{name}", **declared
    )
    backward: Any = internal(
        run,
        grads={"input": lambda g, bands: forward(g, tuple(b.transposed for b in bands))},
        quirks=Quirks(label=f"{name}BackwardBackward0"),
        name=f"resample_{name}_backward",
        **declared,
    )

    @forward.op.as_aten
    def _(recorder: Any, input: Tensor, bands: Outlines) -> Tensor:
        sizes = [[b.out for b in bands]] if sized else []
        return getattr(recorder.aten, operator_of(label)).default(input, *sizes, *settings(bands))

    @backward.op.as_aten
    def _(recorder: Any, input: Tensor, bands: Outlines) -> Tensor:
        shape = [*input.shape[: len(input.shape) - len(bands)], *(b.out for b in bands)]
        about = [[b.size for b in bands], shape] if resizes else [unread(recorder, input, shape)]
        return getattr(recorder.aten, f"{operator_of(label)}_backward").default(input, *about, *settings(bands))

    for op in (forward, backward):
        op.on("any")(_resample)
    return forward
