"""MobileNet V3 that can be quantized."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import Tensor, nn

from ...ops.misc import Conv2dNormActivation, SqueezeExcitation
from ..mobilenetv3 import _LARGE, InvertedResidual, MobileNet_V3_Large_Weights, MobileNetV3, _mobilenet_v3
from .utils import Quantizable, builder, fuse, quantized_weights

__all__ = ["MobileNet_V3_Large_QuantizedWeights", "QuantizableMobileNetV3", "mobilenet_v3_large"]


class QuantizableSqueezeExcitation(SqueezeExcitation):
    """Channel gate whose product is a FloatFunctional."""

    _version = 2

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{**kwargs, "scale_activation": nn.Hardsigmoid})
        self.skip_mul = nn.quantized.FloatFunctional()

    def forward(self, input: Tensor) -> Tensor:
        return self.skip_mul.mul(self._scale(input), input)

    def fuse_model(self, is_qat: bool | None = None) -> None:
        fuse(self, ["fc1", "activation"], is_qat)

    def _load_from_state_dict(self, state: Any, prefix: str, about: Any, *rest: Any) -> None:
        """Load a state dict; files of the first version lack the observer of the gate."""
        version = about.get("version")
        if hasattr(self, "qconfig") and (version is None or version < 2):
            gate = f"{prefix}scale_activation.activation_post_process."
            for part in (gate, gate + "activation_post_process."):
                state.setdefault(part + "scale", flambeau.tensor([1.0]))
                state.setdefault(part + "zero_point", flambeau.tensor([0], dtype=flambeau.int32))
            for switch in ("fake_quant_enabled", "observer_enabled"):
                state.setdefault(gate + switch, flambeau.tensor([1]))
        super()._load_from_state_dict(state, prefix, about, *rest)


class QuantizableInvertedResidual(InvertedResidual):
    """Inverted residual block whose sum is a FloatFunctional."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{**kwargs, "se_layer": QuantizableSqueezeExcitation})
        self.skip_add = nn.quantized.FloatFunctional()

    def forward(self, x: Tensor) -> Tensor:
        return self.skip_add.add(x, self.block(x)) if self.use_res_connect else self.block(x)


class QuantizableMobileNetV3(Quantizable, MobileNetV3):
    """MobileNet V3 that can be quantized."""

    def fuse_model(self, is_qat: bool | None = None) -> None:
        """Fuse convolutions, norms and relus, in place."""
        for module in self.modules():
            if type(module) is Conv2dNormActivation:
                relu = len(module) == 3 and type(module[2]) is nn.ReLU
                fuse(module, ["0", "1", "2"] if relu else ["0", "1"], is_qat)
            elif type(module) is QuantizableSqueezeExcitation:
                module.fuse_model(is_qat)


def _model(**kwargs: Any) -> MobileNetV3:
    return _mobilenet_v3(_LARGE, 1280, model=QuantizableMobileNetV3, block=QuantizableInvertedResidual, **kwargs)


(MobileNet_V3_Large_QuantizedWeights,) = quantized_weights("MobileNet_V3_Large")
mobilenet_v3_large = builder(
    "mobilenet_v3_large",
    *(_model, MobileNet_V3_Large_Weights, MobileNet_V3_Large_QuantizedWeights),
    backend="qnnpack",
    by_training=True,
)
