"""Padding by elements of the input itself: reflection, replication, wrapping around."""

from __future__ import annotations

from ..loops import loop_kernel, prange, simd


@loop_kernel
def pad_planes(out, x, d_index, h_index, w_index, planes, d, h, w, od, oh, ow, low, high, shift):
    """out[p, i, j, k] = x[p, d_index[i], h_index[j], w_index[k]]; for low <= k < high, w_index[k] is k - shift."""
    for task in prange(planes * od * oh, ow):
        plane = task // (od * oh)
        source = ((plane * d + d_index[task // oh % od]) * h + h_index[task % oh]) * w
        target = task * ow
        for k in range(low):
            out[target + k] = x[source + w_index[k]]
        for k in simd(low, high):
            out[target + k] = x[source + k - shift]
        for k in range(high, ow):
            out[target + k] = x[source + w_index[k]]


@loop_kernel
def pad_planes_backward(grad_in, grad, d_index, h_index, w_index, planes, d, h, w, od, oh, ow, low, high, shift):
    """The transpose of pad_planes: every element of grad is added where its output came from."""
    for plane in prange(planes, d * h * w + od * oh * ow):
        for place in simd(plane * d * h * w, (plane + 1) * d * h * w):
            grad_in[place] = 0
        for row in range(od * oh):
            target = ((plane * d + d_index[row // oh]) * h + h_index[row % oh]) * w
            source = (plane * od * oh + row) * ow
            for k in range(low):
                grad_in[target + w_index[k]] += grad[source + k]
            for k in simd(low, high):
                grad_in[target + k - shift] += grad[source + k]
            for k in range(high, ow):
                grad_in[target + w_index[k]] += grad[source + k]
