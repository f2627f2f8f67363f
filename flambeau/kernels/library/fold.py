"""Sliding blocks of images as columns of a matrix, and back (im2col, col2im)."""

from __future__ import annotations

from ..loops import loop_kernel, maximum, minimum, prange, scalar_function, simd


@scalar_function
def first_inside(start, stride):
    """The first i >= 0 with start + i * stride >= 0."""
    return maximum((-start + stride - 1) // stride, 0)


@scalar_function
def end_inside(start, stride, size, count):
    """Return one past the last i < count with start + i * stride < size."""
    return maximum(minimum((size - start + stride - 1) // stride, count), 0)


@loop_kernel
def unfold_planes(out, x, planes, h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw):
    """out (planes, kh, kw, oh, ow): out[p, a, b, i, j] = x[p, i * sh - ph + a * dh, j * sw - pw + b * dw], 0 outside."""
    for task in prange(planes * kh * kw, oh * ow):
        plane = task // (kh * kw)
        top = task // kw % kh * dh - ph
        left = task % kw * dw - pw
        first = minimum(first_inside(left, sw), ow)
        last = maximum(end_inside(left, sw, w, ow), first)
        for i in range(oh):
            row = top + i * sh
            target = (task * oh + i) * ow
            if row < 0 or row >= h:
                for j in simd(ow):
                    out[target + j] = 0
            else:
                source = (plane * h + row) * w + left
                for j in range(first):
                    out[target + j] = 0
                if sw == 1:
                    for j in simd(first, last):
                        out[target + j] = x[source + j]
                else:
                    for j in simd(first, last):
                        out[target + j] = x[source + j * sw]
                for j in range(last, ow):
                    out[target + j] = 0


@loop_kernel
def block_rows(out, x, batch, channels, h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw):
    """out (batch, oh, ow, channels, kh, kw): the blocks of `unfold_planes`, each a row of a matrix."""
    for row in prange(batch * oh * ow, 2 * channels * kh * kw):
        plane = row // (oh * ow) * channels
        top = row // ow % oh * sh - ph
        left = row % ow * sw - pw
        for c in range(channels):
            target = (row * channels + c) * kh * kw
            source = (plane + c) * h * w
            for a in range(kh):
                y = top + a * dh
                for b in range(kw):
                    z = left + b * dw
                    if y < 0 or y >= h or z < 0 or z >= w:
                        out[target + a * kw + b] = 0
                    else:
                        out[target + a * kw + b] = x[source + y * w + z]


@loop_kernel
def fold_planes(out, x, planes, h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw):
    """The transpose of unfold_planes: out (planes, h, w) is the sum of all blocks that cover an element."""
    for plane in prange(planes, kh * kw * oh * ow + h * w):
        for place in simd(plane * h * w, (plane + 1) * h * w):
            out[place] = 0
        for block in range(kh * kw):
            top = block // kw * dh - ph
            left = block % kw * dw - pw
            first = minimum(first_inside(left, sw), ow)
            last = maximum(end_inside(left, sw, w, ow), first)
            for i in range(oh):
                row = top + i * sh
                if 0 <= row < h:
                    target = (plane * h + row) * w + left
                    source = ((plane * kh * kw + block) * oh + i) * ow
                    if sw == 1:
                        for j in simd(first, last):
                            out[target + j] += x[source + j]
                    else:
                        for j in simd(first, last):
                            out[target + j * sw] += x[source + j]
