"""Switch that lets attention over distributed tensors keep the sequence sharded."""

from __future__ import annotations

from ._ring import _disable_context_parallel_dispatcher, _enable_context_parallel_dispatcher

__all__ = ["register_cp_sharding_rules", "unregister_cp_sharding_rules"]


def register_cp_sharding_rules() -> None:
    """Compute attention of tensors sharded along the sequence as ring attention, from now on."""
    _enable_context_parallel_dispatcher()


def unregister_cp_sharding_rules(clear_the_cache: bool = False) -> None:
    """Gather tensors sharded along the sequence before attention, from now on."""
    _disable_context_parallel_dispatcher()
