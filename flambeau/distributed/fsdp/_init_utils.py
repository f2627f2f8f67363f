"""Which strategies do what."""

from __future__ import annotations

from typing import Any

from .. import groups
from .api import ShardingStrategy

HYBRID_SHARDING_STRATEGIES = [ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2]
NO_RESHARD_AFTER_FORWARD_STRATEGIES = (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy._HYBRID_SHARD_ZERO2)


def _init_intra_node_process_group(num_devices_per_node: int) -> Any:
    """The group of this node's ranks."""
    return groups.new_subgroups(num_devices_per_node)[0]


def _init_inter_node_process_group(global_process_group: Any, num_devices_per_node: int) -> Any:
    """The group of the ranks that have the same place on their nodes."""
    nodes, own = groups.get_world_size(global_process_group) // num_devices_per_node, None
    place = groups.get_rank(global_process_group) % num_devices_per_node
    for one in range(num_devices_per_node):
        made = groups.new_group([one + node * num_devices_per_node for node in range(nodes)])
        own = made if one == place else own
    return own
