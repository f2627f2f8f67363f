"""Traversal of the event tree of a profile (`prof.profiler.kineto_results.experimental_event_tree()`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def _parts(event: Any) -> Any:
    return event.children


def traverse_dfs(tree: Iterable[Any], children_fn: Callable[[Any], Any] = _parts) -> Iterator[Any]:
    """Yield every entry, each followed by its children."""
    remaining = list(reversed(list(tree)))
    while remaining:
        event = remaining.pop()
        yield event
        remaining += reversed(list(children_fn(event)))


def traverse_bfs(tree: Iterable[Any], children_fn: Callable[[Any], Any] = _parts) -> Iterator[Any]:
    """Yield every entry, the outermost first."""
    remaining = deque(tree)
    while remaining:
        event = remaining.popleft()
        yield event
        remaining.extend(children_fn(event))
