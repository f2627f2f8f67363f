"""Streams of a GPU beside the one that computes: gathers have one, reductions another, so that they run while layers compute."""

from __future__ import annotations

import contextlib
from typing import Any

from ....core import naming
from ....core.device import device as Device


class Lane:
    """A communication stream next to the compute stream."""

    def __init__(self, device: Device):
        self._cuda = naming.above("cuda")
        self._stream = self._cuda.Stream(device)
        self._held: list[tuple[Any, Any]] = []

    def inside(self) -> contextlib.AbstractContextManager:
        """Context manager: start work on this stream, and allocate memory that belongs to it."""
        return self._cuda.stream(self._stream)

    def mark(self) -> Any:
        """Return an event after everything in the current stream."""
        event = self._cuda.Event()
        event.record()
        return event

    def follow(self, event: Any = None) -> None:
        """Make later work on this stream wait for the current stream's work so far, or for an event in it."""
        self._stream.wait_event(self.mark() if event is None else event)

    def keep(self, memory: list[Any]) -> None:
        """Hold memory of this stream that the current one still reads, until the same is said of other memory. Then this stream waits
        for that reader before it writes there again: by then it is done, so that nothing stands still."""
        if not memory:
            return
        self._held.append((memory, self.mark()))
        if len(self._held) > 1:
            _, event = self._held.pop(0)
            self.follow(event)

    def drop(self) -> None:
        """Release all buffers held."""
        while self._held:
            _, event = self._held.pop(0)
            self.follow(event)


def lane_for(device: Device) -> Lane | None:
    """Return a stream of its own on a GPU; elsewhere the process group's thread serves."""
    return Lane(device) if device.type == "cuda" else None
