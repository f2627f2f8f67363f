"""Launches of reductions on NVIDIA GPUs: how many threads work on a result, and how many pieces its elements are cut into."""

from __future__ import annotations

from dataclasses import dataclass

from .cuda_operands import BLOCK

UNROLL = 4  # loads a thread has in flight


@dataclass(frozen=True)
class Shape:
    """Properties that a reduction's source text is made for: `lanes` threads per result (0: columns), `vector` elements per load, 32-bit
    offsets or not, one piece per result or several."""

    lanes: int
    vector: int
    narrow: bool
    split: bool


@dataclass(frozen=True)
class ReductionLaunch:
    """Launch of a reduction for one layout: which text, its numbers, and how the work is divided."""

    shape: Shape
    packed: bytes
    results: int
    width: int  # of a row of results (columns only)
    count: int
    splits: int
    share: int
    bits: int  # 2 ** bits threads lie along a row of results (columns only)
    blocks: int


def plan_rows(narrow: bool, packed: bytes, results: int, count: int, v: int, processors: int) -> ReductionLaunch:
    """Return the launch for reductions along rows, `v` elements a load: enough blocks for all processors, in pieces if rows are few."""
    loads = -(-count // v)
    lanes = BLOCK
    if loads < 256 or (results >= 16 * processors and loads < 1024):
        lanes = min(32, _power_of_two(-(-loads // 2)))
    blocks = -(-results // (BLOCK // lanes))
    turn = lanes * v * UNROLL
    splits = max(1, min(8 * processors // blocks, count // (2 * turn))) if lanes == BLOCK else 1
    share = -(-count // splits)
    if splits > 1:
        share = -(-share // turn) * turn
        splits = -(-count // share)
    blocks = -(-results * splits // (BLOCK // lanes))
    return ReductionLaunch(Shape(lanes, v, narrow, splits > 1), packed, results, 1, count, splits, share, 0, blocks)


def plan_columns(
    vector: int, narrow: bool, packed: bytes, results: int, width: int, count: int, steps: list[int], processors: int
) -> ReductionLaunch:
    """Return the launch for reductions down columns of rows of `width` results; every stride in `steps` must allow a load's vector."""
    v = vector
    while v > 1 and (width % v or any(s % v for s in steps)):
        v //= 2
    bits = min(5, (_power_of_two(-(-width // v)) - 1).bit_length())
    tiles = results // width * -(-width // (v << bits))
    rows = BLOCK >> bits
    splits = max(1, min(8 * processors // tiles, count // (2 * rows * UNROLL)))
    share = -(-count // splits)
    splits = -(-count // share)
    return ReductionLaunch(
        Shape(0, v, narrow, splits > 1), packed, results, width, count, splits, share, bits, tiles * splits
    )


def _power_of_two(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()
