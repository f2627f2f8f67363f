"""Matrix decompositions, through LAPACK as NumPy has it."""

from __future__ import annotations

import numpy as np

from ..core.tensor import Tensor, copy_of_array
from .declare import primitive
from .formula import type_word
from .primitive import Saved


def _svdvals_backward(g: Tensor, left: Tensor, right: Tensor) -> Tensor:
    return (left * g.unsqueeze(-2)) @ right


@primitive(grads={"A": _svdvals_backward}, method=False, out=True, namespaces=("linalg",), label="LinalgSvdBackward0")
def svdvals(A: Tensor) -> Saved:
    """The singular values of a matrix, or of each matrix in a batch, in descending order."""
    if len(A.shape) < 2:
        raise RuntimeError(f"linalg.svdvals: The input tensor A must have at least 2 dimensions, got {len(A.shape)}.")
    if A.dtype.category < 2 or A.dtype.itemsize < 4:
        raise RuntimeError(
            f"linalg.svdvals: Expected a floating point or complex tensor as input. Got {type_word(A.dtype)}"
        )
    left, values, right = np.linalg.svd(A._array(), full_matrices=False)
    result = copy_of_array(values, A.dtype.to_real())
    return Saved(result, left=copy_of_array(left, A.dtype), right=copy_of_array(right, A.dtype))
