"""Products that the matrix libraries are slow at: a matrix times a vector, and matrices of integers."""

from __future__ import annotations

from ..loops import like, local, loop_kernel, minimum, prange, simd

ROWS = 256  # results in one task where the matrix lies column by column


@loop_kernel
def rows_times_vector(out, a, x, bias, rows, n, row_step, x_step, out_step, bias_step):
    """out[i] = sum over c of a[i, c] * x[c] (+ bias[i]), the rows of the matrix dense; bias may be None."""
    for i in prange(rows, 2 * n):
        total = like(out, 0)
        if x_step == 1:
            for c in range(n):
                total += a[i * row_step + c] * x[c]
        else:
            for c in range(n):
                total += a[i * row_step + c] * x[c * x_step]
        if bias is not None:
            total = total + bias[i * bias_step]
        out[i * out_step] = total


@loop_kernel
def columns_times_vector(out, a, x, bias, rows, n, column_step, x_step, out_step, bias_step):
    """Multiply a matrix whose columns are dense with a vector. Four columns at a time, so that sums travel less between memory and registers."""
    for task in prange((rows + ROWS - 1) // ROWS, 2 * ROWS * n):
        first = task * ROWS
        count = minimum(ROWS, rows - first)
        sums = local(out, ROWS)
        for r in simd(count):
            sums[r] = 0
        fours = n // 4
        for four in range(fours):
            c = four * 4
            base = c * column_step + first
            x0 = x[c * x_step]
            x1 = x[(c + 1) * x_step]
            x2 = x[(c + 2) * x_step]
            x3 = x[(c + 3) * x_step]
            for r in simd(count):
                near = a[base + r] * x0 + a[base + column_step + r] * x1
                far = a[base + 2 * column_step + r] * x2 + a[base + 3 * column_step + r] * x3
                sums[r] = sums[r] + (near + far)
        for c in range(4 * fours, n):
            v = x[c * x_step]
            for r in simd(count):
                sums[r] = sums[r] + a[c * column_step + first + r] * v
        for r in range(count):
            total = sums[r]
            if bias is not None:
                total = total + bias[(first + r) * bias_step]
            out[(first + r) * out_step] = total


@loop_kernel
def integer_product(out, a, b, batches, rows, n, columns, a_step, b_step):
    """out (batches, rows, columns) = a @ b, which wraps around; a batch is a_step and b_step elements after the one before."""
    for task in prange(batches * rows, n * columns):
        batch = task // rows
        left = batch * a_step + task % rows * n
        for j in simd(columns):
            out[task * columns + j] = 0
        fours = n // 4 * 4
        for k in range(0, fours, 4):  # four at a time, so that sums travel less between memory and registers
            v0, v1, v2, v3 = a[left + k], a[left + k + 1], a[left + k + 2], a[left + k + 3]
            right = batch * b_step + k * columns
            for j in simd(columns):
                near = v0 * b[right + j] + v1 * b[right + columns + j]
                far = v2 * b[right + 2 * columns + j] + v3 * b[right + 3 * columns + j]
                out[task * columns + j] = out[task * columns + j] + (near + far)
        for k in range(fours, n):
            v = a[left + k]
            right = batch * b_step + k * columns
            for j in simd(columns):
                out[task * columns + j] = out[task * columns + j] + v * b[right + j]
