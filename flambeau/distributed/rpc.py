"""`torch.distributed.rpc`: calls of functions on other ranks, which Flambeau does not have."""

from __future__ import annotations

from ..core.absent import absent_class as _absent_class
from ..core.absent import raising as _raising

_MESSAGE = (
    "torch.distributed.rpc.{} is not in Flambeau: use the collectives and object collectives of torch.distributed"
)
globals().update(_raising("get_worker_info init_rpc remote rpc_async rpc_sync shutdown", NotImplementedError, _MESSAGE))
globals().update({name: _absent_class(name, _MESSAGE.format(name)) for name in ("RRef", "TensorPipeRpcBackendOptions")})


def is_available() -> bool:
    """False."""
    return False
