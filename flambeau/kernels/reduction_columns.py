"""Reductions whose innermost loop runs along a kept dimension: a tile of results is held in a small array while the rows of the input are
added, so that memory is read in order."""

from __future__ import annotations

from ..core import dtype as dt
from ..core.dtype import dtype
from ..expr.functions import cast, maximum, minimum, where
from ..expr.node import Expr, const
from .elementwise import assign, index_var, quotient, remainder, span, weight
from .ir import Assign, Buffer, DeclareLocal, If, Kernel, Statement, Store, load, var
from .reduction_parts import TASK, Reduction, cut, product

# Results held at a time: they stay in the first-level cache.
TILE = 1024
# Short rows are folded into one of about this length.
FOLDED = 256
# Rows collected in the narrow type before they join the wide totals.
ROWS = 128
UNROLL = 4
# Partial tiles, which is also the most threads that one tile can use.
PARTIALS = 16


class _Arrays:
    """The local arrays of one parallel task."""

    def __init__(self, r: Reduction):
        self.part = Buffer("part", r.acc_dtype, local_size=TILE)
        self.total = Buffer("total", r.wide, local_size=TILE)
        self.position = Buffer("position", dt.int64, local_size=TILE)
        self.partial = Buffer("partial", r.wide, local_size=PARTIALS * TILE)
        self.partial_position = Buffer("partial_position", dt.int64, local_size=PARTIALS * TILE)


def build_columns(r: Reduction) -> Kernel:
    last = r.kept_rank - 1
    width = index_var(f"kept{last}")
    body: list[Statement] = [
        *r.read_geometry(),
        assign("tiles", quotient(width + (TILE - 1), TILE)),
        assign("units", product([f"kept{d}" for d in range(last)]) * index_var("tiles")),
        assign("lines", product([f"reduced{d}" for d in range(r.reduced_rank)])),
        assign("tile_width", minimum(width, TILE)),
        assign("fold", _fold_factor(r)),
        assign("used", minimum(quotient(index_var("tile_width") * index_var("fold") + 63, 64) * 64, TILE)),
        # At least 64 rows for a task with a full tile: its local arrays are cleared and joined once per task.
        *cut(index_var("units"), index_var("lines"), minimum(width, TASK // 64), 1, PARTIALS),
    ]
    arrays = _Arrays(r)
    body += [DeclareLocal(arrays.partial), *([DeclareLocal(arrays.partial_position)] if r.is_arg else [])]
    body.append(_tasks(r, arrays))
    body.append(If(index_var("chunks") > 1, [_gather(r, arrays)]))
    return Kernel("reduce", r.params, body)


def _over_columns(body: list[Statement], cold: bool = False) -> Statement:
    return span("j", 0, index_var("width"), body, independent=True, cold=cold)


def _over_tile(body: list[Statement]) -> Statement:
    """Return a loop over all columns of the tile that any unit uses, up to a multiple of 64: whole vectors only."""
    return span("j", 0, index_var("used"), body, independent=True)


def _locate_unit(r: Reduction, unit: Expr) -> list[Statement]:
    """Return statements that compute the bases of the first element of a tile, and its number of columns."""
    last = r.kept_rank - 1
    tiles = index_var("tiles")
    statements: list[Statement] = [
        assign("column", remainder(unit, tiles) * TILE),
        assign("width", minimum(index_var(f"kept{last}") - index_var("column"), TILE)),
        *r.locate_kept(quotient(unit, tiles), last),
    ]
    for p in (r.out, *r.pointers):
        base = index_var(f"{p.name}.base") + index_var("column") * index_var(f"{p.name}.kept{last}")
        statements.append(assign(f"{p.name}.base", base))
    return statements


def _tasks(r: Reduction, arrays: _Arrays) -> Statement:
    task, chunks, j = index_var("task"), index_var("chunks"), index_var("j")
    keep: list[Statement] = [Store(arrays.partial, task * TILE + j, load(arrays.total, j))]
    if r.is_arg:
        keep.append(Store(arrays.partial_position, task * TILE + j, load(arrays.position, j)))
    body: list[Statement] = [
        # Neighbouring tasks share rows, so that a thread meets few pages of memory.
        *_locate_unit(r, remainder(task, index_var("units"))),
        assign("low", quotient(task, index_var("units")) * index_var("chunk_length")),
        assign("high", minimum(index_var("low") + index_var("chunk_length"), index_var("lines"))),
        *_start(r, arrays),
        *r.locate_reduced(index_var("low"), r.reduced_rank),
        *(_stream_arg(r, arrays) if r.is_arg else _stream(r, arrays)),
        *_fold(r, arrays),
        If(chunks == 1, [_over_columns([_result(r, arrays)])], [_over_tile(keep)]),
    ]
    cost = index_var("chunk_length") * index_var("tile_width") * weight((r.map_root,))
    return span("task", 0, index_var("units") * chunks, body, parallel=True, cost=cost)


def _start(r: Reduction, arrays: _Arrays) -> list[Statement]:
    start: list[Statement] = [Store(arrays.total, index_var("j"), r.identity())]
    declared: list[Statement] = [DeclareLocal(arrays.total)]
    if r.is_arg:
        declared.append(DeclareLocal(arrays.position))
        start.append(Store(arrays.position, index_var("j"), const(-1)))
    return [*declared, _over_tile(start)]


def _result(r: Reduction, arrays: _Arrays) -> Statement:
    j = index_var("j")
    value = load(arrays.position, j) if r.is_arg else r.finish(load(arrays.total, j))
    return Store(r.out, index_var("out.base") + j * index_var(f"out.kept{r.kept_rank - 1}"), value)


def _gather(r: Reduction, arrays: _Arrays) -> Statement:
    """Return the loop that combines the partial results of each tile, in order."""
    j = index_var("j")
    place = (index_var("chunk") * index_var("units") + index_var("unit")) * TILE + j
    new, old = load(arrays.partial, place), load(arrays.total, j)
    if r.is_arg:
        step = _replace_if_better(r, arrays, new, load(arrays.partial_position, place))
    else:
        step = [Store(arrays.total, j, r.join(old, new))]
    body: list[Statement] = [
        *_locate_unit(r, index_var("unit")),
        *_start(r, arrays),
        span("chunk", 0, index_var("chunks"), [_over_columns(step, cold=True)], cold=True),
        _over_columns([_result(r, arrays)], cold=True),
    ]
    return span("unit", 0, index_var("units"), body, cold=True)


def _stream(r: Reduction, arrays: _Arrays) -> list[Statement]:
    """Return statements that add rows into the tile. Float sums first accumulate a block of rows in the narrow type."""
    low, high, j = index_var("low"), index_var("high"), index_var("j")
    blocked = r.combine == "sum" and r.acc_dtype.category >= 2
    target = arrays.part if blocked else arrays.total
    if not blocked:
        return [*_rows(r, target, low, high)]
    total = r.join(load(arrays.total, j), cast(load(arrays.part, j), r.wide))
    clear = Store(arrays.part, j, r.identity())
    rows = index_var("fold") * ROWS
    body: list[Statement] = [
        assign("block_start", low + index_var("block") * rows),
        assign("block_end", minimum(index_var("block_start") + rows, high)),
        *_rows(r, target, index_var("block_start"), index_var("block_end")),
        _over_tile([Store(arrays.total, j, total), clear]),
    ]
    blocks = quotient(high - low + rows - 1, rows)
    return [DeclareLocal(arrays.part), _over_tile([clear]), span("block", 0, blocks, body)]


def _fold_factor(r: Reduction) -> Expr:
    """Return the number of neighbouring rows that are treated as one wide row. If short rows follow each other without gaps, a tile holds
    several of them, and its parts are added up at the end, a small part of the work."""
    if r.reduced_rank > 1 or r.is_arg or any(k not in "cdlz" for k in r.kinds):
        return const(1)
    width = index_var(f"kept{r.kept_rank - 1}")
    gapless: Expr = const(True)
    for p in r.pointers:
        gapless = gapless & (index_var(f"{p.name}.reduced0") == width)
    most = minimum(quotient(const(FOLDED), maximum(width, 1)), quotient(index_var("lines"), 16))
    return where(gapless, maximum(most, 1), 1)


def _fold(r: Reduction, arrays: _Arrays) -> list[Statement]:
    if r.reduced_rank > 1 or r.is_arg:
        return []
    j = index_var("j")
    joined = r.join(load(arrays.total, j), load(arrays.total, index_var("copy") * index_var("width") + j))
    return [span("copy", 1, index_var("fold"), [_over_columns([Store(arrays.total, j, joined)], cold=True)], cold=True)]


def _rows(r: Reduction, target: Buffer, low: Expr, high: Expr) -> list[Statement]:
    """Return statements that add rows low..high into `target`; several at a time if they are evenly spaced, to touch the tile less often."""
    j, fold = index_var("j"), index_var("fold")
    kept = f"kept{r.kept_rank - 1}"
    one = _over_columns([Store(target, j, r.join(load(target, j), r.element(j, kept)))])
    advance = r.advance_reduced(r.reduced_rank)
    if r.reduced_rank > 1:
        return [span("line", low, high, [one, *advance])]
    e = [r.element(j, kept, fold * k if k else None) for k in range(UNROLL)]
    several = r.join(load(target, j), r.join(r.join(e[0], e[1]), r.join(e[2], e[3])))
    together: list[Statement] = [span("j", 0, index_var("width") * fold, [Store(target, j, several)], independent=True)]
    for p in r.pointers:
        step = index_var(f"{p.name}.reduced0") * (fold * UNROLL)
        together.append(assign(f"{p.name}.offset", index_var(f"{p.name}.offset") + step))
    return [
        assign("groups", quotient(high - low, fold * UNROLL)),
        span("group", 0, index_var("groups"), together),
        span("line", low + index_var("groups") * (fold * UNROLL), high, [one, *advance]),
    ]


def _replace_if_better(r: Reduction, arrays: _Arrays, new: Expr, position: Expr) -> list[Statement]:
    j = index_var("j")
    old = load(arrays.total, j)
    kind: dtype = r.acc_dtype
    wins = (load(arrays.position, j) < 0) | r.better(var("new", kind), old)
    return [
        Assign("new", kind, new),
        Assign("wins", dt.bool_, wins),
        Store(arrays.total, j, where(var("wins", dt.bool_), var("new", kind), old)),
        Store(arrays.position, j, where(var("wins", dt.bool_), position, load(arrays.position, j))),
    ]


def _stream_arg(r: Reduction, arrays: _Arrays) -> list[Statement]:
    element = r.element(index_var("j"), f"kept{r.kept_rank - 1}")
    body = [_over_columns(_replace_if_better(r, arrays, element, index_var("line")))]
    return [span("line", index_var("low"), index_var("high"), [*body, *r.advance_reduced(r.reduced_rank)])]
