"""`torch.distributed.checkpoint`: checkpoints of sharded models, which Flambeau does not have yet."""

from __future__ import annotations

from ...core import naming as _naming
from ...core.absent import absent_class as _absent_class
from ...core.absent import raising as _raising

_MESSAGE = "torch.distributed.checkpoint.{} is not in Flambeau yet: use torch.save and torch.load (docs/files.md)"
globals().update(_raising("async_save load load_state_dict save save_state_dict", NotImplementedError, _MESSAGE))
globals().update({n: _absent_class(n, _MESSAGE.format(n)) for n in ("FileSystemReader", "FileSystemWriter")})


def __getattr__(name: str):
    if name.startswith("__"):
        raise _naming.no_attribute(__name__, name)
    return _naming.submodule(__name__, name)
