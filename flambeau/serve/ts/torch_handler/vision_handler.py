"""What the handlers of images share."""

from __future__ import annotations

import base64
import io
from typing import Any

import flambeau as torch

from ..handler_utils.timer import timed
from .attribution import integrated_gradients
from .base_handler import BaseHandler


def _pillow() -> Any:
    try:
        from PIL import Image  # noqa: PLC0415  an optional package
    except ImportError as e:
        raise RuntimeError("handlers of images need Pillow: pip install flambeau[vision]") from e
    return Image


class VisionHandler(BaseHandler):
    """Takes an encoded picture, its base64 text, or nested lists of numbers; `image_processing` makes a tensor of a picture."""

    image_processing: Any = None

    def initialize(self, context: Any) -> None:
        super().initialize(context)
        if not context.system_properties.get("limit_max_image_pixels"):
            _pillow().MAX_IMAGE_PIXELS = None

    @timed
    def preprocess(self, data: list[Any]) -> Any:
        return torch.stack([self._image(row.get("data") or row.get("body")) for row in data]).to(self.device)

    def _image(self, image: Any) -> Any:
        if isinstance(image, str):
            image = base64.b64decode(image)
        if isinstance(image, (bytes, bytearray, memoryview)):
            return self.image_processing(_pillow().open(io.BytesIO(image)))
        return torch.tensor(image, dtype=torch.float32)

    def get_insights(self, tensor_data: Any, raw_data: Any, target: int = 0) -> Any:
        """How much each number of the input counts for the class `target`."""
        return integrated_gradients(self.model, tensor_data, target).tolist()
