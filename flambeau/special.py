"""Special functions: every operator declared in the namespace "special", and three that also live elsewhere."""

from typing import TYPE_CHECKING, Any

from . import ops as _ops

_everywhere = _ops.namespace("torch")

softmax, log_softmax, logsumexp = (_everywhere[name] for name in ("softmax", "log_softmax", "logsumexp"))
globals().update(_ops.namespace("special"))

if TYPE_CHECKING:  # names that are put here when the module is imported

    def __getattr__(name: str) -> Any: ...
