"""Max pooling and its transposes.

`max_pool_rows` is for small windows of a known size in two dimensions: it keeps, for every output, which element of the
window was the largest, as one byte. `max_pool_windows` takes windows of any place and size from a table, in three
dimensions, and keeps the position of the largest element in its plane. nan counts as larger than everything.
"""

from __future__ import annotations

from ..loops import i32, i64, like, local, loop_kernel, maximum, minimum, prange, simd, unroll, where

# Few stretches of a large window change its maximum: BLOCK elements, if at least WIDE, are compared as vectors first.
BLOCK = 32
WIDE = 8
LANES = 8  # windows in a row that are looked at together


@loop_kernel
def max_pool_rows(out, codes, x, planes, h, w, oh, ow, ph, pw, *, kh, kw, sh, sw):
    """out (planes, oh, ow) from x (planes, h, w), padding left out. `codes` (ky * kw + kx) may be None."""
    first = minimum((pw + sw - 1) // sw, ow)  # columns [first, last) have their windows inside
    last = maximum(minimum((w + pw - kw) // sw + 1 if w + pw >= kw else 0, ow), first)
    for plane in prange(planes, oh * ow * kh * kw):
        for i in range(oh):
            target = (plane * oh + i) * ow
            top = i * sh - ph
            corner = (plane * h + top) * w
            low = maximum(-top, 0)
            high = minimum(h - 1 - top, kh - 1)
            whole = last - first if low == 0 and high == kh - 1 else 0
            end = first + whole if whole >= LANES // 2 else first
            # Eight columns at a time, or four; the last ones begin earlier, so that some come twice.
            for parts in unroll(1, 3):
                fits = whole >= LANES // parts and (parts == 1 or whole < LANES)
                for block in range((whole + LANES // parts - 1) // (LANES // parts) if fits else 0):
                    start = minimum(first + block * (LANES // parts), end - LANES // parts)
                    for lane in simd(LANES // parts):
                        column = corner + (start + lane) * sw - pw
                        best = x[column]
                        code = i32(0)
                        for ky in unroll(kh):
                            for kx in unroll(kw):
                                if ky + kx > 0:
                                    v = x[column + ky * w + kx]
                                    better = v > best or v != v
                                    best = where(better, v, best)
                                    if codes is not None:
                                        code = where(better, i32(ky * kw + kx), code)
                        out[target + start + lane] = best
                        if codes is not None:
                            codes[target + start + lane] = code
            for edge in range(first + ow - end):
                j = edge if edge < first else end + edge - first
                column = j * sw - pw
                left = maximum(-column, 0)
                right = minimum(w - column, kw)
                best = x[corner + low * w + column + left]
                place = low * kw + left
                for ky in range(low, high + 1):
                    for kx in range(left, right):
                        v = x[corner + ky * w + column + kx]
                        if v > best or v != v:
                            best = v
                            place = ky * kw + kx
                out[target + j] = best
                if codes is not None:
                    codes[target + j] = place


@loop_kernel
def max_pool_rows_backward(grad_in, grad, codes, planes, h, w, oh, ow, ph, pw, *, kh, kw, sh, sw, apart):
    """The gradient of max_pool_rows with respect to x. `apart`: windows touch without overlap, and there is no padding."""
    for plane in prange(planes, h * w + oh * ow):
        base = plane * h * w
        if apart:
            for i in range(oh):
                source = (plane * oh + i) * ow
                for ky in unroll(kh):
                    row = base + (i * sh + ky) * w
                    for j in simd(ow):
                        g = grad[source + j]
                        code = codes[source + j]
                        for kx in unroll(kw):
                            grad_in[row + j * sw + kx] = where(code == ky * kw + kx, g, 0)
                    for j in range(ow * sw, w):
                        grad_in[row + j] = 0
            for place in simd(oh * sh * w, h * w):
                grad_in[base + place] = 0
        else:
            steps = local(i64, kh * kw)
            for code in range(kh * kw):
                steps[code] = code // kw * w + code % kw
            for place in simd(h * w):
                grad_in[base + place] = 0
            for i in range(oh):
                source = (plane * oh + i) * ow
                corner = base + (i * sh - ph) * w - pw
                for j in range(ow):
                    grad_in[corner + j * sw + steps[codes[source + j]]] += grad[source + j]


@loop_kernel
def positions_of_codes(indices, codes, planes, w, oh, ow, ph, pw, *, kw, sh, sw):
    """The place in its plane of every largest element, from the codes of max_pool_rows."""
    for task in prange(planes * oh, 2 * ow):
        corner = (task % oh * sh - ph) * w - pw
        for j in range(ow):
            code = codes[task * ow + j]
            indices[task * ow + j] = corner + j * sw + code // kw * w + code % kw


# -- windows from a table -------------------------------------------------------------------------------------------------


@loop_kernel
def max_pool_windows(out, indices, x, windows, planes, tables, d, h, w, od, oh, ow, step_d, step_h, step_w):
    """out (planes, od, oh, ow) from x (planes, d, h, w). `windows` holds `tables` (planes or 1) tables; each is six
    rows: first elements and their numbers along the three dimensions. Elements of a window are step_* apart.
    `indices` (place in the plane) may be None. What a window without elements gives is not defined."""
    size = 2 * (od + oh + ow)
    for task in prange(planes * od * oh, 8 * ow):
        plane = task // (od * oh)
        table = plane * size if tables > 1 else 0
        i = task // oh % od
        j = task % oh
        first_d = windows[table + i]
        first_h = windows[table + 2 * od + j]
        count_d = windows[table + od + i]
        count_h = windows[table + 2 * od + oh + j]
        columns = table + 2 * (od + oh)
        base = plane * d * h * w
        for k in range(ow):
            first_w = windows[columns + k]
            count_w = windows[columns + ow + k]
            place = (first_d * h + first_h) * w + first_w
            best = x[base + minimum(place, d * h * w - 1)]  # a window without elements may start outside
            joined = count_w == w and step_h == 1 and step_w == 1  # whole rows follow each other
            width = count_h * w if joined else count_w
            for a in range(count_d):
                for b in range(1 if joined else count_h):
                    row = ((first_d + a * step_d) * h + first_h + b * step_h) * w + first_w
                    for start in range(0, width, BLOCK):
                        stop = minimum(start + BLOCK, width)
                        larger = like(x, 1)
                        if stop - start >= WIDE and step_w == 1:
                            larger = like(x, 0)
                            for c in simd(start, stop):
                                larger += 0 if x[base + row + c] <= best else 1
                        if larger > 0:
                            for c in range(start, stop):
                                v = x[base + row + c * step_w]
                                if v > best or v != v:
                                    best = v
                                    place = row + c * step_w
            out[task * ow + k] = best
            if indices is not None:
                indices[task * ow + k] = place


@loop_kernel
def place_in_planes(out, values, indices, error, planes, size, count, *, add):
    """out (planes, size) = zeros; out[p, indices[p, k]] += values[p, k], or = if not `add`. A bad index is skipped and
    reported: error[0] becomes 1, error[1] the index."""
    for plane in prange(planes, size + 2 * count):
        for k in simd(size):
            out[plane * size + k] = 0
        for k in range(count):
            place = indices[plane * count + k]
            if place < 0 or place >= size:
                error[0] = 1
                error[1] = place
            elif add:
                out[plane * size + place] += values[plane * count + k]
            else:
                out[plane * size + place] = values[plane * count + k]


@loop_kernel
def take_from_planes(out, x, indices, error, planes, size, count):
    """out[p, k] = x[p, indices[p, k]]: the transpose of place_in_planes, which reports bad indices alike."""
    for plane in prange(planes, 2 * count):
        for k in range(count):
            place = indices[plane * count + k]
            if place < 0 or place >= size:
                error[0] = 1
                error[1] = place
            else:
                out[plane * count + k] = x[plane * size + place]


# -- channels next to each other in memory --------------------------------------------------------------------------------


@loop_kernel
def max_pool_channels(out, codes, x, batch, h, w, channels, oh, ow, ph, pw, kh, kw, sh, sw):
    """out (batch, oh, ow, channels) from x (batch, h, w, channels), as max_pool_rows."""
    for task in prange(batch * oh * ow, kh * kw * channels):
        top = task // ow % oh * sh - ph
        left = task % ow * sw - pw
        target = task * channels
        corner = (task // (oh * ow) * h + top) * w + left
        first_y = maximum(-top, 0)
        first_x = maximum(-left, 0)
        for c in simd(channels):
            out[target + c] = x[(corner + first_y * w + first_x) * channels + c]
            if codes is not None:
                codes[target + c] = first_y * kw + first_x
        for ky in range(first_y, minimum(h - top, kh)):
            for kx in range(first_x, minimum(w - left, kw)):
                source = (corner + ky * w + kx) * channels
                code = i32(ky * kw + kx)
                for c in simd(channels):
                    v = x[source + c]
                    best = out[target + c]
                    better = v > best or v != v
                    out[target + c] = where(better, v, best)
                    if codes is not None:
                        codes[target + c] = where(better, code, i32(codes[target + c]))


@loop_kernel
def max_pool_channels_backward(grad_in, grad, codes, batch, h, w, channels, oh, ow, ph, pw, kh, kw, sh, sw):
    """The gradient of max_pool_channels with respect to x."""
    for image in prange(batch, (h * w + oh * ow * kh * kw) * channels):
        base = image * h * w * channels
        for place in simd(h * w * channels):
            grad_in[base + place] = 0
        for i in range(oh):
            top = i * sh - ph
            for j in range(ow):
                left = j * sw - pw
                source = ((image * oh + i) * ow + j) * channels
                for ky in range(maximum(-top, 0), minimum(h - top, kh)):
                    for kx in range(maximum(-left, 0), minimum(w - left, kw)):
                        target = base + ((top + ky) * w + left + kx) * channels
                        code = ky * kw + kx
                        for c in simd(channels):
                            grad_in[target + c] += where(codes[source + c] == code, grad[source + c], 0)
