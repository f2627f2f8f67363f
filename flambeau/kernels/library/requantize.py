"""Conversion of sums of integer products to codes or values, in PyTorch's order of steps, on which ties and last bits depend."""

from __future__ import annotations

import numpy as np

from ..loops import (
    abs_,
    bitcast,
    f32,
    f64,
    fma,
    i32,
    loop_kernel,
    maximum,
    minimum,
    prange,
    round_,
    scalar_function,
    simd,
    where,
)


@scalar_function
def between(code, low, high):
    """Clamp a code. `minimum` and `maximum` would also test for nan, which does not occur."""
    code = where(code > low, code, low)
    return where(code < high, code, high)


@loop_kernel
def requantize_rows(
    out, sums, offsets, row_offsets, channel_zeros, multiplier, bias, factor, rows, n, zero_point, low, high
):
    """out = codes of (sums - offsets + bias * factor) * multiplier, with offsets, bias and multiplier for every column. If weights have zero
    points (`channel_zeros`), those times the row's `row_offsets` are subtracted, too."""
    for i in prange(rows, n):
        base = i * n
        for j in simd(n):
            whole = i32(sums[base + j]) - i32(offsets[j])
            if channel_zeros is not None:
                whole = whole - i32(row_offsets[i]) * i32(channel_zeros[j])
            value = f32(whole)
            if bias is not None:
                value = fma(bias[j], f32(factor), value)
            code = round_(value * multiplier[j]) + f32(zero_point)
            out[base + j] = i32(between(code, f32(low), f32(high)))


@loop_kernel
def dequantize_rows(out, sums, weight_sums, row_offsets, channel_zeros, scales, bias, numbers, rows, n, relu):
    """out = (sums - zero_point * weight_sums) * (scale * scales) + bias, in float32, the last two steps with one rounding. `numbers` are
    scale and zero point of the input. If `sums` is None, they are in `out`, and are replaced."""
    for i in prange(rows, n):
        base = i * n
        zero_point = i32(numbers[1])
        for j in simd(n):
            whole = bitcast(out[base + j], i32) if sums is None else i32(sums[base + j])
            whole = whole - zero_point * i32(weight_sums[j])
            if channel_zeros is not None:
                whole = whole - i32(row_offsets[i]) * i32(channel_zeros[j])
            value = f32(whole)
            both = f32(numbers[0]) * scales[j]
            if bias is not None:
                value = fma(value, both, bias[j])
            else:
                value = value * both
            if relu:
                value = maximum(value, f32(0))
            out[base + j] = value


# -- codes of values whose scale is found on the way -----------------------------------------------------------------------

PART = 16384  # values that one thread looks at in a go
SMALLEST_SCALE = float(np.float32(6.1e-5))
NO_INVERSE = 2.0**-128  # the reciprocal of what is smaller is infinite in float32


@loop_kernel
def ranges(ends, x, n, parts):
    """ends = the smallest and the largest value of each part of x, with zero included."""
    for part in prange(parts, PART):
        low = f32(0)
        high = f32(0)
        for j in range(part * PART, minimum((part + 1) * PART, n)):
            low = minimum(low, x[j])
            high = maximum(high, x[j])
        ends[2 * part] = low
        ends[2 * part + 1] = high


@loop_kernel
def dynamic_codes(codes, numbers, x, ends, n, parts, most):
    """numbers = scale and zero point for values between the `ends`, with codes from 0 to `most`, such that zero has a code of its own; codes
    = x in these. The same as `choose_parameters`. With one part, `ends` may be None and are computed here."""
    for part in prange(parts, PART):
        smallest = f32(0)
        largest = f32(0)
        if ends is None:
            for j in range(n):
                smallest = minimum(smallest, x[j])
                largest = maximum(largest, x[j])
        else:
            for k in range(parts):
                smallest = minimum(smallest, ends[2 * k])
                largest = maximum(largest, ends[2 * k + 1])
        low = f64(smallest)
        high = f64(largest)
        scale = (high - low) / f64(most)
        if scale < NO_INVERSE:
            scale = f64(0.1)
        if scale < SMALLEST_SCALE:
            widest = f64(f32(SMALLEST_SCALE * f64(most)))
            factor = f32(SMALLEST_SCALE) / f32(scale)
            if low == 0:
                high = widest
            elif high == 0:
                low = -widest
            else:
                low = f64(f32(low) * factor)
                high = f64(f32(high) * factor)
            scale = f64(SMALLEST_SCALE)
        zero = -low / scale if -abs_(low / scale) < f64(most) - abs_(high / scale) else f64(most) - high / scale
        zero = minimum(maximum(round_(zero), f64(0)), f64(most))
        if part == 0:
            numbers[0] = scale
            numbers[1] = zero
        inverse = f32(1) / f32(scale)
        for j in simd(part * PART, minimum((part + 1) * PART, n)):
            codes[j] = i32(between(round_(fma(x[j], inverse, f32(zero))), f32(0), f32(255)))
