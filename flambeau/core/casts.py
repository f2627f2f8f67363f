"""The autocast state of this thread. Only `amp` changes it; it is here so that lower layers can read it."""

from __future__ import annotations

import threading

from .dtype import bfloat16, dtype, float16
from .tensor import Tensor

# The default autocast dtype of each type of device. Types that are not here have no autocast.
DEFAULT_DTYPES = {
    "cpu": bfloat16, "cuda": float16, "mps": float16, "xpu": float16, "hpu": bfloat16, "ipu": float16, "mtia": float16,
    "maia": bfloat16, "xla": bfloat16, "privateuseone": float16,
}  # fmt: skip


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
        # (tensor, copy) by the tensor's identity and the copy's dtype; the tensor is kept so that the identity stays its own
        self.cache: dict[tuple[int, dtype], tuple[Tensor, Tensor]] = {}


casts = Casts()
