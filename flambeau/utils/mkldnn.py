"""Models in oneDNN's layout: `to_mkldnn(model)` replaces layers by ones that keep their weights as `torch._mkldnn` tensors.

>>> model = to_mkldnn(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval())
>>> model(torch.randn(1, 3, 8, 8).to_mkldnn()).layout
torch._mkldnn
"""

from __future__ import annotations

import copy
from typing import Any

from .. import nn
from ..core.dtype import bfloat16, dtype, float16, float32
from ..core.tensor import Tensor


class _MkldnnLayer(nn.Module):
    """A layer for inference whose tensors are buffers in oneDNN's layout; it computes the same as the dense layer."""

    _names: tuple[str, ...] = ("weight", "bias")

    def __init__(self, dense_module: nn.Module, dtype: dtype | None = None):
        super().__init__()
        for name in self._names:
            held = getattr(dense_module, name)
            if held is None:  # a bias that is not there is one of zeros
                held = dense_module.weight.new_zeros(dense_module.weight.shape[0], dtype=float32)
            self.register_buffer(name, held.to_mkldnn(dtype if name == "weight" else None))
        template = copy.copy(dense_module)
        template._parameters = {}
        template.training = False
        object.__setattr__(self, "_template", template)  # no child: its tensors are the buffers above

    def forward(self, x: Tensor) -> Tensor:
        d, held = self.weight.dtype, self._tensors()
        self._template._buffers = {
            name: t if name != "bias" or t.dtype is d else t.to_dense(d).to_mkldnn() for name, t in held.items()
        }
        if x.is_mkldnn:
            return self._template.forward(x)
        return self._template.forward(x.to_mkldnn()).to_dense()

    def _tensors(self) -> dict[str, Any]:
        return self._buffers

    def __getstate__(self) -> dict[str, Any]:
        self._template._buffers = {}
        dense = {name: held.to_dense() for name, held in self._tensors().items()}
        return {**self.__dict__, "_buffers": dense}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._buffers = {name: held.to_mkldnn() for name, held in self._tensors().items()}


class MkldnnLinear(_MkldnnLayer):
    """`nn.Linear` with its weight in oneDNN's layout."""


class MkldnnConv1d(_MkldnnLayer):
    """`nn.Conv1d` with its weight in oneDNN's layout."""

    _names = ("bias", "weight")


class MkldnnConv2d(MkldnnConv1d):
    """`nn.Conv2d` with its weight in oneDNN's layout."""


class MkldnnConv3d(MkldnnConv1d):
    """`nn.Conv3d` with its weight in oneDNN's layout."""


class MkldnnPrelu(_MkldnnLayer):
    """`nn.PReLU` with its weight in oneDNN's layout."""

    _names = ("weight",)


class MkldnnBatchNorm(_MkldnnLayer):
    """Batch normalisation for inference, with weights and statistics in oneDNN's layout."""

    _names = ("weight", "bias", "running_mean", "running_var")

    def __init__(self, dense_module: nn.Module, dtype: dtype | None = None):
        for wanted, met in (
            ("eval mode batchnorm", not dense_module.training),
            ("track_running_stats=True", dense_module.track_running_stats),
            ("affine=True", dense_module.affine),
        ):
            if not met:
                raise AssertionError(f"Only support {wanted} for mkldnn path now")
        super().__init__(dense_module)

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_mkldnn:
            raise RuntimeError("itensor_from_mkldnn expects MKL-DNN tensor input")
        return super().forward(x)


_LAYERS: tuple[tuple[Any, type[_MkldnnLayer]], ...] = (
    (nn.Linear, MkldnnLinear),
    (nn.Conv1d, MkldnnConv1d),
    (nn.Conv2d, MkldnnConv2d),
    (nn.Conv3d, MkldnnConv3d),
    ((nn.BatchNorm2d, nn.BatchNorm3d), MkldnnBatchNorm),
    (nn.PReLU, MkldnnPrelu),
)


def to_mkldnn(module: nn.Module, dtype: dtype = float32) -> nn.Module:
    """Convert a model for inference on `torch._mkldnn` tensors: its linear, convolution, normalisation and PReLU layers are replaced, in
    place if they are children. Weights are kept in `dtype`."""
    if dtype not in (float32, bfloat16, float16):
        raise AssertionError("MKLDNN only support float, bfloat16, and half path now")
    made = next((layer(module, dtype) for kinds, layer in _LAYERS if isinstance(module, kinds)), module)
    for name, child in module.named_children():
        setattr(made, name, to_mkldnn(child, dtype))
    return made
