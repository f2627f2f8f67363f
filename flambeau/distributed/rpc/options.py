"""Names of the workers, and options of an agent."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from ...core.device import device as Device
from . import constants

__all__ = ["TensorPipeRpcBackendOptions"]
_NAME = re.compile(r"^[A-Za-z0-9\-_:]*$")


class WorkerInfo:
    """Name and number of a worker."""

    __slots__ = ("id", "name")

    def __init__(self, name: str, id: int) -> None:
        if len(name) >= 128:
            raise RuntimeError(f"Worker name must be shorter than 128, got {len(name)}")
        if not name:
            raise RuntimeError("Worker name must be non-empty")
        if not _NAME.match(name):
            raise RuntimeError(f"Worker name must match {_NAME.pattern}, but got {name}")
        self.name, self.id = name, int(id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkerInfo) and (self.name, self.id) == (other.name, other.id)

    def __hash__(self) -> int:
        return hash((self.name, self.id))

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self.id}, name={self.name})"

    def __reduce__(self) -> tuple:
        return WorkerInfo, (self.name, self.id)


class RpcBackendOptions:
    """Options of every agent: timeout of calls, and the init method."""

    def __init__(
        self, rpc_timeout: float = constants.DEFAULT_RPC_TIMEOUT_SEC, init_method: str = constants.DEFAULT_INIT_METHOD
    ) -> None:
        if isinstance(rpc_timeout, timedelta) or not isinstance(rpc_timeout, (int, float)):
            raise TypeError(f"incompatible constructor arguments: rpc_timeout is in seconds, got {rpc_timeout!r}")
        self.rpc_timeout = float(rpc_timeout)
        self.init_method = init_method

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "rpc_timeout" and not isinstance(value, (int, float)):
            raise TypeError(f"incompatible function arguments: rpc_timeout is in seconds, got {value!r}")
        super().__setattr__(name, value)


def _as_cuda_device(given: Any) -> Device:
    where = Device(given)
    if where.type != "cuda":
        raise ValueError(f"`set_devices` expect a list of CUDA devices, but got device type {where.type}.")
    return where


def _device_map(given: dict) -> dict[Device, Device]:
    mapping: dict[Device, Device] = {}
    sources: dict[Device, Device] = {}
    for source, target in ((Device(a), Device(b)) for a, b in given.items()):
        if target in sources:
            raise ValueError(
                f"`device_map` only supports 1-to-1 mapping, trying to map {source} and {sources[target]} to {target}"
            )
        mapping[source], sources[target] = target, source
    return mapping


class TensorPipeRpcBackendOptions(RpcBackendOptions):
    """Options of the agent: number of threads that answer calls, timeout, rendezvous, and the map from devices of other workers to those of
    this one. TensorPipe's transports and channels are accepted and ignored."""

    def __init__(
        self,
        *,
        num_worker_threads: int = constants.DEFAULT_NUM_WORKER_THREADS,
        rpc_timeout: float = constants.DEFAULT_RPC_TIMEOUT_SEC,
        init_method: str = constants.DEFAULT_INIT_METHOD,
        device_maps: dict[str, dict] | None = None,
        devices: list | None = None,
        _transports: list | None = None,
        _channels: list | None = None,
    ) -> None:
        super().__init__(rpc_timeout, init_method)
        if num_worker_threads <= 0:
            raise RuntimeError(f"num_worker_threads must be positive, got {num_worker_threads}")
        self.num_worker_threads = num_worker_threads
        self.device_maps = {name: _device_map(given) for name, given in (device_maps or {}).items()}
        self.devices = [_as_cuda_device(d) for d in devices or []]

    def set_device_map(self, to: str, device_map: dict) -> None:
        """Map devices of this worker (keys) to devices of worker `to` (values), on which their tensors arrive."""
        fresh, held = _device_map(device_map), self.device_maps.setdefault(to, {})
        for source, target in fresh.items():
            if held.get(source, target) != target:
                raise ValueError(
                    f"`set_device_map` only supports 1-to-1 mapping, trying to map {source} to {target} and {held[source]}"
                )
        held.update(fresh)

    def set_devices(self, devices: list) -> None:
        self.devices = [_as_cuda_device(d) for d in devices]
