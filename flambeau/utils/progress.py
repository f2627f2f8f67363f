"""Progress bar for long loops: one line that is redrawn on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Any, TextIO


class Progress:
    """Iterate over `items` and show the progress on `stream` (standard error), after a `label`; `total` is the number of items if they
    have no length.

    >>> import io
    >>> sum(Progress([1, 2, 3], "training", stream=io.StringIO()))
    6
    """

    def __init__(self, items: Iterable, label: str = "", total: int | None = None, stream: TextIO | None = None):
        self.items = items
        self.label = label
        self.total = total if total is not None else (len(items) if isinstance(items, Sized) else None)
        self.stream = stream or sys.stderr
        self.visible = self.stream.isatty()
        self.note = ""
        self.done = 0
        self.started = time.perf_counter()
        self._last_drawn = 0.0

    def __iter__(self) -> Iterator[Any]:
        for item in self.items:
            yield item
            self.done += 1
            self._draw()
        self._draw(final=True)

    def show(self, note: str) -> None:
        """Show a text after the bar: a loss, a rate."""
        self.note = note

    def _draw(self, final: bool = False) -> None:
        now = time.perf_counter()
        if not self.visible or (not final and now - self._last_drawn < 0.1):
            return
        self._last_drawn = now
        seconds = now - self.started
        rate = self.done / seconds if seconds > 0 else 0.0
        if self.total:
            filled = 30 * self.done // self.total
            bar = f"[{'#' * filled}{'.' * (30 - filled)}] {self.done}/{self.total}"
        else:
            bar = str(self.done)
        self.stream.write(f"\r{self.label} {bar} {rate:.1f}/s {self.note}\x1b[K" + ("\n" if final else ""))
        self.stream.flush()


class PlainBar(Progress):
    """A progress bar with tqdm's most used methods, for programs that were written for it, where tqdm is not installed."""

    def __init__(
        self, iterable: Iterable[Any] = (), desc: str = "", total: int | None = None, disable: bool = False, **options: Any,
    ):  # fmt: skip
        super().__init__(iterable, desc, total, options.get("file"))
        self.visible = self.visible and not disable

    def update(self, n: int = 1) -> None:
        self.done += n
        self._draw()

    def set_description(self, desc: str = "", refresh: bool = True) -> None:
        self.label = desc

    def set_postfix(self, ordered_dict: dict[Any, Any] | None = None, refresh: bool = True, **values: Any) -> None:
        self.show(", ".join(f"{name}={value}" for name, value in {**(ordered_dict or {}), **values}.items()))

    def close(self) -> None:
        self._draw(final=True)

    def __enter__(self) -> PlainBar:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()
