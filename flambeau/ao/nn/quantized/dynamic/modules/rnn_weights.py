"""Weights of recurrent layers, quantized and packed for matrix products."""

from __future__ import annotations

from typing import Any

import flambeau as torch

from ...... import nn
from ......core.tensor import Tensor
from ......ops.quantizing.operators import quantized as Q
from ...modules.utils import _quantize_weight


def pack_weight_bias(qweight: Tensor, bias: Any, dtype: Any) -> Any:
    """Pack a weight and a bias for matrix products: a quantized weight, or a float one that is rounded to float16."""
    return (Q.linear_prepack if dtype is torch.qint8 else Q.linear_prepack_fp16)(qweight, bias)


def cell_weights(packed_ih: Any, packed_hh: Any, b_ih: Any, b_hh: Any, dtype: Any, version: int | None) -> Any:
    """Return the packed weights of one layer in one direction. Since version 2 inputs use half of the quantized range."""
    if dtype is not torch.qint8:
        return Q.make_quantized_cell_params_fp16(packed_ih, packed_hh)
    return Q.make_quantized_cell_params_dynamic(packed_ih, packed_hh, b_ih, b_hh, (version or 1) >= 2)


def observer_of(mod: Any) -> Any:
    config = mod.qconfig
    if config is None or config.weight is None:
        config = torch.ao.quantization.default_dynamic_qconfig
    dtype = config.weight().dtype
    if dtype not in (torch.qint8, torch.float16):
        raise RuntimeError(f"Unsupported dtype for dynamic RNN quantization: {dtype}")
    return config.weight, dtype


def packed_weight(weight: Tensor, bias: Any, make_observer: Any, dtype: Any) -> Any:
    if dtype is torch.qint8:
        observer = make_observer()
        observer(weight)
        weight = _quantize_weight(weight.float(), observer)
    else:
        weight = weight.float()
    return pack_weight_bias(weight, bias, dtype)


class PackedParameter(nn.Module):
    """Holds the packed weights of one layer in one direction."""

    def __init__(self, param: Any):
        super().__init__()
        self.param = param

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "param"] = self.param

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *lists: Any
    ) -> None:
        self.param = state_dict[prefix + "param"]
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, *lists)
