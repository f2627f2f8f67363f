"""DataParallel: one process, a batch split over the devices of one machine.

Parts of the batch and copies of the parameters are moved to the devices by differentiable operators, so that gradients are sent back and
summed by autograd. Without an accelerator, and with one device, the module is simply called; what remains is the prefix `module.` of the
names of saved parameters, which checkpoints of such models have."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from typing import Any

from ...core.backend import backend_of, has_backend
from ...core.device import cpu, device
from ...core.graph import grad_mode
from ...core.pytree import tree_flatten, tree_map, tree_unflatten
from ...core.tensor import Tensor
from ...ops.shape.joining import cat, stack
from ..modules.module import Module

_CUDA = device("cuda")


def _devices(ids: Sequence[Any] | None) -> list[device]:
    """Return the given devices, by default all accelerators of the machine."""
    if not has_backend(_CUDA):
        return []
    if ids is None:
        return [device("cuda", i) for i in range(backend_of(_CUDA).device_count)]
    return [backend_of(_CUDA).indexed(device("cuda", d) if isinstance(d, int) else device(d)) for d in ids]


def _require_devices(ids: Sequence[Any] | None) -> list[device]:
    """Return the given devices; raises if there are none."""
    places = _devices(ids)
    if not places:
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return places


def _check_on_device(module: Module, first: device) -> None:
    for t in (*module.parameters(), *module.buffers()):
        if t.device is not first:
            raise RuntimeError(
                f"module must have its parameters and buffers on device {first} (device_ids[0]) but found one of them on"
                f" device: {t.device}"
            )


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> list[Any]:
    """Split tensors along `dim`, one part for each device; other values are copied to all of them."""
    leaves, structure = tree_flatten(inputs)
    places = _require_devices(target_gpus) if any(isinstance(x, Tensor) for x in leaves) else target_gpus
    parts: list[Any] = [x.chunk(len(places), dim) if isinstance(x, Tensor) else None for x in leaves]
    count = max((len(p) for p in parts if p is not None), default=len(places))
    return [
        tree_unflatten([x if p is None else p[k].to(places[k]) for x, p in zip(leaves, parts)], structure)
        for k in range(count)
    ]


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """Gather the results of the devices on one of them, joined along `dim`; scalars become a vector."""

    def joined(*parts: Any) -> Any:
        if not isinstance(parts[0], Tensor):
            return parts[0]
        if any(p.device.type == "cpu" for p in parts):
            raise AssertionError("Gather function not implemented for CPU tensors")
        where = cpu if str(target_device) == "cpu" else _require_devices([target_device])[0]
        moved = [p.to(where) for p in parts]
        return cat(moved, dim) if moved[0].shape else stack(moved)

    return tree_map(joined, *outputs)


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Module]:
    """Return copies of the module on each of the devices, whose parameters pass gradients back to the original."""
    if devices and any(t.device.type == "cpu" for t in (*network.parameters(), *network.buffers())):
        raise AssertionError("Broadcast function not implemented for CPU tensors")
    return [_replica(network, where, detach, {}) for where in _devices(devices)]


def _replica(module: Module, where: device, detach: bool, made: dict[int, Module]) -> Module:
    if id(module) in made:
        return made[id(module)]
    twin: Any = copy.copy(module)
    made[id(module)] = twin
    twin.__dict__ = dict(module.__dict__)
    moved = {
        name: None if p is None else (p.detach() if detach else p).to(where) for name, p in module._parameters.items()
    }
    twin._parameters = {}
    twin._buffers = {name: None if b is None else b.to(where) for name, b in module._buffers.items()}
    twin._modules = {n: None if m is None else _replica(m, where, detach, made) for n, m in module._modules.items()}
    for name, p in moved.items():  # a copy is no leaf, so it is an ordinary attribute of the replica
        twin.__dict__[name] = p
    return twin


def parallel_apply(
    modules: Sequence[Module],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[Any, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """Call each module with its inputs on its device, in one thread per module."""
    for what, given in (("inputs", inputs), ("kwargs_tup", kwargs_tup), ("devices", devices)):
        if given is not None and len(given) != len(modules):
            raise AssertionError(
                f"The number of modules {len(modules)} is not equal to the number of {what} {len(given)}"
            )
    named = kwargs_tup or [{}] * len(modules)
    places = _require_devices(devices)
    results: list[Any] = [None] * len(modules)
    enabled = grad_mode.enabled

    def work(k: int) -> None:
        grad_mode.enabled = enabled
        try:
            with backend_of(_CUDA).chosen(places[k]):  # type: ignore[attr-defined]
                given = inputs[k] if isinstance(inputs[k], (tuple, list)) else (inputs[k],)
                results[k] = modules[k](*given, **named[k])
        except Exception as problem:
            results[k] = problem

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, len(modules))]
    for t in threads:
        t.start()
    work(0)
    for t in threads:
        t.join()
    for k, result in enumerate(results):
        if isinstance(result, Exception):
            raise RuntimeError(
                f"Caught {type(result).__name__} in replica {k} on device {places[k]}: {result}"
            ) from result
    return results


class DataParallel(Module):
    """Splits a batch over GPUs; its parameters are saved under names that begin with `module.`."""

    def __init__(
        self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.module, self.dim = module, dim
        places = _devices(device_ids)
        self.device_ids: list[Any] = [p.index for p in places]
        self.output_device = places[0].index if places and output_device is None else output_device
        if len(places) == 1:
            self.module.to(places[0])

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        _check_on_device(self.module, device("cuda", self.device_ids[0]))
        parts = scatter((inputs, kwargs), self.device_ids, self.dim)
        if len(parts) == 1:
            return self.module(*parts[0][0], **parts[0][1])
        used = self.device_ids[: len(parts)]
        replicas = replicate(self.module, used, not grad_mode.enabled)
        results = parallel_apply(replicas, [p[0] for p in parts], [p[1] for p in parts], used)
        return gather(results, self.output_device, self.dim)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[Any, Any] | None = None,
) -> Any:
    """Call a module once as a DataParallel would. Without an accelerator it raises RuntimeError, where DataParallel calls the module."""
    places = _devices(device_ids)
    if not places:
        raise RuntimeError("device type could not be determined")
    _check_on_device(module, places[0])
    args = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*args, **(module_kwargs or {}))
