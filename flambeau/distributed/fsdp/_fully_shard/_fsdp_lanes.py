"""Communication streams of a GPU: one for gathers and one for reductions, so that they overlap with computation."""

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
        """Hold memory of this stream that the current stream still reads, until other memory is passed. This stream then waits for that
        reader before it reuses the memory: by then the reader has finished, so the wait costs nothing."""
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
    """Return a communication stream on a GPU; None elsewhere, where the process group's thread is used."""
    return Lane(device) if device.type == "cuda" else None
