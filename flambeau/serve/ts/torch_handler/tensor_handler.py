"""Handler of models that take and return plain tensors."""

from __future__ import annotations

from .base_handler import BaseHandler


class TensorHandler(BaseHandler):
    """Handler of tensors. Each request is one example: nested lists, as JSON, or an object with a value for each input of the model. The
    answer is the model's (first) output for it."""
