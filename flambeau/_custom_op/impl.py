"""Operators that were made through this interface: none."""

from __future__ import annotations

from typing import Any

global_registry: dict[str, Any] = {}
