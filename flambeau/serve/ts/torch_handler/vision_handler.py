"""Base of the image handlers."""

from __future__ import annotations

import base64
import io
from typing import Any

import flambeau as torch

from ..handler_utils.timer import timed
from .attribution import integrated_gradients
from .base_handler import BaseHandler
from .inputs import InvalidInput

# Pillow's own errors for what is no image are OSErrors; an image of too many pixels and damaged ones raise the others.
_BAD_PICTURES = (OSError, ValueError, TypeError, SyntaxError, RuntimeError, OverflowError)


def _pillow() -> Any:
    try:
        from PIL import Image  # noqa: PLC0415  an optional package
    except ImportError as e:
        raise RuntimeError("handlers of images need Pillow: pip install flambeau[vision]") from e
    return Image


class VisionHandler(BaseHandler):
    """Handler of images: encoded, as base64 text, or as nested lists of numbers; `image_processing` converts an image to a tensor."""

    image_processing: Any = None

    def initialize(self, context: Any) -> None:
        super().initialize(context)
        if not context.system_properties.get("limit_max_image_pixels"):
            _pillow().MAX_IMAGE_PIXELS = None

    @timed
    def preprocess(self, data: list[Any]) -> Any:
        self._from_request = True
        images = [self._image(row.get("data") or row.get("body")) for row in data]
        if any(image.shape != images[0].shape for image in images):
            raise InvalidInput("These pictures do not fit into one batch.")  # `_answers` takes them one by one
        return torch.stack(images).to(self.device)

    def _image(self, image: Any) -> Any:
        try:
            if isinstance(image, str):
                image = base64.b64decode(image)
            if isinstance(image, (bytes, bytearray, memoryview)):
                return self.image_processing(_pillow().open(io.BytesIO(image)))
            return torch.tensor(image, dtype=torch.float32)
        except _BAD_PICTURES as e:
            raise InvalidInput(f"The request has no picture that can be read: {e}") from e

    def example(self) -> tuple[str, str] | None:
        """Return a small example image in base64."""
        file = io.BytesIO()
        _pillow().new("RGB", (8, 8), (200, 120, 40)).save(file, "PNG")
        return "text/plain", base64.b64encode(file.getvalue()).decode("ascii")

    def get_insights(self, tensor_data: Any, raw_data: Any, target: int = 0) -> Any:
        """Return the attribution of each input element for the class `target`."""
        return integrated_gradients(self.model, tensor_data, target).tolist()
