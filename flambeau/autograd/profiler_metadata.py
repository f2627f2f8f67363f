"""Facts that a trace has about a kernel or a collective."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple


def _unquoted(text: str) -> str:
    return text.strip('"')


# Under which key a trace has each field of EventMetadata, and how it is read.
_METADATA: dict[str, tuple[str, Callable[[str], Any]]] = {
    "registers_per_thread": ("registers per thread", int),
    "shared_memory": ("shared memory", int),
    "grid": ("grid", json.loads),
    "block": ("block", json.loads),
    "priority": ("priority", int),
    "blocks_per_sm": ("blocks per SM", float),
    "warps_per_sm": ("warps per SM", float),
    "occupancy": ("occupancy", json.loads),
    "est_occupancy_pct": ("est. achieved occupancy %", float),
    "queued": ("queued", int),
    "graph_id": ("graph id", int),
    "graph_node_id": ("graph node id", int),
    "stream": ("stream", int),
    "context": ("context", int),
    "channel": ("channel", int),
    "channel_type": ("channel_type", int),
    "bytes": ("bytes", int),
    "bandwidth_gb_s": ("memory bandwidth (GB/s)", float),
    "collective_name": ("Collective name", _unquoted),
    "dtype": ("dtype", _unquoted),
    "in_msg_nelems": ("In msg nelems", int),
    "out_msg_nelems": ("Out msg nelems", int),
    "in_split_size": ("In split size", _unquoted),
    "out_split_size": ("Out split size", _unquoted),
    "global_rank_start": ("Global rank start", int),
    "global_rank_stride": ("Global rank stride", int),
    "group_size": ("Group size", int),
    "process_group_name": ("Process Group Name", _unquoted),
    "process_group_desc": ("Process Group Description", _unquoted),
    "group_ranks": ("Process Group Ranks", _unquoted),
    "rank": ("Rank", int),
    "src_rank": ("Src Rank", int),
    "dst_rank": ("Dst Rank", int),
    "seq": ("Seq", int),
    "is_async": ("Is asynchronized op", lambda text: text in ("1", "true")),
}
EventMetadata: Any = NamedTuple("EventMetadata", [(name, Any) for name in _METADATA])  # type: ignore[misc]


def build_metadata(extra_meta: dict[str, str]) -> Any:
    """Return what a trace says about a kernel or a collective; None if nothing of it is known here."""
    read = {n: convert(extra_meta[k]) for n, (k, convert) in _METADATA.items() if extra_meta.get(k) is not None}
    return EventMetadata(**{name: read.get(name) for name in _METADATA}) if read else None
