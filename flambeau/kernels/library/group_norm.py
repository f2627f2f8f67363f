"""Group normalisation of x (batch, groups, channels of a group, space), forward and backward. `mean` and `rstd` are per
group, `scale`s per channel; sums are in the dtype of `mean`."""

from __future__ import annotations

from ..loops import f64, like, loop_kernel, prange, rsqrt, simd
from .layer_norm import row_statistics
from .row_sums import row_moments


@loop_kernel
def group_norm(out, mean, rstd, x, weight, bias, batch, groups, channels, space, eps):
    """out = (x - mean) * rstd * weight + bias; weight and bias may be None."""
    for row in prange(batch * groups, 4 * channels * space):
        n = channels * space
        base = row * n
        m, r = row_statistics(x, base, n, eps, mean)
        mean[row] = m
        rstd[row] = r
        for c in range(channels):
            channel = row % groups * channels + c
            slope = r
            if weight is not None:
                slope = slope * weight[channel]
            shift = -m * slope
            if bias is not None:
                shift = shift + bias[channel]
            for s in simd(space):
                out[base + c * space + s] = x[base + c * space + s] * slope + shift


@loop_kernel
def group_norm_backward(grad_x, dots, sums, grad, x, mean, rstd, weight, batch, groups, channels, space):
    """The gradient with respect to x (if given), and per sample and channel the sums of grad * normalised x (`dots`) and of
    grad (`sums`), of which the gradients of weight and bias are made."""
    for row in prange(batch * groups, 6 * channels * space):
        n = channels * space
        base = row * n
        m = like(mean, mean[row])
        r = like(mean, rstd[row])
        plain = f64(0)
        moment = f64(0)
        for c in range(channels):
            p, q = row_moments(grad, x, base + c * space, space, m)
            q = q * r
            dots[row * channels + c] = q
            sums[row * channels + c] = p
            if weight is not None:
                u = like(mean, weight[row % groups * channels + c])
                plain = plain + p * u
                moment = moment + q * u
            else:
                plain = plain + p
                moment = moment + q
        if grad_x is not None:
            average = like(mean, plain / n)
            slope = like(mean, moment * r / n)
            for c in range(channels):
                u = like(mean, 1)
                if weight is not None:
                    u = like(mean, weight[row % groups * channels + c])
                for s in simd(space):
                    at = base + c * space + s
                    grad_x[at] = (grad[at] * u - average - (x[at] - m) * slope) * r


# -- channels last: x (batch, space, groups * channels) -----------------------------------------------------------------


@loop_kernel
def group_norm_last(out, mean, rstd, x, weight, bias, slopes, shifts, batch, groups, channels, space, eps):
    """Normalize groups where the channels of a place lie together (channels last). `slopes` and `shifts` (batch, all channels) are working memory:
    sums are per channel first, because only whole places fill the vector registers."""
    for sample in prange(batch, 4 * groups * channels * space):
        width = groups * channels
        row = sample * width
        base = row * space
        n = channels * space
        for c in simd(width):
            slopes[row + c] = 0
            shifts[row + c] = 0
        for s in range(space):
            for c in simd(width):
                slopes[row + c] = slopes[row + c] + x[base + s * width + c]
        for g in range(groups):
            total = like(mean, 0)
            for c in range(channels):
                total += slopes[row + g * channels + c]
            m = total / n
            mean[sample * groups + g] = m
            for c in range(channels):
                slopes[row + g * channels + c] = m
        for s in range(space):
            for c in simd(width):
                d = x[base + s * width + c] - slopes[row + c]
                shifts[row + c] = shifts[row + c] + d * d
        for g in range(groups):
            squares = like(mean, 0)
            for c in range(channels):
                squares += shifts[row + g * channels + c]
            r = rsqrt(squares / n + eps)
            rstd[sample * groups + g] = r
            for c in range(channels):
                channel = g * channels + c
                slope = r
                if weight is not None:
                    slope = slope * weight[channel]
                shift = -slopes[row + channel] * slope
                if bias is not None:
                    shift = shift + bias[channel]
                slopes[row + channel] = slope
                shifts[row + channel] = shift
        for s in range(space):
            for c in simd(width):
                out[base + s * width + c] = x[base + s * width + c] * slopes[row + c] + shifts[row + c]


@loop_kernel
def group_norm_last_backward(
    grad_x, dots, sums, grad, x, mean, rstd, weight, centres, factors, batch, groups, channels, space
):
    """Compute the gradients of `group_norm_last`; `centres` and `factors` (batch, all channels) are working memory."""
    for sample in prange(batch, 6 * groups * channels * space):
        width = groups * channels
        row = sample * width
        base = row * space
        n = channels * space
        for g in range(groups):
            for c in range(channels):
                centres[row + g * channels + c] = mean[sample * groups + g]
        for c in simd(width):
            dots[row + c] = 0
            sums[row + c] = 0
        for s in range(space):
            for c in simd(width):
                v = grad[base + s * width + c]
                sums[row + c] = sums[row + c] + v
                dots[row + c] = dots[row + c] + v * (x[base + s * width + c] - centres[row + c])
        for g in range(groups):
            r = like(mean, rstd[sample * groups + g])
            m = like(mean, mean[sample * groups + g])
            plain = like(mean, 0)
            moment = like(mean, 0)
            for c in range(channels):
                channel = g * channels + c
                u = like(mean, 1)
                if weight is not None:
                    u = like(mean, weight[channel])
                dots[row + channel] = dots[row + channel] * r
                plain = plain + sums[row + channel] * u
                moment = moment + dots[row + channel] * u
            plain = plain / n
            moment = moment * r / n
            for c in range(channels):  # grad_x = grad * (u r) - x * (moment r) + (m moment - plain) r
                factors[row + g * channels + c] = moment * r
                centres[row + g * channels + c] = (m * moment - plain) * r
        if grad_x is not None:
            for s in range(space):
                for g in range(groups):
                    r = like(mean, rstd[sample * groups + g])
                    for c in simd(channels):
                        channel = g * channels + c
                        at = base + s * width + channel
                        u = r
                        if weight is not None:
                            u = r * weight[channel]
                        grad_x[at] = grad[at] * u - x[at] * factors[row + channel] + centres[row + channel]
