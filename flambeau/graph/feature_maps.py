"""Feature maps: values of (images, channels, rows, columns) that may be stored channels-last between calls that were recorded channels-first.

The operators' records declare which calls accept such maps: formulas, reductions and copies of parts (`Op.pieces`) take any strides, a
convolution (`Op.convolution`) takes each map in either layout, and other primitives take all of theirs channels-last (`Op.channels_last`). A
call is rewritten by changing the strides of its values; its layout rule and its kernels give the rest."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..core.dtype import dtype
from ..core.layout import channels_last_strides
from ..core.records import record, replace
from ..core.tensor import numel_of
from .checker import described
from .conversions import Kernel, all_results, new_results
from .fusion import fused_call
from .loops import loop_of
from .memory import mapped
from .pieces import copies_of
from .program import Call, Program, Value
from .reductions import reduced

_MAPS = ("x", "y", "dx", "dy")  # of a convolution's tensors


class FeatureMap(NamedTuple):
    """Size of a feature map: the number of images, channels of each, pixels of each channel, and the dtype."""

    images: int
    channels: int
    pixels: int
    dtype: dtype

    @property
    def bytes(self) -> int:
        return self.images * self.channels * self.pixels * self.dtype.itemsize

    def strides(self, last: bool) -> tuple[int, int, int]:
        one = (1, self.channels) if last else (self.pixels, 1)
        return (self.channels * self.pixels, *one)

    def moved(self, v: Value, to: int) -> Value | None:
        """Return a value over this map in channels-last layout, in another buffer; None if one of its dimensions crosses channels or images."""
        first, odd = divmod(v.start, self.dtype.itemsize)
        before, after = self.strides(False), self.strides(True)
        ends = [first // before[0], first % before[0] // before[1], first % before[1]]
        start = sum(n * s for n, s in zip(ends, after)) * self.dtype.itemsize
        strides = []
        for n, s in zip(v.shape, v.strides):
            axis = next(i for i in range(3) if s >= before[i] or i == 2)
            steps, across = divmod(s, before[axis])
            if n > 1 and across:
                return None
            ends[axis] += (n - 1) * steps
            strides.append(steps * after[axis])
        if odd or v.dtype is not self.dtype or any(end >= n for end, n in zip(ends, self[:3])):
            return None
        last = channels_last_strides(v.shape) if v.is_whole and len(v.shape) == 4 else tuple(strides)
        return replace(v, buffer=to, start=start, strides=last)


class Convolution(NamedTuple):
    """A convolution, or gradients of one, as a call computes it: the tensors by their role, and the window."""

    tensors: dict[str, Value]
    window: Any


def convolution_of(call: Call) -> Convolution | None:
    """Return a call as a convolution; None for other calls."""
    if call.op.convolution is None or call.stays:
        return None
    found = call.op.convolution(**call.op.bind(call.args, call.kwargs))
    results = call.returned()
    if found is None or len(found[1]) != len(results):
        return None
    given, names, window = found
    tensors = {**dict(zip(names, results)), **{n: v for n, v in given.items() if v is not None}}
    return Convolution(tensors, window) if all(len(tensors[n].shape) == 4 for n in _MAPS if n in tensors) else None


@record
class Unit:
    """Call that accepts feature maps in either layout: all of them in the same, unless it is a convolution. `gain` is the time it saves
    with channels last, in milliseconds for a million bytes."""

    call: Call
    maps: dict[int, FeatureMap]
    convolution: Convolution | None
    gain: float

    def relaid(self, last: dict[int, int]) -> list[Call] | None:
        """Return the calls with the buffers in `last` (old to new) channels-last, or None if there are no such calls."""
        call = self.call

        def other(v: Value) -> Value:
            if v.buffer in last:
                return self.maps[v.buffer].moved(v, last[v.buffer]) or v
            alike = self.convolution is None and call.op.channels_last is not None and len(v.shape) == 4 and v.is_whole
            return replace(v, strides=channels_last_strides(v.shape)) if alike else v

        if self.convolution is not None:
            found = new_results(call)
            if found is None:
                return None
            outs = [other(v) for v in found[0]]
            args = mapped(tuple(call.op.bind(call.args, call.kwargs).values()), Value, other)
            kernel = Kernel(call.op, outs[0].device, found[1])
            return [Call(call.op, kernel, args, {}, outs, [v.buffer for v in outs], frozenset(), call.line, (call,))]
        if call.op.pieces is not None:
            return copies_of(call, other)
        args, kwargs, results = mapped((call.args, call.kwargs, call.results), Value, other)
        makes, changes = ([last.get(b, b) for b in given] for given in (call.makes, call.changes))
        now = replace(
            call, args=args, kwargs=kwargs, results=results, makes=makes, changes=frozenset(changes), steps=None, recorded=call
        )  # fmt: skip
        loop = loop_of(now)
        if loop is not None:
            return [fused_call(loop, list(loop.results))]
        wanted, made = [other(v) for v in _results(call)], _results(now)
        now.makes = makes[: len(made)]  # without what kernels made for themselves
        return [now] if list(map(_nontrivial_dims, wanted)) == list(map(_nontrivial_dims, made)) else None


def _nontrivial_dims(v: Value) -> list[tuple[int, int]]:
    """Return sizes and strides of the dimensions of more than one element."""
    return [(n, s) for n, s in zip(v.shape, v.strides) if n > 1]


def _results(call: Call) -> list[Value]:
    """Return the values that a call makes, by its layout rule, those that only a derivative reads included."""
    if call.op.layout is not None:
        return all_results(call)[0]
    told = described(call) or []
    return [replace(v, strides=strides) for v, (_, strides, _) in zip(call.returned(), told)]


def units(program: Program) -> tuple[list[Unit], dict[int, FeatureMap]]:
    """Return the calls that accept feature maps in either layout, and all feature maps by buffer."""
    known = _Finder(program).known
    found = []
    for call in program.calls:
        unit = None if call.fixed else _make_unit(call, known)
        if unit is not None:
            found.append(unit)
    return found, known


def _make_unit(call: Call, known: dict[int, FeatureMap]) -> Unit | None:
    values = _values(call)
    maps = {v.buffer: known[v.buffer] for v in values if v.buffer in known}
    if not maps or any(m.moved(v, 0) is None for v in values if (m := maps.get(v.buffer)) is not None):
        return None
    convolution, gain = convolution_of(call), 0.0
    if convolution is None and call.op.channels_last is not None:
        told = _time_saved(call)
        if told is None or any(_is_map(v) and v.buffer not in maps for v in values):
            return None
        gain = told
    elif convolution is None and call.op.pieces is None and loop_of(call) is None and reduced(call) is None:
        return None
    return Unit(call, maps, convolution, gain)


def _time_saved(call: Call) -> float | None:
    """Return the time a call saves with channels last, by its record; None if its kernels do not take that layout."""
    return None if call.op.channels_last is None else call.op.channels_last(**call.op.bind(call.args, call.kwargs))


def _values(call: Call) -> list[Value]:
    """Return the values that a call touches, including those that only its derivative reads."""
    saved = (
        _results(call)[len(call.returned()) :] if getattr(call.op.impl, "saves", ()) and call.op.channels_last else []
    )
    return [*call.arguments(), *call.returned(), *saved]


def _is_map(v: Value) -> bool:
    return len(v.shape) == 4 and v.shape[1] > 1 and math.prod(v.shape[2:]) > 1


class _Finder:
    """Search for the buffers that hold feature maps: those of convolutions, of other calls that declare it, and of formulas over them."""

    def __init__(self, program: Program):
        self.program, self.known = program, dict[int, FeatureMap]()
        self._bad: set[int] = set()
        formulas = []
        for call in program.calls:
            if call.fixed:
                continue
            convolution = convolution_of(call)
            if convolution is not None:
                self._learn_all([v for n, v in convolution.tensors.items() if n in _MAPS])
            elif _time_saved(call) is not None:
                self._learn_all(_values(call))
            elif call.op.kind == "pointwise" or call.op.formula is not None:
                formulas.append([v for v in (*call.arguments(), *call.returned()) if v.is_whole])
        count = -1
        while count != len(self.known):  # one tells of the next
            count = len(self.known)
            for values in formulas:
                self._learn_from(values)
        for buffer in self._bad:
            self.known.pop(buffer, None)

    def _learn_all(self, values: list[Value]) -> None:
        for v in values:
            if _is_map(v) and v.is_whole:
                self._learn(v, (v.shape[0], v.shape[1], math.prod(v.shape[2:])))

    def _learn(self, v: Value, shape: tuple[int, int, int]) -> None:
        held, found = self.program.buffers[v.buffer], FeatureMap(*shape, v.dtype)
        if (
            held.source != "new"
            or held.size < found.bytes
            or v.dtype.is_complex
            or self.known.get(v.buffer, found) != found
        ):
            self._bad.add(v.buffer)
        else:
            self.known[v.buffer] = found

    def _learn_from(self, values: list[Value]) -> None:
        """Mark values of a formula as feature maps if another value in it is one and they have as many elements."""
        shape = next((self.known[v.buffer][:3] for v in values if v.buffer in self.known), None)
        for v in values if shape is not None else ():
            if numel_of(v.shape) == math.prod(shape) and self.program.buffers[v.buffer].source == "new":  # type: ignore[arg-type]
                self._learn(v, shape)  # type: ignore[arg-type]
