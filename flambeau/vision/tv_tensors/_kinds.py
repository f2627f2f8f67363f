"""Images, videos, masks and key points."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import Tensor

from ...utils.pillow import is_pil, pil_array
from ._base import TVTensor


def _from_pil(data: Any) -> Any:
    """Convert a PIL image to a (C, H, W) tensor; return other inputs unchanged."""
    if not is_pil(data):
        return data
    return flambeau.from_numpy(pil_array(data)).permute(2, 0, 1).contiguous()


class Image(TVTensor):
    """An image, or a batch of images, (..., C, H, W). A 2-D tensor gets one channel; a PIL image is converted.

    >>> flambeau.vision.tv_tensors.Image(flambeau.zeros(4, 5)).shape
    torch.Size([1, 4, 5])
    """

    def __new__(cls, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool | None = None) -> Image:
        tensor = cls._to_tensor(_from_pil(data), dtype=dtype, device=device, requires_grad=requires_grad)
        if tensor.ndim < 2:
            raise ValueError(f"Tensor must be 2D or higher, got {tensor.ndim}D tensor.")
        if tensor.ndim == 2:
            tensor = tensor.unsqueeze(0)
        return cls._of(tensor)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return self._make_repr()


class Video(TVTensor):
    """A video, or a batch of videos, (..., T, C, H, W)."""

    def __new__(cls, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool | None = None) -> Video:
        tensor = cls._to_tensor(data, dtype=dtype, device=device, requires_grad=requires_grad)
        if tensor.ndim < 4:
            raise ValueError(f"Expected a video of shape (..., T, C, H, W), got a {tensor.ndim}D tensor")
        return cls._of(tensor)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return self._make_repr()


class Mask(TVTensor):
    """Segmentation or detection masks, (..., H, W): whole numbers that must never be blended."""

    def __new__(cls, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool | None = None) -> Mask:
        return cls._of(cls._to_tensor(_from_pil(data), dtype=dtype, device=device, requires_grad=requires_grad))


class KeyPoints(TVTensor):
    """Points (..., 2) as x and y on a canvas of height and width `canvas_size`."""

    canvas_size: tuple[int, int]

    def __new__(
        cls,
        data: Any,
        *,
        canvas_size: tuple[int, int],
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool | None = None,
    ) -> KeyPoints:
        tensor: Tensor = cls._to_tensor(data, dtype=dtype, device=device, requires_grad=requires_grad)
        if tensor.ndim == 1:
            tensor = tensor.unsqueeze(0)
        if tensor.shape[-1] != 2:
            raise ValueError(f"Expected a tensor of shape (..., 2), not {tensor.shape}")
        return cls._of(tensor, canvas_size=canvas_size)

    @classmethod
    def _detail_names(cls) -> tuple[str, ...]:
        return ("canvas_size",)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return self._make_repr(canvas_size=self.canvas_size)
