"""Arithmetic operators as modules, so that their results can be observed and quantized."""

from __future__ import annotations

from typing import Any

import flambeau as torch

from ..... import nn
from .....core.tensor import Tensor

__all__ = ["FXFloatFunctional", "FloatFunctional", "QFunctional"]

_NOT_A_LAYER = "{} is not intended to use the 'forward'. Please use the underlying operation"


class FXFloatFunctional(nn.Module):
    """Arithmetic operators as methods without observers, for traced graphs."""

    def forward(self, x: Any) -> Any:
        raise RuntimeError(_NOT_A_LAYER.format("FloatFunctional"))

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.add(x, y)

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        return torch.add(x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.mul(x, y)

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        return torch.mul(x, y)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        return torch.cat(x, dim=dim)

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.relu(torch.add(x, y))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.matmul(x, y)


class FloatFunctional(nn.Module):
    """Operators as methods; each result passes `activation_post_process`. One object for one place in a model.

    >>> self.plus = nn.quantized.FloatFunctional()      # in __init__
    >>> y = self.plus.add(a, b)                         # in forward
    """

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = nn.Identity()

    def forward(self, x: Any) -> Any:
        raise RuntimeError(_NOT_A_LAYER.format("FloatFunctional"))

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self.activation_post_process(torch.add(x, y))

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        return torch.add(x, y)  # a quantized tensor keeps its levels here: nothing to observe

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return self.activation_post_process(torch.mul(x, y))

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        return torch.mul(x, y)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        return self.activation_post_process(torch.cat(x, dim=dim))

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        return self.activation_post_process(nn.functional.relu(torch.add(x, y)))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        return self.activation_post_process(torch.matmul(x, y))


class QFunctional(nn.Module):
    """Quantized counterpart of FloatFunctional: the same operators on quantized tensors, with one scale and zero point for the results."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0
        self.zero_point = 0
        self.activation_post_process = nn.Identity()

    def _save_to_state_dict(self, destination, prefix, keep_vars) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"] = torch.tensor(self.scale)
        destination[prefix + "zero_point"] = torch.tensor(self.zero_point)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, *lists) -> None:
        self.scale = float(state_dict.pop(prefix + "scale"))
        self.zero_point = int(state_dict.pop(prefix + "zero_point"))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, missing_keys, *lists)

    def _get_name(self) -> str:
        return "QFunctional"

    def extra_repr(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}"

    def forward(self, x: Any) -> Any:
        raise RuntimeError(_NOT_A_LAYER.format("Functional"))

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        r = torch.ops.quantized.add(x, y, scale=self.scale, zero_point=self.zero_point)
        return self.activation_post_process(r)

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        return torch.ops.quantized.add_scalar(x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        r = torch.ops.quantized.mul(x, y, scale=self.scale, zero_point=self.zero_point)
        return self.activation_post_process(r)

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        return torch.ops.quantized.mul_scalar(x, y)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        r = torch.ops.quantized.cat(x, scale=self.scale, zero_point=self.zero_point, dim=dim)
        return self.activation_post_process(r)

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        r = torch.ops.quantized.add_relu(x, y, scale=self.scale, zero_point=self.zero_point)
        return self.activation_post_process(r)

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.ops.quantized.matmul(x, y, scale=self.scale, zero_point=self.zero_point)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> QFunctional:
        """Make the module with the scale and zero point of a FloatFunctional's observer."""
        if type(mod) is not FloatFunctional:
            raise AssertionError(
                f"QFunctional.from_float expects an instance of FloatFunctional, got {type(mod).__name__}"
            )
        scale, zero_point = mod.activation_post_process.calculate_qparams()
        made = QFunctional()
        made.scale, made.zero_point = float(scale), int(zero_point)
        return made
