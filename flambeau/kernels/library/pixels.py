"""Kernels on images of bytes: resizing in integers, pixels to planes, mirrored rows."""

from __future__ import annotations

from ..loops import i32, loop_kernel, maximum, minimum, prange, simd, u8, unroll


@loop_kernel
def resize_bytes_along(out, x, first, weights, rows, n, length, blocks, shift, *, taps, several):
    """out (rows, length) from x (rows, n): output j is the sum of blocks * taps inputs from first[j] on, times 16-bit weights
    [output, tap], rounded. All of these inputs exist. `several`: whether there is more than one block."""
    for r in prange(rows, length * taps):
        for j in range(length):
            place = r * n + first[j]
            row = j * taps * (blocks if several else 1)
            total = i32(1) << i32(shift - 1)
            for k in unroll(taps):
                total = total + i32(weights[row + k]) * i32(x[place + k])
            if several:
                for b in range(1, blocks):
                    for k in unroll(taps):
                        total = total + i32(weights[row + b * taps + k]) * i32(x[place + b * taps + k])
            out[r * length + j] = u8(minimum(maximum(total >> i32(shift), i32(0)), i32(255)))


@loop_kernel
def resize_bytes_across(out, x, scratch, first, count, weights, planes, parts, n, length, width, shift):
    """out (planes, length, width) from x (planes, n, width): rows are weighted sums of rows, with weights [tap, output]."""
    size = (length + parts - 1) // parts
    for task in prange(planes * parts, size * width * 4):
        plane = task // parts
        begin = task % parts * size
        line = task * width
        for i in range(begin, minimum(begin + size, length)):
            for j in simd(width):
                scratch[line + j] = i32(1) << i32(shift - 1)
            for k in range(count[i]):
                weight = i32(weights[k * length + i])
                source = (plane * n + first[i] + k) * width
                for j in simd(width):
                    scratch[line + j] = i32(scratch[line + j]) + weight * i32(x[source + j])
            target = (plane * length + i) * width
            for j in simd(width):
                out[target + j] = u8(minimum(maximum(i32(scratch[line + j]) >> i32(shift), i32(0)), i32(255)))


@loop_kernel
def planes_of_pixels(out, x, rows, width, pitch, divisor, *, channels):
    """out (channels, rows, width) from interleaved pixels: rows of x are `pitch` apart. Divided by `divisor`, unless that is None."""
    for r in prange(rows, width * channels):
        for i in simd(width):
            for c in unroll(channels):
                value = x[r * pitch + i * channels + c]
                out[(c * rows + r) * width + i] = value if divisor is None else value / divisor


@loop_kernel
def mirrored_rows(out, x, rows, parts, n):
    """Write every row of x backwards to out."""
    size = (rows + parts - 1) // parts
    for task in prange(parts, size * n):
        for r in range(task * size, minimum(task * size + size, rows)):
            for j in simd(n):
                out[r * n + j] = x[r * n + (n - 1 - j)]
