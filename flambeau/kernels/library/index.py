"""Moving elements by index: gather, scatter, embedding.

Indices are checked where they are used. A bad one is skipped and reported through `error`, two int64 that the caller
sets to zero: error[0] becomes 1 and error[1] the bad index. Nothing is read or written outside the buffers.
"""

from __future__ import annotations

from ..loops import like, loop_kernel, minimum, prange, scalar_function, simd, unroll

ROWS = 1024  # index rows in one task of gather
COLUMNS = 64  # columns in one task of scatter: enough for whole cache lines


@scalar_function
def report(index, n, first, last, error):
    """Find the bad index that a loop without branches has counted."""
    for place in range(first, last):
        j = index[place]
        if j < 0 or j >= n:
            error[0] = 1
            error[1] = j


@loop_kernel
def gather(out, x, index, error, outer, n, picked, inner):
    """out[o, k, i] = x[o, index[o, k, i], i]; index is (outer, picked, inner), x is (outer, n, inner)."""
    row_blocks = (picked + ROWS - 1) // ROWS
    for task in prange(outer * row_blocks, inner * minimum(picked, ROWS)):
        slab = task // row_blocks * n * inner
        first = task % row_blocks * ROWS
        last = minimum(first + ROWS, picked)
        start = task // row_blocks * picked * inner
        bad = 0
        if inner == 1:
            for k in range(first, last):  # not as vectors: processors gather slowly
                j = index[start + k]
                inside = 0 <= j < n
                bad += 0 if inside else 1
                if inside:
                    out[start + k] = x[slab + j]
        else:
            for k in range(first, last):
                row = start + k * inner
                for i in simd(inner):
                    j = index[row + i]
                    inside = 0 <= j < n
                    bad += 0 if inside else 1
                    if inside:
                        out[row + i] = x[slab + j * inner + i]
        if bad > 0:
            report(index, n, start + first * inner, start + last * inner, error)


@scalar_function
def combine(out, target, v, *, reduce):
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


@scalar_function
def scatter_one(out, index, src, value, error, place, base, n, inner, *, reduce):
    j = index[place]
    if j < 0 or j >= n:
        error[0] = 1
        error[1] = j
    else:
        combine(out, base + j * inner, src[place] if src is not None else like(out, value), reduce=reduce)


@loop_kernel
def scatter(out, index, src, value, error, outer, n, picked, inner, *, reduce="none"):
    """out[o, index[o, k, i], i] (op)= src[o, k, i], or `value` where src is None. Iterations of the parallel loop write
    different slabs, or different columns of one slab: repeated indices are applied in order."""
    blocks = (inner + COLUMNS - 1) // COLUMNS
    for task in prange(outer * blocks, 2 * picked * minimum(inner, COLUMNS)):
        o = task // blocks
        first = task % blocks * COLUMNS
        last = minimum(first + COLUMNS, inner)
        if inner == 1:
            for k in range(picked):
                scatter_one(out, index, src, value, error, o * picked + k, o * n, n, 1, reduce=reduce)
        else:
            for k in range(picked):
                row = (o * picked + k) * inner
                for i in range(first, last):
                    scatter_one(out, index, src, value, error, row + i, o * n * inner + i, n, inner, reduce=reduce)


@loop_kernel
def out_of_bounds(error, index, count, n):
    """error[0] = 1 and error[1] = the index if one is not in 0 ... n - 1; error is zero before."""
    for task in prange((count + ROWS - 1) // ROWS, ROWS):
        first = task * ROWS
        last = minimum(first + ROWS, count)
        bad = 0
        for k in range(first, last):
            bad += 0 if 0 <= index[k] < n else 1
        if bad > 0:
            report(index, n, first, last, error)


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
def select_slices(out, x, index, outer, n, picked, inner):
    """out[o, k, :] = x[o, index[k], :]; the indices are known to be good."""
    if inner == 1:  # four rows at a time: each index is read once for them
        for task in prange((outer + 3) // 4, 8 * picked):
            first = task * 4
            if first + 4 <= outer:
                for k in range(picked):
                    j = first * n + index[k]
                    for row in unroll(4):
                        out[(first + row) * picked + k] = x[j + row * n]
            else:
                for row in range(first, outer):
                    for k in range(picked):
                        out[row * picked + k] = x[row * n + index[k]]
    else:
        for row in prange(outer, 2 * picked * inner):
            for k in range(picked):
                for i in simd(inner):
                    out[(row * picked + k) * inner + i] = x[(row * n + index[k]) * inner + i]


@loop_kernel
def scatter_slices(out, index, src, error, outer, n, picked, inner, *, reduce):
    """out[o, index[k], :] (op)= src[o, k, :]. Repeated indices are applied in order: iterations of the parallel loop write different
    slabs, or different columns of one."""
    blocks = (inner + COLUMNS - 1) // COLUMNS
    for task in prange(outer * blocks, 2 * picked * minimum(inner, COLUMNS)):
        o = task // blocks
        first = task % blocks * COLUMNS
        last = minimum(first + COLUMNS, inner)
        for k in range(picked):
            j = index[k]
            source = (o * picked + k) * inner
            target = (o * n + j) * inner
            if j < 0 or j >= n:
                error[0] = 1
                error[1] = j
            elif inner == 1:
                combine(out, target, src[source], reduce=reduce)
            else:
                for i in simd(first, last):
                    combine(out, target + i, src[source + i], reduce=reduce)


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


@loop_kernel
def one_hot(out, index, wrong, count, classes):
    """out[k, :] = zeros with a one at index[k]; wrong[0], zero before, becomes 1 if there is no such class."""
    for k in prange(count, classes):
        for c in simd(classes):
            out[k * classes + c] = 0
        j = index[k]
        if j < 0 or j >= classes:
            wrong[0] = 1
        else:
            out[k * classes + j] = 1
