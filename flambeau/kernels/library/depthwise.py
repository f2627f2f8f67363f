"""Depthwise convolutions of quantized codes, channels last.

Sums are kept in float32, which holds them exactly (windows are small), because converting a code once and multiplying it by each of its
weights takes fewer instructions than dot products of bytes, which would have to be gathered first."""

from __future__ import annotations

from ..loops import f32, fma, i32, loop_kernel, maximum, minimum, prange, round_, scalar_function, simd, unroll, where
from .requantize import between

BLOCK = 4  # results of one row that are computed together: they share most of what they read


@scalar_function
def in_onednn_steps(total, scale, bias, first, inverse, zero):
    return round_((total * first * scale + bias) * inverse + zero)


@scalar_function
def in_fbgemm_steps(total, scale, bias, first, inverse, zero):
    return round_(fma(bias, first, total) * scale) + zero


@loop_kernel
def depthwise_codes(
    out, x, weight, sums, scale, bias, lines, h, w, oh, ow, c, ph, pw, zero, first, inverse, out_zero, low, *, kh, kw, sh, sw, steps
):  # fmt: skip
    """out (lines = feature maps * oh, ow, c) from x (feature maps, h, w, c). `weight` (kh * kw + 1, c) ends with zeros, as does `sums`
    (kh + 1, c), the sums of the window's rows. `zero` is the code that padding stands for. `steps` makes codes of sums."""
    left = minimum((pw + sw - 1) // sw, ow)  # columns [left, right) have their windows between the sides
    right = maximum(minimum((w + pw - kw) // sw + 1 if w + pw >= kw else 0, ow), left)
    if right - left < BLOCK:
        right = left
    for line in prange(lines, ow * c * kh * kw):
        top = line % oh * sh - ph
        first_row = line // oh * h
        for block in range((right - left + BLOCK - 1) // BLOCK):
            start = minimum(left + block * BLOCK, right - BLOCK)  # the last one may compute some a second time
            for j in simd(c):
                none = f32(0)
                for ky in unroll(kh):
                    inside = top + ky >= 0 and top + ky < h
                    none = none - f32(zero) * sums[where(inside, ky, kh) * c + j]
                for q in unroll(BLOCK):
                    total = none
                    for ky in unroll(kh):
                        inside = top + ky >= 0 and top + ky < h
                        row = (first_row + minimum(maximum(top + ky, 0), h - 1)) * w + start * sw - pw
                        for kx in unroll(kw):
                            tap = weight[where(inside, ky * kw + kx, kh * kw) * c + j]
                            # The column is one number, so that the compiler sees which results share it.
                            total = fma(f32(i32(x[(row + (q * sw + kx)) * c + j])), tap, total)
                    code = steps(total, scale[j], bias[j], f32(first), f32(inverse), f32(out_zero))
                    out[(line * ow + start + q) * c + j] = i32(between(code, f32(low), f32(255)))
        for edge in range(left + ow - right):
            place = edge if edge < left else right + edge - left
            for j in simd(c):
                total = f32(0)
                for ky in unroll(kh):
                    for kx in unroll(kw):
                        i = top + ky
                        k = place * sw - pw + kx
                        inside = i >= 0 and i < h and k >= 0 and k < w
                        at = (first_row + minimum(maximum(i, 0), h - 1)) * w + minimum(maximum(k, 0), w - 1)
                        tap = weight[where(inside, ky * kw + kx, kh * kw) * c + j]
                        total = fma(f32(i32(x[at * c + j])) - f32(zero), tap, total)
                code = steps(total, scale[j], bias[j], f32(first), f32(inverse), f32(out_zero))
                out[(line * ow + place) * c + j] = i32(between(code, f32(low), f32(255)))
