"""Sampling images and volumes at given points (grid_sample).

Each point is a sum of `taps` elements of its plane. `sample_points` finds the elements (`index`, -1 for one outside that counts as zero) and
their `weights`, both as (batch, tap, point), and the derivatives of the weights by each coordinate (`slopes`, (batch, coordinate, tap,
point)). The other kernels only follow these tables.
"""

from __future__ import annotations

from ..loops import (
    abs_,
    floor,
    fmod,
    i64,
    like,
    local,
    loop_kernel,
    minimum,
    prange,
    round_,
    scalar_function,
    simd,
    where,
)

BLOCK = 256  # points handled together
FAR = -100.0  # where a coordinate goes that is no number or fits no integer: outside any image
LARGEST = 1e9


@scalar_function
def reflected(x, low, span):
    """Return x reflected into [low, low + span], and the sign of the slope of that."""
    if span == 0:
        return 0 * x, 0 * x
    away = abs_(x - low)
    flips = floor(away / span)
    rest = fmod(away, span)
    odd = flips - 2 * floor(flips / 2)
    sign = where(x < low, -1, 1) * (1 - 2 * odd)
    return where(odd > 0, span - rest, rest) + low, sign


@scalar_function
def bounded(x, size, *, padding, align, dims):
    """Return a coordinate after padding, and its slope."""
    slope = 0 * x + 1
    if padding == "reflection":
        if align:
            x, slope = reflected(x, 0, size - 1)
        else:
            x, slope = reflected(x, -0.5, size)
    if padding != "zeros":
        slope = where(x <= 0 or x >= size - 1, 0, slope)
        # A coordinate that is no number is that of the first element in an image, of the last in a volume, as in PyTorch.
        x = (
            where(x > 0, minimum(x, size - 1), 0.0)
            if dims == 2
            else where(x <= 0, 0.0, where(x < size - 1, x, size - 1))
        )
    return where(abs_(x) < LARGEST, x, FAR), slope


@scalar_function
def cubic_weights(weights, slopes, t):
    """Compute the weights of four neighbours by cubic convolution (a = -0.75) at distance t from the second, and their slopes."""
    for k in range(4):
        d = t + 1 - k
        x = abs_(d)
        near = (1.25 * x - 2.25) * x * x + 1
        far = ((x - 5) * x + 8) * x * -0.75 + 3
        weights[k] = where(x <= 1, near, far)
        rise = where(x <= 1, (3.75 * x - 4.5) * x, -2.25 * x * x + 7.5 * x - 6)
        slopes[k] = where(d < 0, -rise, rise)


@scalar_function
def axis_taps(index, weights, slopes, g, size, *, mode, padding, align, dims):
    """Compute the elements that the coordinate g (-1 to 1) reads along one dimension, their weights, and slopes with respect to g."""
    scale = like(weights, (size - 1) / 2 if align else size / 2)
    x = (g + 1) * scale if align else (g + 1) * scale - 0.5
    if mode == "bicubic":
        x = where(abs_(x) < LARGEST, x, FAR)
        below = floor(x)
        cubic_weights(weights, slopes, x - below)
        for k in range(4):
            at, unused = bounded(below + (k - 1), size, padding=padding, align=align, dims=dims)
            index[k] = i64(at)
            weights[k] = weights[k] + 0 * g  # a coordinate that is no number, or infinite, makes the result one
            slopes[k] = slopes[k] * scale
    else:
        x, slope = bounded(x, size, padding=padding, align=align, dims=dims)
        if mode == "nearest":
            index[0] = i64(round_(x))
            weights[0] = 1
            slopes[0] = 0
        else:
            below = floor(x)
            index[0] = i64(below)
            index[1] = i64(below) + 1
            weights[0] = below + 1 - x
            weights[1] = x - below
            if padding == "zeros" and dims == 2:
                weights[0] = weights[0] + 0 * g
            slopes[0] = -scale * slope
            slopes[1] = scale * slope


@loop_kernel
def sample_fractions(fractions, slopes, grid, batch, count, d, h, w, *, dims, mode, padding, align):
    """Compute (batch, dims, count): the distance of each coordinate from the tap below it, and its slope with respect to grid."""
    for point in prange(batch * count, 40):
        n = point // count
        for a in range(dims):
            size = w if a == 0 else h if a == 1 else d
            g = grid[point * dims + a]
            scale = like(fractions, (size - 1) / 2 if align else size / 2)
            x = (g + 1) * scale if align else (g + 1) * scale - 0.5
            slope = 0 * x + 1
            if mode == "bicubic":
                x = where(abs_(x) < LARGEST, x, FAR)
            else:
                x, slope = bounded(x, size, padding=padding, align=align, dims=dims)
            place = (n * dims + a) * count + point % count
            fractions[place] = x - floor(x)
            slopes[place] = slope * scale


@loop_kernel
def sample_points(index, weights, slopes, grid, batch, count, d, h, w, *, dims, mode, padding, align):
    """Compute the tables for grid (batch, count, dims), whose last dimension is x, y (, z). `slopes` may be None."""
    taps = 1 if mode == "nearest" else 4 if mode == "bicubic" else 2
    deep = taps if dims == 3 else 1
    all_taps = deep * taps * taps
    for point in prange(batch * count, 40 * all_taps):
        n = point // count
        place = n * all_taps * count + point % count
        ix = local(i64, taps)
        iy = local(i64, taps)
        wx = local(weights, taps)
        wy = local(weights, taps)
        sx = local(weights, taps)
        sy = local(weights, taps)
        iz = local(i64, deep)
        wz = local(weights, deep)
        sz = local(weights, deep)
        axis_taps(ix, wx, sx, grid[point * dims], w, mode=mode, padding=padding, align=align, dims=dims)
        axis_taps(iy, wy, sy, grid[point * dims + 1], h, mode=mode, padding=padding, align=align, dims=dims)
        if dims == 3:
            axis_taps(iz, wz, sz, grid[point * dims + 2], d, mode=mode, padding=padding, align=align, dims=dims)
        else:
            iz[0] = 0
            wz[0] = 1
            sz[0] = 0
        for a in range(deep):
            for b in range(taps):
                for c in range(taps):
                    tap = place + ((a * taps + b) * taps + c) * count
                    inside = 0 <= iz[a] < d and 0 <= iy[b] < h and 0 <= ix[c] < w
                    index[tap] = where(inside, (iz[a] * h + iy[b]) * w + ix[c], -1)
                    weights[tap] = wz[a] * wy[b] * wx[c]
                    if slopes is not None:
                        slope = tap + n * (dims - 1) * all_taps * count
                        slopes[slope] = wz[a] * wy[b] * sx[c]
                        slopes[slope + all_taps * count] = wz[a] * sy[b] * wx[c]
                        if dims == 3:
                            slopes[slope + 2 * all_taps * count] = sz[a] * wy[b] * wx[c]


@loop_kernel
def sample_planes(out, x, index, weights, batch, channels, size, count, *, taps):
    """Sample every plane: out (batch, channels, count) is a weighted sum of elements of x (batch, channels, size)."""
    for task in prange(batch * channels, 4 * taps * count):
        table = task // channels * taps * count
        base = task * size
        for begin in range(0, count, BLOCK):
            width = minimum(BLOCK, count - begin)
            total = local(weights, BLOCK)
            for p in range(width):
                total[p] = 0
            for k in range(taps):
                row = table + k * count + begin
                for p in simd(width):
                    place = index[row + p]
                    v = where(place < 0, 0, x[base + where(place < 0, 0, place)])
                    total[p] = total[p] + v * weights[row + p]
            for p in simd(width):
                out[task * count + begin + p] = total[p]


@loop_kernel
def sample_planes_backward(grad_in, grad, index, weights, batch, channels, size, count, *, taps):
    """The gradient of sample_planes with respect to x."""
    for task in prange(batch * channels, 4 * taps * count + size):
        table = task // channels * taps * count
        base = task * size
        for p in simd(size):
            grad_in[base + p] = 0
        for p in range(count):
            g = grad[task * count + p]
            for k in range(taps):
                place = index[table + k * count + p]
                if place >= 0:
                    grad_in[base + place] += g * weights[table + k * count + p]


@loop_kernel
def sample_grid_backward(grad_grid, grad, x, index, slopes, batch, channels, size, count, *, taps, dims):
    """The gradient with respect to grid (batch, count, dims)."""
    for task in prange(batch * ((count + BLOCK - 1) // BLOCK), 4 * taps * BLOCK * channels):
        blocks = (count + BLOCK - 1) // BLOCK
        n = task // blocks
        begin = task % blocks * BLOCK
        width = minimum(BLOCK, count - begin)
        total = local(slopes, BLOCK * dims)
        dot = local(slopes, BLOCK)
        for p in range(BLOCK * dims):
            total[p] = 0
        for k in range(taps):
            row = (n * taps + k) * count + begin
            for p in range(width):
                dot[p] = 0
            for c in range(channels):
                plane = n * channels + c
                for p in simd(width):
                    place = index[row + p]
                    v = x[plane * size + where(place < 0, 0, place)]
                    dot[p] = dot[p] + where(place < 0, 0, v * grad[plane * count + begin + p])
            for a in range(dims):
                slope = ((n * dims + a) * taps + k) * count + begin
                for p in simd(width):
                    total[a * BLOCK + p] = total[a * BLOCK + p] + dot[p] * slopes[slope + p]
        for p in range(width):
            for a in range(dims):
                grad_grid[(n * count + begin + p) * dims + a] = total[a * BLOCK + p]


@loop_kernel
def sample_dots(out, grad, x, index, batch, channels, size, count, *, taps):
    """out[n, k, p] = sum over channels of grad[n, c, p] * x[n, c, index[n, k, p]]: the gradient with respect to weights."""
    for task in prange(batch * taps, 4 * count * channels):
        n = task // taps
        for p in simd(count):
            out[task * count + p] = 0
        for c in range(channels):
            plane = n * channels + c
            for p in simd(count):
                place = index[task * count + p]
                v = x[plane * size + where(place < 0, 0, place)]
                out[task * count + p] += where(place < 0, 0, v * grad[plane * count + p])
