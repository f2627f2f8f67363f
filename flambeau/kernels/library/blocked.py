"""Conversions between the usual layout of feature maps (batch, channel, position) and blocks of adjacent channels, which convolutions prefer."""

from __future__ import annotations

from ..loops import loop_kernel, minimum, prange, simd

CHUNK = 256  # positions in one task: a block of their channels stays in the nearest cache while it is turned


@loop_kernel
def rows_from_blocks(out, blocked, batch, channels, positions, batch_step, channel_step, *, block):
    """out[n, c, p] = blocked[n, c // block, p, c % block]; positions of `out` are dense."""
    chunks = (positions + CHUNK - 1) // CHUNK
    blocks = (channels + block - 1) // block
    for task in prange(batch * blocks * chunks, CHUNK * block):
        first = (task % chunks) * CHUNK
        row = task // chunks
        n = row // blocks
        c = (row % blocks) * block
        count = minimum(CHUNK, positions - first)
        source = (row * positions + first) * block
        target = n * batch_step + c * channel_step + first
        for k in range(minimum(block, channels - c)):
            for p in simd(count):
                out[target + k * channel_step + p] = blocked[source + p * block + k]


@loop_kernel
def blocks_from_rows(blocked, x, batch, channels, positions, batch_step, channel_step, *, block):
    """blocked[n, c // block, p, c % block] = x[n, c, p], for channels that fill their blocks."""
    chunks = (positions + CHUNK - 1) // CHUNK
    blocks = channels // block
    for task in prange(batch * blocks * chunks, CHUNK * block):
        first = (task % chunks) * CHUNK
        row = task // chunks
        n = row // blocks
        c = (row % blocks) * block
        count = minimum(CHUNK, positions - first)
        target = (row * positions + first) * block
        source = n * batch_step + c * channel_step + first
        for p in range(count):
            for k in simd(block):
                blocked[target + p * block + k] = x[source + k * channel_step + p]
