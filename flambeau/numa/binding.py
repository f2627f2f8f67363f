"""Options for binding worker processes to the processors near a GPU. Flambeau's launcher does not bind: `numactl` does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class AffinityMode(str, Enum):
    """Set of processors that a worker may use."""

    NODE = "node"
    SOCKET = "socket"
    EXCLUSIVE = "exclusive"
    CORE_COMPLEX = "core-complex"


@dataclass(frozen=True)
class NumaOptions:
    """Binding that a launcher requests: the mode, and whether a worker that cannot be bound runs unbound."""

    affinity_mode: AffinityMode
    should_fall_back_if_binding_fails: bool = False
