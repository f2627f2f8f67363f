"""Numbers to numbers: the handler of models that take and give plain tensors."""

from __future__ import annotations

import json
from typing import Any

import flambeau as torch

from .base_handler import BaseHandler


class TensorHandler(BaseHandler):
    """Each request is one example: nested lists, as JSON, alone or as `data`. The answer is the model's output for it."""

    def preprocess(self, data: list[Any]) -> Any:
        rows = []
        for row in data:
            value = row.get("data") if "data" in row else row.get("body")
            if isinstance(value, (bytes, bytearray, str)):
                value = json.loads(value)
            if isinstance(value, dict):
                value = value.get("data", value.get("instances"))
            rows.append(torch.tensor(value, dtype=torch.float32))
        return torch.stack(rows).to(self.device)

    def inference(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        """The model's first output; .onnx files are sessions of onnxruntime, which take NumPy's arrays by name."""
        if callable(self.model):
            output = super().inference(data, *args, **kwargs)
        else:
            output = self.model.run(None, {self.model.get_inputs()[0].name: data.cpu().numpy()})
        return output[0] if isinstance(output, (tuple, list)) else output
