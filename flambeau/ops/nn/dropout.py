"""Dropout and its relatives, with PyTorch's masks for the same seed."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core import random_algorithms as algorithms
from ...core.generator import Generator, default_generator
from ...core.layout import dense_strides
from ...core.size import make_size
from ...core.tensor import Tensor, empty, numel_of
from ..creation.filled import empty_as, fill_raw
from ..machinery.aten_form import aten_parts
from ..machinery.declare import composite, internal, pointwise
from ..machinery.inplace import raw_copy
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor, NewTensors
from ..random.random_fill import fill, store
from ..random.samplers import Bernoulli, KeptElements


def _check(p: Any, error: type[Exception]) -> None:
    if not 0.0 <= p <= 1.0:
        raise error(f"dropout probability has to be between 0 and 1, but got {p}")


def _noise_shape(input: Tensor, features: bool) -> tuple[int, ...]:
    """Return the shape of dropout's noise: a number for each element, or with `features` for each sample and channel."""
    if not features:
        return input.shape
    if len(input.shape) < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return (*input.shape[:2], *(1 for _ in input.shape[2:]))


def _noise(input: Tensor, features: bool) -> Tensor:
    return empty(make_size(_noise_shape(input, True)), input.dtype, input.device) if features else empty_as(input)


def _kept(p: float, input: Tensor) -> float:
    """Return 1 / (1 - p), rounded as arithmetic of the input's dtype does."""
    if not input.dtype.is_floating_point:
        raise RuntimeError(f"result type Float can't be cast to the desired output type {input.dtype.scalar_type}")
    return 1.0 / (1.0 - p) if input.dtype is dt.float64 else float(np.float32(1) / np.float32(1.0 - p))


def dropped(input: Tensor, p: float, train: bool, features: bool, inplace: bool) -> Tensor:
    if p == 0 or not train or numel_of(input.shape) == 0:
        return input
    if p == 1:
        noise = input.new_zeros(())
    else:
        kind = Bernoulli if features else KeptElements
        noise = fill(_noise(input, features), default_generator, kind(1.0 - p, _kept(p, input)))
    return input.mul_(noise) if inplace else input.mul(noise)


@internal(draws=True, batching="each")
def alpha_dropout_noise(input: Tensor, p: float, features: bool, generator: Generator) -> NewTensors:
    """Draw the factors and the addends of alpha_dropout."""
    if features:
        one: tuple[Any, ...] = (_noise_shape(input, True), input.dtype, input.device)
    else:
        one = (input.shape, input.dtype, input.device, dense_strides(input.shape, input._strides))
    return [one, one]


@alpha_dropout_noise.on("cpu")
def _(out: list[Tensor], input: Tensor, p: float, features: bool, generator: Generator) -> None:
    values = algorithms.alpha_dropout_noise(generator, numel_of(out[0].shape), input.dtype, p)
    for t, noise in zip(out, values):
        store(t, noise)


def _alpha_dropped(input: Tensor, p: float, train: bool, features: bool, inplace: bool) -> Tensor:
    if p == 0 or not train or numel_of(input.shape) == 0:
        return input
    if p == 1:
        zero = input.new_zeros(())
        return input.mul_(zero) if inplace else input.mul(zero)
    scale, shift = alpha_dropout_noise(input, p, features, default_generator)
    scaled = input.mul_(scale) if inplace else input.mul(scale)
    return scaled.add_(shift)


# -- flambeau.* -----------------------------------------------------------------------------------------------------------


def _declare(name: str, run: Any, features: bool, batching: str) -> tuple[Any, Any]:
    """Declare name(input, p, train) and name_(input, p, train); return both."""

    def plain(input: Tensor, p: float, train: bool) -> Tensor:
        _check(p, RuntimeError)
        return run(input, p, train, features, False)

    def changed(input: Tensor, p: float, train: bool) -> Tensor:
        _check(p, RuntimeError)
        return run(input, p, train, features, True)

    plain.__doc__ = f"`nn.functional.{name}` with all arguments given."
    changed.__doc__ = f"`{name}` in place."
    declared: dict[str, Any] = {"kind": "random", "method": False, "batching": batching}
    return composite(plain, name=name, **declared), composite(changed, name=name + "_", **declared)


_declare("dropout", dropped, False, "mask")
feature_dropout, feature_dropout_ = _declare("feature_dropout", dropped, True, "channel mask")
_declare("alpha_dropout", _alpha_dropped, False, "noise")
_declare("feature_alpha_dropout", _alpha_dropped, True, "channel noise")


@pointwise(function=False, method=False, inplace=False, out=False)
def native_dropout_backward(grad_output, mask, scale=1.0):
    """The gradient of dropout: that of its result where the mask is set, times scale."""
    return grad_output * mask * scale


@aten_parts("dropout")
def _(aten: Any, input: Tensor, p: float, train: bool) -> Tensor:
    return aten.native_dropout.default(input, p, train)[0] if train and p else aten.clone.default(input)


@aten_parts("dropout_")
def _(aten: Any, input: Tensor, p: float, train: bool) -> Tensor:
    return aten.copy_.default(input, aten.native_dropout.default(input, p, train)[0]) if train and p else input


@internal(
    grads={"input": lambda g, mask, scale: native_dropout_backward(g, mask, scale)},
    quirks=Quirks(label="NativeDropoutBackward0"),
    batching="each",
    sharding="pointwise",
)
def masked_scale(input: Tensor, mask: Tensor, scale: float) -> NewTensor:
    """input * scale where the mask is set, zero elsewhere."""
    return input.shape, input.dtype, input.device, mask._strides


@masked_scale.on("any")
def _(out: Tensor, input: Tensor, mask: Tensor, scale: float) -> None:
    raw_copy(out, input.mul(mask.to(input.dtype).mul_(scale)))


@composite(kind="random", method=False, batching="mask")
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Dropout and its mask: (input * mask / (1 - p), mask). Unlike dropout it always draws when training."""
    if numel_of(input.shape) == 0:
        return input, empty_as(input)
    if train is not None and not train:
        mask = empty_as(input, dt.bool_)
        fill_raw(mask, True)
        return masked_scale(input, mask, 1.0), mask
    _check(p, RuntimeError)
    noise = fill(empty_as(input), default_generator, KeptElements(1.0 - p))  # in the input's dtype: as dropout draws
    mask = noise.to(dt.bool_)
    return masked_scale(input, mask, 1.0 / (1.0 - p) if p < 1 else 0.0), mask


# -- flambeau.nn.functional.* ---------------------------------------------------------------------------------------------

_FUNCTIONAL: dict[str, Any] = {"namespaces": ("nn.functional",), "method": False, "kind": "random"}


@composite(**_FUNCTIONAL, batching="mask", aten="dropout(input, p, training)")
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero elements with probability `p` in training, and scale the others by 1 / (1 - p)."""
    _check(p, ValueError)
    return dropped(input, p, training, False, inplace)


@composite(**_FUNCTIONAL, batching="noise", aten="alpha_dropout(input, p, training)")
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean and variance of normalised inputs, for selu networks."""
    _check(p, ValueError)
    return _alpha_dropped(input, p, training, False, inplace)


@composite(**_FUNCTIONAL, batching="channel noise", aten="feature_alpha_dropout(input, p, training)")
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """alpha_dropout of whole channels."""
    _check(p, ValueError)
    return _alpha_dropped(input, p, training, True, inplace)


def _channels(input: Tensor, p: float, training: bool, inplace: bool, unbatched: bool) -> Tensor:
    """Apply dropout to whole channels, of one sample if there is no batch."""
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    batch = input.unsqueeze(0) if unbatched else input
    result = feature_dropout_(batch, p, training) if inplace else feature_dropout(batch, p, training)
    if unbatched:
        return input if inplace else result.squeeze(0)
    return result


@composite(**_FUNCTIONAL, batching="channel mask")
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of (N, C, L) or (C, L) with probability `p`."""
    rank = input.dim()
    if rank != 2 and rank != 3:  # noqa: PLR1714  as compiled code says it
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {rank}D input. Note that dropout1d exists to provide"
            " channel-wise dropout on inputs with 1 spatial dimension, a channel dimension, and an optional batch"
            " dimension (i.e. 2D or 3D inputs)."
        )
    return _channels(input, p, training, inplace, rank == 2)


def _warn_of_rank(name: str, rank: int, spatial: int) -> None:
    warnings.warn(
        f"{name}: Received a {rank}-D input to {name}, which is deprecated and will result in an error in a future"
        f" release: channels of {spatial + 1}D or {spatial + 2}D inputs are expected. To retain the behavior and silence"
        " this warning, please use dropout instead.",
        stacklevel=4,
    )


@composite(**_FUNCTIONAL, batching="channel mask")
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of (N, C, H, W) with probability `p`. Three dimensions are taken as (N, C, L)."""
    rank = input.dim()
    if rank != 3 and rank != 4:  # noqa: PLR1714
        _warn_of_rank("dropout2d", rank, 2)
    if rank == 3:
        warnings.warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is desired -"
            " input is interpreted as shape (N, C, L), where C is the channel dim. Please use dropout1d instead.",
            stacklevel=3,
        )
    return _channels(input, p, training, inplace, False)


@composite(**_FUNCTIONAL, batching="channel mask")
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of (N, C, D, H, W) or (C, D, H, W) with probability `p`."""
    rank = input.dim()
    if rank != 4 and rank != 5:  # noqa: PLR1714
        _warn_of_rank("dropout3d", rank, 3)
    return _channels(input, p, training, inplace, rank != 5)
