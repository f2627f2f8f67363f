"""Layouts of matrices and batches of them that a matrix product of oneDNN or BLAS accepts."""

from __future__ import annotations

from typing import Any

from flambeau.backends.cpu import operands


class MatrixLayout:
    """Shape and strides of a matrix or a batch of them, rewritten while a plan is made."""

    __slots__ = ("shape", "strides")

    def __init__(self, operand: Any, rank: int):
        missing = rank - len(operand.shape)
        self.shape, self.strides = [1] * missing + list(operand.shape), [0] * missing + list(operand._strides)
        for axis in range(rank - 2):
            if self.strides[axis] == 0:
                self.shape[axis] = 1  # an expanded dimension: oneDNN broadcasts those of size 1 itself

    def merges(self, axis: int) -> bool:
        """Return whether dimensions `axis` and `axis + 1` are one dimension in memory."""
        inner = self.shape[axis + 1]
        return inner == 1 or self.strides[axis] == inner * self.strides[axis + 1]

    def merge(self, axis: int) -> None:
        del self.strides[axis + 1 if self.shape[axis + 1] == 1 else axis]
        self.shape[axis : axis + 2] = [self.shape[axis] * self.shape[axis + 1]]

    def drop(self, axis: int) -> None:
        del self.shape[axis], self.strides[axis]

    def transpose(self) -> None:
        for row in (self.shape, self.strides):
            row[-1], row[-2] = row[-2], row[-1]

    def settle(self) -> bool:
        """Give dimensions of size 1 the strides that oneDNN expects; return False if it cannot take this operand's layout."""
        (rows, columns), (row_step, column_step) = self.shape[-2:], self.strides[-2:]
        if columns == 1:
            row_step, column_step = (row_step if rows > 1 else 1), 1
        elif rows == 1:
            row_step = columns if column_step == 1 else 1
        if not ((column_step == 1 and row_step >= columns) or (row_step == 1 and column_step >= rows)):
            return False
        self.strides[-2:] = [row_step, column_step]
        extent = max(rows * row_step, columns * column_step)
        for axis in range(len(self.shape) - 2):
            if self.shape[axis] == 1:
                self.strides[axis] = extent
        return not operands.overlaps(self.shape, self.strides)


def fold_batch(c: MatrixLayout, left: MatrixLayout, right: MatrixLayout) -> None:
    """Merge batch dimensions if the product stays the same."""
    for axis in range(len(c.shape) - 3, -1, -1):
        if c.shape[axis] == 1:
            for layout in (c, left, right):
                layout.drop(axis)
    # The rows of a batch times one shared matrix are the rows of one big matrix.
    while len(c.shape) > 2 and right.shape[-3] == 1 != left.shape[-3]:
        axis = len(c.shape) - 3
        if not (c.merges(axis) and left.merges(axis)):
            break
        c.merge(axis)
        left.merge(axis)
        right.drop(axis)
    for axis in range(len(c.shape) - 4, -1, -1):
        if all(_batch_merges(layout, axis) for layout in (c, left, right)):
            for layout in (c, left, right):
                layout.merge(axis)


def _batch_merges(layout: MatrixLayout, axis: int) -> bool:
    """Return whether two batch dimensions merge: size 1 means broadcasting, so both must broadcast or neither."""
    sizes = layout.shape[axis : axis + 2]
    return sizes == [1, 1] or (1 not in sizes and layout.merges(axis))


def takes_matrix(operand: Any) -> bool:
    """Return whether `matmul` accepts an operand's layout: dense rows or columns, nothing overlapping."""
    return MatrixLayout(operand, len(operand.shape)).settle()


def leading(layout: MatrixLayout) -> tuple[bytes, int]:
    """Return BLAS's transposition flag and leading dimension for a row-major routine."""
    row_step, column_step = layout.strides
    if column_step == 1 and row_step >= layout.shape[1]:
        return b"N", row_step
    return b"T", column_step
