"""A driver without a GPU whose streams take their time: work waits in queues, and runs when somebody waits for it.

A program that forgets an event computes with what is not there yet, or overwrites what is still read, on every run."""

from __future__ import annotations

import collections
import ctypes
from pathlib import Path
from typing import Any

from flambeau.backends.nvidia import driver
from tests.backends.nvidia import fake_driver


class LateDriver(fake_driver.FakeDriver):
    """`hurried(stream)` says which streams run as soon as they can; the others run when they must."""

    def __init__(self, hurried: Any):
        super().__init__()
        self.hurried = hurried
        self.queues: dict[int, collections.deque] = collections.defaultdict(collections.deque)
        self.marks: dict[int, tuple[int, object]] = {}  # events: where, and what has to have passed there
        self.passed: set[object] = set()
        self.used_streams: collections.Counter[int] = collections.Counter()

    def _do(self, stream: int, action: tuple) -> None:
        self.used_streams[stream] += 1
        self.queues[stream].append(action)
        self._hurry()

    def _move(self, stream: int, to: int, source: int, size: int) -> None:
        if not any(low <= source < low + len(block) for low, block in self.blocks.items()):
            held = ctypes.create_string_buffer(
                ctypes.string_at(source, size), size
            )  # the driver has read the host's memory
            self._do(stream, (lambda: ctypes.memmove(to, held, size),))
        else:
            self._do(stream, (ctypes.memmove, to, source, size))

    def _cuEventRecordWithFlags(self, event: int, stream: int, flags: int) -> None:
        mark = object()
        self.marks[event] = (stream, mark)
        self.queues[stream].append(("mark", mark))
        self._hurry()

    def _cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        if event in self.marks:
            self.queues[stream].append(("wait", *self.marks[event]))
            self._hurry()

    def _cuStreamSynchronize(self, stream: int) -> None:
        self._run(stream)

    def _cuEventSynchronize(self, event: int) -> None:
        self._run(*self.marks[event])

    def _cuCtxSynchronize(self) -> None:
        for stream in list(self.queues):
            self._run(stream)

    def _cuEventQuery(self, event: int) -> int:
        return 0 if event not in self.marks or self.marks[event][1] in self.passed else driver.NOT_READY

    def _run(self, stream: int, until: object = None) -> None:
        """Everything in a stream, up to a mark; what it waits for runs first."""
        while until not in self.passed and self.queues[stream]:
            self._next(stream)
            self._hurry()

    def _next(self, stream: int) -> None:
        queue = self.queues[stream]
        if queue[0][0] == "wait" and queue[0][2] not in self.passed:
            self._run(*queue[0][1:])  # meanwhile it stays where it is, so that nothing gets past it
            return
        kind, *rest = action = queue.popleft()
        if kind == "mark":
            self.passed.add(rest[0])
        elif kind != "wait":
            super()._do(-1, action)

    def _hurry(self) -> None:
        moved = True
        while moved:
            moved = False
            for stream in [s for s in self.queues if self.hurried(s)]:
                queue = self.queues[stream]
                while queue and not (queue[0][0] == "wait" and queue[0][2] not in self.passed):
                    self._next(stream)
                    moved = True


def install(folder: Path, hurried: Any) -> LateDriver:
    """Make this process believe that it has such a GPU; for processes of their own."""
    made: list[LateDriver] = []
    original = fake_driver.FakeDriver
    fake_driver.FakeDriver = lambda devices, memory: made.append(LateDriver(hurried)) or made[0]  # type: ignore[assignment, misc, func-returns-value]
    try:
        fake_driver.install(folder)
    finally:
        fake_driver.FakeDriver = original  # type: ignore[misc]
    return made[0]
