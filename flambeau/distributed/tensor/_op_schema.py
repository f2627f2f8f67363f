"""Records of operators with custom sharding rules (`register_sharding`), under PyTorch's names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class RuntimeSchemaInfo:
    """Arguments other than tensors that determine the placement of results: those from `static_argnum` on, and those named."""

    static_argnum: int = 100
    static_kwargkey: list[str] | None = None
    needs_pytree: bool = False


@dataclass
class ShardingPropagator:
    """Custom sharding rules, by operator."""

    op_strategy_funcs: dict[Any, Any] = field(default_factory=dict)
    op_to_schema_info: dict[Any, RuntimeSchemaInfo] = field(default_factory=dict)


@dataclass
class OpDispatcher:
    """Object under which PyTorch's programs find the custom sharding rules."""

    sharding_propagator: ShardingPropagator = field(default_factory=ShardingPropagator)


dispatcher = OpDispatcher()
