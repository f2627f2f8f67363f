"""Batch normalisation of x (batch, channels, space), forward and backward. Statistics are per channel, in `mean` and
`rstd` (float32 for half-width data)."""

from __future__ import annotations

from ...core.dtype import float32
from ..loops import f64, like, loop_kernel, prange, simd


@loop_kernel
def channel_moments(mean, var, x, batch, channels, space):
    """Mean and biased variance of every channel."""
    for c in prange(channels, 2 * batch * space):
        total = like(f64 if x.dtype is float32 else x, 0)
        for b in range(batch):
            base = (b * channels + c) * space
            part = like(x, 0)
            for s in range(space):
                part += x[base + s]
            total = total + part
        m = total / (batch * space)
        centre = like(x, m)
        squares = like(f64 if x.dtype is float32 else x, 0)
        for b in range(batch):
            base = (b * channels + c) * space
            part = like(x, 0)
            for s in range(space):
                d = x[base + s] - centre
                part += d * d
            squares = squares + part
        mean[c] = m
        var[c] = squares / (batch * space)


@loop_kernel
def normalise_channels(out, x, mean, rstd, weight, bias, batch, channels, space):
    """out = (x - mean) * rstd * weight + bias, as one multiply and one add per element."""
    for row in prange(batch * channels, space):
        c = row % channels
        scale = like(x, rstd[c])
        if weight is not None:
            scale = scale * weight[c]
        shift = -like(x, mean[c]) * scale
        if bias is not None:
            shift = shift + bias[c]
        for s in simd(space):
            out[row * space + s] = x[row * space + s] * scale + shift


@loop_kernel
def channel_gradients(grad_weight, grad_bias, grad, x, mean, rstd, batch, channels, space):
    """Per channel: the sums of grad * normalised x, and of grad."""
    for c in prange(channels, 3 * batch * space):
        m = like(x, mean[c])
        r = like(x, rstd[c])
        plain = like(f64 if x.dtype is float32 else x, 0)
        moment = like(f64 if x.dtype is float32 else x, 0)
        for b in range(batch):
            base = (b * channels + c) * space
            p = like(x, 0)
            q = like(x, 0)
            for s in range(space):
                g = grad[base + s]
                p += g
                q += g * (x[base + s] - m)
            plain = plain + p
            moment = moment + q
        grad_bias[c] = plain
        grad_weight[c] = moment * r


@loop_kernel
def batch_norm_input_gradient(
    out, grad, x, mean, rstd, weight, grad_weight, grad_bias, batch, channels, space, training
):
    """The gradient with respect to x, from the per-channel sums; in evaluation the statistics are constants."""
    count = batch * space
    for row in prange(batch * channels, 3 * space):
        c = row % channels
        r = like(x, rstd[c])
        scale = r
        if weight is not None:
            scale = scale * weight[c]
        if training:
            m = like(x, mean[c])
            average = like(x, grad_bias[c]) / count
            slope = like(x, grad_weight[c]) * r / count
            for s in simd(space):
                at = row * space + s
                out[at] = (grad[at] - average - (x[at] - m) * slope) * scale
        else:
            for s in simd(space):
                out[row * space + s] = grad[row * space + s] * scale
