"""Attention over a sequence that is spread over ranks."""

from ._attention import (
    _cp_options,
    context_parallel,
    context_parallel_unshard,
    set_rotate_method,
)

__all__ = [
    "_cp_options",
    "context_parallel",
    "context_parallel_unshard",
    "set_rotate_method",
]
