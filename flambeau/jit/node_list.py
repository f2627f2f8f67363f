"""Doubly linked list of the nodes of a block: insertion and removal take constant time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar, overload


class Linked(Protocol):
    """Protocol of a list's entries: attributes for their two neighbours."""

    preceding: Any
    following: Any


Node = TypeVar("Node", bound=Linked)


class NodeList(Generic[Node]):
    """A doubly linked list of nodes (`preceding`, `following`). A node is in one list at most."""

    __slots__ = ("count", "first", "last")

    def __init__(self) -> None:
        self.first: Node | None = None
        self.last: Node | None = None
        self.count = 0

    def insert(self, node: Node, preceding: Node | None, following: Node | None) -> None:
        """Insert a node between two neighbours; None is an end of the list."""
        node.preceding, node.following = preceding, following
        if preceding is None:
            self.first = node
        else:
            preceding.following = node
        if following is None:
            self.last = node
        else:
            following.preceding = node
        self.count += 1

    def append(self, node: Node) -> None:
        self.insert(node, self.last, None)

    def prepend(self, node: Node) -> None:
        self.insert(node, None, self.first)

    def remove(self, node: Node) -> None:
        """Remove a node. It keeps its former neighbours, so that a loop over the list can continue."""
        if node.preceding is None:
            self.first = node.following
        else:
            node.preceding.following = node.following
        if node.following is None:
            self.last = node.preceding
        else:
            node.following.preceding = node.preceding
        self.count -= 1

    def index(self, node: Node) -> int:
        return next(i for i, other in enumerate(self) if other is node)

    def __iter__(self) -> Iterator[Node]:
        node = self.first
        while node is not None:
            yield node
            node = node.following

    def __reversed__(self) -> Iterator[Node]:
        node = self.last
        while node is not None:
            yield node
            node = node.preceding

    def __len__(self) -> int:
        return self.count

    @overload
    def __getitem__(self, index: int) -> Node: ...
    @overload
    def __getitem__(self, index: slice) -> list[Node]: ...
    def __getitem__(self, index: int | slice) -> Node | list[Node]:
        return list(self)[index]
