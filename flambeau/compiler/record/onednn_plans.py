"""The plans of oneDNN that native calls run, found by the table addresses among the calls' arguments."""

from __future__ import annotations

from typing import Any

from ...backends.cpu import jit
from ...backends.cpu.onednn import direct, plan, sequence
from ...graph.memory import Memory, Ref


class Plans:
    """The plans of oneDNN by the addresses of their tables, and the memory that they share."""

    def __init__(self) -> None:
        found = [f(brief) for f in (sequence.runner, direct.runner) for brief in (False, True)]
        self.runners = {jit.address_of(f) for f in found if f is not None}
        self.known: dict[int, Any] = {}

    def find(self, table: int) -> Any:
        if table not in self.known:
            for cache in list(plan._caches):
                for entry in [*cache.young.values(), *cache.old.values()]:
                    one = entry[0] if type(entry) is tuple else getattr(entry, "plan", entry)
                    if getattr(one, "address", None) is not None:
                        self.known[one.address] = one
        return self.known.get(table)

    def know_workspace(self, memory: Memory) -> None:
        place = plan._workspace.address
        known = memory.find(place)
        if place and (known is None or memory.buffers[known.buffer].source != "workspace"):
            memory.add(place, plan._workspace.size, "workspace")

    def in_workspace(self, memory: Memory, address: int) -> Ref | None:
        start = plan._workspace.address
        if not start <= address < start + plan._workspace.size:
            return None
        self.know_workspace(memory)
        return memory.find(address)
