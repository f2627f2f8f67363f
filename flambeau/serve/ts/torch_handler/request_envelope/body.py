"""The plain envelope: the body is the data."""

from __future__ import annotations

from typing import Any

from .base import BaseEnvelope


class BodyEnvelope(BaseEnvelope):
    """Takes the body (or the field `data`) out of each request."""

    def parse_input(self, data: list[Any]) -> list[Any]:
        return [row.get("data") or row.get("body") for row in data]

    def format_output(self, data: list[Any]) -> list[Any]:
        return data
