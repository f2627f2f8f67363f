"""Where PyTorch keeps its compiled `nn.functional`."""

from typing import Any

from ..nn import functional as _functional
from ..nn.functional import *  # noqa: F403
from ..ops.creation.convert import parse_to

log_sigmoid = _functional.logsigmoid


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """What the arguments of `module.to(...)` mean: device, dtype, non_blocking and memory format."""
    kind, device, non_blocking, copy, memory_format = parse_to(args, dict(kwargs))
    if copy:
        raise RuntimeError(".to() does not accept copy argument")
    return device, kind, non_blocking, memory_format
