"""The JSON envelope: {"instances": [...]} in, {"predictions": [...]} out, several requests joined to one batch."""

from __future__ import annotations

from itertools import chain
from typing import Any

from .base import BaseEnvelope, parsed


class JSONEnvelope(BaseEnvelope):
    """Joins the instances of the requests, and shares the answers out again."""

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
