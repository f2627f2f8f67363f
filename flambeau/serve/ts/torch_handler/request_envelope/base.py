"""Base of all request envelopes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .... import bounded_json
from ...utils.util import PredictionException


def parsed(body: Any) -> Any:
    """A request's body as JSON values."""
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
