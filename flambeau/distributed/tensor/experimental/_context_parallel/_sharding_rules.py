"""Switch that lets attention over distributed tensors keep the sequence sharded."""

from __future__ import annotations

from ._ring import _disable_context_parallel_dispatcher, _enable_context_parallel_dispatcher


def register_cp_sharding_rules() -> None:
    """Switch on ring attention for tensors sharded along the sequence."""
    _enable_context_parallel_dispatcher()


def unregister_cp_sharding_rules(clear_the_cache: bool = False) -> None:
    """Switch off ring attention: tensors sharded along the sequence are gathered first."""
    _disable_context_parallel_dispatcher()
