"""Check that nodes can be fused into one: no path may leave them and return."""

from __future__ import annotations

from collections.abc import Iterable

from ...node import Node


def validate_partition(partition: Iterable[Node]) -> bool:
    """Return whether fusing these nodes into one leaves a graph without cycles."""
    inside = set(partition)
    waiting = [user for node in inside for user in node.users if user not in inside]
    seen: set[Node] = set()
    while waiting:
        node = waiting.pop()
        if node in inside:
            return False
        if node not in seen:
            seen.add(node)
            waiting += node.users
    return True
