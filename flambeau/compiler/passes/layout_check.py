"""In the run that compares: a step on feature maps in another layout is checked against the recorded calls that it replaces.

Sums in another order move a value across `relu`'s zero now and then, so the final results cannot judge such a step. The recorded calls are
made right after it, on its operands in their recorded layout, and must agree; their results are kept, so that all later steps read what they
would in an eager call. Feature maps of the program's own are converted to the recorded layout and back in place, one image at a time: copies
would need more memory than anything else in that call."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...backends.cpu.onednn import plan as onednn_plan
from ...core.dtype import float32
from ...graph.feature_maps import FeatureMap, convolution_of
from ...graph.program import Value
from ..record.comparison import Print, kind_of, numbers, view
from ..record.relaid import Relaid, relaid_steps
from ..record.steps import Launch, Ref
from ..runtime import driver
from ..runtime.program import Program

_PIECE = 1 << 16  # numbers that are looked at together
_OF_RESULTS, _OF_TERMS = 1e-4, 1e-5  # how far sums over feature maps may be apart


class Differs(Exception):
    """Raised when a step computes something else than the recorded calls."""


class AsRecorded:
    """Values that a step reads, saved before it runs, so that the recorded calls can be repeated on the same operands."""

    def __init__(self, program: Program, relaid: Relaid):
        self.program, self.relaid = program, relaid
        self.memory: dict[int, np.ndarray] = {}  # what stands for buffers
        written = {r.buffer for call in self.relaid.steps for r in call.writes()}
        mine, together = relaid.writes(), len(relaid.made) > 1
        self.turned = {} if together else self._convertible_maps()
        for b in dict.fromkeys(r.buffer for call in self.relaid.steps for r in call.refs()):
            held = program.graph.buffers[b]
            if (
                b in self.turned
                or held.source == "workspace"
                or (not together and b not in written and b not in self.relaid.maps and self._is_there(b))
            ):
                continue
            # Anonymous pages are returned to the system as soon as the array is freed.
            self.memory[b] = np.frombuffer(mmap.mmap(-1, max(held.size, 1)), np.uint8)
            if (b in mine or together) and self._is_there(b):
                ctypes.memmove(self._at(b), program.address(Ref(b, 0)), self._size(b))
        if together:  # operands of the first of them may be overwritten when the last has run
            self._fill()

    def _fill(self) -> None:
        """Copy the feature maps whose layout cannot be changed in place."""
        for b, (last, feature_map) in self.relaid.maps.items():
            if b not in self.turned and self._is_there(last):  # not between two calls that became one step
                self._pixels(b, feature_map)[...] = self._map_in_step_layout(last, feature_map).transpose(0, 2, 1)

    def _convertible_maps(self) -> dict[int, tuple[int, FeatureMap]]:
        """Return the feature maps whose layout can be changed in place, by buffers of the recorded calls: only the program uses them, and no
        two share memory."""
        maps, offsets = self.relaid.maps, self.program.offsets
        found = {b: (last, p) for b, (last, p) in maps.items() if last in offsets}
        spans = sorted((offsets[last], offsets[last] + p.bytes) for last, p in found.values())
        apart = all(a[1] <= b[0] for a, b in zip(spans, spans[1:]))
        return found if apart else {}

    def _convert_maps(self, back: bool) -> None:
        """Convert feature maps to the recorded layout, or back to the step's."""
        for last, feature_map in self.turned.values():
            sides = (feature_map.pixels, feature_map.channels)
            each = np.frombuffer(view(self.program.address(Ref(last, 0)), feature_map.bytes), _kind(feature_map))
            for image in each.reshape(feature_map.images, -1):
                before = image.copy().reshape(sides[::-1] if back else sides)
                image.reshape(sides if back else sides[::-1])[...] = before.T

    def _is_there(self, b: int) -> bool:
        """Return whether a buffer exists in the program, too."""
        held = self.program.graph.buffers[b]
        return b in self.program.offsets or held.source != "new" or b in self.program.results

    def _at(self, b: int) -> int:
        return self.memory[b].ctypes.data

    def _size(self, b: int) -> int:
        """Return the bytes of a buffer that exist: an argument's or parameter's storage may be shorter than was reserved for it."""
        held = self.program.graph.buffers[b]
        return held.size if held.storage is None else min(held.size, held.storage.size_bytes)

    def finish(self) -> None:
        """Make the recorded calls after the step has run, compare, and replace the step's results by theirs."""
        program, calls, maps = self.program, self.relaid.steps, self.relaid.maps
        mine = self.relaid.writes()
        prints = []
        for last, feature_map in self.turned.values():
            place = program.address(Ref(last, 0))
            if last in mine:
                prints.append((place, Print(place, feature_map.bytes, kind_of(feature_map.dtype))))
        self._convert_maps(False)
        if len(self.relaid.made) == 1:
            self._fill()
        for call in calls:
            self._call(call)
        terms = {b: self._terms(b) for b in self.memory if maps.get(b, (b, None))[0] in mine and b not in maps}
        self._convert_maps(True)
        if not all(ours.matches(place) for place, ours in prints):
            raise Differs(f"{self.relaid.made[-1].name} gives something else with feature maps in another layout")
        for b in self.memory:
            last, found = maps.get(b, (b, None))
            if last not in mine:
                continue
            place = program.address(Ref(last, 0))
            if found is not None:
                ours = Print(place, found.bytes, kind_of(found.dtype))
                self._map_in_step_layout(last, found)[...] = self._pixels(b, found).transpose(0, 2, 1)
                same = ours.matches(place)
            else:
                same = self._agrees_up_to_rounding(b, place, terms[b])
                ctypes.memmove(place, self._at(b), self._size(b))
            if not same:
                raise Differs(f"{self.relaid.made[-1].name} gives something else with feature maps in another layout")

    def _agrees_up_to_rounding(self, b: int, place: int, terms: float) -> bool:
        """Return whether sums over feature maps agree up to rounding. Terms may cancel, so their magnitude `terms` counts as well."""
        size = self._size(b) // 4 * 4
        ours, theirs = (numbers(at, size, np.float32) for at in (place, self._at(b)))
        limit = _OF_RESULTS * _largest(theirs) + _OF_TERMS * terms
        return all(np.allclose(a, b, 0, limit, True) for a, b in zip(_pieces(ours), _pieces(theirs)))

    def _terms(self, b: int) -> float:
        """Estimate the magnitude of a sum of that many products of the maps' elements, if they cancel no more than by chance."""
        made = self.relaid.writes()
        read = {of: m for of, (last, m) in self.relaid.maps.items() if last not in made and m.dtype is float32}
        largest = {of: _largest(self._pixels(of, m).view(np.float32)) for of, m in read.items()}
        for v in self._convolved(b):
            if v.buffer not in largest:  # an argument, as it was recorded
                largest[v.buffer] = _largest(numbers(self._place(Ref(v.buffer, v.start)), v.nbytes, np.float32))
        return math.prod(largest.values()) * max((m.images * m.pixels for m in read.values()), default=1) ** 0.5

    def _convolved(self, b: int) -> list[Value]:
        """Return the tensors of whose products a weight's gradient is the sum."""
        for found in filter(None, map(convolution_of, self.relaid.origins)):
            if "dw" in found.tensors and found.tensors["dw"].buffer == b:
                return [found.tensors["x"], found.tensors["dy"]]
        return []

    def _pixels(self, b: int, feature_map: FeatureMap) -> np.ndarray:
        """Return a feature map in the recorded layout."""
        shape = (feature_map.images, feature_map.channels, feature_map.pixels)
        if b in self.turned:
            raw = view(self.program.address(Ref(self.turned[b][0], 0)), feature_map.bytes)
            return np.frombuffer(raw, _kind(feature_map)).reshape(shape)
        return self.memory[b][: feature_map.bytes].view(_kind(feature_map)).reshape(shape)

    def _map_in_step_layout(self, last: int, feature_map: FeatureMap) -> np.ndarray:
        """Return the feature map as an array, in the memory that the step uses."""
        raw: Any = (ctypes.c_char * feature_map.bytes).from_address(self.program.address(Ref(last, 0)))
        return np.frombuffer(raw, _kind(feature_map)).reshape(
            feature_map.images, feature_map.pixels, feature_map.channels
        )

    def _call(self, call: Launch) -> None:
        program = self.program
        if call.plan is not None and call.plan.scratch_size:
            call.plan.bind_scratch()
        given = [self._place(a) if type(a) is Ref else a for a in call.arguments]
        words = [program._word(letter, a) for letter, a in zip(call.signature, given)]
        block = (ctypes.c_int64 * (len(words) + 1))(*words)
        step = (ctypes.c_int64 * 3)(driver.caller(call.signature), call.address, ctypes.addressof(block))
        program.runner(ctypes.addressof(step), 1, 0, 0, program.values_at, program.status_at)

    def _place(self, ref: Ref) -> int:
        if self.program.graph.buffers[ref.buffer].source == "workspace":
            return onednn_plan._workspace.address + ref.offset
        if ref.buffer in self.turned:
            return self.program.address(Ref(self.turned[ref.buffer][0], ref.offset))
        if ref.buffer in self.memory:
            return self._at(ref.buffer) + ref.offset
        return self.program.address(ref)


def _pieces(values: np.ndarray) -> Iterator[np.ndarray]:
    """Yield a limited number of values at a time, to bound the memory of what is computed from them."""
    flat = values.reshape(-1)
    return (flat[i : i + _PIECE] for i in range(0, len(flat), _PIECE))


def _largest(values: np.ndarray) -> float:
    return max((float(np.abs(v[np.isfinite(v)]).max(initial=0.0)) for v in _pieces(values)), default=0.0)


def _kind(feature_map: Any) -> Any:
    """Return a dtype with the given number of bytes per element."""
    return f"u{feature_map.dtype.itemsize}"


__all__ = ["AsRecorded", "Differs", "relaid_steps"]
