"""Boxes and regions of images: non-maximum suppression, and pooling of regions to a fixed size.

A region is pooled axis by axis. For averages of interpolated points (`align_*`), `taps` says which element lies before
each point along one axis (-1: the point counts as zero) and `fractions` how far the point lies beyond it; the points of
region r start at `starts[r]`, `counts[r]` for each bin. For whole elements (`pool_*`), bins run from `first` to `last`.
With `by_position` each bin (i, j) reads a channel of its own.
"""

from __future__ import annotations

from ..loops import floor, i64, inf, like, loop_kernel, maximum, minimum, prange, simd, where


@loop_kernel
def suppress(keep, kept, alive, boxes, n, threshold):
    """Keep boxes (n, 4), best first, and drop all later ones that overlap a kept one by more than `threshold`. keep: their indices, kept:
    their number; alive is scratch memory, all ones."""
    kept[0] = 0
    for i in range(n):
        if alive[i] > 0:
            keep[kept[0]] = i
            kept[0] = kept[0] + 1
            x1, y1, x2, y2 = boxes[4 * i], boxes[4 * i + 1], boxes[4 * i + 2], boxes[4 * i + 3]
            area = (x2 - x1) * (y2 - y1)
            for j in simd(i + 1, n):
                a1, b1, a2, b2 = boxes[4 * j], boxes[4 * j + 1], boxes[4 * j + 2], boxes[4 * j + 3]
                width = maximum(minimum(x2, a2) - maximum(x1, a1), 0)
                height = maximum(minimum(y2, b2) - maximum(y1, b1), 0)
                common = width * height
                overlap = common / (area + (a2 - a1) * (b2 - b1) - common)
                alive[j] = where(overlap > threshold, 0, alive[j])


@loop_kernel
def align_taps(taps, fractions, origins, bins, starts, counts, regions, size, n):
    """Compute the points of all regions along an axis of `size` elements: n bins each, `bins[r]` long from `origins[r]`."""
    for r in prange(regions, 64 * n):
        for i in range(n):
            for a in range(counts[r]):
                at = origins[r] + i * bins[r] + (a + 0.5) * bins[r] / counts[r]
                place = starts[r] + i * counts[r] + a
                taps[place] = -1
                fractions[place] = 0
                if at >= -1.0 and at <= size:
                    at = maximum(at, 0)
                    before = minimum(i64(floor(at)), size - 1)
                    taps[place] = before
                    fractions[place] = where(before >= size - 1, 0, at - before)


@loop_kernel
def align_regions(
    out, x, image, yt, yf, ys, yn, xt, xf, xs, xn, regions, channels, planes, h, w, ph, pw, *, by_position
):
    """out (regions, channels, ph, pw): averages of interpolated points of x (images, planes, h, w)."""
    for task in prange(regions * channels, 64 * ph * pw):
        r = task // channels
        c = task % channels
        points = maximum(yn[r] * xn[r], 1)
        for i in range(ph):
            for j in range(pw):
                plane = (c * ph + i) * pw + j if by_position else c
                base = (image[r] * planes + plane) * h * w
                total = like(x, 0)
                for a in range(yn[r]):
                    row = yt[ys[r] + i * yn[r] + a]
                    if row >= 0:
                        fy = yf[ys[r] + i * yn[r] + a]
                        upper = base + row * w
                        lower = base + minimum(row + 1, h - 1) * w
                        for b in range(xn[r]):
                            left = xt[xs[r] + j * xn[r] + b]
                            if left >= 0:
                                fx = xf[xs[r] + j * xn[r] + b]
                                right = minimum(left + 1, w - 1)
                                above = x[upper + left] * (1 - fx) + x[upper + right] * fx
                                below = x[lower + left] * (1 - fx) + x[lower + right] * fx
                                total = total + above * (1 - fy) + below * fy
                out[(task * ph + i) * pw + j] = total / points


@loop_kernel
def align_regions_backward(
    dx, g, image, yt, yf, ys, yn, xt, xf, xs, xn, regions, channels, planes, h, w, ph, pw, *, by_position
):
    """Add the transpose of align_regions to dx; each plane is one task, so that none writes where another does."""
    for plane in prange(planes, regions * 64 * (1 if by_position else ph * pw)):
        c = plane // (ph * pw) if by_position else plane
        first = plane % (ph * pw) if by_position else 0
        last = first + 1 if by_position else ph * pw
        for r in range(regions):
            points = maximum(yn[r] * xn[r], 1)
            base = (image[r] * planes + plane) * h * w
            for place in range(first, last):
                i = place // pw
                j = place % pw
                share = g[(r * channels + c) * ph * pw + place] / points
                for a in range(yn[r]):
                    row = yt[ys[r] + i * yn[r] + a]
                    if row >= 0:
                        fy = yf[ys[r] + i * yn[r] + a]
                        upper = base + row * w
                        lower = base + minimum(row + 1, h - 1) * w
                        for b in range(xn[r]):
                            left = xt[xs[r] + j * xn[r] + b]
                            if left >= 0:
                                fx = xf[xs[r] + j * xn[r] + b]
                                right = minimum(left + 1, w - 1)
                                dx[upper + left] += share * (1 - fy) * (1 - fx)
                                dx[upper + right] += share * (1 - fy) * fx
                                dx[lower + left] += share * fy * (1 - fx)
                                dx[lower + right] += share * fy * fx


@loop_kernel
def pool_largest(out, where_, x, image, y0, y1, x0, x1, regions, channels, h, w, ph, pw):
    """out (regions, channels, ph, pw): the largest element of each bin, 0 for an empty one; where_: its place or -1."""
    for task in prange(regions * channels, 16 * ph * pw):
        r = task // channels
        base = (image[r] * channels + task % channels) * h * w
        for i in range(ph):
            for j in range(pw):
                best = like(x, -inf)
                at = -1
                for row in range(y0[r * ph + i], y1[r * ph + i]):
                    for column in range(x0[r * pw + j], x1[r * pw + j]):
                        v = x[base + row * w + column]
                        if v > best:
                            best = v
                            at = row * w + column
                out[(task * ph + i) * pw + j] = where(at < 0, 0, best)
                where_[(task * ph + i) * pw + j] = at


@loop_kernel
def pool_largest_backward(dx, g, where_, image, regions, channels, h, w, bins):
    """Add the gradient of pool_largest to dx."""
    for c in prange(channels, regions * bins):
        for r in range(regions):
            for p in range((r * channels + c) * bins, (r * channels + c + 1) * bins):
                if where_[p] >= 0:
                    dx[(image[r] * channels + c) * h * w + where_[p]] += g[p]


@loop_kernel
def pool_average_by_position(out, x, image, y0, y1, x0, x1, regions, channels, h, w, ph, pw):
    """out (regions, channels, ph, pw): bin (i, j) is the average over its elements of channel (c, i, j); 0 if empty."""
    for task in prange(regions * channels, 16 * ph * pw):
        r = task // channels
        for i in range(ph):
            for j in range(pw):
                plane = ((image[r] * channels + task % channels) * ph + i) * pw + j
                total = like(x, 0)
                for row in range(y0[r * ph + i], y1[r * ph + i]):
                    for column in range(x0[r * pw + j], x1[r * pw + j]):
                        total = total + x[(plane * h + row) * w + column]
                area = (y1[r * ph + i] - y0[r * ph + i]) * (x1[r * pw + j] - x0[r * pw + j])
                out[(task * ph + i) * pw + j] = total / maximum(area, 1)


@loop_kernel
def pool_average_by_position_backward(dx, g, image, y0, y1, x0, x1, regions, channels, h, w, ph, pw):
    """Add the transpose of pool_average_by_position to dx."""
    for plane in prange(channels * ph * pw, regions * 16):
        c = plane // (ph * pw)
        i = plane // pw % ph
        j = plane % pw
        for r in range(regions):
            base = (image[r] * channels * ph * pw + plane) * h
            area = (y1[r * ph + i] - y0[r * ph + i]) * (x1[r * pw + j] - x0[r * pw + j])
            share = g[((r * channels + c) * ph + i) * pw + j] / maximum(area, 1)
            for row in range(y0[r * ph + i], y1[r * ph + i]):
                for column in range(x0[r * pw + j], x1[r * pw + j]):
                    dx[(base + row) * w + column] += share


@loop_kernel
def deform_points(index, weights, slopes, offset, batch, taps, h, w, oh, ow, kw, sh, sw, ph, pw, dh, dw):
    """Compute the four neighbours of each displaced kernel element, as tables for `sample_planes` (see `sample`): (batch, 4, taps, oh, ow);
    slopes (batch, 2, 4, ...) by y and x. offset (batch, taps, 2, oh, ow)."""
    count = taps * oh * ow
    for task in prange(batch * taps, 32 * oh * ow):
        n = task // taps
        k = task % taps
        for p in range(oh * ow):
            y = p // ow * sh - ph + k // kw * dh + offset[2 * task * oh * ow + p]
            x = p % ow * sw - pw + k % kw * dw + offset[(2 * task + 1) * oh * ow + p]
            y = where(y > -2 and y < h + 1, y, -2)  # far away, or no number at all: outside is all that matters
            x = where(x > -2 and x < w + 1, x, -2)
            row = i64(floor(y))
            column = i64(floor(x))
            fy = y - floor(y)
            fx = x - floor(x)
            for a in range(2):
                for b in range(2):
                    place = (n * 4 + a * 2 + b) * count + k * oh * ow + p
                    inside = 0 <= row + a < h and 0 <= column + b < w
                    wy = where(a > 0, fy, 1 - fy)
                    wx = where(b > 0, fx, 1 - fx)
                    index[place] = where(inside, (row + a) * w + column + b, -1)
                    weights[place] = wy * wx
                    slope = place + n * 4 * count
                    slopes[slope] = where(a > 0, wx, -wx)
                    slopes[slope + 4 * count] = where(b > 0, wy, -wy)
