"""The native function of `winograd` that computes the gradient of weights, as LLVM text."""

from __future__ import annotations

import functools

from ...kernels.llvm_text import Function, Value
from .winograd_code import ROWS, A, B, G, Part, TileFunction, call_product, each_panel, entry, transposed

GRADIENT = ("dw", "db", "scratch", "x", "dy", "table")


@functools.cache
def weight_gradient(lanes: int, vectors: int) -> Function:
    """Return the function that computes dw (outputs, inputs, 3, 3), and db if wanted, from x and dy. Every share adds up its own feature
    maps, and then all these `terms` are added; or, if there is one term, every share has its own rows of it, and reads all feature maps."""
    f = Part("gradient_part", GRADIENT, lanes)
    square, biased = f.mul("%inputs", "%outputs"), f.compare("ne", "ptr", "%db", "null")
    common = f.compare("eq", "i64", "%terms", 1)
    with f.shares() as share:
        maps, spread, grads, results, total = _gradient_places(f, share)
        term = f.new(f"select i1 {common}, i64 0, i64 {share}")
        totals = f.at("%scratch", f.mul(f.mul(square, 16), term))
        f.clear(maps, f.mul("%group", "%input_space"))
        f.clear(results, f.add(f.mul("%group", "%output_space"), "%outputs"))
        mine = [f.mul(n, 8) for n in f.range(f.new("sdiv i64 %outputs, 8"), share, "%shares")]
        rows = [f.new(f"select i1 {common}, i64 {n}, i64 {every}") for n, every in zip(mine, (0, "%outputs"))]
        own = f.range("%groups", share, "%shares")
        first_group, last_group = (
            f.new(f"select i1 {common}, i64 {every}, i64 {n}") for n, every in zip(own, (0, "%groups"))
        )
        with f.loop(last_group, first_group) as group:
            start = f.mul(group, "%group")
            here = f.smaller("%group", f.sub("%images", start))
            with f.loop(here) as i:
                image = f.add(start, i)
                planes = f.at("%x", f.mul(f.mul(image, "%inputs"), "%input_pixels"))
                to = f.at(maps, f.mul(i, "%input_space"))
                f.channels_last(to, planes, "%inputs", "%input_pixels", f.input_place, "%input_last")
                planes = f.at("%dy", f.mul(f.mul(image, "%outputs"), "%output_pixels"))
                to = f.at(results, f.mul(i, "%output_space"))
                f.channels_last(to, planes, "%outputs", "%output_pixels", f.output_place, "%output_last")
                with f.when(biased), f.loop("%outputs", 0, lanes) as c:
                    place, kept = f.at(total, c), f.slot(f.vector)
                    f.store("zeroinitializer", kept)
                    with f.loop("%output_space", 0, "%outputs") as p:
                        f.store(f.new(f"fadd {f.vector} {f.load(kept)}, {f.load(f.at(to, p, c))}"), kept)
                    f.store(f.new(f"fadd {f.vector} {f.load(kept)}, {f.load(place)}"), place)
            count = f.mul(here, "%tiles")
            with f.loop(count, 0, "%block") as first:
                some = f.smaller("%block", f.sub(count, first))
                begun = f.new(f"or i64 {f.new(f'sub i64 {group}, {first_group}')}, {first}")
                more = f.compare("ne", "i64", begun, 0)
                f.spread_tiles(spread, "%input_step", maps, f.input_tile, "%input_row", "%inputs", first, some, B, 4)
                f.spread_tiles(grads, "%output_step", results, f.output_tile, "%output_row", "%outputs", first, some, transposed(A), 2)  # fmt: skip
                with f.loop(16) as k:
                    b = f.at(spread, f.mul(k, "%input_step"))
                    a = f.at(grads, f.mul(k, "%output_step"))
                    total_at = f.at(totals, f.mul(k, square))
                    for height, begin, end in _row_blocks(f, *rows):
                        for column, width in each_panel(f, "%inputs", vectors):
                            with f.loop(end, begin, height) as r:
                                call_product(
                                    f, height, width, True,
                                    f.at(total_at, f.mul(r, "%inputs"), column), f.at(a, r), f.at(b, column),
                                    ("%inputs", "%outputs", "%inputs"), some, more,
                                )  # fmt: skip
    return entry("weight_gradient", GRADIENT, [f, _summing(lanes)])


def _gradient_places(f: Part, share: Value) -> list[str]:
    """Return the addresses of a share's images, their transformed tiles, the same of dy, its feature maps, and its sums by channels."""
    place = f.at("%scratch", f.mul(f.mul(f.mul("%inputs", "%outputs"), 16), "%terms"), f.mul(share, "%numbers"))
    found = [place]
    for size in (f.mul("%group", "%input_space"), f.mul("%input_step", 16), f.mul("%output_step", 16),
                 f.mul("%group", "%output_space")):  # fmt: skip
        found.append(f.at(found[-1], size))
    return found


def _row_blocks(f: TileFunction, first: Value, last: Value) -> list[tuple[int, Value, Value]]:
    """Divide a multiple of 8 rows into blocks of ROWS and then of 4: (rows of a block, first row, end)."""
    rest = f.new(f"srem i64 {f.new(f'sub i64 {last}, {first}')}, {ROWS}")  # 0, 2 or 4: two need one block of ROWS less
    small = f.compare("eq", "i64", rest, 2)
    fours = f.new(f"select i1 {small}, i64 8, i64 {rest}")
    middle = f.sub(last, fours)
    return [(ROWS, first, middle), (4, middle, last)]


def _summing(lanes: int) -> Part:
    """Return the function that computes dw = G' (the sum of all shares' totals) G, and db as the sum of theirs."""
    f = Part("sum_part", GRADIENT, lanes)
    square, lasting = f.mul("%inputs", "%outputs"), f.compare("ne", "i64", "%weight_last", 0)
    with f.when(f.compare("ne", "ptr", "%db", "null")), f.when(f.compare("eq", "i64", "%rank", 0)):
        first_total = _gradient_places(f, 0)[-1]
        with f.loop("%outputs", 0, lanes) as c:
            kept = f.slot(f.vector)
            f.store(f.load(f.at(first_total, c)), kept)
            with f.loop("%terms", 1) as other:
                value = f.load(f.at(first_total, f.mul(other, "%numbers"), c))
                f.store(f.new(f"fadd {f.vector} {f.load(kept)}, {value}"), kept)
            f.store(f.load(kept), f.at("%db", c))
    seen = f.slot(f.vector)
    f.store("zeroinitializer", seen)
    with f.shares() as share:
        first, last = f.range("%outputs", share, "%shares")
        with f.loop(last, first) as k, f.loop("%inputs", 0, lanes) as c:
            place = f.at("%scratch", f.mul(k, "%inputs"), c)
            sums = [f.slot(f.vector) for _ in range(16)]
            for i in range(16):
                f.store(f.load(f.at(place, f.mul(square, i))), sums[i])
            with f.loop("%terms", 1) as other:
                further = f.at(place, f.mul(f.mul(square, 16), other))
                for i in range(16):
                    value = f.load(f.at(further, f.mul(square, i)))
                    f.store(f.new(f"fadd {f.vector} {f.load(sums[i])}, {value}"), sums[i])
            grid = [[f.load(sums[4 * i + j]) for j in range(4)] for i in range(4)]
            values = [value for line in f.both_ways(transposed(G), grid) for value in line]
            for value in values:
                f.look(value, seen)
            with f.when(f.new(f"xor i1 {lasting}, true")):
                f.store_nines(values, f.at("%dw", f.mul(f.add(f.mul(k, "%inputs"), c), 9)))
            with f.when(lasting):
                to = f.at("%dw", f.mul(f.mul(k, "%inputs"), 9), c)
                for e, value in enumerate(values):
                    f.store(value, f.at(to, f.mul("%inputs", e)))
    f.tell(seen)
    return f
