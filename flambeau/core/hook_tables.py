"""Tables of hooks, and the handles that remove a hook from its table."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any


class RemovableHandle:
    """Handle that removes a hook from its table (and from companion tables). Usable as a context manager."""

    next_id = 0

    def __init__(self, hooks_dict: dict[int, Any], *, extra_dict: Any = None):
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        extras = (
            extra_dict if isinstance(extra_dict, (list, tuple)) else ([extra_dict] if extra_dict is not None else [])
        )
        self.extra_dict_ref = tuple(weakref.ref(d) for d in extras)

    def remove(self) -> None:
        for reference in (self.hooks_dict_ref, *self.extra_dict_ref):
            table = reference()
            if table is not None:
                table.pop(self.id, None)

    def __getstate__(self) -> tuple[Any, ...]:
        return (self.hooks_dict_ref(), self.id, tuple(reference() for reference in self.extra_dict_ref))

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        hooks, self.id, extras = state
        # A table that is gone is replaced by an empty one, so that remove() finds nothing to do.
        self.hooks_dict_ref = weakref.ref(OrderedDict() if hooks is None else hooks)
        self.extra_dict_ref = tuple(weakref.ref(OrderedDict() if d is None else d) for d in extras)
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()


def register(
    table: OrderedDict[int, Any], hook: Callable[..., Any], prepend: bool = False, extra: Any = None
) -> RemovableHandle:
    """Add a hook to a table; the handle also removes it from the companion tables `extra`."""
    handle = RemovableHandle(table, extra_dict=extra)
    table[handle.id] = hook
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle
