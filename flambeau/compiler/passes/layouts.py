"""Feature maps whose channels are last between the calls of a program, where that takes less time.

The library's code for convolutions wants channels together: oneDNN converts maps to blocks of channels, or takes them channels-last
unconverted, and Winograd's algorithm works on channels-last maps. Eager calls get maps in the user's layout, so they are converted before and
after each convolution. Maps that only the program sees need no such conversions."""

from __future__ import annotations

import math
from typing import Any

from ...backends.cpu import heavy
from ...core.device import cpu
from ...expr.node import arg
from ...graph.feature_maps import FeatureMap, Unit, units
from ...graph.fusion import fused_call
from ...graph.loops import Loop, Place, collapsed
from ...graph.program import Call, Program
from ..record.planning import Planner, named
from ..record.recorder import NotRecordable
from ..record.steps import StepGraph, new_buffer
from .convolutions import described, sizes_of

# Times on one core, in milliseconds for a million bytes (measured: a convolution by oneDNN with and without conversion of maps, and
# the extra time of its channels-last code for the weight; Winograd's, which reads and writes maps in either order; a copy
# from one layout to the other). The times of other operators are in their records.
_LAID_OUT, _WEIGHTS, _BY_WINOGRAD, _COPIED = 0.065, 0.1, 0.01, 0.2
_ARITHMETIC = 1e-8  # milliseconds
_WORTHWHILE = 0.01  # of what all convolutions take


def keep_layouts(graph: StepGraph, program: Program) -> None:
    """Keep feature maps channels-last between convolutions; copy them where a call needs another layout. Sums round differently."""
    if graph.layouts is False or not heavy.onednn_enabled():
        return
    found, known = units(program)
    if not any(u.convolution for u in found):
        return
    groups = _Groups(found)
    chosen = set(groups.members) if graph.layouts else _Estimate(program, found, groups).best()
    last = {b for b, group in groups.of.items() if group in chosen}
    if last:
        _Rewriting(graph, program, found, known, last).do()


class _Groups:
    """Groups of feature maps that must have the same layout, because a call goes over them together."""

    def __init__(self, units: list[Unit]):
        parent = {b: b for u in units for b in u.maps}

        def find(b: int) -> int:
            while parent[b] != b:
                parent[b] = parent[parent[b]]
                b = parent[b]
            return b

        for unit in units:
            if unit.convolution is None:
                first, *others = unit.maps
                for b in others:
                    parent[find(b)] = find(first)
        self.of = {b: find(b) for b in parent}
        self.members: dict[int, list[int]] = {}
        for b, group in self.of.items():
            self.members.setdefault(group, []).append(b)


class _Estimate:
    """Estimate of the time saved by storing groups of feature maps channels-last."""

    def __init__(self, program: Program, units: list[Unit], groups: _Groups):
        self.groups = groups
        self.convolutions = [u for u in units if u.convolution]
        self.told = {u: described(u.convolution) for u in units if u.convolution}
        self.by_winograd = {u: sizes_of(told) is not None for u, told in self.told.items()}
        mine = {u.call for u in units}  # for the others, which take maps only as they were, these are copied
        needed = program.lasting().union(*(call.touches() for call in program.calls if call not in mine))
        sizes = {
            group: sum(program.buffers[b].size for b in needed.intersection(members))
            for group, members in groups.members.items()
        }
        self.own = {group: -_COPIED * size / 1e6 for group, size in sizes.items()}
        for unit in units:
            first, feature_map = next(iter(unit.maps.items()))
            self.own[groups.of[first]] += unit.gain * feature_map.bytes / 1e6
        self.near: dict[int, list[Unit]] = {}
        for unit in self.convolutions:
            for group in {groups.of[b] for b in unit.maps}:
                self.near.setdefault(group, []).append(unit)

    def _takes(self, unit: Unit, chosen: set[int]) -> float:
        """Return the time for converting the layouts of a convolution's maps."""
        usual, told = [b for b in unit.maps if self.groups.of[b] not in chosen], self.told[unit]
        if self.by_winograd[unit]:
            return _BY_WINOGRAD * sum(unit.maps[b].bytes for b in usual) / 1e6
        blocked = len(usual) == len(unit.maps) or told.lying(["x", "y", "dx", "dy"]).is_blocked()
        moved = unit.maps if blocked else usual
        weight = 0 if blocked or told.kind != "forward" else 4 * math.prod(told.tensors["w"][0])
        return (_LAID_OUT * sum(unit.maps[b].bytes for b in moved) + _WEIGHTS * weight) / 1e6

    def _gain(self, chosen: set[int], near: list[Unit], groups: set[int]) -> float:
        before = sum(self._takes(u, set()) for u in near)
        return before - sum(self._takes(u, chosen) for u in near) + sum(self.own[g] for g in groups & chosen)

    def best(self) -> set[int]:
        """Return all groups whose change of layout is worth it; none if little is gained in all."""
        chosen = set(self.groups.members)
        for _ in range(3):
            for group in self.groups.members:
                near = self.near.get(group, [])
                with_it, without = chosen | {group}, chosen - {group}
                better = self._gain(with_it, near, {group}) > self._gain(without, near, {group})
                chosen = with_it if better else without
        total = sum(_work(self.told[u]) * (0.5 if self.by_winograd[u] else 1) for u in self.convolutions)
        gain = self._gain(chosen, self.convolutions, chosen)
        return chosen if gain > _WORTHWHILE * total * _ARITHMETIC else set()


def _work(told: Any) -> float:
    """Return the number of operations of a convolution, or of its gradients."""
    shapes = {n: shape for n, (shape, _) in told.tensors.items()}
    weight, result = shapes.get("w", shapes.get("dw")), shapes.get("y", shapes.get("dy"))
    assert weight is not None and result is not None
    times = 1 if told.kind == "forward" else ("dx" in shapes) + ("dw" in shapes)
    return 2.0 * times * math.prod(weight) * result[0] * math.prod(result[2:])


class _Rewriting:
    """The calls of a program rewritten so that some maps are channels-last, in buffers of their own. A map is copied from one layout to the
    other where a call needs the one that is not there."""

    def __init__(
        self, graph: StepGraph, program: Program, units: list[Unit], known: dict[int, FeatureMap], last: set[int]
    ):
        self.graph, self.program, self.known, self.last = graph, program, known, last
        self.units = {u.call: u for u in units}
        self.planner = Planner(graph)
        self.calls: list[Call] = []
        self.other: dict[int, int] = {}  # the buffers with channels last
        self.made: set[int] = set()
        self.valid: dict[int, set[bool]] = {}  # of each map, in which layouts it is there: with channels last, or not

    def do(self) -> None:
        for call in self.program.calls:
            unit = self.units.get(call)
            mine = [] if unit is None else [b for b in unit.maps if b in self.last]
            now = self._rewrite_call(unit, mine) if unit is not None and mine else None
            self._needs(call.touches() - set(mine if now else ()), False)
            if now is not None:
                self._needs(set(mine), True, now[0].op.kind == "pointwise")
            self.calls += now or [call]
            self.made.update(b for each in now or [call] for b in each.makes)
            for b in call.writes() & self.last:
                self.valid[b] = {now is not None and b in mine}
        for b in self.program.lasting() & self.last:
            if self.valid.get(b) == {True}:
                self._copy(b, False)
        self.program.calls = self.calls

    def _rewrite_call(self, unit: Unit, mine: list[int]) -> list[Call] | None:
        """Return the calls that replace a call, with its maps `mine` channels-last; None if that is not possible."""
        for b in mine:
            if b not in self.other:
                self.other[b] = new_buffer(self.graph, self.known[b].bytes).buffer
                self.graph.maps[self.other[b]] = b, self.known[b]
        now = unit.relaid({b: self.other[b] for b in mine})
        if now is None or now[0].op is not unit.call.op:  # a formula is planned when it has joined others
            return now
        try:
            self.planner.steps(now[0])
        except NotRecordable:
            return None
        self.graph.relaid.append(unit.call.name)
        return now

    def _needs(self, buffers: set[int], last: bool, by_formula: bool = False) -> None:
        for b in buffers & self.last:
            if self.valid.get(b) and last not in self.valid[b]:
                self._copy(b, last, by_formula)

    def _copy(self, b: int, last: bool, by_formula: bool = False) -> None:
        """Copy a map to its other layout: in the order of the new one for a formula, with which the copy may be fused, else in the order of
        the old one."""
        found, (source, to) = self.known[b], (b, self.other[b]) if last else (self.other[b], b)
        read, written = Place(source, 0, found.strides(not last)), Place(to, 0, found.strides(last))
        part = named("channels last" if last else "channels first")
        loop = Loop(found[:3], [(read, found.dtype)], {written: (arg(0), found.dtype)}, (part,), cpu)
        loop = (collapsed(part, loop.sizes, loop.reads, loop.results, cpu) if by_formula else None) or loop
        call = fused_call(loop, list(loop.results))
        call.makes, call.changes = ([], frozenset((to,))) if to in self.made else ([to], frozenset())
        self.made.add(to)
        self.calls.append(call)
        self.valid[b].add(last)
