"""Classic transforms that chain others, or convert between PIL images, arrays and tensors."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import flambeau
from flambeau import Tensor, nn

from . import functional as F

__all__ = [
    "Compose", "ConvertImageDtype", "Lambda", "LinearTransformation", "Normalize", "PILToTensor", "RandomApply",
    "RandomChoice", "RandomOrder", "ToPILImage", "ToTensor",
]  # fmt: skip


def _lines(transforms: Any) -> str:
    return "".join(f"\n    {transform}" for transform in transforms)


class Compose:
    """Transforms one after the other.

    >>> from flambeau.vision import transforms
    >>> transforms.Compose([transforms.CenterCrop(10), transforms.ToTensor()])
    Compose(
        CenterCrop(size=(10, 10))
        ToTensor()
    )
    """

    def __init__(self, transforms: Sequence[Callable[..., Any]]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_lines(self.transforms)}\n)"


class ToTensor:
    """Convert a PIL image or array (H, W, C) of bytes to a float tensor (C, H, W) from 0 to 1."""

    def __call__(self, pic: Any) -> Tensor:
        return F.to_tensor(pic)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class PILToTensor:
    """Convert a PIL image to a tensor (C, H, W) of the same values."""

    def __call__(self, pic: Any) -> Tensor:
        return F.pil_to_tensor(pic)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ConvertImageDtype(nn.Module):
    """Convert an image tensor to another dtype, with its values scaled to that range."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, image: Tensor) -> Tensor:
        return F.convert_image_dtype(image, self.dtype)


class ToPILImage:
    """Convert a tensor (C, H, W) or array (H, W, C) to a PIL image."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, pic: Any) -> Any:
        return F.to_pil_image(pic, self.mode)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.mode is None else f'mode={self.mode}'})"


class Normalize(nn.Module):
    """Normalise every channel: (x - mean) / std."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        super().__init__()
        self.mean = mean
        self.std = std
        self.inplace = inplace

    def forward(self, tensor: Tensor) -> Tensor:
        return F.normalize(tensor, self.mean, self.std, self.inplace)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(mean={self.mean}, std={self.std})"


class Lambda:
    """Transform that applies any function."""

    def __init__(self, lambd: Callable[..., Any]) -> None:
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {repr(type(lambd).__name__)}")
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        return self.lambd(img)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class RandomTransforms:
    """Base of transforms that apply some of a list at random."""

    def __init__(self, transforms: Sequence[Callable[..., Any]]) -> None:
        if not isinstance(transforms, Sequence):
            raise TypeError("Argument transforms should be a sequence")
        self.transforms = transforms

    def __call__(self, *args: Any) -> Any:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_lines(self.transforms)}\n)"


class RandomApply(nn.Module):
    """Transform that applies all of the given ones, or with probability 1 - p none."""

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        super().__init__()
        self.transforms = transforms
        self.p = p

    def forward(self, img: Any) -> Any:
        if np.float32(self.p) < flambeau.rand(1).item():
            return img
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        return f"{type(self).__name__}(\n    p={self.p}{_lines(self.transforms)}\n)"


class RandomOrder(RandomTransforms):
    """Apply the transforms in a random order (by Python's generator)."""

    def __call__(self, img: Any) -> Any:
        order = list(range(len(self.transforms)))
        random.shuffle(order)
        for i in order:
            img = self.transforms[i](img)
        return img


class RandomChoice(RandomTransforms):
    """Apply one of the transforms (by Python's generator), with the probabilities `p` if given."""

    def __init__(self, transforms: Sequence[Callable[..., Any]], p: Sequence[float] | None = None) -> None:
        super().__init__(transforms)
        if p is not None and not isinstance(p, Sequence):
            raise TypeError("Argument p should be a sequence")
        self.p = p

    def __call__(self, *args: Any) -> Any:
        return random.choices(self.transforms, weights=self.p)[0](*args)

    def __repr__(self) -> str:
        return f"{super().__repr__()}(p={self.p})"


class LinearTransformation(nn.Module):
    """Whitening: subtract a mean vector from the flattened image and multiply by a square matrix."""

    def __init__(self, transformation_matrix: Tensor, mean_vector: Tensor) -> None:
        super().__init__()
        check_whitening(transformation_matrix, mean_vector)
        self.transformation_matrix = transformation_matrix
        self.mean_vector = mean_vector

    def forward(self, tensor: Tensor) -> Tensor:
        return whiten(tensor, self.transformation_matrix, self.mean_vector)

    def __repr__(self) -> str:
        matrix, mean = self.transformation_matrix.tolist(), self.mean_vector.tolist()
        return f"{type(self).__name__}(transformation_matrix={matrix}, mean_vector={mean})"


def check_whitening(matrix: Tensor, mean: Tensor) -> None:
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"transformation_matrix should be square. Got {tuple(matrix.shape)} rectangular matrix.")
    if mean.shape[0] != matrix.shape[0]:
        raise ValueError(
            f"mean_vector should have the same length {mean.shape[0]} as any one of the dimensions of the transformation_matrix [{tuple(matrix.shape)}]"
        )
    if matrix.device != mean.device:
        raise ValueError(f"Input tensors should be on the same device. Got {matrix.device} and {mean.device}")
    if matrix.dtype != mean.dtype:
        raise ValueError(f"Input tensors should have the same dtype. Got {matrix.dtype} and {mean.dtype}")


def whiten(tensor: Tensor, matrix: Tensor, mean: Tensor) -> Tensor:
    shape = tensor.shape
    length = shape[-3] * shape[-2] * shape[-1]
    if length != matrix.shape[0]:
        raise ValueError(
            f"Input tensor and transformation matrix have incompatible shape.[{shape[-3]} x {shape[-2]} x {shape[-1]}] != {matrix.shape[0]}"
        )
    if tensor.device != mean.device:
        raise ValueError(
            f"Input tensor should be on the same device as transformation matrix and mean vector. Got {tensor.device} vs {mean.device}"
        )
    flat = tensor.reshape(-1, length) - mean
    return flambeau.mm(flat.to(matrix.dtype), matrix).reshape(shape)
