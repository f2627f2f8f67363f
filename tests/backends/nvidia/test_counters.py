"""Counters of library kernels: one node of a graph clears all of them, and what depended on each clearing depends on what came before it."""

from __future__ import annotations

import ctypes
from typing import Any

from flambeau.backends.nvidia import counters, driver

_KERNEL, _MEMSET = 0, 2


class _Graph:
    """A driver that knows one graph: nodes with what they clear (or None), and edges."""

    def __init__(self, nodes: dict[int, tuple[int, int] | None], edges: set[tuple[int, int]]):
        self.nodes, self.edges = nodes, edges

    def _give(self, found: list[int], out: Any, count: Any) -> int:
        if out is not None:
            out[: len(found)] = found
        count._obj.value = len(found)
        return 0

    def cuGraphGetNodes(self, graph: int, out: Any, count: Any) -> int:
        return self._give(list(self.nodes), out, count)

    def cuGraphGetRootNodes(self, graph: int, out: Any, count: Any) -> int:
        return self._give([n for n in self.nodes if not any(b == n for _, b in self.edges)], out, count)

    def cuGraphNodeGetDependencies(self, node: int, out: Any, count: Any) -> int:
        return self._give([a for a, b in self.edges if b == node], out, count)

    def cuGraphNodeGetDependentNodes(self, node: int, out: Any, count: Any) -> int:
        return self._give([b for a, b in self.edges if a == node], out, count)

    def cuGraphNodeGetType(self, node: int, out: Any) -> int:
        out._obj.value = _KERNEL if self.nodes[node] is None else _MEMSET
        return 0

    def cuGraphMemsetNodeGetParams(self, node: int, out: Any) -> int:
        out._obj.target, out._obj.value = self.nodes[node]  # type: ignore[misc]
        out._obj.height = 1
        return 0

    def cuGraphAddDependencies(self, graph: int, before: Any, after: Any, count: int) -> int:
        edge = before._obj.value, after._obj.value
        assert edge not in self.edges, "the driver refuses an edge that is there"
        self.edges.add(edge)
        return 0

    def cuGraphDestroyNode(self, node: int) -> int:
        del self.nodes[node]
        self.edges = {edge for edge in self.edges if node not in edge}
        return 0

    def cuGraphAddMemsetNode(self, out: Any, graph: int, before: Any, count: int, given: Any, context: Any) -> int:
        self.nodes[99] = given._obj.target, given._obj.value
        self.cleared = given._obj.target, given._obj.width
        out._obj.value = 99
        return 0


def test_one_node_clears_all_counters(monkeypatch):
    place = counters.Counters.__new__(counters.Counters)
    place.memory, place.index, place.used = type("Memory", (), {"ptr": 1 << 20}), 0, 0
    first, second = place.take(), place.take()
    # 1 -> clear 2 -> 3 -> clear 4 -> 5; 5 waits for 1 of another stream, too; 6 clears something else, 7 writes ones over a counter
    nodes = {1: None, 2: (first, 0), 3: None, 4: (second, 0), 5: None, 6: (64, 0), 7: (first, 1)}
    graph = _Graph(nodes, {(1, 2), (2, 3), (3, 4), (4, 5), (1, 5), (5, 6), (6, 7)})
    monkeypatch.setattr(driver, "_loaded", [graph])
    monkeypatch.setattr(driver, "context", lambda index: 0)
    place.clear_once(1)
    assert graph.edges == {(99, 1), (1, 3), (3, 5), (1, 5), (5, 6), (6, 7)}
    assert set(graph.nodes) == {1, 3, 5, 6, 7, 99} and graph.cleared == (first, 2 * counters.SIZE)


def test_there_are_so_many_and_each_is_taken_once(monkeypatch):
    place = counters.Counters.__new__(counters.Counters)
    place.memory, place.index, place.used = type("Memory", (), {"ptr": 4096}), 0, 0
    monkeypatch.setattr(counters, "_COUNT", 3)
    assert [place.take() for _ in range(5)] == [4096, 4096 + counters.SIZE, 4096 + 2 * counters.SIZE, 0, 0]
    graph = _Graph({1: None}, set())
    monkeypatch.setattr(driver, "_loaded", [graph])
    place.clear_once(1)  # nothing is cleared one by one: nothing changes
    assert set(graph.nodes) == {1} and not graph.edges


def test_the_struct_is_the_drivers():
    assert ctypes.sizeof(counters._Fill) == 40
