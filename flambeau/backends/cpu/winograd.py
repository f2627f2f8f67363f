"""Convolutions with windows of 3 x 3 by Winograd's algorithm F(2x2, 3x3): 16 products for 4 results instead of 36.

Results are rounded in another order than those of a direct convolution, to about as many digits (its sums are of differences of neighbouring
pixels). An infinity or nan spreads to all four results of a tile that contains it, not only those whose window does: the functions report it
in the field `odd` of their table, and callers then repeat the work in another way.
"""

from __future__ import annotations

import functools
from array import array
from typing import NamedTuple

from . import features, jit, native_call, threads, winograd_code, winograd_gradient_code

_BLOCK = 66  # tiles whose products are computed together: their operands fit into a core's cache
_LARGE_WEIGHT = 1 << 18  # pairs of channels from which on twice as many are: the prepared weight does not fit
_GAP = 16  # numbers between matrices, which otherwise would all map to the same cache lines
_LEAST_CHANNELS, _LEAST_TILES = 32, 64
_FUNCTIONS = {  # what writes their code, the names of their parameters, and which of these are written to
    "convolve": (winograd_code.convolve, winograd_code.CONVOLVE, frozenset((0, 1))),
    "weight_gradient": (winograd_gradient_code.weight_gradient, winograd_gradient_code.GRADIENT, frozenset((0, 1, 2))),
}

ODD = 8 * winograd_code.FIELDS.index("odd")  # where in their tables the functions report infinities and nan


class Sizes(NamedTuple):
    """Sizes of a convolution of (images, inputs, height, width) with (outputs, inputs, 3, 3), with zero padding."""

    images: int
    inputs: int
    height: int
    width: int
    outputs: int
    padding: tuple[int, int]

    @property
    def result(self) -> tuple[int, int]:
        """Return height and width of the result."""
        return self.height + 2 * self.padding[0] - 2, self.width + 2 * self.padding[1] - 2

    @property
    def tiles(self) -> tuple[int, int]:
        return (self.result[0] + 1) // 2, (self.result[1] + 1) // 2

    def backwards(self) -> Sizes:
        """Return the sizes of the convolution that computes the gradient of the input."""
        high, wide = self.result
        padding = (2 - self.padding[0], 2 - self.padding[1])
        return Sizes(self.images, self.outputs, high, wide, self.inputs, padding)


@functools.cache
def _shape() -> tuple[int, int] | None:
    """Return the numbers in a vector, and vectors in a panel; None if there are too few registers for this to pay off."""
    if not native_call.supported() or not jit.available():
        return None
    return {"AVX512": (16, 4), "AVX2": (8, 2)}.get(features.get_cpu_capability())


def pays(sizes: Sizes) -> bool:
    """Return whether this is expected to be faster than a direct convolution (measured: it takes 0.6 to 0.9 of the time, if there are enough
    channels for products to be most of the work)."""
    high, wide = sizes.tiles
    enough = sizes.images * high * wide >= _LEAST_TILES * threads.get_num_threads() and min(sizes.result) > 1
    if not enough or min(sizes.inputs, sizes.outputs) < _LEAST_CHANNELS or not all(0 <= p <= 2 for p in sizes.padding):
        return False
    shape = _shape()  # last: asking LLVM what this CPU can do loads it
    return shape is not None and not sizes.inputs % shape[0] and not sizes.outputs % shape[0]


@functools.cache
def function(name: str) -> int:
    """Return the address of a native function: "convolve" or "weight_gradient"."""
    shape = _shape()
    assert shape is not None
    code, pointers, written = _FUNCTIONS[name]
    address = jit.address_of(jit.support_function(code(*shape), signature="p" * len(pointers), brief=False))
    jit.facts[address] = jit.Facts(name, pointers, written)
    return address


class Work(NamedTuple):
    """Table that describes a convolution to a native function, and the bytes of memory it needs."""

    table: bytes
    scratch: int


def work(
    sizes: Sizes, swapped: bool = False, gradient: bool = False, last: tuple[bool, bool, bool] = (False, False, False)
) -> Work:
    """Return the work of a convolution, or (`swapped`) of one with the weight of the convolution that it is the gradient of, or (`gradient`)
    of the gradient of the weight. `last` says whether input, output (or dy) and weight (or dw) are channels-last."""
    high, wide = sizes.tiles
    tiles, shares = high * wide, max(1, min(threads.get_num_threads(), sizes.images))
    pairs = sizes.inputs * sizes.outputs
    large = pairs >= _LARGE_WEIGHT
    terms = 1 if large or not gradient else shares
    most = _BLOCK * (1 + (large and not gradient))
    group = max(1, min(most // tiles, sizes.images // (1 if large and gradient else shares)))
    block = min(most, -(-group * tiles // winograd_code.ROWS) * winograd_code.ROWS)
    input_width, output_width = 2 * wide + 2, 2 * wide
    input_space = (2 * high + 2) * input_width * sizes.inputs
    output_space = 4 * tiles * sizes.outputs
    input_step, output_step = block * sizes.inputs + _GAP, block * sizes.outputs + _GAP
    numbers = group * (input_space + output_space) + 16 * (input_step + output_step)
    if gradient:
        numbers += sizes.outputs
    numbers = -(-numbers // 1024) * 1024 + _GAP
    fields = {
        "images": sizes.images, "group": group, "shares": shares, "groups": -(-sizes.images // group),
        "inputs": sizes.inputs, "outputs": sizes.outputs, "input_pixels": sizes.height * sizes.width,
        "output_pixels": sizes.result[0] * sizes.result[1], "input_space": input_space, "output_space": output_space,
        "tiles": tiles, "block": block, "input_row": input_width * sizes.inputs, "output_row": output_width * sizes.outputs,
        "input_step": input_step, "output_step": output_step, "numbers": numbers, "swapped": int(swapped),
        "terms": terms, "positive": 0,
        "input_last": last[0], "output_last": last[1], "weight_last": last[2], "odd": 0,
    }  # fmt: skip
    top, left = sizes.padding
    places = [
        [((y + top) * input_width + x + left) * sizes.inputs for y in range(sizes.height) for x in range(sizes.width)],
        [(y * output_width + x) * sizes.outputs for y in range(sizes.result[0]) for x in range(sizes.result[1])],
        _tile_places(group, high, wide, input_space, input_width * sizes.inputs, sizes.inputs),
        _tile_places(group, high, wide, output_space, output_width * sizes.outputs, sizes.outputs),
    ]
    words = [int(fields[name]) for name in winograd_code.FIELDS] + [n for row in places for n in row]
    return Work(array("q", words).tobytes(), 4 * (numbers * shares + 16 * pairs * terms))


def positive(table: bytes) -> bytes:
    """Return the table of a convolution whose results are clamped to at least 0."""
    at = 8 * winograd_code.FIELDS.index("positive")
    return table[:at] + array("q", [1]).tobytes() + table[at + 8 :]


def is_positive(table: bytes) -> bool:
    """Return whether a table is that of a convolution with results clamped to at least 0."""
    return table == positive(table)


def _tile_places(group: int, high: int, wide: int, space: int, row: int, channels: int) -> list[int]:
    """Return the offset of the first pixel of each tile of a group of images."""
    return [i * space + 2 * y * row + 2 * x * channels for i in range(group) for y in range(high) for x in range(wide)]
