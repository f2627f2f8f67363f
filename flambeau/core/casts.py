"""The autocast state of this thread. Only `amp` changes it; it is here so that lower layers can read it."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from .dtype import bfloat16, dtype, float16
from .storage import UntypedStorage
from .tensor import Tensor

# The default autocast dtype of each type of device. Types that are not here have no autocast.
DEFAULT_DTYPES = {
    "cpu": bfloat16, "cuda": float16, "mps": float16, "xpu": float16, "hpu": bfloat16, "ipu": float16, "mtia": float16,
    "maia": bfloat16, "xla": bfloat16, "privateuseone": float16,
}  # fmt: skip


class KeptCopy(NamedTuple):
    """A parameter, kept so that its identity stays its own, its copy, the memory that was copied, and its state then."""

    leaf: Tensor
    copy: Tensor
    storage: UntypedStorage
    state: tuple[Any, ...]

    @property
    def outdated(self) -> bool:
        """Return whether the parameter may have been changed since; PyTorch reads the copy until the outermost autocast ends."""
        return self.leaf._storage is not self.storage or self.storage.change_state() != self.state


class Casts(threading.local):
    """The autocast state of one thread. `active` is False, too, while an operator whose arguments have been cast runs. `kind` and `dtype` are
    those of the current operator; `enabled` has the dtype for every type of device whose operators are cast. `switched` are the types of
    device that autocast is on for, `dtypes` those that it has or would have; both are replaced, not changed."""

    def __init__(self) -> None:
        self.active = False
        self.enabled: dict[str, dtype] = {}
        self.switched: frozenset[str] = frozenset()
        self.dtypes = dict(DEFAULT_DTYPES)
        self.kind = "cpu"
        self.dtype: dtype = bfloat16
        self.cache_enabled = True
        self.cache: dict[tuple[int, dtype], KeptCopy] = {}  # by the parameter's identity and the copy's dtype


casts = Casts()
