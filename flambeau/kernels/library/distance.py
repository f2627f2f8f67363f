"""Distances between all pairs of rows, and their gradients."""

from __future__ import annotations

from ..loops import abs_, exp, like, log, loop_kernel, maximum, prange, scalar_function, sign, sqrt


@scalar_function
def power(x, p):
    """x ** p for x >= 0."""
    return exp(p * log(x)) if x > 0 else x


@scalar_function
def row_distance(x, y, i, j, width, p, *, norm):
    total = like(x, 0)
    if norm == "max":
        for c in range(width):
            total = maximum(total, abs_(x[i + c] - y[j + c]))
    else:
        for c in range(width):
            d = abs_(x[i + c] - y[j + c])
            if norm == "zero":
                total += like(x, 0) if d == 0 else like(x, 1)
            elif norm == "one":
                total += d
            elif norm == "two":
                total += d * d
            else:
                total += power(d, p)
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
    """The derivative of a distance with respect to one component of the difference."""
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
