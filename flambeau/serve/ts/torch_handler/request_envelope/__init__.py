"""Envelopes of requests: unwrapped before the handler runs, and applied to its answers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np

from .....core.dtype import ALL_DTYPES
from .... import bounded_json
from ...utils.util import PredictionException


def parsed(body: Any) -> Any:
    """Parse a request's body as JSON."""
    if not isinstance(body, (bytes, bytearray, str)):
        return body
    try:
        return bounded_json.loads(body)
    except ValueError as e:
        raise PredictionException(f"The request's body is no JSON: {e}", 400) from e


class BaseEnvelope:
    """Wraps a handler's `handle`: `parse_input` before it, `format_output` after."""

    def __init__(self, handle_fn: Callable[[Any, Any], Any]):
        self._handle_fn = handle_fn
        self.context: Any = None

    def handle(self, data: list[Any], context: Any) -> Any:
        self.context = context
        if data:
            try:
                data = self.parse_input(data)
            except (KeyError, IndexError, TypeError, AttributeError, ValueError) as e:
                raise PredictionException(f"The request is not in the form of {type(self).__name__}: {e!r}", 400) from e
        results = self._handle_fn(data, context)
        return self.format_output(results) if results else results

    def parse_input(self, data: list[Any]) -> list[Any]:
        raise NotImplementedError("an envelope says how a request is unwrapped")

    def format_output(self, data: list[Any]) -> list[Any]:
        raise NotImplementedError("an envelope says how an answer is wrapped")

    def _is_explain(self) -> bool:
        return self.context is not None and self.context.get_request_header(0, "explain") == "True"


class BodyEnvelope(BaseEnvelope):
    """Extract the body (or the field `data`) of each request."""

    def parse_input(self, data: list[Any]) -> list[Any]:
        return [row.get("data") or row.get("body") for row in data]

    def format_output(self, data: list[Any]) -> list[Any]:
        return data


class JSONEnvelope(BaseEnvelope):
    """Join the instances of several requests into one batch, and split the predictions among them."""

    def parse_input(self, data: list[Any]) -> list[Any]:
        rows = [parsed(row.get("data") or row.get("body")) for row in data]
        lists = [row.get("instances", [row]) if isinstance(row, dict) else row for row in rows]
        self._lengths = [len(rows) for rows in lists]
        return list(chain.from_iterable(lists))

    def format_output(self, data: list[Any]) -> list[Any]:
        key = "explanations" if self._is_explain() else "predictions"
        answers, start = [], 0
        for length in self._lengths:
            answers.append({key: data[start : start + length]})
            start += length
        return answers


class KServeEnvelope(BaseEnvelope):
    """Handle a request of instances at a time."""

    def parse_input(self, data: list[Any]) -> list[Any]:
        rows = [parsed(row.get("data") or row.get("body")) for row in data]
        return rows[0]["instances"]

    def format_output(self, data: list[Any]) -> list[Any]:
        return [{"explanations" if self._is_explain() else "predictions": data}]


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


# By the setting's value.
ENVELOPES = {"body": BodyEnvelope, "json": JSONEnvelope, "kserve": KServeEnvelope, "kservev2": KServev2Envelope}
