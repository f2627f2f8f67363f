"""KServe's first protocol: {"instances": [...]} in, {"predictions": [...]} out."""

from __future__ import annotations

from typing import Any

from .base import BaseEnvelope, parsed


class KServeEnvelope(BaseEnvelope):
    """Handle a request of instances at a time."""

    def parse_input(self, data: list[Any]) -> list[Any]:
        rows = [parsed(row.get("data") or row.get("body")) for row in data]
        return rows[0]["instances"]

    def format_output(self, data: list[Any]) -> list[Any]:
        return [{"explanations" if self._is_explain() else "predictions": data}]
