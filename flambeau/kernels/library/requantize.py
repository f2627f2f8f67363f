"""From the sums of integer products to codes or values, in PyTorch's order of steps: ties and last bits depend on it."""

from __future__ import annotations

from ..loops import f32, fma, i32, loop_kernel, maximum, prange, round_, scalar_function, simd, where


@scalar_function
def between(code, low, high):
    """A code kept in range. Not `minimum` and `maximum`, which look for values that are no numbers: there are none."""
    code = where(code > low, code, low)
    return where(code < high, code, high)


@loop_kernel
def requantize_rows(
    out, sums, offsets, row_offsets, channel_zeros, multiplier, bias, factor, rows, n, zero_point, low, high
):
    """out = codes of (sums - offsets + bias * factor) * multiplier, a number of offsets, bias and multiplier for every column. Where weights have
    zero points (`channel_zeros`), those times the row's `row_offsets` are taken off too."""
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
def dequantize_rows(out, sums, weight_sums, row_offsets, channel_zeros, scales, bias, rows, n, zero_point, scale, relu):
    """out = (sums - zero_point * weight_sums) * (scale * scales) + bias, in float32, the last two steps with one rounding."""
    for i in prange(rows, n):
        base = i * n
        for j in simd(n):
            whole = i32(sums[base + j]) - i32(zero_point) * i32(weight_sums[j])
            if channel_zeros is not None:
                whole = whole - i32(row_offsets[i]) * i32(channel_zeros[j])
            value = f32(whole)
            both = f32(scale) * scales[j]
            if bias is not None:
                value = fma(value, both, bias[j])
            else:
                value = value * both
            if relu:
                value = maximum(value, f32(0))
            out[base + j] = value
