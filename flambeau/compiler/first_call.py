"""The first call of a compiled function, which runs eagerly and imports none of the modules that record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core import modes
from ..core.allocator import allocator
from ..core.graph import unusual
from .state.arguments import Arguments, marked, settings_key
from .state.observer import Observer


class FirstCall:
    """Call a function eagerly and record the key of its arguments, and the pattern shared with calls that differ only in sizes. Every
    other attribute is that of the full compiled function, which `opened` imports."""

    def __init__(self, function: Callable, opened: Callable[[], Any], sizes_count: bool):
        self.function, self.opened, self.sizes_count = function, opened, sizes_count
        self.called = False
        self.kinds: list[tuple[tuple, tuple]] = []
        self.observer = Observer()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if unusual or modes.own.stack:
            return self.opened()(*args, **kwargs)
        given = Arguments(args, kwargs)
        settings = settings_key()
        self.kinds.append(((given.key, settings), (given.pattern(self.sizes_count), settings)))
        self.called = True
        noting = marked(given.tensors)
        del given
        with allocator.sparing(), self.observer.watching(noting=noting):
            return self.function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "opened":  # a copy asks before it has anything
            raise AttributeError(name)
        return getattr(self.opened(), name)
