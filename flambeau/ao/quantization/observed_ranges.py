"""Observers that find a scale and a zero point from the range of the values that pass through them."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Any

import flambeau as torch

from ... import nn
from ...core.dtype import dtype as _dtype
from ...core.tensor import Tensor
from ...jit.marks import export
from ...nn.modules.settings import extending
from .partial import _with_args, _with_callable_args
from .utils import calculate_qmin_qmax, is_per_channel, is_per_tensor, scale_and_zero_point, validate_qmin_qmax

EPS = torch.finfo(torch.float32).eps
_SCHEMES = (
    torch.per_tensor_affine, torch.per_tensor_symmetric, torch.per_channel_affine, torch.per_channel_symmetric,
    torch.per_channel_affine_float_qparams,
)  # fmt: skip
_DTYPES = (
    torch.qint8, torch.quint8, torch.quint4x2, torch.qint32, torch.int8, torch.uint8, torch.int16, torch.int32,
    torch.float8_e5m2, torch.float8_e4m3fn, torch.uint16,
)  # fmt: skip


class ObserverBase(ABC, nn.Module):
    """Base of observers: modules that return their input unchanged and record statistics of it."""

    def __init__(self, dtype: Any, is_dynamic: bool = False):
        super().__init__()
        self.dtype = dtype
        self.is_dynamic = is_dynamic

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Observe the values and return them unchanged."""

    @abstractmethod
    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Return scale and zero point for the values observed so far."""

    with_args = classmethod(_with_args)
    with_callable_args = classmethod(_with_callable_args)


class UniformQuantizationObserverBase(ObserverBase):
    """Base of observers for uniform quantization: holds dtype, scheme and limits, and computes scale and zero point of a range."""

    _version = 3  # 2: eps is a buffer; 3: min_val and max_val are called so and have no dimension before use
    eps: Tensor

    def __init__(
        self,
        dtype: _dtype = torch.quint8,
        qscheme: Any = torch.per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[Any, Any] | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        factory_kwargs = nn.factory_kwargs(factory_kwargs)
        super().__init__(dtype=dtype, is_dynamic=is_dynamic, **kwargs)
        self.qscheme = qscheme
        if reduce_range:
            warnings.warn(
                "Please use quant_min and quant_max to specify the range for observers. "
                "                    reduce_range will be deprecated in a future release of PyTorch.",
                stacklevel=2,
            )
        self.reduce_range = reduce_range
        self.register_buffer("eps", torch.tensor([eps], **factory_kwargs))
        if self.qscheme not in _SCHEMES:
            raise AssertionError(
                "Default Observer only works for per_tensor_affine, per_tensor_symmetric, "
                "per_channel_affine, per_channel_symmetric and per_channel_float_qparams quantization scheme"
            )
        if self.dtype not in _DTYPES:
            raise AssertionError(f"Default Observer only works for {_DTYPES} data type")
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        if quant_min is not None and quant_max is not None:
            validate_qmin_qmax(quant_min, quant_max)
        self.quant_min, self.quant_max = calculate_qmin_qmax(
            quant_min, quant_max, self.has_customized_qrange, self.dtype, self.reduce_range
        )

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, *lists) -> None:
        if local_metadata.get("version", None) in (None, 1):
            state_dict[prefix + "eps"] = torch.tensor([EPS])
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, *lists)

    @export
    def _validate_qmin_qmax(self, quant_min: int, quant_max: int) -> None:
        validate_qmin_qmax(quant_min, quant_max)

    @export
    def _calculate_qparams(self, min_val: Tensor, max_val: Tensor) -> tuple[Tensor, Tensor]:
        return scale_and_zero_point(
            min_val,
            max_val,
            self.quant_min,
            self.quant_max,
            self.dtype,
            self.eps,
            self.has_customized_qrange,
            self.qscheme,
        )

    @export
    def reset_min_max_vals(self) -> None:
        raise NotImplementedError("Cannot reset min/max values in the given observer.")

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


_ObserverBase = UniformQuantizationObserverBase


class MinMaxObserver(UniformQuantizationObserverBase):
    """Observer of the smallest and the largest value of all tensors."""

    min_val: Tensor
    max_val: Tensor

    @extending(UniformQuantizationObserverBase)
    def __init__(self, **settings: Any) -> None:
        if not is_per_tensor(settings["qscheme"]):
            raise NotImplementedError(
                "MinMaxObserver's qscheme only support torch.per_tensor_symmetric "
                "                    and torch.per_tensor_affine."
            )
        super().__init__(**settings)
        factory_kwargs = nn.factory_kwargs(settings["factory_kwargs"])
        self.register_buffer("min_val", torch.tensor(float("inf"), **factory_kwargs))
        self.register_buffer("max_val", torch.tensor(float("-inf"), **factory_kwargs))
        if self.qscheme == torch.per_tensor_symmetric and self.reduce_range and self.dtype == torch.quint8:
            raise NotImplementedError(
                "Cannot reduce range for symmetric                                        quantization for quint8"
            )

    def forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel() == 0:
            return x_orig
        low, high = torch.aminmax(x_orig.detach().to(self.min_val.dtype))
        self.min_val.copy_(torch.min(low, self.min_val))
        self.max_val.copy_(torch.max(high, self.max_val))
        return x_orig

    @export
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        return self._calculate_qparams(self.min_val, self.max_val)

    @export
    def reset_min_max_vals(self) -> None:
        """Reset the observed range."""
        self.min_val.copy_(torch.tensor(float("inf")))
        self.max_val.copy_(torch.tensor(float("-inf")))


def _moving_average(average: Tensor, now: Tensor, constant: float) -> Tensor:
    return average + constant * (now - average)


class MovingAverageMinMaxObserver(MinMaxObserver):
    """Observer of moving averages of each tensor's smallest and largest value."""

    @extending(MinMaxObserver, before="dtype", without=("factory_kwargs",))
    def __init__(self, averaging_constant: float = 0.01, **settings: Any) -> None:
        if not is_per_tensor(settings["qscheme"]):
            raise NotImplementedError(
                "MovingAverageMinMaxObserver's qscheme only support                 torch.per_tensor_symmetric and "
                f"torch.per_tensor_affine.                 but got: {settings['qscheme']}"
            )
        if settings["is_dynamic"] and averaging_constant != 1:
            raise NotImplementedError(
                f"MovingAverageMinMaxObserver doesn't support dynamic quantization for averaging constant of {averaging_constant}"
            )
        super().__init__(**settings)
        self.averaging_constant = averaging_constant

    def forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel() == 0:
            return x_orig
        low, high = torch.aminmax(x_orig.detach().to(self.min_val.dtype))
        if not (self.min_val == float("inf") and self.max_val == float("-inf")):
            low = _moving_average(self.min_val, low, self.averaging_constant)
            high = _moving_average(self.max_val, high, self.averaging_constant)
        self.min_val.copy_(low)
        self.max_val.copy_(high)
        return x_orig


class PerChannelMinMaxObserver(UniformQuantizationObserverBase):
    """Observer of the smallest and the largest value of each channel."""

    min_val: Tensor
    max_val: Tensor

    @extending(UniformQuantizationObserverBase, before="dtype", qscheme=torch.per_channel_affine)
    def __init__(self, ch_axis: int = 0, **settings: Any) -> None:
        name = (
            type(self).__name__ if type(self) is MovingAveragePerChannelMinMaxObserver else "PerChannelMinMaxObserver"
        )
        if not is_per_channel(settings["qscheme"]):
            raise NotImplementedError(
                f"{name}'s qscheme only support                     torch.per_channel_symmetric, "
                "torch.per_channel_affine and torch.per_channel_affine_float_qparams."
            )
        if settings["is_dynamic"]:
            raise NotImplementedError(f"{name} doesn't support dynamic quantization")
        super().__init__(**settings)
        factory_kwargs = nn.factory_kwargs(settings["factory_kwargs"])
        self.ch_axis = ch_axis
        self.register_buffer("min_val", torch.tensor([], **factory_kwargs))
        self.register_buffer("max_val", torch.tensor([], **factory_kwargs))
        if self.qscheme == torch.per_channel_symmetric and self.reduce_range and self.dtype == torch.quint8:
            raise NotImplementedError("Cannot reduce range for symmetric quantization for quint8")

    def forward(self, x_orig: Tensor) -> Tensor:
        return self._forward(x_orig)

    def _combine(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return torch.min(low, self.min_val), torch.max(high, self.max_val)

    def _forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel() == 0:
            return x_orig
        x = x_orig.detach().to(self.min_val.dtype).transpose(0, self.ch_axis)
        low, high = torch.aminmax(x.reshape(x.shape[0], -1), dim=1)
        if self.min_val.numel() > 0 and self.max_val.numel() > 0:
            low, high = self._combine(low, high)
        self.min_val.resize_(low.shape)
        self.max_val.resize_(high.shape)
        self.min_val.copy_(low)
        self.max_val.copy_(high)
        return x_orig

    @export
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        return self._calculate_qparams(self.min_val, self.max_val)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, *lists) -> None:
        version = local_metadata.get("version")
        former = "s" if version is not None and version < 3 else ""
        for name in ("min_val", "max_val"):
            key = prefix + name + former
            if key in state_dict:
                getattr(self, name).resize_(state_dict[key].shape)
            elif strict:
                missing_keys.append(key)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, missing_keys, *lists)

    @export
    def reset_min_max_vals(self) -> None:
        """Reset the observed ranges."""
        self.min_val = torch.rand(0)
        self.max_val = torch.rand(0)


class MovingAveragePerChannelMinMaxObserver(PerChannelMinMaxObserver):
    """Observer of moving averages of each channel's smallest and largest value."""

    @extending(PerChannelMinMaxObserver, before="ch_axis", without=("factory_kwargs",))
    def __init__(self, averaging_constant: float = 0.01, **settings: Any) -> None:
        super().__init__(**settings)
        self.averaging_constant = averaging_constant

    def _combine(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        constant = self.averaging_constant
        return _moving_average(self.min_val, low, constant), _moving_average(self.max_val, high, constant)


for _kind in (
    ObserverBase, UniformQuantizationObserverBase, MinMaxObserver, MovingAverageMinMaxObserver, PerChannelMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
):  # fmt: skip
    _kind.__module__ = "flambeau.ao.quantization.observer"  # their name in pickled objects
