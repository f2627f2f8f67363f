"""Batch normalisation over the batches of all processes."""

from __future__ import annotations

from typing import Any

from ...autograd import no_grad
from ...core.tensor import Tensor
from ...nn.modules.batchnorm import _BatchNorm
from ...ops import namespace
from . import state
from .operations import allreduce
from .state import Sum

_torch = namespace("torch")


class SyncBatchNorm(_BatchNorm):
    """BatchNorm whose mean and variance are those of all processes' batches together."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if not self.training or state.size() == 1:
            return super().forward(input)
        dims = [d for d in range(input.dim()) if d != 1]
        shape = [1, -1] + [1] * (input.dim() - 2)
        count = _torch["tensor"]([float(input.numel() // input.size(1))], dtype=input.dtype)
        totals = allreduce(_torch["cat"]([input.sum(dims), count]), op=Sum)
        size = totals[-1].detach()
        mean = totals[:-1] / size
        centred = input - mean.view(shape)
        variance = allreduce(centred.square().sum(dims), op=Sum) / size
        self._track(mean.detach(), variance.detach() * (size / (size - 1)))
        result = centred * (variance + self.eps).rsqrt().view(shape)
        if self.weight is not None:
            result = result * self.weight.view(shape) + self.bias.view(shape)
        return result

    def _track(self, mean: Tensor, variance: Tensor) -> None:
        if not self.track_running_stats or self.running_mean is None:
            return
        self.num_batches_tracked.add_(1)
        factor: Any = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        with no_grad():
            self.running_mean.lerp_(mean, factor)
            self.running_var.lerp_(variance, factor)
