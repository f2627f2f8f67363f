"""Bags of embedding rows: their sum, mean or largest elements, and the gradients.

Bag b holds the indices from starts[b] to starts[b + 1]; those equal to `padding` do not count. Indices and bounds are
checked by the caller.
"""

from __future__ import annotations

from ..loops import like, loop_kernel, prange, simd


@loop_kernel
def embedding_bag(out, sizes, winners, weight, index, starts, scales, bags, dim, padding, *, mode):
    """out[b, :] = the combination of weight[index[k], :] over the bag, times scales[k] if given. `sizes` becomes how many
    indices counted; for mode "max", `winners` becomes the index each element came from."""
    for b in prange(bags, 16 * dim):
        count = 0
        for c in simd(dim):
            out[b * dim + c] = 0
            if mode == "max":
                winners[b * dim + c] = 0
        for k in range(starts[b], starts[b + 1]):
            j = index[k]
            if j != padding:
                count = count + 1
                if mode == "max":
                    for c in range(dim):
                        if count == 1 or weight[j * dim + c] > out[b * dim + c]:
                            out[b * dim + c] = weight[j * dim + c]
                            winners[b * dim + c] = j
                elif scales is not None:
                    scale = scales[k]
                    for c in simd(dim):
                        out[b * dim + c] += weight[j * dim + c] * scale
                else:
                    for c in simd(dim):
                        out[b * dim + c] += weight[j * dim + c]
        sizes[b] = count
        if mode == "mean" and count > 1:
            for c in simd(dim):
                out[b * dim + c] = out[b * dim + c] / count


@loop_kernel
def embedding_bag_backward(
    grad_weight, grad, index, starts, scales, sizes, counts, bags, n, dim, padding, parts, *, mean
):
    """grad_weight[index[k], :] += grad[bag of k, :]. Each of `parts` iterations owns a range of weight rows. `counts`, how
    often each row occurs, divides if given."""
    size = (n + parts - 1) // parts
    for part in prange(parts, starts[bags] * dim // parts + starts[bags]):
        first = part * size
        last = min(first + size, n)
        for c in simd(max(last - first, 0) * dim):
            grad_weight[first * dim + c] = 0
        for b in range(bags):
            for k in range(starts[b], starts[b + 1]):
                j = index[k]
                if first <= j < last and j != padding:
                    scale = like(grad, 1)
                    if scales is not None:
                        scale = like(grad, scales[k])
                    if mean:
                        scale = scale / sizes[b]
                    if counts is not None:
                        scale = scale / counts[j]
                    for c in simd(dim):
                        grad_weight[j * dim + c] += grad[b * dim + c] * scale


@loop_kernel
def embedding_bag_max_backward(grad_weight, grad, winners, sizes, bags, n, dim):
    """Add each element's gradient to the row it came from."""
    for c in prange(dim, 4 * bags + n):
        for j in range(n):
            grad_weight[j * dim + c] = 0
        for b in range(bags):
            if sizes[b] > 0:
                grad_weight[winners[b * dim + c] * dim + c] += grad[b * dim + c]


@loop_kernel
def embedding_bag_scales_backward(grad_scales, grad, weight, index, starts, bags, dim, padding):
    """grad_scales[k] = grad[bag of k, :] . weight[index[k], :]"""
    for b in prange(bags, 16 * dim):
        for k in range(starts[b], starts[b + 1]):
            j = index[k]
            total = like(grad, 0)
            if j != padding:
                for c in range(dim):
                    total += grad[b * dim + c] * weight[j * dim + c]
            grad_scales[k] = total
