"""The gradients of layer normalisation on NVIDIA GPUs: enough chunks of rows for every multiprocessor, added up by a reduction."""

from __future__ import annotations

from typing import Any

from ...backends import nvidia
from ...core.tensor import Tensor, empty
from ...kernels.library import layer_norm as row_kernels
from ..machinery.inplace import raw_copy
from ..machinery.memory import bare, dense
from ..machinery.together import Wanted, in_place_of
from ..nn.normalization import _rows, layer_norm_grads


@layer_norm_grads.on("cuda")
def _(
    out: list[Tensor], g: Tensor, input: Tensor, weight: Any, bias: Any, mean: Tensor, rstd: Tensor, inner: int,
    wanted: Wanted,
) -> None:  # fmt: skip
    rows, n = _rows(input.shape, inner)
    dx, dw, db = in_place_of(wanted, out)
    chunks = min(rows, 4 * nvidia.processors(mean.device))
    partial: Any = empty((chunks, 2, n), mean.dtype, mean.device) if wanted[1] or wanted[2] else None
    scale = None if weight is None else dense(weight)
    row_kernels.layer_norm_backward(dx, partial, dense(g), dense(input), mean, rstd, scale, rows, n, chunks)
    if partial is not None:
        sums = bare(partial).sum(0)
        for k, result in enumerate((dw, db)):
            if result is not None:
                raw_copy(result, sums.select(0, k).reshape(result.shape))
