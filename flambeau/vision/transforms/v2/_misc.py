"""Transforms of values, dtypes, types and frames."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import flambeau
from flambeau import Tensor

from ....utils.pillow import is_pil
from ...tv_tensors import Image, TVTensor, Video
from ...tv_tensors._base import plain
from .. import draws
from ..basic import check_whitening, whiten
from . import functional as F
from ._transform import Transform, has_any, number_or_pair, setup_size

__all__ = [
    "ConvertImageDtype", "GaussianBlur", "GaussianNoise", "Identity", "Lambda", "LinearTransformation", "Normalize",
    "PILToTensor", "ToDtype", "ToImage", "ToPILImage", "ToPureTensor", "ToTensor", "UniformTemporalSubsample",
]  # fmt: skip


class Identity(Transform):
    """Return the input unchanged."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return inpt


class Lambda(Transform):
    """Apply any function to inputs of the given types."""

    _transformed_types = (object,)

    def __init__(self, lambd: Callable[[Any], Any], *types: type) -> None:
        super().__init__()
        self.lambd = lambd
        self.types = types or self._transformed_types

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return self.lambd(inpt) if isinstance(inpt, self.types) else inpt

    def extra_repr(self) -> str:
        name = getattr(self.lambd, "__name__", "")
        types = f"types={[kind.__name__ for kind in self.types]}"
        return f"{name}, {types}" if name else types


class LinearTransformation(Transform):
    """Whitening: subtract a mean vector from the flattened image and multiply by a square matrix."""

    _transformed_types = (F.is_pure_tensor, Image, Video)

    def __init__(self, transformation_matrix: Tensor, mean_vector: Tensor) -> None:
        super().__init__()
        check_whitening(transformation_matrix, mean_vector)
        self.transformation_matrix = transformation_matrix
        self.mean_vector = mean_vector

    def check_inputs(self, flat_inputs: list[Any]) -> None:
        if has_any(flat_inputs, is_pil):
            raise TypeError(f"{type(self).__name__}() does not support PIL images.")

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        output = whiten(plain(inpt), self.transformation_matrix, self.mean_vector)
        return type(inpt).wrap(output, inpt) if isinstance(inpt, TVTensor) else output


class Normalize(Transform):
    """Normalise every channel of images and videos: (x - mean) / std."""

    _functional = staticmethod(F.normalize)
    _options = ("mean", "std", "inplace")

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        super().__init__()
        self.mean = list(mean)
        self.std = list(std)
        self.inplace = inplace

    def check_inputs(self, flat_inputs: list[Any]) -> None:
        if has_any(flat_inputs, is_pil):
            raise TypeError(f"{type(self).__name__}() does not support PIL images.")


class GaussianBlur(Transform):
    """Blur with a random standard deviation."""

    _functional = staticmethod(F.gaussian_blur)
    _options = ("kernel_size",)

    def __init__(self, kernel_size: Any, sigma: Any = (0.1, 2.0)) -> None:
        super().__init__()
        self.kernel_size = setup_size(kernel_size, "Kernel size should be a tuple/list of two integers")
        for size in self.kernel_size:
            if size <= 0 or size % 2 == 0:
                raise ValueError("Kernel size value should be an odd and positive number.")
        self.sigma = number_or_pair(sigma, "sigma")
        if not 0.0 < self.sigma[0] <= self.sigma[1]:
            raise ValueError(f"sigma values should be positive and of the form (min, max). Got {self.sigma}")

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        sigma = draws.uniform(self.sigma[0], self.sigma[1])
        return {"sigma": [sigma, sigma]}


class GaussianNoise(Transform):
    """Add normal noise."""

    _functional = staticmethod(F.gaussian_noise)
    _options = ("mean", "sigma", "clip")

    def __init__(self, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> None:
        super().__init__()
        self.mean = mean
        self.sigma = sigma
        self.clip = clip


class ToDtype(Transform):
    """Convert the dtype of images and videos, or of each kind by a dict; with `scale`, values are scaled to the range of the dtype."""

    _transformed_types = (Tensor,)

    def __init__(self, dtype: Any, scale: bool = False) -> None:
        super().__init__()
        if not isinstance(dtype, (dict, flambeau.dtype)):
            raise ValueError(f"dtype must be a dict or a torch.dtype, got {type(dtype)} instead")
        if isinstance(dtype, dict) and Tensor in dtype and any(kind in dtype for kind in (Image, Video)):
            warnings.warn(
                "Got `dtype` values for `torch.Tensor` and either `tv_tensors.Image` or `tv_tensors.Video`. Note that a plain `torch.Tensor` will *not* be transformed by this (or any other transformation) in case a `tv_tensors.Image` or `tv_tensors.Video` is present in the input.",
                stacklevel=2,
            )
        self.dtype = dtype
        self.scale = scale

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        is_image = F.is_pure_tensor(inpt) or isinstance(inpt, (Image, Video))
        dtype = self.dtype
        if isinstance(dtype, dict):
            kind = type(inpt)
            if kind in dtype:
                dtype = dtype[kind]
            elif "others" in dtype:
                dtype = dtype["others"]
            else:
                raise ValueError(
                    f'No dtype was specified for type {kind}. If you only need to convert the dtype of images or videos, you can just pass e.g. dtype=torch.float32. If you\'re passing a dict as dtype, you can use "others" as a catch-all key e.g. dtype={{tv_tensors.Mask: torch.int64, "others": None}} to pass-through the rest of the inputs.'
                )
        elif not is_image:
            return inpt
        if dtype is None:
            if self.scale and is_image:
                warnings.warn(
                    "scale was set to True but no dtype was specified for images or videos: no scaling will be done.",
                    stacklevel=2,
                )
            return inpt
        return self._call_kernel(F.to_dtype, inpt, dtype=dtype, scale=self.scale)


class ConvertImageDtype(Transform):
    """Convert images and videos to another dtype, with their values scaled to its range."""

    def __init__(self, dtype: Any = flambeau.float32) -> None:
        super().__init__()
        self.dtype = dtype

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return self._call_kernel(F.to_dtype, inpt, dtype=self.dtype, scale=True)


class PILToTensor(Transform):
    """Convert PIL images to tensors without scaling."""

    _functional = staticmethod(F.pil_to_tensor)
    _transformed_types = (is_pil,)


class ToImage(Transform):
    """Convert tensors, arrays and PIL images to `tv_tensors.Image`."""

    _functional = staticmethod(F.to_image)
    _transformed_types = (F.is_pure_tensor, is_pil, np.ndarray)


class ToPILImage(Transform):
    """Convert tensors and arrays to PIL images."""

    _functional = staticmethod(F.to_pil_image)
    _options = ("mode",)
    _transformed_types = (F.is_pure_tensor, Image, np.ndarray)

    def __init__(self, mode: str | None = None) -> None:
        super().__init__()
        self.mode = mode


class ToPureTensor(Transform):
    """Convert TVTensors to plain tensors."""

    _transformed_types = (TVTensor,)

    def transform(self, inpt: Any, params: dict[str, Any]) -> Tensor:
        return plain(inpt)


class ToTensor(Transform):
    """Convert PIL images and arrays to float tensors from 0 to 1. Prefer ToImage and ToDtype(scale=True)."""

    _functional = staticmethod(F.to_tensor)
    _transformed_types = (is_pil, np.ndarray)

    def __init__(self) -> None:
        warnings.warn(
            "The transform `ToTensor()` is deprecated and will be removed in a future release. Instead, please use `v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])`.Output is equivalent up to float precision.",
            stacklevel=2,
        )
        super().__init__()


class UniformTemporalSubsample(Transform):
    """Select frames of a video at equal distances."""

    _functional = staticmethod(F.uniform_temporal_subsample)
    _options = ("num_samples",)
    _transformed_types = (F.is_pure_tensor, Video)

    def __init__(self, num_samples: int) -> None:
        super().__init__()
        self.num_samples = num_samples
