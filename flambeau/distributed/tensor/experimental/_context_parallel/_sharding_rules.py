"""Switch that lets attention over distributed tensors keep the sequence sharded."""

from __future__ import annotations

from ._ring import _disable_context_parallel_dispatcher, _enable_context_parallel_dispatcher

__all__ = ["register_cp_sharding_rules", "unregister_cp_sharding_rules"]


def register_cp_sharding_rules() -> None:
    """From now on attention of tensors that are cut along the sequence goes round the ranks."""
    _enable_context_parallel_dispatcher()


def unregister_cp_sharding_rules(clear_the_cache: bool = False) -> None:
    """From now on such tensors are put together first."""
    _disable_context_parallel_dispatcher()
