"""Granularities of scales, under the names that torchao's and PyTorch's observers share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import flambeau as torch

from ... import nn
from ...core.tensor import Tensor
from .partial import _with_args


class MappingType(Enum):
    """Placement of levels around zero."""

    SYMMETRIC = auto()
    SYMMETRIC_NO_CLIPPING_ERR = auto()
    ASYMMETRIC = auto()


class ZeroPointDomain(Enum):
    """Kind of number that a zero point is."""

    INT = auto()
    FLOAT = auto()
    NONE = auto()


TorchAODType = Enum("TorchAODType", [f"INT{bits}" for bits in range(1, 8)])  # type: ignore[misc]
TorchAODType.__doc__ = "Integers of fewer than eight bits."


@dataclass(frozen=True)
class Granularity:
    """Choice of the elements of a tensor that share a scale."""


@dataclass(frozen=True)
class PerBlock(Granularity):
    """Quantization with one scale for each block of this size."""

    block_size: tuple[int, ...]


@dataclass(frozen=True)
class PerTensor(Granularity):
    """Quantization with one scale for all elements."""


@dataclass(frozen=True)
class PerAxis(Granularity):
    """Quantization with one scale for each index of one dimension."""

    axis: int


@dataclass(frozen=True)
class PerGroup(Granularity):
    """Quantization with one scale for each group of this many adjacent elements of a row."""

    group_size: int


class PerRow(Granularity):
    """Quantization with one scale for each row of the last dimension."""


class PerToken(Granularity):
    """Quantization with one scale for each row of the last dimension, for activations."""


def get_block_size(input_shape: tuple[int, ...], granularity: Granularity) -> tuple[int, ...]:
    """Return the shape of the blocks whose elements share a scale."""
    if not isinstance(granularity, Granularity):
        raise AssertionError("Please provide an instance of Granularity, not subclass of it")
    if isinstance(granularity, PerTensor):
        return input_shape
    if isinstance(granularity, PerAxis):
        axis = granularity.axis % len(input_shape)
        return (*input_shape[:axis], 1, *input_shape[axis + 1 :])
    if isinstance(granularity, (PerRow, PerToken)):
        return (*(1 for _ in input_shape[:-1]), input_shape[-1])
    if isinstance(granularity, PerGroup):
        if len(input_shape) != 2:
            raise AssertionError(
                f"Expecting input shape dim to be 2 for per group quantization, gotinput shape: {input_shape}"
            )
        return (1, granularity.group_size)
    raise ValueError(f"Unsupported Granularity: {granularity}")


class AffineQuantizedObserverBase(ABC, nn.Module):
    """Base of observers for scales of any granularity."""

    with_args = classmethod(_with_args)

    def __init__(
        self,
        mapping_type: MappingType,
        target_dtype: Any,
        granularity: Granularity,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float | None = None,
        scale_dtype: Any = None,
        zero_point_dtype: Any = None,
        preserve_zero: bool = True,
        zero_point_domain: ZeroPointDomain | None = ZeroPointDomain.INT,
        **kwargs: Any,
    ):
        super().__init__()
        if granularity is None:
            raise AssertionError("granularity is None")
        self.mapping_type = mapping_type
        self.target_dtype = target_dtype
        self.granularity = granularity
        self.quant_min = quant_min
        self.quant_max = quant_max
        self.eps = eps
        self.scale_dtype = scale_dtype
        self.zero_point_dtype = zero_point_dtype
        self.preserve_zero = preserve_zero
        self.zero_point_domain = zero_point_domain
        self.block_size: tuple[int, ...] | None = None
        self.original_dtype: torch.dtype | None = None

    @abstractmethod
    def forward(self, input: Tensor) -> Tensor:
        """Observe the values and return them unchanged."""

    @abstractmethod
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Return scale and zero point for the values observed so far."""


for _class in (
    MappingType, ZeroPointDomain, TorchAODType, Granularity, PerBlock, PerTensor, PerAxis, PerGroup, PerRow, PerToken,
    AffineQuantizedObserverBase,
):  # fmt: skip
    _class.__module__ = "flambeau.ao.quantization.observer"  # their name in pickled objects
