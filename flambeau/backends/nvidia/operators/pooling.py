"""Gradients of max pooling on NVIDIA GPUs, where activations are channels last."""

from __future__ import annotations

from ....core.layout import channels_last
from ....core.tensor import Tensor
from ....kernels.library import pool as kernels
from ....ops.nn.max_pool import Window, _channels_geometry, is_last, max_pool2d_codes_backward

_for_any_device = max_pool2d_codes_backward.op.kernels["any"]


@max_pool2d_codes_backward.on("cuda")
def _(out: Tensor, g: Tensor, codes: Tensor, shape: tuple[int, ...], window: Window) -> None:
    if not is_last(codes):
        _for_any_device(out, g, codes, shape, window)
        return
    grad = g._bare_alias().contiguous(memory_format=channels_last)
    kernels.max_pool_channels_gathered(out, grad, codes, *_channels_geometry(tuple(shape), codes.shape[-2:], window))
