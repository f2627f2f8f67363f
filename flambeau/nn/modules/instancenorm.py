"""Instance normalisation: every channel of every sample is normalised by its own statistics."""

from __future__ import annotations

import warnings
from typing import Any

from ...core.tensor import Tensor
from .. import functional as F
from .batchnorm import _expect_dims, _LazyNormBase, _NormBase

__all__ = [
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
]  # fmt: skip


class _InstanceNorm(_NormBase):
    _dims: int  # of a batch; a single sample has one fewer

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _check_input_dim(self, input: Tensor) -> None:
        _expect_dims(input, [self._dims - 1, self._dims])

    def _get_no_batch_dim(self) -> int:
        return self._dims - 1

    def _apply_instance_norm(self, input: Tensor) -> Tensor:
        return F.instance_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )

    def _check_channels(self, input: Tensor) -> None:
        dim = input.dim() - self._get_no_batch_dim()
        if input.size(dim) == self.num_features:
            return
        if self.affine:
            raise ValueError(
                f"expected input's size at dim={dim} to match num_features ({self.num_features}), but got:"
                f" {input.size(dim)}."
            )
        warnings.warn(
            f"input's size at dim={dim} does not match num_features. You can silence this warning by not passing in"
            " num_features, which is not used because affine=False",
            stacklevel=3,
        )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        self._check_channels(input)
        if input.dim() == self._get_no_batch_dim():
            return self._apply_instance_norm(input.unsqueeze(0)).squeeze(0)
        return self._apply_instance_norm(input)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: dict, *rest: Any) -> None:
        # Very old checkpoints hold statistics that this module does not track by default any more.
        if local_metadata.get("version") is None and not self.track_running_stats:
            found = [name for name in ("running_mean", "running_var") if prefix + name in state_dict]
            if found:
                name = type(self).__name__
                listed = " and ".join(f'"{prefix + key}"' for key in found)
                rest[-1].append(
                    f"Unexpected running stats buffer(s) {listed} for {name} with track_running_stats=False. If state_dict is a"
                    f" checkpoint saved before 0.4.0, this may be expected because {name} does not track running stats by"
                    " default since 0.4.0. Please remove these keys from state_dict. If the running stats are actually needed,"
                    f" instead set track_running_stats=True in {name} to enable them."
                )
                for key in found:
                    state_dict.pop(prefix + key)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of (N, C, L) or (C, L): each channel of each sample by its own mean and variance."""

    _dims = 3


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of (N, C, H, W) or (C, H, W): each channel of each sample by its own mean and variance."""

    _dims = 4


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of (N, C, D, H, W) or (C, D, H, W): each channel of each sample by its own mean and variance."""

    _dims = 5


class LazyInstanceNorm1d(_LazyNormBase, _InstanceNorm):
    """An InstanceNorm1d whose num_features comes from its first input."""

    _dims = 3
    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNormBase, _InstanceNorm):
    """An InstanceNorm2d whose num_features comes from its first input."""

    _dims = 4
    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNormBase, _InstanceNorm):
    """An InstanceNorm3d whose num_features comes from its first input."""

    _dims = 5
    cls_to_become = InstanceNorm3d
