"""In the call that compares: a step on pictures in another layout beside the recorded calls that it stands for.

Sums in another order move a value across `relu`'s zero now and then, so what comes out at the end does not judge such a step. The recorded
calls are made right after it, on its operands as they lay, and must agree; their results stay, so that all later steps find what they
would in an eager call. Pictures of the program's own are laid out as they were and back again where they are, one image at a time: copies
would need more memory than anything else in that call."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.cpu import jit
from ...backends.cpu.onednn import plan as onednn_plan
from ...core.dtype import float32
from ..record.comparison import Print, kind_of, numbers, view
from ..record.steps import Launch, Ref, Relaid
from ..runtime import driver

if TYPE_CHECKING:
    from ..runtime.program import Program
    from .feature_maps import Picture

_PIECE = 1 << 16  # numbers that are looked at together
_OF_RESULTS, _OF_TERMS = 1e-4, 1e-5  # how far sums over pictures may be apart


class Differs(Exception):
    """A step gave something else than the recorded calls."""


class AsRecorded:
    """Made before the step runs, because the recorded calls find everything as the step does."""

    def __init__(self, program: Program, step: Launch):
        assert step.relaid is not None
        self.program, self.step, self.relaid = program, step, step.relaid
        self.memory: dict[int, np.ndarray] = {}  # what stands for buffers
        written = {r.buffer for call in self.relaid.calls for r in call.writes()}
        mine = {r.buffer for r in step.writes()}
        self.turned = self._turnable()
        for b in dict.fromkeys(r.buffer for call in self.relaid.calls for r in call.refs()):
            held = program.graph.buffers[b]
            if (
                b in self.turned
                or held.source == "workspace"
                or (b not in written and b not in self.relaid.pictures and self._is_there(b))
            ):
                continue
            self.memory[b] = np.frombuffer(
                mmap.mmap(-1, max(held.size, 1)), np.uint8
            )  # gone when it is not used any more
            if b in mine and self._is_there(b):
                ctypes.memmove(self._at(b), program.address(Ref(b, 0)), self._size(b))

    def _turnable(self) -> dict[int, tuple[int, Picture]]:
        """Pictures that can be laid out otherwise where they are, by buffers of the recorded calls: nobody else sees them, and no two
        are in one place."""
        pictures, offsets = self.relaid.pictures, self.program.offsets
        found = {b: (last, p) for b, (last, p) in pictures.items() if last in offsets}
        spans = sorted((offsets[last], offsets[last] + p.bytes) for last, p in found.values())
        apart = all(a[1] <= b[0] for a, b in zip(spans, spans[1:]))
        return found if apart else {}

    def _turn(self, back: bool) -> None:
        """Lay pictures out as they were recorded, or back as the step has them."""
        for last, picture in self.turned.values():
            sides = (picture.pixels, picture.channels)
            each = np.frombuffer(view(self.program.address(Ref(last, 0)), picture.bytes), _kind(picture))
            for image in each.reshape(picture.images, -1):
                before = image.copy().reshape(sides[::-1] if back else sides)
                image.reshape(sides if back else sides[::-1])[...] = before.T

    def _is_there(self, b: int) -> bool:
        """Whether steps use this buffer, too."""
        held = self.program.graph.buffers[b]
        return b in self.program.offsets or held.source != "new" or b in self.program.results

    def _at(self, b: int) -> int:
        return self.memory[b].ctypes.data

    def _size(self, b: int) -> int:
        """Bytes of a buffer that exist: an argument's or parameter's storage may be shorter than what was reserved for it."""
        held = self.program.graph.buffers[b]
        return held.size if held.storage is None else min(held.size, held.storage.size_bytes)

    def finish(self) -> None:
        """The step has run: make the recorded calls, compare, and put their results in place of its own."""
        program, (calls, pictures) = self.program, self.relaid
        mine = {r.buffer for r in self.step.writes()}
        prints = []
        for last, picture in self.turned.values():
            place = program.address(Ref(last, 0))
            if last in mine:
                prints.append((place, Print(place, picture.bytes, kind_of(picture.dtype))))
        self._turn(False)
        for b, (last, picture) in pictures.items():
            if b in self.turned or not self._is_there(last):
                continue  # between two calls that became one step
            self._pixels(b, picture)[...] = self._there(last, picture).transpose(0, 2, 1)
        for call in calls:
            self._call(call)
        terms = {b: self._terms(b) for b in self.memory if pictures.get(b, (b, None))[0] in mine and b not in pictures}
        self._turn(True)
        if not all(ours.matches(place) for place, ours in prints):
            raise Differs(f"{self.step.name} gives something else with pictures in another layout")
        for b in self.memory:
            last, picture = pictures.get(b, (b, None))
            if last not in mine:
                continue
            place = program.address(Ref(last, 0))
            if picture is not None:
                ours = Print(place, picture.bytes, kind_of(picture.dtype))
                self._there(last, picture)[...] = self._pixels(b, picture).transpose(0, 2, 1)
                same = ours.matches(place)
            else:
                same = self._near(b, place, terms[b])
                ctypes.memmove(place, self._at(b), self._size(b))
            if not same:
                raise Differs(f"{self.step.name} gives something else with pictures in another layout")

    def _near(self, b: int, place: int, terms: float) -> bool:
        """Whether sums over pictures are as good as the same. Terms may cancel, so their size counts as well."""
        size = self._size(b) // 4 * 4
        ours, theirs = (numbers(at, size, np.float32) for at in (place, self._at(b)))
        limit = _OF_RESULTS * _largest(theirs) + _OF_TERMS * terms
        return all(np.allclose(a, b, 0, limit, True) for a, b in zip(_pieces(ours), _pieces(theirs)))

    def _terms(self, b: int) -> float:
        """About how large a sum of as many terms is, if they do not cancel more than chance has them."""
        made, names = {r.buffer for r in self.step.writes()}, dict[int, str]()
        for call in self.relaid.calls:
            known = jit.facts.get(call.address)
            tensors = getattr(getattr(call.plan, "described", None), "tensors", None)  # of a convolution
            told = tensors if tensors is not None else () if known is None else known.parameters
            places = zip(told, call.arguments[tensors is not None :])
            names.update({a.buffer: name for name, a in places if type(a) is Ref})
        largest, count = {"": 0.0}, 1
        for of, (last, picture) in self.relaid.pictures.items():
            if last not in made and picture.dtype is float32:
                largest[names.get(of, "x")] = _largest(self._pixels(of, picture).view(np.float32))
                count = max(count, picture.images * picture.pixels)
        gradient = largest.get("dy", largest.get("grad"))
        if names.get(b) == "dw" and "x" not in largest:  # an argument, which may be longer than what is read
            largest["x"] = _largest(numbers(*self._input(), np.float32))
        one = max(largest.values()) if gradient is None else gradient * (largest["x"] if names.get(b) == "dw" else 1)
        return float(one * count**0.5)

    def _input(self) -> tuple[int, int]:
        """Where the input of a convolution is, and how many bytes it has."""
        call = next(c for c in self.relaid.calls if c.plan is not None)
        position = list(call.plan.described.tensors).index("x")
        return self._place(call.arguments[1 + position]), 4 * math.prod(call.plan.described.tensors["x"][0])

    def _pixels(self, b: int, picture: Picture) -> np.ndarray:
        """A picture as it was recorded."""
        shape = (picture.images, picture.channels, picture.pixels)
        if b in self.turned:
            raw = view(self.program.address(Ref(self.turned[b][0], 0)), picture.bytes)
            return np.frombuffer(raw, _kind(picture)).reshape(shape)
        return self.memory[b][: picture.bytes].view(_kind(picture)).reshape(shape)

    def _there(self, last: int, picture: Picture) -> np.ndarray:
        """The same, where the step has it."""
        raw: Any = (ctypes.c_char * picture.bytes).from_address(self.program.address(Ref(last, 0)))
        return np.frombuffer(raw, _kind(picture)).reshape(picture.images, picture.pixels, picture.channels)

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
    """Some at a time: what is computed from them needs memory, too."""
    flat = values.reshape(-1)
    return (flat[i : i + _PIECE] for i in range(0, len(flat), _PIECE))


def _largest(values: np.ndarray) -> float:
    return max((float(np.abs(v[np.isfinite(v)]).max(initial=0.0)) for v in _pieces(values)), default=0.0)


def _kind(picture: Any) -> Any:
    """Numbers of as many bytes."""
    return f"u{picture.dtype.itemsize}"


__all__ = ["AsRecorded", "Differs", "Relaid"]
