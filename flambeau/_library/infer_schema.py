"""The schema that a Python function's annotations say."""

from ..library import infer_schema

__all__ = ["infer_schema"]
