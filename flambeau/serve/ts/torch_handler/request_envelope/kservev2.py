"""KServe's second protocol (open inference): named tensors in, named tensors out."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau.core.dtype import ALL_DTYPES

from .base import BaseEnvelope, parsed

_NAMES = {d.name: d.name.replace("float", "fp").upper() for d in ALL_DTYPES if d.has_numpy and not d.is_complex}


class KServev2Envelope(BaseEnvelope):
    """Handle a request of named tensors at a time; the answers carry the names of the inputs."""

    def parse_input(self, data: list[Any]) -> list[Any]:
        request = parsed(data[0].get("data") or data[0].get("body"))
        for tensor in request["inputs"]:
            if tensor["datatype"] == "BYTES":
                tensor["data"] = tensor["data"][0]
            else:
                tensor["data"] = np.array(tensor["data"]).reshape(tuple(tensor["shape"])).tolist()
        self._names = [tensor["name"] for tensor in request["inputs"]]
        self._id = (request.get("id") or "").strip() or self.context.get_request_id(0)
        return request["inputs"]

    def format_output(self, data: list[Any]) -> list[Any]:
        model = self.context.manifest["model"]
        outputs = [self._tensor(item, name) for item, name in zip(data, self._names)]
        answer = {"id": self._id, "model_name": model.get("modelName"), "model_version": model.get("modelVersion")}
        return [{**answer, "outputs": outputs}]

    def _tensor(self, data: Any, name: str) -> dict[str, Any]:
        flat = np.array(data).flatten()
        return {
            "name": name,
            "datatype": _NAMES.get(str(flat.dtype), "BYTES"),
            "data": flat.tolist(),
            "shape": list(flat.shape),
        }
