"""Observers: modules that record statistics of the values passing through them, to choose a scale and a zero point. This module exports all
of them, and defines those that ignore the values, and the defaults."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict
from typing import Any, ClassVar

import flambeau as torch

from ... import nn
from ...core import naming
from ...core.dtype import dtype as _dtype
from ...core.tensor import Tensor
from ...jit.marks import export
from .granularity import (
    AffineQuantizedObserverBase,
    Granularity,
    MappingType,
    PerAxis,
    PerBlock,
    PerGroup,
    PerRow,
    PerTensor,
    PerToken,
    TorchAODType,
    ZeroPointDomain,
    get_block_size,
)
from .observed_histograms import HistogramObserver
from .observed_ranges import (
    EPS,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    ObserverBase,
    PerChannelMinMaxObserver,
    UniformQuantizationObserverBase,
)
from .observed_ranges import _ObserverBase as _ObserverBase

__all__ = [
    "AffineQuantizedObserverBase", "FixedQParamsObserver", "Granularity", "HistogramObserver", "MappingType", "MinMaxObserver",
    "MovingAverageMinMaxObserver", "MovingAveragePerChannelMinMaxObserver", "NoopObserver", "ObserverBase", "PerAxis",
    "PerBlock", "PerChannelMinMaxObserver", "PerGroup", "PerRow", "PerTensor", "PerToken", "PlaceholderObserver",
    "RecordingObserver", "ReuseInputObserver", "TorchAODType", "UniformQuantizationObserverBase", "ZeroPointDomain",
    "default_affine_fixed_qparams_observer", "default_debug_observer", "default_dynamic_quant_observer",
    "default_fixed_qparams_range_0to1_observer", "default_fixed_qparams_range_neg1to1_observer",
    "default_float_qparams_observer", "default_float_qparams_observer_4bit", "default_histogram_observer", "default_observer",
    "default_per_channel_weight_observer", "default_placeholder_observer", "default_reuse_input_observer",
    "default_symmetric_fixed_qparams_observer", "default_weight_observer", "get_block_size", "get_observer_state_dict",
    "load_observer_state_dict", "per_channel_weight_observer_range_neg_127_to_127", "weight_observer_range_neg_127_to_127",
]  # fmt: skip


class FixedQParamsObserver(ObserverBase):
    """Observer with a given scale and zero point, which ignores the data."""

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self,
        scale: float,
        zero_point: int,
        dtype: _dtype = torch.quint8,
        qscheme: Any = torch.per_tensor_affine,
        quant_min: int = 0,
        quant_max: int = 255,
        is_dynamic: bool = False,
        **kwargs: Any,
    ):
        if is_dynamic:
            raise NotImplementedError("FixedQParamsObserver doesn't support dynamic quantization")
        super().__init__(dtype=dtype, is_dynamic=is_dynamic, **kwargs)
        self.quant_min = quant_min
        self.quant_max = quant_max
        self.register_buffer("scale", torch.tensor([scale], dtype=torch.float))
        self.register_buffer("zero_point", torch.tensor([zero_point], dtype=torch.int))
        self.qscheme = qscheme

    def forward(self, X: Tensor) -> Tensor:
        return X

    @export
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        return self.scale, self.zero_point


class _NoQParamsObserver(ObserverBase):
    _NAME: ClassVar[str]

    def forward(self, x: Tensor) -> Tensor:
        return x

    @export
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        raise Exception(f"calculate_qparams should not be called for {self._NAME}")


class PlaceholderObserver(_NoQParamsObserver):
    """Observer that only declares a dtype, for scales found later or not needed (float16)."""

    _NAME = "PlaceholderObserver"

    def __init__(
        self,
        dtype: _dtype = torch.float32,
        custom_op_name: str = "",
        compute_dtype: _dtype | None = None,
        quant_min: int | None = None,
        quant_max: int | None = None,
        qscheme: Any = None,
        eps: float | None = None,
        is_dynamic: bool = False,
    ) -> None:
        super().__init__(dtype=dtype, is_dynamic=is_dynamic)
        self.qscheme = torch.per_tensor_affine if qscheme is None else qscheme
        self.quant_min = quant_min
        self.quant_max = quant_max
        self.eps = EPS if eps is None else eps
        self.custom_op = custom_op_name
        if compute_dtype:
            warnings.warn(
                "Please use `is_dynamic` instead of `compute_dtype`.                     `compute_dtype` will be "
                "deprecated in a future release                     of PyTorch.",
                stacklevel=2,
            )

    @export
    def extra_repr(self) -> str:
        return f"dtype={self.dtype}, is_dynamic={self.is_dynamic}"


class RecordingObserver(_NoQParamsObserver):
    """Observer that stores every tensor."""

    _NAME = "RecordingObserver"

    def __init__(self, dtype: _dtype = torch.quint8):
        super().__init__(dtype=dtype, is_dynamic=False)
        self.tensor_val: list[Tensor] = []
        self._attribute_types = {"tensor_val": list[Tensor]}  # which an empty list does not say to TorchScript

    def forward(self, x: Tensor) -> Tensor:
        self.tensor_val.append(x.clone())
        return x

    @export
    def get_tensor_value(self) -> list[Tensor]:
        return self.tensor_val


class NoopObserver(_NoQParamsObserver):
    """An observer that collects nothing and only states a dtype."""

    _NAME = "NoopObserver"

    def __init__(self, dtype: _dtype = torch.float16, custom_op_name: str = "") -> None:
        super().__init__(dtype=dtype, is_dynamic=False)
        self.custom_op = custom_op_name


class ReuseInputObserver(_NoQParamsObserver):
    """Observer that declares that an operator's output shares the observer of its input."""

    _NAME = "ReuseInputObserver"

    def __init__(self) -> None:
        super().__init__(torch.quint8, is_dynamic=False)


def _is_activation_post_process(module: Any) -> bool:
    fake = naming.above("ao.quantization.fake_quantize")  # which is made of observers
    return isinstance(module, (ObserverBase, fake.FakeQuantizeBase, AffineQuantizedObserverBase))


def get_observer_state_dict(mod: nn.Module) -> OrderedDict[Any, Any]:
    """Return the part of a prepared model's state dict that belongs to its observers."""
    state = mod.state_dict()
    kept = OrderedDict((k, v) for k, v in state.items() if "activation_post_process" in k)
    kept._metadata = state._metadata  # type: ignore[attr-defined]
    return kept


def load_observer_state_dict(mod: nn.Module, obs_dict: Any) -> None:
    """Load the result of `get_observer_state_dict` into the observers of a prepared model."""
    missing_keys: list[str] = []
    unexpected_keys: list[str] = []
    for name, module in mod.named_modules():
        if _is_activation_post_process(module):
            module._load_from_state_dict(obs_dict, name + ".", {}, False, missing_keys, unexpected_keys, [])
    for keys, word in ((missing_keys, "Missing"), (unexpected_keys, "Unexpected")):
        for k in keys:
            if "observer" in k or "activation_post_process" in k:
                raise Exception(f"{word} keys for observer {k} in state_dict")


_per_tensor_weight = functools.partial(MinMaxObserver.with_args, dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)
_per_channel_weight = functools.partial(
    PerChannelMinMaxObserver.with_args, dtype=torch.qint8, qscheme=torch.per_channel_symmetric
)
_BYTE = {"dtype": torch.quint8, "quant_min": 0, "quant_max": 255}
_FLOAT_QPARAMS = {"qscheme": torch.per_channel_affine_float_qparams, "ch_axis": 0}

default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_placeholder_observer = PlaceholderObserver
default_debug_observer = RecordingObserver
default_weight_observer = _per_tensor_weight()
weight_observer_range_neg_127_to_127 = _per_tensor_weight(quant_min=-127, quant_max=127, eps=2**-12)
default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)
default_per_channel_weight_observer = _per_channel_weight()
per_channel_weight_observer_range_neg_127_to_127 = _per_channel_weight(quant_min=-127, quant_max=127, eps=2**-12)
default_dynamic_quant_observer = PlaceholderObserver.with_args(
    dtype=torch.quint8, quant_min=0, quant_max=255, is_dynamic=True
)
default_float_qparams_observer = PerChannelMinMaxObserver.with_args(dtype=torch.quint8, **_FLOAT_QPARAMS)
default_float_qparams_observer_4bit = PerChannelMinMaxObserver.with_args(dtype=torch.quint4x2, **_FLOAT_QPARAMS)
default_fixed_qparams_range_neg1to1_observer = FixedQParamsObserver.with_args(
    scale=2.0 / 256.0, zero_point=128, **_BYTE
)
default_fixed_qparams_range_0to1_observer = FixedQParamsObserver.with_args(scale=1.0 / 256.0, zero_point=0, **_BYTE)
default_symmetric_fixed_qparams_observer = default_fixed_qparams_range_neg1to1_observer
default_affine_fixed_qparams_observer = default_fixed_qparams_range_0to1_observer
default_reuse_input_observer = ReuseInputObserver
