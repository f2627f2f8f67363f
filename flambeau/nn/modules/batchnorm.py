"""Batch normalisation, its lazy forms, and the base that instance normalisation shares."""

from __future__ import annotations

from typing import Any

from ...autograd import no_grad
from ...core import naming
from ...core.dtype import int64
from ...core.tensor import Tensor
from ...ops.creation.construct import tensor
from ...ops.creation.filled import empty, ones, zeros
from ...ops.shape.joining import cat
from .. import functional as F
from .. import init
from ..parameter import Parameter, UninitializedBuffer, UninitializedParameter
from .lazy import LazyModuleMixin
from .module import Module

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d",
    "SyncBatchNorm",
]  # fmt: skip


class _NormBase(Module):
    """Base of batch and instance normalisation: scale, shift and running statistics per channel."""

    _version = 2  # version 2 counts the batches seen
    __constants__ = ["track_running_stats", "momentum", "eps", "num_features", "affine"]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        where = {"device": device, "dtype": dtype}
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, Parameter(empty(num_features, **where)) if wanted else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, **where) if tracked else None)
        self.register_buffer("running_var", ones(num_features, **where) if tracked else None)
        self.register_buffer("num_batches_tracked", tensor(0, dtype=int64, device=device) if tracked else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine},"
            f" bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: dict, *rest: Any) -> None:
        version = local_metadata.get("version")
        counter = prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and counter not in state_dict:
            own = self.num_batches_tracked
            known = own is not None and own.device.type != "meta"
            state_dict[counter] = own if known else tensor(0, dtype=int64)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class _BatchNorm(_NormBase):
    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        factor = 0.0
        if self.momentum is not None:
            factor = self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # a plain average over all batches
                factor = 1.0 / float(self.num_batches_tracked)
        by_batch = self.training or (self.running_mean is None and self.running_var is None)
        used = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            self.running_mean if used else None,
            self.running_var if used else None,
            self.weight,
            self.bias,
            by_batch,
            factor,
            self.eps,
        )


def _expect_dims(input: Tensor, allowed: list[int]) -> None:
    if input.dim() not in allowed:
        wanted = " or ".join([f"{n}D" for n in allowed])
        raise ValueError(f"expected {wanted} input (got {input.dim()}D input)")


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, L): by the batch's mean and variance in training, by running averages in evaluation."""

    def _check_input_dim(self, input: Tensor) -> None:
        _expect_dims(input, [2, 3])


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W): by the batch's mean and variance in training, by running averages in evaluation.

    >>> nn.BatchNorm2d(3)(flambeau.randn(2, 3, 8, 8)).mean().abs() < 1e-6
    tensor(True)
    """

    def _check_input_dim(self, input: Tensor) -> None:
        _expect_dims(input, [4])


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of (N, C, D, H, W): by the batch's mean and variance in training, by running averages in evaluation."""

    def _check_input_dim(self, input: Tensor) -> None:
        _expect_dims(input, [5])


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """A normalisation whose num_features is the number of channels of its first input."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        # The parent is built without parameters, which are added below in their uninitialized form.
        super().__init__(0, eps, momentum, False, False, device, dtype)
        self.affine = affine
        self.track_running_stats = track_running_stats
        where = {"device": device, "dtype": dtype}
        if self.affine:
            self.weight = UninitializedParameter(**where)
            if bias:
                self.bias = UninitializedParameter(**where)
        if self.track_running_stats:
            self.running_mean = UninitializedBuffer(**where)
            self.running_var = UninitializedBuffer(**where)
            self.num_batches_tracked = tensor(0, dtype=int64, device=device)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        held = (self.weight, self.bias) if self.affine else ()
        tracked = (self.running_mean, self.running_var) if self.track_running_stats else ()
        for t in (*held, *tracked):
            if t is not None:
                t.materialize((self.num_features,))
        self.reset_parameters()


class LazyBatchNorm1d(_LazyNormBase, _BatchNorm):
    """A BatchNorm1d whose num_features comes from its first input."""

    cls_to_become = BatchNorm1d
    _check_input_dim = BatchNorm1d._check_input_dim


class LazyBatchNorm2d(_LazyNormBase, _BatchNorm):
    """A BatchNorm2d whose num_features comes from its first input."""

    cls_to_become = BatchNorm2d
    _check_input_dim = BatchNorm2d._check_input_dim


class LazyBatchNorm3d(_LazyNormBase, _BatchNorm):
    """A BatchNorm3d whose num_features comes from its first input."""

    cls_to_become = BatchNorm3d
    _check_input_dim = BatchNorm3d._check_input_dim


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation over the batches of all processes of a group; of one process: plain batch normalisation."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if input.size(1) == 0:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero")
        by_batch = self.training or (self.running_mean is None and self.running_var is None)
        if by_batch and self.training:
            dist = naming.above("distributed")  # only programs with process groups need it
            if dist.is_initialized() and dist.get_world_size(self.process_group) > 1:
                return self._normalized_together(input)
        return super().forward(input)

    def _normalized_together(self, input: Tensor) -> Tensor:
        """Normalize with mean and variance over the batches of all ranks, which may have different sizes."""
        all_reduce = naming.above("distributed.nn.functional").all_reduce
        wide = input.float() if input.dtype.itemsize < 4 else input
        dims = [d for d in range(input.dim()) if d != 1]
        shape = [1, -1] + [1] * (input.dim() - 2)
        count = tensor([float(input.numel() // input.size(1))], dtype=wide.dtype)
        totals = all_reduce(cat([wide.sum(dims), count]), group=self.process_group)
        size = totals[-1].detach()
        mean = totals[:-1] / size
        centred = wide - mean.view(shape)
        variance = all_reduce(centred.square().sum(dims), group=self.process_group) / size
        if self.track_running_stats and self.running_mean is not None:
            self._track(mean.detach(), variance.detach() * (size / (size - 1)))
        result = centred * (variance + self.eps).rsqrt().view(shape)
        if self.weight is not None:
            result = result * self.weight.view(shape)
            result = result if self.bias is None else result + self.bias.view(shape)
        return result.to(input.dtype)

    def _track(self, mean: Tensor, variance: Tensor) -> None:
        self.num_batches_tracked.add_(1)
        factor = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        with no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
            self.running_var.lerp_(variance.to(self.running_var.dtype), factor)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """Return the module with every BatchNorm*d below it replaced by a SyncBatchNorm that shares its parameters."""
        result = module
        if isinstance(module, _BatchNorm):
            result = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
                bias=module.bias is not None,
            )
            if module.affine:
                result.weight, result.bias = module.weight, module.bias
            result.running_mean = module.running_mean
            result.running_var = module.running_var
            result.num_batches_tracked = module.num_batches_tracked
            result.training = module.training
            if hasattr(module, "qconfig"):
                result.qconfig = module.qconfig
        for name, child in module.named_children():
            result.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return result
