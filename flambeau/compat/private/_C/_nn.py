"""`torch._C._nn`: the compiled functions of `nn.functional`."""

from typing import Any

from ....nn import functional as _functional
from ....nn.functional import *  # noqa: F403
from ....ops.creation.convert import parse_to

log_sigmoid = _functional.logsigmoid


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """Parse the arguments of `module.to(...)` into device, dtype, non_blocking and memory format."""
    kind, device, non_blocking, copy, memory_format = parse_to(args, dict(kwargs))
    if copy:
        raise RuntimeError(".to() does not accept copy argument")
    return device, kind, non_blocking, memory_format


def _border(mode: str, dims: int) -> Any:
    def run(input: Any, padding: Any, *, out: Any = None) -> Any:
        made = _functional.pad(input, [padding] * 2 * dims if isinstance(padding, int) else list(padding), mode=mode)
        return made if out is None else out.resize_(made.shape).copy_(made)

    run.__name__ = run.__qualname__ = f"{'reflection' if mode == 'reflect' else 'replication'}_pad{dims}d"
    run.__doc__ = f"`nn.functional.pad` of {dims} dimension{'s' * (dims > 1)} with mode {mode!r}."
    return run


reflection_pad1d, reflection_pad2d, reflection_pad3d = (_border("reflect", d) for d in (1, 2, 3))
replication_pad1d, replication_pad2d, replication_pad3d = (_border("replicate", d) for d in (1, 2, 3))
