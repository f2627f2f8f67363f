"""Reductions whose innermost loop runs along a reduced dimension: each result is a scalar that the loop accumulates."""

from __future__ import annotations

from ..core import dtype as dt
from ..expr.functions import cast, isnan, minimum
from ..expr.node import Expr, const, node
from .elementwise import assign, index_var, quotient, remainder, span, weight
from .ir import Assign, Break, Buffer, DeclareLocal, For, If, Kernel, Statement, Store, load, var
from .reduction_parts import Reduction, cut, product

# Elements collected in vector registers before they join the total.
BLOCK = 4096
# Partial results, which is also the most threads that one row can use.
PARTIALS = 64
# argmax looks for the position only in blocks that improve on the best value so far.
ARG_BLOCK = 1024
STRETCH = 64
LANES = 16


def build_rows(r: Reduction) -> Kernel:
    """Build a reduction of rows, in which a task is a chunk of one row. Partial results of a long row's chunks are combined at the end."""
    single = r.reduced_rank == 1
    line = index_var(f"reduced{r.reduced_rank - 1}")
    body: list[Statement] = [*r.read_geometry(), assign("rows", product([f"kept{d}" for d in range(r.kept_rank)]))]
    body.append(assign("lines", product([f"reduced{d}" for d in range(r.reduced_rank - 1)])))
    extent, cost = (line, const(1)) if single else (index_var("lines"), line)
    body += cut(index_var("rows"), extent, cost, BLOCK if single else 1, PARTIALS)
    partial = Buffer("partial", r.wide, local_size=PARTIALS)
    positions = Buffer("positions", dt.int64, local_size=PARTIALS)
    body += [DeclareLocal(partial), *([DeclareLocal(positions)] if r.is_arg else [])]
    body.append(_tasks(r, partial, positions, extent, cost))
    body.append(If(index_var("chunks") > 1, [_gather(r, partial, positions)]))
    return Kernel("reduce", r.params, body)


def _tasks(r: Reduction, partial: Buffer, positions: Buffer, extent: Expr, cost: Expr) -> Statement:
    task, chunks = index_var("task"), index_var("chunks")
    keep: list[Statement] = [Store(partial, task, r.wide_value("total"))]
    if r.is_arg:
        keep.append(Store(positions, task, index_var("position")))
    body: list[Statement] = [
        *r.locate_kept(quotient(task, chunks), r.kept_rank),
        assign("low", remainder(task, chunks) * index_var("chunk_length")),
        assign("high", minimum(index_var("low") + index_var("chunk_length"), extent)),
        r.set("total", r.identity(), wide=True),
        *([assign("position", -1)] if r.is_arg else []),
        *_collect(r),
        If(chunks == 1, [_result(r)], keep),
    ]
    tasks = index_var("rows") * chunks
    # chunk_length is rounded up to whole blocks: that does not make short rows much work.
    length = minimum(index_var("chunk_length"), extent)
    return span("task", 0, tasks, body, parallel=True, cost=length * cost * weight((r.map_root,)))


def _result(r: Reduction) -> Statement:
    value = index_var("position") if r.is_arg else r.finish(r.wide_value("total"))
    return Store(r.out, index_var("out.base"), value)


def _gather(r: Reduction, partial: Buffer, positions: Buffer) -> Statement:
    """Return the loop that combines the partial results of each row, in order."""
    piece = index_var("row") * index_var("chunks") + index_var("chunk")
    new = load(partial, piece)
    if r.is_arg:
        take: list[Statement] = [r.set("total", new), assign("position", load(positions, piece))]
        step: list[Statement] = [If((index_var("position") < 0) | r.better(new, r.value("total")), take)]
    else:
        step = [r.set("total", r.join(r.wide_value("total"), new), wide=True)]
    body: list[Statement] = [
        *r.locate_kept(index_var("row"), r.kept_rank),
        r.set("total", r.identity(), wide=True),
        *([assign("position", -1)] if r.is_arg else []),
        span("chunk", 0, index_var("chunks"), step, cold=True),
        _result(r),
    ]
    return span("row", 0, index_var("rows"), body, cold=True)


def _collect(r: Reduction) -> list[Statement]:
    """Return statements that reduce the elements of one chunk into `total`."""
    per_line = _collect_arg if r.is_arg else _collect_line
    low, high = index_var("low"), index_var("high")
    if r.reduced_rank == 1:
        start: list[Statement] = [assign(f"{p.name}.offset", index_var(f"{p.name}.base")) for p in r.pointers]
        return [*start, per_line(r, low, high, const(0))]
    outer = r.reduced_rank - 1
    line = index_var(f"reduced{outer}")
    one_line = per_line(r, const(0), line, index_var("line") * line)
    return [*r.locate_reduced(low, outer), span("line", low, high, [one_line, *r.advance_reduced(outer)])]


def _blocks(low: Expr, high: Expr, size: int, body: list[Statement]) -> For:
    stop = assign("block_end", minimum(index_var("block") + size, high))
    return For("block", low, high, const(size), [stop, *body])


def _collect_product(r: Reduction, low: Expr, high: Expr) -> Statement:
    """Return the loop for products of complex numbers: LANES of them are kept explicitly, since both parts of each depend on each other."""
    lanes, i, lane = Buffer("lanes", r.acc_dtype, local_size=LANES), index_var("i"), index_var("lane")
    stride = f"reduced{r.reduced_rank - 1}"
    step = Store(lanes, lane, r.join(load(lanes, lane), r.element(i + lane, stride)))
    rest = Store(lanes, const(0), r.join(load(lanes, const(0)), r.element(i, stride)))
    body: list[Statement] = [
        DeclareLocal(lanes),
        span("lane", 0, LANES, [Store(lanes, lane, r.identity())], independent=True),
        assign("whole", index_var("block") + quotient(index_var("block_end") - index_var("block"), LANES) * LANES),
        For(
            "i",
            index_var("block"),
            index_var("whole"),
            const(LANES),
            [span("lane", 0, LANES, [step], independent=True)],
        ),
        span("i", index_var("whole"), index_var("block_end"), [rest]),
        span("lane", 0, LANES, [r.set("total", r.join(r.value("total"), load(lanes, lane)))], cold=True),
    ]
    return _blocks(low, high, BLOCK, body)


def _collect_line(r: Reduction, low: Expr, high: Expr, first: Expr) -> Statement:
    if r.combine == "prod" and r.acc_dtype.is_complex:
        return _collect_product(r, low, high)
    element = r.element(index_var("i"), f"reduced{r.reduced_rank - 1}")
    part, total = r.value("part"), r.wide_value("total")
    # The element comes first: the test whether it is nan then does not wait for the running value.
    inner: list[Statement] = [r.set("part", r.join(element, part), reassociate=True)]
    return _blocks(
        low,
        high,
        BLOCK,
        [
            r.set("part", r.identity()),
            span("i", index_var("block"), index_var("block_end"), inner),
            r.set("total", r.join(total, cast(part, r.wide)), wide=True),
        ],
    )


def _collect_arg(r: Reduction, low: Expr, high: Expr, first: Expr) -> Statement:
    """Return statements that find the extreme value of a block first, which vectorises, and its position only if it is a new best."""
    element = r.element(index_var("i"), f"reduced{r.reduced_rank - 1}")
    part, total = r.value("part"), r.value("total")
    extreme = "maximum" if r.combine == "argmax" else "minimum"
    same = element == part
    if r.acc_dtype.is_floating_point:
        same = same | (isnan(element) & isnan(part))
    search: list[Statement] = [r.set("total", part), _search(same, first)]
    scan = Assign("part", r.acc_dtype, node(extreme, element, part), reassociate=True)
    return _blocks(
        low,
        high,
        ARG_BLOCK,
        [
            r.set("part", r.identity()),
            span("i", index_var("block"), index_var("block_end"), [scan]),
            If((index_var("position") < 0) | r.better(part, total), search),
        ],
    )


def _search(same: Expr, first: Expr) -> Statement:
    """Return a loop that sets `position` to the first place where `same` holds: it tests a stretch at a time, which vectorises, then searches
    it."""
    hit = var("hit", dt.int32)
    found: list[Statement] = [assign("position", first + index_var("i")), Break()]
    look = span("i", index_var("stretch"), index_var("stretch_end"), [If(same, found)], cold=True)
    test = Assign("hit", dt.int32, hit | cast(same, dt.int32), reassociate=True)
    body: list[Statement] = [
        assign("stretch_end", minimum(index_var("stretch") + STRETCH, index_var("block_end"))),
        Assign("hit", dt.int32, const(0)),
        span("i", index_var("stretch"), index_var("stretch_end"), [test]),
        If(hit != 0, [look, Break()]),
    ]
    return For("stretch", index_var("block"), index_var("block_end"), const(STRETCH), body)
