"""Pictures whose channels lie last between the steps of a program, where that takes less time.

The library's code for convolutions wants channels together: oneDNN lays pictures out in blocks of channels, or takes them channels last
as they are, and Winograd's algorithm works on channels last. Eager calls find pictures as the user has them, so they are laid out and
back again around each convolution. Of pictures that nobody but the program sees that is not needed."""

from __future__ import annotations

import math
from typing import Any

from ...backends.cpu import winograd
from ..record.steps import Graph, Launch, Test, new_buffer
from .convolutions import sizes_of
from .feature_maps import Convolution, Elements, Finder, Norm, Picture, Pool, Unit, relaying

# What things take on one core, in milliseconds for a million bytes (measured: a convolution by oneDNN with and without laying out
# pictures, and what its channels-last code takes more for the weight; Winograd's, which reads and writes pictures in either order; a copy
# from one layout to the other; max pooling; batch norms of small pictures, or, the other way round, of few channels).
_LAID_OUT, _WEIGHTS, _BY_WINOGRAD, _COPIED, _POOLED, _NORMALISED = 0.065, 0.1, 0.01, 0.2, 0.05, 0.05
_FEW_CHANNELS, _SMALL_PICTURE = 16, 64  # channels, pixels
_ARITHMETIC = 1e-8  # milliseconds
_WORTHWHILE = 0.01  # of what all convolutions take


def keep_layouts(graph: Graph, results: set[int]) -> None:
    """Let pictures lie channels last from one convolution to the next, through batch norms, additions, `relu` and pools, and back the
    same way. Where a step needs one as it was, it is copied. Sums are rounded in another order."""
    if graph.layouts is False:
        return
    finder = Finder(graph)
    units = finder.units()
    if not any(isinstance(u, Convolution) for u in units):
        return
    groups = _Groups(units, finder.known)
    chosen = set(groups.members) if graph.layouts else _Estimate(graph, results, units, groups).best()
    last = {b for b, group in groups.of.items() if group in chosen}
    if last:
        _Rewriting(graph, results, units, finder.known, last).do()


class _Groups:
    """Pictures that must lie the same way, because a step goes over them together."""

    def __init__(self, units: list[Unit], known: dict[int, Picture]):
        parent = {b: b for u in units for b in u.pictures}

        def find(b: int) -> int:
            while parent[b] != b:
                parent[b] = parent[parent[b]]
                b = parent[b]
            return b

        for unit in units:
            if unit.joins:
                first, *others = unit.pictures
                for b in others:
                    parent[find(b)] = find(first)
        self.of = {b: find(b) for b in parent}
        self.members: dict[int, list[int]] = {}
        for b, group in self.of.items():
            self.members.setdefault(group, []).append(b)


class _Estimate:
    """What is gained by which groups of pictures with their channels last."""

    def __init__(self, graph: Graph, results: set[int], units: list[Unit], groups: _Groups):
        self.groups, self.units = groups, units
        self.convolutions = [u for u in units if isinstance(u, Convolution)]
        self.by_winograd = {id(u): winograd_pays(u) for u in self.convolutions}
        self.own = {group: -self._costs(graph, results, group) for group in groups.members}
        for unit in units:
            for b, p in list(unit.pictures.items())[:1]:
                if isinstance(unit, Pool):
                    self.own[groups.of[b]] += _POOLED * p.bytes / 1e6
                elif isinstance(unit, Norm):
                    worse, better = p.channels < _FEW_CHANNELS, p.pixels <= _SMALL_PICTURE
                    self.own[groups.of[b]] += _NORMALISED * (better - worse) * p.bytes / 1e6
        self.near: dict[int, list[Convolution]] = {}
        for unit in self.convolutions:
            for group in {groups.of[b] for b in unit.pictures}:
                self.near.setdefault(group, []).append(unit)

    def _costs(self, graph: Graph, results: set[int], group: int) -> float:
        """Copies for steps that take pictures only as they were."""
        members = set(self.groups.members[group])
        mine = {id(s) for u in self.units for s in u.steps}
        needed = members & results
        for step in graph.steps:
            if id(step) not in mine:
                needed |= members & {r.buffer for r in _all_refs(step)}
        return _COPIED * sum(graph.buffers[b].size for b in needed) / 1e6

    def _takes(self, unit: Convolution, chosen: set[int]) -> float:
        """Time for laying out the pictures of a convolution."""
        usual = [b for b in unit.pictures if self.groups.of[b] not in chosen]
        if self.by_winograd[id(unit)]:
            return _BY_WINOGRAD * sum(unit.pictures[b].bytes for b in usual) / 1e6
        blocked = len(usual) == len(unit.pictures) or unit.told.lying(["x", "y", "dx", "dy"]).is_blocked()
        moved = unit.pictures if blocked else usual
        weight = 0 if blocked or unit.told.kind != "forward" else 4 * math.prod(unit.told.tensors["w"][0])
        return (_LAID_OUT * sum(unit.pictures[b].bytes for b in moved) + _WEIGHTS * weight) / 1e6

    def _gain(self, chosen: set[int], near: list[Convolution], groups: set[int]) -> float:
        before = sum(self._takes(u, set()) for u in near)
        return before - sum(self._takes(u, chosen) for u in near) + sum(self.own[g] for g in groups & chosen)

    def best(self) -> set[int]:
        """All groups, without those that are better left as they are; none if little is gained."""
        chosen = set(self.groups.members)
        for _ in range(3):
            for group in self.groups.members:
                near = self.near.get(group, [])
                with_it, without = chosen | {group}, chosen - {group}
                better = self._gain(with_it, near, {group}) > self._gain(without, near, {group})
                chosen = with_it if better else without
        total = sum(_work(u) * (0.5 if self.by_winograd[id(u)] else 1) for u in self.convolutions)
        gain = self._gain(chosen, self.convolutions, chosen)
        return chosen if gain > _WORTHWHILE * total * _ARITHMETIC else set()


def winograd_pays(unit: Convolution) -> bool:
    """Whether a later pass will use Winograd's algorithm."""
    sizes = sizes_of(unit.told)
    return sizes is not None and winograd.pays(sizes)


def _work(unit: Convolution) -> float:
    """Operations of a convolution, or of its gradients."""
    shapes = {n: shape for n, (shape, _) in unit.told.tensors.items()}
    weight, result = shapes.get("w", shapes.get("dw")), shapes.get("y", shapes.get("dy"))
    assert weight is not None and result is not None
    times = 1 if unit.told.kind == "forward" else ("dx" in shapes) + ("dw" in shapes)
    return 2.0 * times * math.prod(weight) * result[0] * math.prod(result[2:])


def _all_refs(step: Any) -> list[Any]:
    again = step.again.refs() if isinstance(step, Test) and step.again else ()
    return [r for r in [*step.refs(), *again] if r.buffer >= 0]


class _Rewriting:
    """The steps of a graph anew, with some pictures in buffers of their own where their channels are last. A picture is copied from one
    layout to the other where a step needs it so, and it is not."""

    def __init__(self, graph: Graph, results: set[int], units: list[Unit], known: dict[int, Picture], last: set[int]):
        self.graph, self.results, self.known, self.last = graph, results, known, last
        self.units = {u.at: u for u in units}
        self.steps: list[Any] = []
        self.other: dict[int, int] = {}  # the buffers with channels last
        self.valid: dict[
            int, set[bool]
        ] = {}  # of each picture, in which layouts it is there: with channels last, or not

    def do(self) -> None:
        steps, i = self.graph.steps, 0
        while i < len(steps):
            unit = self.units.get(i)
            relaid = None if unit is None else self._relaid(unit)
            count = 1 if unit is None or relaid is None else len(unit.steps)
            if relaid is None:
                self._needs(_all_refs(steps[i]), False)
                self.steps.append(steps[i])
                self._wrote(steps[i], False)
            else:
                self.steps += relaid
            i += count
        for b in self.results & self.last:
            if self.valid.get(b) == {True}:
                self._copy(b, False)
        self.graph.steps = self.steps

    def _relaid(self, unit: Unit) -> list[Launch] | None:
        mine = [b for b in unit.pictures if b in self.last]
        if not mine:
            return None
        for b in mine:
            if b not in self.other:
                self.other[b] = new_buffer(self.graph, self.known[b].bytes).buffer
        made = unit.relaid(self.graph, {b: self.other[b] for b in mine})
        if made is None:
            return None
        inside = {b: b for s in unit.steps for b in {r.buffer for r in s.refs()}}
        self._needs([r for s in unit.steps for r in s.refs() if r.buffer in inside and r.buffer not in mine], False)
        self._needs([r for s in unit.steps for r in s.refs() if r.buffer in mine], True)
        for step in unit.steps:
            self._wrote(step, True, mine)
        if not isinstance(unit, Elements):
            self.graph.relaid.append(unit.steps[-1].name)
        return made

    def _needs(self, refs: list[Any], last: bool) -> None:
        for b in {r.buffer for r in refs} & self.last:
            if self.valid.get(b) and last not in self.valid[b]:
                self._copy(b, last)

    def _wrote(self, step: Any, last: bool, only: list[int] | None = None) -> None:
        written = step.writes() if isinstance(step, Launch) else _all_refs(step)
        for ref in written:
            if ref.buffer in self.last:
                self.valid[ref.buffer] = {last and (only is None or ref.buffer in only)}

    def _copy(self, b: int, last: bool) -> None:
        picture = self.known[b]
        places = (b, self.other[b]) if last else (self.other[b], b)
        self.steps.append(relaying(self.graph, *places, picture, last))
        self.valid[b].add(last)


__all__ = ["keep_layouts"]
