"""Group normalisation of x (batch, groups, channels of a group, space), forward and backward. `mean` and `rstd` are per
group, `scale`s per channel; sums are in the dtype of `mean`."""

from __future__ import annotations

from ..loops import like, loop_kernel, prange, simd
from .layer_norm import row_statistics


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
        plain = like(mean, 0)
        moment = like(mean, 0)
        for c in range(channels):
            p = like(mean, 0)
            q = like(mean, 0)
            for s in range(space):
                g = grad[base + c * space + s]
                p += g
                q += g * (x[base + c * space + s] - m)
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
            plain = plain / n
            moment = moment * r / n
            for c in range(channels):
                u = like(mean, 1)
                if weight is not None:
                    u = like(mean, weight[row % groups * channels + c])
                for s in simd(space):
                    at = base + c * space + s
                    grad_x[at] = (grad[at] * u - plain - (x[at] - m) * moment) * r
