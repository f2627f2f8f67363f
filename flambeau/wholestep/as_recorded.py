"""In the call that compares: a step on pictures in another layout beside the recorded calls that it stands for.

Sums in another order move a value across `relu`'s zero now and then, so what comes out at the end does not judge such a step. The recorded
calls are made right after it, on copies of its operands as they lay, and must agree; their results stay, so that all later steps find
what they would in an eager call."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.cpu.onednn import plan as onednn_plan
from ..core.dtype import float32
from . import driver
from .comparing import Print, kind_of, numbers
from .graph import Launch, Ref, Relaid

if TYPE_CHECKING:
    from .pictures import Picture
    from .program import Program

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
        for b in dict.fromkeys(r.buffer for call in self.relaid.calls for r in call.refs()):
            held = program.graph.buffers[b]
            if held.source == "workspace" or (b not in written and b not in self.relaid.pictures and self._is_there(b)):
                continue
            self.memory[b] = np.zeros(held.size, np.uint8)
            if b in mine and self._is_there(b):
                ctypes.memmove(self._at(b), program.address(Ref(b, 0)), self._size(b))

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
        for b, (last, picture) in pictures.items():
            self._pixels(b, picture)[...] = self._there(last, picture).transpose(0, 2, 1)
        for call in calls:
            self._call(call)
        mine = {r.buffer for r in self.step.writes()}
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
                same = self._near(place, self._at(b), self._size(b))
                ctypes.memmove(place, self._at(b), self._size(b))
            if not same:
                raise Differs(f"{self.step.name} gives something else with pictures in another layout")

    def _near(self, ours: int, theirs: int, size: int) -> bool:
        """Whether sums over pictures are as good as the same. Terms may cancel, so their size counts as well."""
        a, b = (numbers(at, size - size % 4, np.float32) for at in (ours, theirs))
        terms = [self._pixels(b, p) for b, (_, p) in self.relaid.pictures.items() if p.dtype is float32]
        fine = [t[np.isfinite(t)] for t in (part.view(np.float32) for part in [*terms, b.view(np.uint32)])]
        largest = [float(np.abs(t).max(initial=0.0)) for t in fine]
        count = max((t.shape[0] * t.shape[2] for t in terms), default=1)
        limit = _OF_RESULTS * largest.pop() + _OF_TERMS * count**0.5 * max(largest, default=0.0)
        return bool(np.allclose(a, b, rtol=0, atol=limit, equal_nan=True))

    def _pixels(self, b: int, picture: Picture) -> np.ndarray:
        """A picture as it was recorded."""
        shape = (picture.images, picture.channels, picture.pixels)
        return self.memory[b][: picture.bytes].view(_kind(picture)).reshape(shape)

    def _there(self, last: int, picture: Picture) -> np.ndarray:
        """The same, where the step has it."""
        raw = (ctypes.c_char * picture.bytes).from_address(self.program.address(Ref(last, 0)))
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
        if ref.buffer in self.memory:
            return self._at(ref.buffer) + ref.offset
        return self.program.address(ref)


def _kind(picture: Any) -> Any:
    """Numbers of as many bytes."""
    return f"u{picture.dtype.itemsize}"


__all__ = ["AsRecorded", "Differs", "Relaid"]
