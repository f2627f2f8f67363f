"""Fake quantization whose scale and zero point are trained parameters."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch

from ...core.tensor import Tensor
from ...jit.marks import export
from ...nn import Parameter
from .fake_quantize import FakeQuantizeBase

__all__: list[str] = []


class _LearnableFakeQuantize(FakeQuantizeBase):
    """Fake quantization whose scale and zero point are first set by an observer (static), then trained (learning)."""

    def __init__(
        self,
        observer: Any,
        quant_min: int = 0,
        quant_max: int = 255,
        scale: float = 1.0,
        zero_point: float = 0.0,
        channel_len: int = -1,
        use_grad_scaling: bool = False,
        **observer_kwargs: Any,
    ):
        super().__init__()
        if quant_min >= quant_max:
            raise AssertionError("quant_min must be strictly less than quant_max.")
        self.quant_min, self.quant_max = quant_min, quant_max
        observer_kwargs.update(quant_min=quant_min, quant_max=quant_max)
        self.use_grad_scaling = use_grad_scaling
        if channel_len != -1 and not (isinstance(channel_len, int) and channel_len > 0):
            raise AssertionError("Channel size must be a positive integer.")
        count = 1 if channel_len == -1 else channel_len
        self.scale = Parameter(torch.tensor([scale] * count))
        self.zero_point = Parameter(torch.tensor([zero_point] * count))
        self.activation_post_process = observer(**observer_kwargs)
        if torch.iinfo(self.activation_post_process.dtype).min > quant_min:
            raise AssertionError("quant_min out of bound")
        if quant_max > torch.iinfo(self.activation_post_process.dtype).max:
            raise AssertionError("quant_max out of bound")
        self.dtype = self.activation_post_process.dtype
        self.qscheme = self.activation_post_process.qscheme
        self.ch_axis = getattr(self.activation_post_process, "ch_axis", -1)
        self.register_buffer("fake_quant_enabled", torch.tensor([1], dtype=torch.uint8))
        self.register_buffer("static_enabled", torch.tensor([1], dtype=torch.uint8))
        self.register_buffer("learning_enabled", torch.tensor([0], dtype=torch.uint8))
        self.bitwidth = int(math.log2(quant_max - quant_min + 1))
        self.register_buffer("eps", torch.tensor([torch.finfo(torch.float32).eps]))

    def _set_modes(self, learning: bool, rounding: bool, observing: bool) -> None:
        self.toggle_qparam_learning(learning)
        self.toggle_fake_quant(rounding)
        self.toggle_observer_update(observing)

    @export
    def enable_param_learning(self) -> _LearnableFakeQuantize:
        """Train scale and zero point; the observer is switched off."""
        self._set_modes(True, True, False)
        return self

    @export
    def enable_static_estimate(self) -> None:
        """Let the observer set scale and zero point, and round values."""
        self._set_modes(False, True, True)

    @export
    def enable_static_observation(self) -> None:
        """Let the observer set scale and zero point; values are not rounded."""
        self._set_modes(False, False, True)

    @export
    def toggle_observer_update(self, enabled: bool = True) -> _LearnableFakeQuantize:
        self.static_enabled[0] = int(enabled)
        return self

    @export
    def enable_observer(self, enabled: bool = True) -> None:
        self.toggle_observer_update(enabled)

    @export
    def toggle_qparam_learning(self, enabled: bool = True) -> _LearnableFakeQuantize:
        self.learning_enabled[0] = int(enabled)
        self.scale.requires_grad = enabled
        self.zero_point.requires_grad = enabled
        return self

    @export
    def toggle_fake_quant(self, enabled: bool = True) -> _LearnableFakeQuantize:
        self.fake_quant_enabled[0] = int(enabled)
        return self

    @export
    def observe_quant_params(self) -> None:
        """Print the scale and the zero point."""
        print(f"_LearnableFakeQuantize Scale: {self.scale.detach()}")
        print(f"_LearnableFakeQuantize Zero Point: {self.zero_point.detach()}")

    @export
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        self.scale.data.clamp_(min=self.eps.item())
        zero_point = self.zero_point.detach().round().clamp(self.quant_min, self.quant_max).long()
        return self.scale.detach(), zero_point

    def forward(self, X: Tensor) -> Tensor:
        if self.static_enabled[0] == 1:
            self.activation_post_process(X.detach())
            scale, zero_point = self.activation_post_process.calculate_qparams()
            self.scale.data.copy_(scale)
            self.zero_point.data.copy_(zero_point)
        else:
            self.scale.data.clamp_(min=self.eps.item())
        if self.fake_quant_enabled[0] != 1:
            return X
        if self.qscheme in (torch.per_channel_symmetric, torch.per_tensor_symmetric):
            self.zero_point.data.zero_()
        factor = 1.0 / (X.numel() * self.quant_max) ** 0.5 if self.use_grad_scaling else 1.0
        limits = (self.quant_min, self.quant_max, factor)
        if self.qscheme in (torch.per_channel_symmetric, torch.per_channel_affine):
            return torch._fake_quantize_learnable_per_channel_affine(
                X, self.scale, self.zero_point, self.ch_axis, *limits
            )
        return torch._fake_quantize_learnable_per_tensor_affine(X, self.scale, self.zero_point, *limits)
