"""`BroadcastingList2[int]`: a list of ints for which a single int may stand, that many times."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: F401, UP035  found here in PyTorch, too


class _BroadcastingList:
    def __init__(self, size: int = 0):
        self.size = size

    def __getitem__(self, kind: Any) -> Any:
        return list[kind]


BroadcastingList1 = _BroadcastingList(1)
BroadcastingList2 = _BroadcastingList(2)
BroadcastingList3 = _BroadcastingList(3)
BroadcastingList4 = _BroadcastingList(4)
BroadcastingList5 = _BroadcastingList(5)
BroadcastingList6 = _BroadcastingList(6)
