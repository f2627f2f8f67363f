"""Linear layers with quantized weights: the input is quantized with a scale that covers its values."""

from __future__ import annotations

from typing import Any

import flambeau as torch

from ...... import nn
from ......core.tensor import Tensor
from ......nn.modules.linear import NonDynamicallyQuantizableLinear
from ......ops.quantizing.operators import quantized as Q
from .... import intrinsic as nni
from ....qat import dynamic as nnqatd
from ... import modules as nnq
from ...modules.utils import _quantize_weight

__all__ = ["Linear"]


class Linear(nnq.Linear):
    """A linear layer from floats to floats with weights of 8 bits (or rounded to float16).

    >>> Linear(20, 30)(torch.randn(8, 20)).shape
    torch.Size([8, 30])
    """

    _version = 4

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = torch.qint8):
        super().__init__(in_features, out_features, bias_, dtype=dtype)
        self.version: int | None = 4

    def forward(self, x: Tensor) -> Tensor:
        packed, kind = self._packed_params._packed_params, self._packed_params.dtype
        if kind == torch.float16:
            return Q.linear_dynamic_fp16(x, packed).to(x.dtype)
        version = self.version
        if version is None or version < 4:  # whose files had codes for the whole range
            return Q.linear_dynamic(x, packed).to(x.dtype)
        return Q.linear_dynamic(x, packed, reduce_range=True).to(x.dtype)

    def _get_name(self) -> str:
        return "DynamicQuantizedLinear"

    def extra_repr(self) -> str:
        kind = self._packed_params.dtype
        text = f"in_features={self.in_features}, out_features={self.out_features}, dtype={kind}"
        return f"{text}, qscheme={self.weight().qscheme()}" if kind is torch.qint8 else text

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *lists: Any
    ) -> None:
        self.version = local_metadata.get("version", None)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, *lists)

    @classmethod
    def _float_modules(cls) -> tuple:
        return (nn.Linear, NonDynamicallyQuantizableLinear, nni.LinearReLU, nnqatd.Linear)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Make the layer from a float one, its weights quantized by the observer of its qconfig."""
        known = cls._float_modules()
        if type(mod) not in known:
            raise AssertionError(
                f"nn.quantized.dynamic.Linear.from_float only works for one of{[k.__name__ for k in known]}, got {type(mod)}"
            )
        if not hasattr(mod, "qconfig"):
            raise AssertionError("Input float module must have qconfig defined")
        if type(mod) is nni.LinearReLU:
            mod = mod[0]
        config = mod.qconfig
        if config is None or config.weight is None:
            config = torch.ao.quantization.default_dynamic_qconfig
        observer = config.weight()
        if observer.dtype not in (torch.qint8, torch.float16):
            raise AssertionError(
                f"The only supported dtypes for dynamic quantized linear are qint8 and float16, got: {observer.dtype}"
            )
        observer(mod.weight)
        half = observer.dtype is torch.float16
        weight = mod.weight.float() if half else _quantize_weight(mod.weight.float(), observer)
        made = cls(mod.in_features, mod.out_features, dtype=observer.dtype)
        made.set_weight_bias(weight, mod.bias)
        return made

    @classmethod
    def from_reference(cls, ref_qlinear: Any) -> Any:  # type: ignore[override]
        """Make the quantized layer from a reference layer."""
        made = cls(ref_qlinear.in_features, ref_qlinear.out_features, dtype=ref_qlinear.weight_dtype)
        made.set_weight_bias(ref_qlinear.get_quantized_weight(), ref_qlinear.bias)
        return made
