"""Reading and writing at lists of positions: the kernels behind x[i, j, mask] and x[...] = v.

Element (b, p, a) of the result is at before[b] + picked[p] + after[a]: offsets into memory, of which `picked` is computed from the index
tensors and checked before anything is read or written.
"""

from __future__ import annotations

from ..loops import i64, local, loop_kernel, minimum, prange, simd

ROWS = 1024  # positions in one task
NOWHERE = -(1 << 60)  # the offset of an index that is out of bounds
COLUMNS = 64  # columns in one task of put_positions: enough for whole cache lines


@loop_kernel
def add_offsets(picked, index, error, count, size, stride, *, first):
    """picked[p] = (or +=, unless `first`) index[p] * stride, where a negative index counts from the end. error[0], zero
    before, becomes 1 if an index is out of bounds, and error[1] that index; its offset is far below zero."""
    for task in prange((count + ROWS - 1) // ROWS, ROWS):
        bad = 0
        for p in simd(task * ROWS, minimum(task * ROWS + ROWS, count)):
            j = index[p]
            inside = -size <= j < size
            bad += 0 if inside else 1
            offset = (j + size if j < 0 else j) * stride if inside else NOWHERE
            if first:
                picked[p] = offset
            else:
                picked[p] = picked[p] + offset
        if bad > 0:
            error[0] = 1
            for p in range(task * ROWS, minimum(task * ROWS + ROWS, count)):
                if index[p] < -size or index[p] >= size:
                    error[1] = index[p]


@loop_kernel
def take_positions(out, x, before, picked, after, blocks, count, inner, *, dense=True):
    """out[b, p, a] = x[before[b] + picked[p] + after[a]]; `dense`: after[a] == a."""
    row_blocks = (count + ROWS - 1) // ROWS
    for task in prange(blocks * row_blocks, inner * minimum(count, ROWS)):
        block = task // row_blocks
        first = task % row_blocks * ROWS
        last = minimum(first + ROWS, count)
        base = before[block]
        if inner == 1:
            for p in simd(first, last):
                out[block * count + p] = x[base + picked[p]]
        else:
            for p in range(first, last):
                start = base + picked[p]
                row = (block * count + p) * inner
                if dense:
                    for a in simd(inner):
                        out[row + a] = x[start + a]
                else:
                    for a in simd(inner):
                        out[row + a] = x[start + after[a]]


@loop_kernel
def take_indexed(out, x, before, index, after, error, blocks, count, size, stride, inner, *, dense=True):
    """out[b, p, a] = x[before[b] + index[p] * stride + after[a]]: `take_positions` by one index of a dimension of `size` > 0, where a
    negative one counts from the end. For an index out of bounds another element is taken, and error[0], zero before, becomes 1."""
    row_blocks = (count + ROWS - 1) // ROWS
    for task in prange(blocks * row_blocks, inner * minimum(count, ROWS)):
        block = task // row_blocks
        first = task % row_blocks * ROWS
        last = minimum(first + ROWS, count)
        base = before[block]
        bad = 0
        if inner == 1:
            for p in simd(first, last):
                j = index[p]
                inside = -size <= j < size
                bad += 0 if inside else 1
                out[block * count + p] = x[base + ((j + size if j < 0 else j) * stride if inside else 0)]
        else:
            for p in range(first, last):
                j = index[p]
                inside = -size <= j < size
                bad += 0 if inside else 1
                begin = base + ((j + size if j < 0 else j) * stride if inside else 0)
                row = (block * count + p) * inner
                if dense:
                    for a in simd(inner):
                        out[row + a] = x[begin + a]
                else:
                    for a in simd(inner):
                        out[row + a] = x[begin + after[a]]
        if bad > 0:
            error[0] = 1


@loop_kernel
def put_positions(x, values, before, picked, after, blocks, count, inner, *, dense, single, accumulate=False):
    """x[before[b] + picked[p] + after[a]] = or += values[b, p, a]; `single`: one value for all. A position named twice is
    written in order: tasks have different blocks or columns."""
    parts = (inner + COLUMNS - 1) // COLUMNS
    for task in prange(blocks * parts, 2 * count * minimum(inner, COLUMNS)):
        block = task // parts
        first = task % parts * COLUMNS
        last = minimum(first + COLUMNS, inner)
        for p in range(count):
            start = before[block] + picked[p]
            row = (block * count + p) * inner
            if dense:
                for a in simd(first, last):
                    v = values[0] if single else values[row + a]
                    if accumulate:
                        x[start + a] += v
                    else:
                        x[start + a] = v
            else:
                for a in range(first, last):
                    v = values[0] if single else values[row + a]
                    if accumulate:
                        x[start + after[a]] += v
                    else:
                        x[start + after[a]] = v


# -- where a mask is true ---------------------------------------------------------------------------------------------


@loop_kernel
def count_true(counts, mask, n):
    """counts[b] = how many of the b-th ROWS elements are not zero."""
    for task in prange((n + ROWS - 1) // ROWS, ROWS):
        total = 0
        for i in range(task * ROWS, minimum(task * ROWS + ROWS, n)):
            total += 1 if mask[i] != 0 else 0
        counts[task] = total


@loop_kernel
def list_true(positions, ends, mask, n):
    """Write the positions of elements that are not zero; ends[b] is where those of the b-th ROWS elements end in the list."""
    for task in prange((n + ROWS - 1) // ROWS, 2 * ROWS):
        found = local(i64, ROWS + 1)
        count = 0
        for i in range(task * ROWS, minimum(task * ROWS + ROWS, n)):
            found[count] = i  # overwritten by the next one unless this one counts: no branch to mispredict
            count = count + (1 if mask[i] != 0 else 0)
        start = ends[task] - count
        for k in simd(count):
            positions[start + k] = found[k]


@loop_kernel
def coordinates(out, positions, count, start, inner, size):
    """out[start + p] = which of `size` slices of `inner` elements contains the p-th position."""
    for p in prange(count, 4):
        out[start + p] = positions[p] // inner % size
