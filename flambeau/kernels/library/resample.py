"""Separable linear maps along dimensions: each output is a weighted sum of a few neighbouring inputs.

Along one dimension a map is given by tables with one entry per output: `first` (the first input, which may be outside: inputs before the
first and after the last are those of the border), `count` (how many), and `weights` in the order [tap, output]. With `divisors` instead of
weights (`flat`), inputs are added and their sum is divided. Pooling, interpolation, and the transposes of both are such maps.
"""

from __future__ import annotations

from ..loops import like, local, loop_kernel, maximum, minimum, prange, simd, unroll, where

BLOCK = 128  # elements summed together in resample_lines


@loop_kernel
def resample_planes(
    out, x, scratch, h_first, h_count, h_weights, w_first, w_count, w_weights, planes, parts, h, w, oh, ow, lead, tail,
    *, form, step, taps, ragged, flat, divide,
):  # fmt: skip
    """out (planes, oh, ow) from x (planes, h, w). Each task combines rows of x into one row of `scratch` (which has room
    for `lead` elements before it and `tail` after), and sums along that.

    form "steps": output j starts at j * step - lead, has `taps` inputs, and there is nothing outside;
    form "gather": any place, `taps` inputs (or fewer, if `ragged`), the border goes on outside;
    form "any": any place and number."""
    width = lead + w + tail
    size = (oh + parts - 1) // parts
    for task in prange(planes * parts, size * (2 * w + 3 * ow)):
        plane = task // parts
        begin = task % parts * size
        row = task * width + lead
        for j in range(lead):
            scratch[row - 1 - j] = 0
        for j in range(tail):
            scratch[row + w + j] = 0
        for i in range(begin, minimum(begin + size, oh)):
            target = (plane * oh + i) * ow
            # --- rows
            top = h_first[i]
            count = h_count[i]
            one = (plane * h + minimum(maximum(top, 0), h - 1)) * w
            two = (plane * h + minimum(maximum(top + 1, 0), h - 1)) * w
            if flat:
                if count < 2:
                    for j in simd(w):
                        scratch[row + j] = x[one + j]
                else:
                    for j in simd(w):
                        scratch[row + j] = x[one + j] + x[two + j]
                for k in range(2, count):
                    more = (plane * h + top + k) * w
                    for j in simd(w):
                        scratch[row + j] = scratch[row + j] + x[more + j]
            else:
                u = like(scratch, h_weights[i])
                if count == 0:
                    for j in simd(w):
                        scratch[row + j] = 0
                elif count == 1:
                    for j in simd(w):
                        scratch[row + j] = u * x[one + j]
                else:
                    v = like(scratch, h_weights[oh + i])
                    for j in simd(w):
                        scratch[row + j] = u * x[one + j] + v * x[two + j]
                for k in range(2, count):
                    more = (plane * h + minimum(maximum(top + k, 0), h - 1)) * w
                    u = like(scratch, h_weights[k * oh + i])
                    for j in simd(w):
                        scratch[row + j] = scratch[row + j] + u * x[more + j]
            # --- along the row
            if form == "steps":
                for j in simd(ow):
                    if flat:
                        total = scratch[row + j * step - lead]
                        for k in unroll(1, taps):
                            total = total + scratch[row + j * step - lead + k]
                        if divide:
                            total = total / (h_weights[i] * w_weights[j])
                    else:
                        total = w_weights[j] * scratch[row + j * step - lead]
                        for k in unroll(1, taps):
                            total = total + w_weights[k * ow + j] * scratch[row + j * step - lead + k]
                    out[target + j] = total
            elif form == "gather":
                for j in range(lead):
                    scratch[row - 1 - j] = scratch[row]
                for j in range(tail):
                    scratch[row + w + j] = scratch[row + w - 1]
                for j in simd(ow):
                    place = w_first[j]
                    total = like(scratch, 0)
                    for k in unroll(taps):
                        part = w_weights[k * ow + j] * scratch[row + place + k]
                        total = total + (where(k < w_count[j], part, 0) if ragged else part)
                    out[target + j] = total
            else:
                for j in range(ow):
                    place = w_first[j]
                    total = like(scratch, 0)
                    for k in range(w_count[j]):
                        at = row + minimum(maximum(place + k, 0), w - 1)
                        total = total + (scratch[at] if flat else w_weights[k * ow + j] * scratch[at])
                    if flat and divide:
                        total = total / (h_weights[i] * w_weights[j])
                    out[target + j] = total


@loop_kernel
def resample_lines(out, x, first, count, weights, outer, n, on, inner, *, flat, divide):
    """out (outer, on, inner) from x (outer, n, inner): sums along the middle dimension."""
    for task in prange(outer * on, 3 * inner):
        o = task % on
        slab = task // on * n
        start = first[o]
        taps = count[o]
        for begin in range(0, inner, BLOCK):
            size = minimum(BLOCK, inner - begin)
            total = local(x, BLOCK)
            for c in range(size):
                total[c] = 0
            for k in range(taps):
                row = (slab + minimum(maximum(start + k, 0), n - 1)) * inner + begin
                if flat:
                    for c in simd(size):
                        total[c] = total[c] + x[row + c]
                else:
                    u = like(x, weights[k * on + o])
                    for c in simd(size):
                        total[c] = total[c] + u * x[row + c]
            target = task * inner + begin
            if flat and divide:
                u = like(x, weights[o])
                for c in simd(size):
                    out[target + c] = total[c] / u
            else:
                for c in simd(size):
                    out[target + c] = total[c]


@loop_kernel
def resample_channels(
    out, x, h_first, h_count, h_weights, w_first, w_count, w_weights, batch, h, w, channels, oh, ow, *, flat, divide
):  # fmt: skip
    """out (batch, oh, ow, channels) from x (batch, h, w, channels): both dimensions at once, for few taps."""
    for task in prange(batch * oh, 4 * ow * channels):
        i = task % oh
        slab = task // oh * h
        for j in range(ow):
            target = (task * ow + j) * channels
            scale = like(x, 1)
            if flat and divide:
                scale = like(x, h_weights[i] * w_weights[j])
            top = (slab + minimum(maximum(h_first[i], 0), h - 1)) * w
            bottom = (slab + minimum(maximum(h_first[i] + 1, 0), h - 1)) * w
            left = minimum(maximum(w_first[j], 0), w - 1)
            right = minimum(maximum(w_first[j] + 1, 0), w - 1)
            if h_count[i] == 2 and w_count[j] == 2:
                one = (top + left) * channels
                two = (top + right) * channels
                three = (bottom + left) * channels
                four = (bottom + right) * channels
                if flat:
                    for c in simd(channels):
                        total = x[one + c] + x[two + c] + x[three + c] + x[four + c]
                        out[target + c] = total / scale if divide else total
                else:
                    p = like(x, h_weights[i])
                    q = like(x, h_weights[oh + i])
                    r = like(x, w_weights[j])
                    s = like(x, w_weights[ow + j])
                    for c in simd(channels):
                        upper = r * x[one + c] + s * x[two + c]
                        out[target + c] = p * upper + q * (r * x[three + c] + s * x[four + c])
            else:
                for begin in range(0, channels, BLOCK):
                    size = minimum(BLOCK, channels - begin)
                    sums = local(x, BLOCK)
                    for c in range(size):
                        sums[c] = 0
                    for a in range(h_count[i]):
                        row = (slab + minimum(maximum(h_first[i] + a, 0), h - 1)) * w
                        for b in range(w_count[j]):
                            source = (row + minimum(maximum(w_first[j] + b, 0), w - 1)) * channels + begin
                            if flat:
                                for c in simd(size):
                                    sums[c] = sums[c] + x[source + c]
                            else:
                                u = like(x, h_weights[a * oh + i] * w_weights[b * ow + j])
                                for c in simd(size):
                                    sums[c] = sums[c] + u * x[source + c]
                    for c in simd(size):
                        out[target + begin + c] = sums[c] / scale if flat and divide else sums[c]


@loop_kernel
def pick_planes(out, x, h_first, w_first, planes, h, w, oh, ow, inner, *, repeat):
    """out[p, i, j, :] = x[p, h_first[i], w_first[j], :] of `inner` elements. `repeat`: each column is repeated this often; 0 if repetitions
    differ. Equal rows are copied from the row before."""
    for plane in prange(planes, oh * ow * inner):
        before = -1
        for i in range(oh):
            target = (plane * oh + i) * ow * inner
            row = h_first[i]
            source = (plane * h + row) * w * inner
            if row == before:
                for j in simd(ow * inner):
                    out[target + j] = out[target - ow * inner + j]
            elif inner > 1:
                for j in range(ow):
                    place = source + w_first[j] * inner
                    for c in simd(inner):
                        out[target + j * inner + c] = x[place + c]
            elif repeat > 0:
                for j in simd(w):
                    v = x[source + j]
                    for k in unroll(repeat):
                        out[target + j * repeat + k] = v
            else:
                for j in simd(ow):
                    out[target + j] = x[source + w_first[j]]
            before = row
