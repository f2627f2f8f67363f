"""Passes over a graph: each a small function that makes it cheaper and changes no result."""

from __future__ import annotations

import math
import struct
import zlib
from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

from ...backends import compiled
from ...backends.cpu import jit
from ...core.dtype import dtype, opmath
from ...expr.node import Expr, arg, cast, replace_arguments, walk
from ...expr.simplify import simplify
from ...kernels.elementwise import passing
from ..late import late
from ..record.steps import LONG, Graph, Launch, Ref, Test
from .constants import fold
from .epilogues import join_epilogues
from .loops import Loop, Place, emitted, parsed, used
from .norms import spread_norms
from .ordering import free_earlier, recompute
from .placement import place
from .products import prefer_primitives

convolutions, layouts = late("passes.convolutions"), late("passes.layouts")
convolution_epilogues = late("passes.convolution_epilogues")
repeated_rows, lanes = late("passes.repeated_rows"), late("passes.lanes")
_BACK = 24  # how many groups of loops a loop looks back for one that it can join
_POINTERS = 14  # of a joined loop
_NODES = 400  # of its formulas


class Stage(NamedTuple):
    """What a graph looked like after a pass: its text, how many steps it had, and how many bytes these read and wrote."""

    name: str
    packed: Any  # the text, in few bytes
    steps: int
    bytes: int

    @property
    def text(self) -> str:
        return zlib.decompress(self.packed).decode()


def run(graph: Graph, results: set[int]) -> list[Stage]:
    """All passes in order. What the graph looked like after each that changed something."""
    lines: dict[int, tuple] = {}
    trail = [_stage("recording", graph, lines)]
    for name, work in (
        ("sharing", share),
        ("keeping layouts", keep_layouts),
        ("convolving with fewer products", fewer_products),
        ("evaluating norms in loops", spread_norms),
        ("fusing loops", fuse),
        ("fusing reductions", fuse_reductions),
        ("dropping dead steps", drop_dead),
        ("placing results", place),
        ("folding constants", fold),
        ("joining what follows", join_followers),
        ("joining epilogues", join_epilogues),
        ("preferring primitives", prefer_primitives),
        ("multiplying rows once", multiply_once),
        ("freeing earlier", free_earlier),
        ("computing again", recompute),
        ("running side by side", side_by_side),
    ):
        rounds = work in (join_epilogues, prefer_primitives, multiply_once, keep_layouts)
        if (graph.exact and rounds) or (graph.portable and work in (fewer_products, multiply_once, side_by_side)):
            continue
        before = [id(step) for step in graph.steps]
        work(graph, results)
        if [id(step) for step in graph.steps] != before:
            trail.append(_stage(name, graph, lines))
    return trail


def keep_layouts(graph: Graph, results: set[int]) -> None:
    """Let pictures lie otherwise between convolutions, where there are some."""
    if graph.layouts is not False and _convolves(graph):
        layouts.keep_layouts(graph, results)


def fewer_products(graph: Graph, results: set[int]) -> None:
    """Let convolutions be computed otherwise, where there are some."""
    if _convolves(graph):
        convolutions.fewer_products(graph, results)


def _convolves(graph: Graph) -> bool:
    known = [s for s in graph.steps if isinstance(s, Launch)]
    blocks = [jit.facts.get(s.address) for s in known]
    return any(hasattr(getattr(s.plan, "described", None), "window") for s in known) or any(
        b is not None and b.name == "block_rows" for b in blocks
    )


def multiply_once(graph: Graph, results: set[int]) -> None:
    """Let products of rows of a table be computed with each row once, where a table is read."""
    known = [jit.facts.get(s.address) for s in graph.steps if isinstance(s, Launch)]
    if any(k is not None and k.name == "embedding" for k in known):
        repeated_rows.multiply_once(graph, results)


def side_by_side(graph: Graph, results: set[int]) -> None:
    """Let the rows of a batch go through the time of a recurrent layer on threads of their own, where there is one."""
    known = [jit.facts.get(s.address) for s in graph.steps if isinstance(s, Launch)]
    if any(k is not None and "_step" in k.name for k in known):
        lanes.side_by_side(graph, results)


def join_followers(graph: Graph, results: set[int]) -> None:
    """Let those do what follows."""
    if any(isinstance(s, Launch) and s.other is not None for s in graph.steps):
        convolution_epilogues.join_followers(graph, results)


def _stage(name: str, graph: Graph, lines: dict[int, tuple]) -> Stage:
    moved = sum(graph.buffers[b].size for step in graph.steps for b in {r.buffer for r in step.refs()} if b >= 0)
    return Stage(name, zlib.compress(graph.text(lines).encode(), 1), len(graph.steps), moved)


# -- the same thing twice -----------------------------------------------------------------------------------------------


def share(graph: Graph, results: set[int]) -> None:
    """Leave out a native call that computes what an earlier one has computed, and read that one's result instead. Both results
    are of the function's own and never written again, and what they are computed from has not changed in between."""
    writers: dict[int, list[int]] = {}
    for i, step in enumerate(graph.steps):
        for ref in step.writes() if isinstance(step, Launch) else [] if isinstance(step, Test) else step.refs():
            writers.setdefault(ref.buffer, []).append(i)
    fixed = set().union(
        *(used(s) for s in graph.steps if not isinstance(s, Launch))
    )  # arguments of theirs are not rewritten
    seen: dict[Any, tuple[int, list[Ref]]] = {}
    instead: dict[int, int] = {}
    kept: list[Any] = []
    for i, step in enumerate(graph.steps):
        if isinstance(step, Launch) and instead:
            step.arguments = [
                a if type(a) is not Ref else Ref(instead.get(a.buffer, a.buffer), a.offset) for a in step.arguments
            ]
        targets = step.writes() if isinstance(step, Launch) and step.written is not None else []
        alone = all(
            graph.buffers[r.buffer].source == "new"
            and r.buffer not in results
            and r.offset == 0
            and writers[r.buffer] == [i]
            for r in targets
        )
        if not targets or not alone or any(r.buffer in fixed for r in targets):
            kept.append(step)
            continue
        made = {r.buffer for r in targets}
        key = (
            step.address,
            tuple("made" if type(a) is Ref and a.buffer in made else (type(a), a) for a in step.arguments),
        )
        first = seen.get(key)
        fresh = first is not None and not any(first[0] < k < i for r in step.reads() for k in writers.get(r.buffer, ()))
        sizes = [graph.buffers[r.buffer].size for r in targets]
        if first is not None and fresh and sizes == [graph.buffers[r.buffer].size for r in first[1]]:
            instead.update({new.buffer: old.buffer for new, old in zip(targets, first[1])})
            continue
        seen[key] = (i, targets)
        kept.append(step)
    graph.steps = kept


# -- loops over elements ------------------------------------------------------------------------------------------------


def joined(first: Loop, second: Loop, lasting: Callable[[int], bool]) -> Loop | None:
    """One loop that does what both do one after the other; None where that is not the same or not worth it. `lasting` says whether a
    buffer is used afterwards."""
    if first.sizes != second.sizes:
        wide = first.spread(second.sizes)
        other = second.spread(first.sizes)
        if wide is not None:
            first = wide
        elif other is not None:
            second = other
        else:
            return None
    if not _compatible(first, second):
        return None
    reads = list(first.reads)
    index: dict[Any, int] = {}
    for k, (p, d) in enumerate(reads):
        index.setdefault(_key(p, d), k)
    values: dict[int, Expr] = {}
    for k, (p, d) in enumerate(second.reads):
        made = first.results.get(p) if type(p) is tuple else None
        if made is not None:
            if made[1] is not d:
                return None
            value = cast(made[0], d)  # rounded as it would be in memory
            values[k] = value if opmath(d) is d else cast(value, opmath(d))
            continue
        key = _key(p, d)
        if key not in index:
            index[key] = len(reads)
            reads.append((p, d))
        values[k] = arg(index[key])
    places = list(second.results)
    replaced = replace_arguments(tuple(root for root, _ in second.results.values()), values)
    results = dict(first.results)
    for p, root in zip(places, replaced):
        results.pop(p, None)
        results[p] = (root, second.results[p][1])
    pointers = sum(type(p) is tuple for p, _ in reads) + sum(lasting(p[0].buffer) for p in results)
    if pointers > _POINTERS or sum(1 for _ in walk(tuple(r for r, _ in results.values()))) > _NODES:
        return None
    if _long(results) > max(1, _long(first.results), _long(second.results)):
        return None
    return Loop(second.sizes, [*first.names, *second.names], reads, results, first.at, first.weight + second.weight)


def _long(results: dict[Place, tuple[Expr, dtype]]) -> int:
    return sum(x.op in LONG for x in walk(tuple(root for root, _ in results.values())))


def _key(place: Any, d: dtype) -> Any:
    return (place, d) if type(place) is tuple else (type(place), place, d)


def _compatible(first: Loop, second: Loop) -> bool:
    """Whether every element of the second loop needs only what the first has done at the same element."""
    written = {p[0].buffer for p in first.results}
    read = {p[0].buffer for p, _ in first.reads if type(p) is tuple}
    for p, _ in second.reads:
        if type(p) is tuple and p[0].buffer in written and p not in first.results:
            return False
    for p in second.results:
        if p[0].buffer in written and (p not in first.results or first.results[p][1] is not second.results[p][1]):
            return False
        if p[0].buffer in read and any(
            type(q) is tuple and q[0].buffer == p[0].buffer and q != p for q, _ in first.reads
        ):
            return False
    for p in [*first.results, *second.results]:
        if 0 in [s for s, n in zip(p[1], second.sizes if len(p[1]) == len(second.sizes) else first.sizes) if n > 1]:
            return False  # a result that all elements of a dimension share
    touched = [p for p, _ in second.reads if type(p) is tuple] + list(second.results)
    shares = any(p in first.results for p in touched) or bool(
        {p for p, _ in first.reads if type(p) is tuple} & set(touched)
    )
    return shares  # else nothing is gained


def fuse(graph: Graph, results: set[int]) -> None:
    """Join loops that follow each other over the same elements: values go through registers instead of memory."""
    slots: list[Any] = []  # steps and loops, in order
    last: dict[int, int] = {}
    for i, step in enumerate(graph.steps):
        last.update(dict.fromkeys(used(step), i))
    own = {b.index for b in graph.buffers if b.source == "new"} - results
    for i, step in enumerate(graph.steps):
        lasting = lambda buffer, i=i: buffer not in own or last.get(buffer, -1) > i  # noqa: E731
        loop = parsed(step, len(slots)) if isinstance(step, Launch) else None
        if loop is None:
            slots.append(step)
            continue
        place = len(slots)
        for position in range(len(slots) - 1, max(-1, len(slots) - 1 - _BACK), -1):
            before = slots[position]
            both = joined(before, loop, lasting) if isinstance(before, Loop) else None
            if both is not None:  # and perhaps with one further up, too
                del slots[position]
                loop, place = both, position
            elif _conflict(before, loop):
                break
        slots.insert(place, loop)
    needed = _needed_after(slots, results, graph)
    graph.steps = [
        s if not isinstance(s, Loop) else s.launch if s.launch is not None else emitted(s, keep)
        for s, keep in zip(slots, needed)
        if not isinstance(s, Loop) or keep
    ]


def _conflict(step: Any, loop: Loop) -> bool:
    """Whether a loop cannot be moved before a step."""
    if isinstance(step, Loop):
        written = {p[0].buffer for p in step.results}
        used = written | {p[0].buffer for p, _ in step.reads if type(p) is tuple}
    elif isinstance(step, Launch):
        written, used = {r.buffer for r in step.writes()}, {r.buffer for r in step.refs()}
    else:
        return True  # calls of operators and tests stay where they are
    if any(p[0].buffer in used for p in loop.results):
        return True
    return any(type(p) is tuple and p[0].buffer in written for p, _ in loop.reads)


def _needed_after(slots: list[Any], results: set[int], graph: Graph) -> list[list[Place]]:
    """For each loop, the results that somebody else reads."""
    users: dict[int, set[int]] = {}
    for i, s in enumerate(slots):
        for buffer in used(s):
            users.setdefault(buffer, set()).add(i)
    found: list[list[Place]] = []
    for i, s in enumerate(slots):
        keep: list[Place] = []
        if isinstance(s, Loop):
            read_here = {p for p, _ in s.reads if type(p) is tuple}
            for p in s.results:
                own = graph.buffers[p[0].buffer].source == "new" and p[0].buffer not in results
                if not own or users[p[0].buffer] != {i} or any(q[0].buffer == p[0].buffer for q in read_here):
                    keep.append(p)
            if s.launch is not None and keep:
                keep = list(s.results)
        found.append(keep)
    return found


# -- reductions ---------------------------------------------------------------------------------------------------------


def fuse_reductions(graph: Graph, results: set[int]) -> None:
    """Let reductions compute what they reduce, where a plain loop made it for nobody else. The order of sums stays the same."""
    users: dict[int, list[int]] = {}
    for i, step in enumerate(graph.steps):
        for buffer in used(step):
            users.setdefault(buffer, []).append(i)
    for i, step in enumerate(graph.steps):
        if not isinstance(step, Launch) or step.address not in compiled.reductions or step.relaid is not None:
            continue  # a step in another layout is compared with what was recorded
        for ref in step.reads():
            of = graph.buffers[ref.buffer]
            if of.source != "new" or ref.buffer in results or len(users[ref.buffer]) != 2 or users[ref.buffer][1] != i:
                continue
            at = users[ref.buffer][0]
            made = graph.steps[at]
            if isinstance(made, Launch) and not any(_rewrites(graph.steps[k], made) for k in range(at + 1, i)):
                both = _reduced(made, step, ref)
                if both is not None:
                    graph.steps[i] = both  # the loop is dead now
                    break


def _rewrites(step: Any, loop: Launch) -> bool:
    """Whether a step may change what a loop reads."""
    read = {r.buffer for r in loop.reads()}
    written = step.writes() if isinstance(step, Launch) else [] if isinstance(step, Test) else list(step.refs())
    return any(r.buffer in read for r in written)


def _reduced(made: Launch, step: Launch, ref: Ref) -> Launch | None:
    """A reduction over the formula that made what it reads, instead of over its values."""
    loop = parsed(made, 0)
    reduction, inner = compiled.reductions[step.address]
    if loop is None or len(loop.sizes) != 1 or len(loop.results) != 1 or "z" in reduction.kinds:
        return None
    place, (root, d) = next(iter(loop.results.items()))
    geometry_bytes, out, *given = step.arguments
    if place != (ref, (1,)) or type(geometry_bytes) is not bytes or sum(a == ref for a in given) != 1:
        return None
    if any(type(p) is tuple and p[1][0] not in (0, 1) for p, _ in loop.reads):
        return None
    numbers = struct.unpack(f"{len(geometry_bytes) // 8}q", geometry_bytes)
    kept, total = reduction.kept_rank, reduction.kept_rank + reduction.reduced_rank
    sizes, rest = numbers[:total], numbers[total + kept :]
    strides = iter([rest[total * k : total * (k + 1)] for k in range(len(rest) // total)])
    operands = [
        (a, k, t, next(strides) if k in "cbs" else None) for a, k, t in zip(given, reduction.kinds, reduction.in_dtypes)
    ]
    position = next(n for n, (a, _, _, _) in enumerate(operands) if a == ref)
    _, kind, stored, walked = operands[position]
    dense = sorted((s, n) for s, n in zip(walked or (), sizes) if n > 1)
    step_size = 1
    for s, n in dense:
        if s != step_size:
            return None
        step_size *= n
    if stored is not d or math.prod(sizes) != loop.sizes[0]:
        return None
    extra = [
        (p[0], kind if p[1][0] else "b", t, walked if p[1][0] else (0,) * total)
        if type(p) is tuple
        else (p, passing(t), t, None)
        for p, t in loop.reads
    ]
    others = operands[:position] + operands[position + 1 :]
    inside = replace_arguments((root,), {n: arg(len(others) + n) for n in range(len(extra))})[0]
    value = cast(inside, d)
    values = {n: arg(n - (n > position)) for n in range(len(operands)) if n != position}
    values[position] = value if opmath(d) is d else cast(value, opmath(d))
    map_root = simplify(replace_arguments((reduction.map_root,), values)[0], True)
    joined_operands = [*others, *extra]
    if sum(s is not None for *_, s in joined_operands) > _POINTERS:
        return None
    fn = compiled.reduce_kernel(
        map_root, reduction.combine, reduction.final, tuple(t for _, _, t, _ in joined_operands), reduction.out_dtype,
        reduction.acc_dtype, kept, reduction.reduced_rank, inner, "".join(k for _, k, _, _ in joined_operands),
    )  # fmt: skip
    numbers = (*numbers[: total + kept], *(n for *_, s in joined_operands if s is not None for n in s))
    address = jit.address_of(fn)
    arguments = [array("q", numbers).tobytes(), out, *(a for a, _, _, _ in joined_operands)]
    name = f"{made.name}+{step.name}"
    return Launch(name, address, jit.signatures[address], arguments, weight=made.weight + step.weight)


# -- dead steps ---------------------------------------------------------------------------------------------------------


def drop_dead(graph: Graph, results: set[int]) -> None:
    """Leave out native calls whose results nobody reads."""
    needed = set(results)
    kept: list[Any] = []
    for step in reversed(graph.steps):
        if isinstance(step, Launch) and step.written is not None:
            targets = {r.buffer for r in step.writes()}
            if targets and all(graph.buffers[b].source == "new" and b not in needed for b in targets):
                continue
        needed |= used(step)
        kept.append(step)
    graph.steps = kept[::-1]


__all__ = ["Stage", "drop_dead", "fuse", "run", "share"]
