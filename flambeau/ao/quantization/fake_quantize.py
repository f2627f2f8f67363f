"""Fake quantization: modules that round values as quantization would, while a model is trained in floating point."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import flambeau as torch

from ...core.tensor import Tensor
from ...jit.marks import export
from ...nn import Module
from .observer import (
    FixedQParamsObserver,
    HistogramObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
)
from .partial import _PartialWrapper, _with_args
from .utils import is_per_channel as _is_per_channel
from .utils import is_per_tensor as _is_per_tensor

__all__ = [
    "FakeQuantize", "FakeQuantizeBase", "FixedQParamsFakeQuantize", "FusedMovingAvgObsFakeQuantize",
    "default_affine_fixed_qparams_fake_quant", "default_dynamic_fake_quant", "default_embedding_fake_quant",
    "default_embedding_fake_quant_4bit", "default_fake_quant", "default_fixed_qparams_range_0to1_fake_quant",
    "default_fixed_qparams_range_neg1to1_fake_quant", "default_fused_act_fake_quant", "default_fused_per_channel_wt_fake_quant",
    "default_fused_wt_fake_quant", "default_histogram_fake_quant", "default_per_channel_weight_fake_quant",
    "default_symmetric_fixed_qparams_fake_quant", "default_weight_fake_quant", "disable_fake_quant", "disable_observer",
    "enable_fake_quant", "enable_observer", "fused_per_channel_wt_fake_quant_range_neg_127_to_127",
    "fused_wt_fake_quant_range_neg_127_to_127",
]  # fmt: skip


def _is_symmetric_quant(qscheme: Any) -> bool:
    return qscheme in (torch.per_tensor_symmetric, torch.per_channel_symmetric)


class FakeQuantizeBase(ABC, Module):
    """Base of modules that observe and round values; each can be switched off."""

    fake_quant_enabled: Tensor
    observer_enabled: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("fake_quant_enabled", torch.tensor([1], dtype=torch.uint8))
        self.register_buffer("observer_enabled", torch.tensor([1], dtype=torch.uint8))

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Return the values, rounded as quantization would."""

    @abstractmethod
    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Return scale and zero point for the values observed so far."""

    @export
    def enable_fake_quant(self, enabled: bool = True) -> None:
        self.fake_quant_enabled[0] = 1 if enabled else 0

    @export
    def disable_fake_quant(self) -> None:
        self.enable_fake_quant(False)

    @export
    def enable_observer(self, enabled: bool = True) -> None:
        self.observer_enabled[0] = 1 if enabled else 0

    @export
    def disable_observer(self) -> None:
        self.enable_observer(False)

    @classmethod
    def with_args(cls, **kwargs: Any) -> _PartialWrapper:
        """Return a constructor with these arguments bound."""
        made = _with_args(cls, **kwargs)
        made.__module__ = "torch.ao.quantization.fake_quantize"
        return made


class FakeQuantize(FakeQuantizeBase):
    """Rounds to the levels that its observer finds: `(clamp(round(x / scale) + zero_point) - zero_point) * scale`."""

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self,
        observer: Any = MovingAverageMinMaxObserver,
        quant_min: int | None = None,
        quant_max: int | None = None,
        is_dynamic: bool = False,
        **observer_kwargs: Any,
    ):
        super().__init__()
        if quant_min is not None and quant_max is not None:
            if quant_min > quant_max:
                raise AssertionError("quant_min must be less than or equal to quant_max")
            dtype = observer_kwargs.get("dtype", torch.quint8)
            if hasattr(observer, "p"):
                dtype = getattr(observer.p, "keywords", {}).get("dtype", dtype)
            if torch.iinfo(dtype).min > quant_min:
                raise AssertionError("quant_min out of bound")
            if quant_max > torch.iinfo(dtype).max:
                raise AssertionError("quant_max out of bound")
            observer_kwargs.update(quant_min=quant_min, quant_max=quant_max)
        observer_kwargs["is_dynamic"] = is_dynamic
        watching = observer(**observer_kwargs)
        self.activation_post_process = watching
        self.quant_min = watching.quant_min
        self.quant_max = watching.quant_max
        self.is_dynamic = watching.is_dynamic
        zero_point_dtype = torch.float if watching.qscheme == torch.per_channel_affine_float_qparams else torch.int
        self.register_buffer("scale", torch.tensor([1.0], dtype=torch.float))
        self.register_buffer("zero_point", torch.tensor([0], dtype=zero_point_dtype))
        self.dtype = watching.dtype
        self.qscheme = watching.qscheme
        self.ch_axis = getattr(watching, "ch_axis", -1)
        if not (_is_per_channel(self.qscheme) or _is_per_tensor(self.qscheme)):
            raise AssertionError(
                f"Only per channel and per tensor quantization are supported in fake quantize got qscheme: {self.qscheme}"
            )
        self.is_per_channel = _is_per_channel(self.qscheme)

    @export
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        return self.activation_post_process.calculate_qparams()

    def forward(self, X: Tensor) -> Tensor:
        watching = self.activation_post_process
        if self.observer_enabled[0] == 1:
            watching(X.detach())
            scale, zero_point = self.calculate_qparams()
            if self.scale.shape != scale.shape:
                self.scale.resize_(scale.shape)
                self.zero_point.resize_(zero_point.shape)
            self.scale.copy_(scale)
            self.zero_point.copy_(zero_point)
        if self.fake_quant_enabled[0] != 1:
            return X
        if self.is_per_channel:
            return torch.fake_quantize_per_channel_affine(
                X, self.scale, self.zero_point, self.ch_axis, watching.quant_min, watching.quant_max
            )
        return torch.fake_quantize_per_tensor_affine(
            X, self.scale, self.zero_point, watching.quant_min, watching.quant_max
        )

    def _repr_settings(self, *names: str) -> str:
        limits = {"quant_min", "quant_max", "reduce_range"}
        return ", ".join(f"{n}={getattr(self.activation_post_process if n in limits else self, n)}" for n in names)

    def extra_repr(self) -> str:
        return self._repr_settings(
            "fake_quant_enabled", "observer_enabled", "quant_min", "quant_max", "dtype", "qscheme", "ch_axis", "scale",
            "zero_point",
        )  # fmt: skip

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, *lists) -> None:
        for name in ("scale", "zero_point"):  # they have one element before use, and as many as channels afterwards
            key = prefix + name
            if key in state_dict:
                getattr(self, name).resize_(state_dict[key].shape)
            elif strict:
                missing_keys.append(key)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, *lists)


class FixedQParamsFakeQuantize(FakeQuantize):
    """Fake quantization with fixed scale and zero point: sigmoid's results are between 0 and 1, for example."""

    def __init__(self, observer: Any):
        super().__init__(observer=observer)
        if type(self.activation_post_process) is not FixedQParamsObserver:
            raise AssertionError(f"{self.__class__.__name__}'s observer must be a {FixedQParamsObserver.__name__}")
        self._observer_ctr = observer
        self.scale = self.activation_post_process.scale
        self.zero_point = self.activation_post_process.zero_point
        if not _is_per_tensor(self.qscheme):
            raise AssertionError(
                f"Only per tensor quantization is supported FixedQParamsFakeQuantize module, got qscheme:{self.qscheme}"
            )

    @export
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        return self.scale, self.zero_point

    def extra_repr(self) -> str:
        return self._repr_settings(
            "fake_quant_enabled",
            "observer_enabled",
            "scale",
            "zero_point",
            "dtype",
            "quant_min",
            "quant_max",
            "qscheme",
        )


class FusedMovingAvgObsFakeQuantize(FakeQuantize):
    """FakeQuantize with an observer of moving averages, in one operator."""

    def __init__(
        self,
        observer: Any = MovingAverageMinMaxObserver,
        quant_min: int = 0,
        quant_max: int = 255,
        **observer_kwargs: Any,
    ) -> None:
        super().__init__(observer, quant_min, quant_max, **observer_kwargs)
        if not isinstance(
            self.activation_post_process, (MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver)
        ):
            raise AssertionError("Fused observer+fake_quant module only works with MovingAverageMinMaxObserver")
        self.register_buffer("fake_quant_enabled", torch.tensor([1], dtype=torch.long))
        self.register_buffer("observer_enabled", torch.tensor([1], dtype=torch.long))
        self.is_symmetric_quant = _is_symmetric_quant(self.activation_post_process.qscheme)

    def extra_repr(self) -> str:
        return self._repr_settings(
            "fake_quant_enabled", "observer_enabled", "scale", "zero_point", "dtype", "quant_min", "quant_max", "qscheme",
            "reduce_range",
        )  # fmt: skip

    def forward(self, X: Tensor) -> Tensor:
        watching = self.activation_post_process
        return torch.fused_moving_avg_obs_fake_quant(
            X,
            self.observer_enabled,
            self.fake_quant_enabled,
            watching.min_val,
            watching.max_val,
            self.scale,
            self.zero_point,
            watching.averaging_constant,
            watching.quant_min,
            watching.quant_max,
            self.ch_axis,
            self.is_per_channel,
            self.is_symmetric_quant,
        )


def _arguments(observer: Any, quant_min: int, quant_max: int, dtype: Any, qscheme: Any, **more: Any) -> dict[str, Any]:
    """Return the constructor arguments as a dict, in the order in which PyTorch prints them."""
    return dict(observer=observer, quant_min=quant_min, quant_max=quant_max, dtype=dtype, qscheme=qscheme, **more)


_ACTIVATION = (0, 255, torch.quint8, torch.per_tensor_affine)
_AVERAGE, _CHANNEL_AVERAGE = MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver
_WEIGHT = _arguments(_AVERAGE, -128, 127, torch.qint8, torch.per_tensor_symmetric)
_CHANNEL_WEIGHT = _arguments(_CHANNEL_AVERAGE, -128, 127, torch.qint8, torch.per_channel_symmetric)
_NARROW = {"quant_min": -127, "quant_max": 127}
_fused = FusedMovingAvgObsFakeQuantize.with_args

default_fake_quant = FakeQuantize.with_args(**_arguments(_AVERAGE, *_ACTIVATION, reduce_range=True))
default_weight_fake_quant = FakeQuantize.with_args(**_WEIGHT, reduce_range=False)
default_dynamic_fake_quant = FakeQuantize.with_args(
    observer=_AVERAGE, quant_min=0, quant_max=255, is_dynamic=True, dtype=torch.quint8, averaging_constant=1
)
default_fixed_qparams_range_neg1to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_neg1to1_observer
)
default_fixed_qparams_range_0to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_0to1_observer
)
default_symmetric_fixed_qparams_fake_quant = default_fixed_qparams_range_neg1to1_fake_quant
default_affine_fixed_qparams_fake_quant = default_fixed_qparams_range_0to1_fake_quant
default_per_channel_weight_fake_quant = FakeQuantize.with_args(**_CHANNEL_WEIGHT, reduce_range=False, ch_axis=0)
default_embedding_fake_quant = FakeQuantize.with_args(
    observer=_CHANNEL_AVERAGE,
    qscheme=torch.per_channel_affine_float_qparams,
    dtype=torch.quint8,
    quant_min=0,
    quant_max=255,
    ch_axis=0,
    averaging_constant=1,
)
default_embedding_fake_quant_4bit = FakeQuantize.with_args(
    observer=_CHANNEL_AVERAGE,
    qscheme=torch.per_channel_affine_float_qparams,
    ch_axis=0,
    dtype=torch.quint4x2,
    averaging_constant=1,
)
default_histogram_fake_quant = FakeQuantize.with_args(**_arguments(HistogramObserver, *_ACTIVATION, reduce_range=True))
default_fused_act_fake_quant = _fused(observer=_AVERAGE, quant_min=0, quant_max=255, dtype=torch.quint8)
default_fused_wt_fake_quant = _fused(**_WEIGHT)
default_fused_per_channel_wt_fake_quant = _fused(**_CHANNEL_WEIGHT)
fused_wt_fake_quant_range_neg_127_to_127 = _fused(**{**_WEIGHT, **_NARROW}, eps=2**-12)
fused_per_channel_wt_fake_quant_range_neg_127_to_127 = _fused(**{**_CHANNEL_WEIGHT, **_NARROW}, eps=2**-12)


def _is_fake_quant_script_module(mod: Any) -> bool:
    """Return whether a module is a compiled fake quantization."""
    made_of = getattr(getattr(mod, "script_type", None), "name", "").rpartition(".")
    known = made_of[0].startswith("__torch__.torch.ao.quantization.fake_quantize")
    return known and made_of[2] in ("FakeQuantize", "FusedMovingAvgObsFakeQuantize")


def _switch(name: str, doc: str) -> Callable[[Module], None]:
    def switch(mod: Module) -> None:
        if isinstance(mod, FakeQuantizeBase) or _is_fake_quant_script_module(mod):
            getattr(mod, name)()

    switch.__name__ = switch.__qualname__ = name
    switch.__doc__ = doc
    return switch


disable_fake_quant = _switch("disable_fake_quant", "Disable fake quantization of a module; for `model.apply`.")
enable_fake_quant = _switch("enable_fake_quant", "Enable fake quantization of a module; for `model.apply`.")
disable_observer = _switch(
    "disable_observer", "Disable the observer of a module, so that scales stay fixed; for `model.apply`."
)
enable_observer = _switch("enable_observer", "Enable the observer of a module; for `model.apply`.")
