"""Conversion of all parameters to one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from ...core.device import device
from ...core.tensor import Tensor
from ...ops.shape.joining import cat


def _check_same_device(parameter: Tensor, first: device | None) -> device:
    if first is not None and parameter.device != first:
        raise TypeError(
            f"Found two parameters on different devices, this is currently not supported: {first} and"
            f" {parameter.device}."
        )
    return parameter.device


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Return the elements of all parameters, concatenated."""
    where: device | None = None
    pieces = []
    for parameter in parameters:
        where = _check_same_device(parameter, where)
        pieces.append(parameter.view(-1))
    return cat(pieces)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Set the parameters to consecutive parts of a vector (as views of it)."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__module__}.{type(vec).__name__}")
    where: device | None = None
    start = 0
    for parameter in parameters:
        where = _check_same_device(parameter, where)
        count = parameter.numel()
        parameter.data = vec[start : start + count].view_as(parameter).data
        start += count
