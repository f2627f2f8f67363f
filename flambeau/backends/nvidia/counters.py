"""Counters of a library's kernels, cleared once for a whole graph.

Products of cuBLASLt that share out tiles as they run count them in four bytes of their workspace, which a node of its own clears in front of
each: two waits and a launch of nothing. Here every product of a graph has a counter of its own, and one node, the graph's first, clears all."""

from __future__ import annotations

import ctypes

from ...core.device import device
from ...core.storage import UntypedStorage
from . import driver

SIZE = 256  # bytes that a workspace has at most, and where the library wants one to begin
_COUNT = 256
_MEMSET = 2  # CU_GRAPH_NODE_TYPE_MEMSET


class _Fill(ctypes.Structure):
    """The C struct CUDA_MEMSET_NODE_PARAMS."""

    _fields_ = [
        ("target", ctypes.c_uint64), ("pitch", ctypes.c_size_t), ("value", ctypes.c_uint), ("element", ctypes.c_uint),
        ("width", ctypes.c_size_t), ("height", ctypes.c_size_t),
    ]  # fmt: skip


class Counters:
    """Counters of the graph that is being captured, made before anything else in it: nothing else ever is in their memory."""

    def __init__(self, where: device):
        self.memory = UntypedStorage(SIZE * _COUNT, where)
        self.index, self.used = where.index or 0, 0

    def take(self) -> int:
        """The address of a counter that nobody else has; 0 if there is none left."""
        self.used += self.used < _COUNT + 1
        return self.memory.ptr + SIZE * (self.used - 1) if self.used <= _COUNT else 0

    def clear_once(self, graph: int) -> None:
        """Replace the nodes of a captured graph that clear single counters by one in front of everything."""
        found = [] if not self.used else [n for n in _listed("cuGraphGetNodes", graph) if self._clears(n)]
        if not found:
            return
        around = [
            (n, _listed("cuGraphNodeGetDependencies", n), _listed("cuGraphNodeGetDependentNodes", n)) for n in found
        ]
        for node, before, after in around:
            for b in before:
                known = _listed("cuGraphNodeGetDependentNodes", b)
                for a in after:
                    if a not in known:
                        _depend(graph, b, a)
            driver.call("cuGraphDestroyNode", node)
        roots = _listed("cuGraphGetRootNodes", graph)
        fill = _Fill(self.memory.ptr, 0, 0, 1, SIZE * min(self.used, _COUNT), 1)
        context = driver.context(self.index)
        first = driver.number("cuGraphAddMemsetNode", graph, None, 0, ctypes.byref(fill), context)
        for root in roots:
            _depend(graph, first, root)

    def _clears(self, node: int) -> bool:
        """Return whether a node sets bytes of one counter to zero."""
        kind, fill = ctypes.c_int(), _Fill()
        driver.call("cuGraphNodeGetType", node, ctypes.byref(kind))
        if kind.value != _MEMSET:
            return False
        driver.call("cuGraphMemsetNodeGetParams", node, ctypes.byref(fill))
        inside = self.memory.ptr <= fill.target < self.memory.ptr + SIZE * _COUNT
        return inside and fill.value == 0 and fill.height == 1


def _listed(name: str, of: int) -> list[int]:
    """The handles that a function of the driver lists."""
    count = ctypes.c_size_t()
    driver.call(name, of, None, ctypes.byref(count))
    found = (ctypes.c_uint64 * count.value)()
    if count.value:  # the driver does not accept a place for no nodes
        driver.call(name, of, found, ctypes.byref(count))
    return list(found[: count.value])


def _depend(graph: int, before: int, after: int) -> None:
    one, other = (ctypes.byref(ctypes.c_uint64(node)) for node in (before, after))
    driver.call("cuGraphAddDependencies", graph, one, other, 1)
