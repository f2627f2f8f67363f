"""Distances between all pairs of rows, and their gradients."""

from __future__ import annotations

from ..loops import abs_, exp, like, log, loop_kernel, maximum, minimum, prange, scalar_function, sign, simd, sqrt


@scalar_function
def power(x, p):
    """x ** p for x >= 0."""
    return exp(p * log(x)) if x > 0 else x


BLOCK = 512  # distances in one task of pair_distances_across


@scalar_function
def term(d, p, *, norm):
    """Return the contribution of one component of a difference to a distance, before the final root."""
    if norm == "zero":
        return d * 0 if d == 0 else d * 0 + 1
    if norm == "two":
        return d * d
    return power(abs_(d), p) if norm == "p" else abs_(d)


@scalar_function
def joined(a, b, *, norm):
    return maximum(a, b) if norm == "max" else a + b


@loop_kernel
def pair_distances_across(out, x, turned, batches, rows, columns, width, p, *, norm):
    """pair_distances from the components of the second points, turned[b, :, j]: neighbouring distances are computed as
    vectors, four components at a time, and nothing has to be summed across one."""
    blocks = (columns + BLOCK - 1) // BLOCK
    for task in prange(batches * rows * blocks, 2 * minimum(columns, BLOCK) * width):
        b = task // (rows * blocks)
        row = b * rows + task % rows  # rows go by quickly, so that a block of `turned` stays in the cache
        first = task // rows % blocks * BLOCK
        last = minimum(first + BLOCK, columns)
        base = row * columns
        for j in simd(first, last):
            out[base + j] = 0
        fours = width // 4 * 4
        for c in range(0, fours, 4):
            at = row * width + c
            x0, x1, x2, x3 = x[at], x[at + 1], x[at + 2], x[at + 3]
            line = (b * width + c) * columns
            for j in simd(first, last):
                y0, y1 = turned[line + j], turned[line + columns + j]
                y2, y3 = turned[line + 2 * columns + j], turned[line + 3 * columns + j]
                near = joined(term(x0 - y0, p, norm=norm), term(x1 - y1, p, norm=norm), norm=norm)
                far = joined(term(x2 - y2, p, norm=norm), term(x3 - y3, p, norm=norm), norm=norm)
                out[base + j] = joined(out[base + j], joined(near, far, norm=norm), norm=norm)
        for c in range(fours, width):
            v = x[row * width + c]
            line = (b * width + c) * columns
            for j in simd(first, last):
                out[base + j] = joined(out[base + j], term(v - turned[line + j], p, norm=norm), norm=norm)
        if norm == "two":
            for j in simd(first, last):
                out[base + j] = sqrt(out[base + j])
        elif norm == "p":
            for j in simd(first, last):
                out[base + j] = power(out[base + j], 1 / p)


@scalar_function
def row_distance(x, y, i, j, width, p, *, norm):
    total = like(x, 0)
    if norm == "max":
        for c in range(width):
            total = maximum(total, abs_(x[i + c] - y[j + c]))
    else:
        for c in range(width):
            total += term(x[i + c] - y[j + c], p, norm=norm)
        if norm == "two":
            total = sqrt(total)
        elif norm == "p":
            total = power(total, 1 / p)
    return total


@loop_kernel
def pair_distances(out, x, y, batches, rows, columns, width, p, *, norm):
    """out[b, i, j] = the p-norm of x[b, i, :] - y[b, j, :]; `norm`: "zero", "one", "two", "max" or "p"."""
    for task in prange(batches * rows, 2 * columns * width):
        b = task // rows
        for j in range(columns):
            out[task * columns + j] = row_distance(x, y, task * width, (b * columns + j) * width, width, p, norm=norm)


@scalar_function
def slope(difference, distance, p, *, norm):
    """Return the derivative of a distance with respect to one component of the difference."""
    if norm == "one":
        return sign(difference)
    if norm == "two":
        return difference / distance if distance != 0 else distance
    if norm == "max":
        return sign(difference) if abs_(difference) == distance else difference * 0
    share = difference * 0
    if distance != 0 and difference != 0:
        share = sign(difference) * exp((p - 1) * (log(abs_(difference)) - log(distance)))
    return share


@loop_kernel
def pair_distances_backward(
    grad_x, grad, distances, x, y, batches, rows, columns, width, batch_step, row_step, column_step, p, *, norm
):
    """grad_x[b, i, :] = sum over j of grad[b, i, j] times the slope of the distance. grad and distances lie at the
    given steps, so that both sides of the pairs use this kernel."""
    for task in prange(batches * rows, 4 * columns * width):
        b = task // rows
        for c in range(width):
            grad_x[task * width + c] = 0
        for j in range(columns):
            place = b * batch_step + task % rows * row_step + j * column_step
            g = grad[place]
            distance = distances[place]
            other = (b * columns + j) * width
            for c in range(width):
                difference = x[task * width + c] - y[other + c]
                grad_x[task * width + c] = grad_x[task * width + c] + g * slope(difference, distance, p, norm=norm)
