"""Moving elements by index: gather, scatter, embedding.

Indices are checked where they are used. A bad one is skipped and reported through `error`, two int64 that the caller
sets to zero: error[0] becomes 1 and error[1] the bad index. Nothing is read or written outside the buffers.
"""

from __future__ import annotations

from ..loops import like, loop_kernel, prange, simd


@loop_kernel
def gather(out, x, index, error, outer, n, picked, inner):
    """out[o, k, i] = x[o, index[o, k, i], i]; index is (outer, picked, inner), x is (outer, n, inner)."""
    for row in prange(outer * picked, inner):
        slab = row // picked * n * inner
        for i in range(inner):
            j = index[row * inner + i]
            if j < 0 or j >= n:
                error[0] = 1
                error[1] = j
            else:
                out[row * inner + i] = x[slab + j * inner + i]


@loop_kernel
def scatter(out, index, src, value, error, outer, n, picked, inner, *, reduce="none"):
    """out[o, index[o, k, i], i] (op)= src[o, k, i], or `value` where src is None. Iterations of the parallel loop write
    different slabs, or different columns of one slab: repeated indices are applied in order."""
    columns = inner if outer == 1 else 1  # one slab: share its columns among threads instead
    for task in prange(outer * columns, picked * (1 if outer == 1 else inner)):
        o = task // columns
        first = task % columns if outer == 1 else 0
        last = first + 1 if outer == 1 else inner
        for k in range(picked):
            for i in range(first, last):
                place = (o * picked + k) * inner + i
                j = index[place]
                if j < 0 or j >= n:
                    error[0] = 1
                    error[1] = j
                else:
                    v = src[place] if src is not None else like(out, value)
                    target = (o * n + j) * inner + i
                    if reduce == "add":
                        out[target] = out[target] + v
                    elif reduce == "multiply":
                        out[target] = out[target] * v
                    elif reduce == "amax":
                        out[target] = max(out[target], v)
                    elif reduce == "amin":
                        out[target] = min(out[target], v)
                    else:
                        out[target] = v


@loop_kernel
def embedding(out, weight, index, error, count, n, dim):
    """out[k, :] = weight[index[k], :]"""
    for k in prange(count, dim):
        j = index[k]
        if j < 0 or j >= n:
            error[0] = 1
            error[1] = j
        else:
            for c in simd(dim):
                out[k * dim + c] = weight[j * dim + c]


@loop_kernel
def embedding_backward(grad_weight, grad, index, counts, count, n, dim, padding_index, parts):
    """grad_weight[index[k], :] += grad[k, :]. Each of `parts` iterations owns a range of weight rows and walks all
    indices, so rows are summed in order whatever the number of threads. `counts` (int64 per row, or None) divides each
    contribution by how often its row occurs."""
    size = (n + parts - 1) // parts
    for part in prange(parts, count * dim // parts + count):
        first = part * size
        last = min(first + size, n)
        for c in simd(max(last - first, 0) * dim):
            grad_weight[first * dim + c] = 0
        if counts is not None:
            for j in range(first, last):
                counts[j] = 0
            for k in range(count):
                j = index[k]
                if first <= j < last:
                    counts[j] += 1
        for k in range(count):
            j = index[k]
            if first <= j < last and j != padding_index:
                if counts is not None:
                    scale = like(grad, 1) / counts[j]
                    for c in simd(dim):
                        grad_weight[j * dim + c] += grad[k * dim + c] * scale
                else:
                    for c in simd(dim):
                        grad_weight[j * dim + c] += grad[k * dim + c]
