"""RemoteModule: a module whose parameters and forward pass are on another worker."""

from __future__ import annotations

from typing import Any

from ....core.device import device as Device
from ....core.tensor import Tensor
from ....futures import Future
from ....nn import Module
from ... import rpc
from ...remote_device import _remote_device
from ...rpc.internal import _internal_rpc_pickler
from ...rpc.rref import rebuild

__all__ = ["RemoteModule"]

# Attributes that are sent to a worker with a RemoteModule.
_REMOTE_MODULE_PICKLED_ATTRIBUTES = (
    "on", "device", "is_device_map_set", "is_scriptable", "_moves_to_cuda", "module_rref",
)  # fmt: skip


def _create_module(module_cls: Any, args: tuple, kwargs: dict, device: Any) -> Module:
    module = module_cls(*args, **kwargs)
    if not isinstance(module, Module):
        raise ValueError(
            "Expect `module_cls(*args, **kwargs)` returns an instance of <class nn.Module>, but it returns an instance of"
            f" {type(module)}."
        )
    return module.to(device)


def _param_rrefs(module_rref: rpc.RRef, recurse: bool) -> list[rpc.RRef]:
    return [rpc.RRef(parameter) for parameter in module_rref.local_value().parameters(recurse)]


def _forward(module_rref: rpc.RRef, device: str, moves: bool, args: tuple, kwargs: dict) -> Any:
    def placed(value: Any) -> Any:
        return value.to(device) if moves and isinstance(value, Tensor) else value

    return module_rref.local_value()(*map(placed, args), **{name: placed(v) for name, v in kwargs.items()})


class RemoteModule(Module):
    """`module_cls(*args, **kwargs)` made on the worker that `remote_device` names ("ps0/cpu", "rank:1/cuda:0"). `forward` runs there and
    takes part in distributed autograd; `forward_async` returns a future. Other methods of modules are not supported."""

    def __init__(
        self,
        remote_device: str,
        module_cls: Any,
        args: tuple | None = None,
        kwargs: dict[str, Any] | None = None,
        _module_interface_cls: Any = None,
    ) -> None:
        if _module_interface_cls is not None:
            raise NotImplementedError("a RemoteModule with a TorchScript interface is not in Flambeau")
        super().__init__()
        self._set_remote_device(remote_device)
        self.module_rref = rpc.remote(self.on, _create_module, (module_cls, args or (), kwargs or {}, self.device))

    def _set_remote_device(self, remote_device: str) -> None:
        if not rpc._is_current_rpc_agent_set():
            raise AssertionError("RemoteModule only works in RPC.")
        where = _remote_device(remote_device)
        self.on: Any = where.rank() if where.rank() is not None else where.worker_name()
        if self.on is None:
            self.on = rpc.get_worker_info().id
        self.device = str(where.device())
        agent = rpc._get_current_rpc_agent()
        info = rpc.api._to_worker_info(self.on)
        self.is_device_map_set = bool(agent._get_device_map(info))
        self.is_scriptable = False
        self._moves_to_cuda = self.is_device_map_set or Device(self.device).type == "cuda"

    def forward_async(self, *args: Any, **kwargs: Any) -> Future:
        """Start `forward` on the remote worker and return a future of its result."""
        inputs = (self.module_rref, self.device, self._moves_to_cuda, args, kwargs)
        return rpc.rpc_async(self.module_rref.owner(), _forward, inputs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward_async(*args, **kwargs).wait()

    def remote_parameters(self, recurse: bool = True) -> list[rpc.RRef]:
        """Return references to the module's parameters, for a DistributedOptimizer."""
        return rpc.rpc_sync(self.on, _param_rrefs, args=(self.module_rref, recurse))

    def get_module_rref(self) -> rpc.RRef:
        """Return the remote reference of the module."""
        return self.module_rref

    @staticmethod
    def init_from_module_rref(
        remote_device: str, module_rref: rpc.RRef, _module_interface_cls: Any = None
    ) -> RemoteModule:
        """Make a RemoteModule for an existing module on another worker."""
        if _module_interface_cls is not None:
            raise NotImplementedError("a RemoteModule with a TorchScript interface is not in Flambeau")
        self = object.__new__(RemoteModule)
        Module.__init__(self)
        self._set_remote_device(remote_device)
        self.module_rref = module_rref
        return self

    def train(self, mode: bool = True) -> Any:
        """Set the remote module to training mode."""
        return self.module_rref.rpc_sync().train(mode)

    def eval(self) -> Any:
        """Set the remote module to evaluation mode."""
        return self.module_rref.rpc_sync().eval()

    def __getstate__(self) -> Any:
        raise RuntimeError(
            "Cannot pickle RemoteModule in python pickler. RemoteModule can only be pickled when using RPC"
        )

    def __setstate__(self, state: Any) -> None:
        raise RuntimeError(
            "Cannot unpickle RemoteModule in python pickler. RemoteModule can only be unpickled when using RPC"
        )


def _make_unsupported(name: str) -> Any:
    def method(self: RemoteModule, *args: Any, **kwargs: Any) -> Any:
        hint = ". Please use ``remote_parameters`` instead." if name == "parameters" else ""
        raise ValueError(f"Method ``{name}`` not supported for RemoteModule{hint}")

    method.__name__ = name
    return method


for _name in [
    "register_buffer",
    "register_parameter",
    "add_module",
    "apply",
    "cuda",
    "ipu",
    "xpu",
    "cpu",
    "type",
    "float",
    "double",
    "half",
    "bfloat16",
    "to",
    "register_backward_hook",
    "register_forward_pre_hook",
    "register_forward_hook",
    "state_dict",
    "load_state_dict",
    "parameters",
    "named_parameters",
    "buffers",
    "named_buffers",
    "children",
    "named_children",
    "modules",
    "named_modules",
    "requires_grad_",
    "zero_grad",
    "share_memory",
    "extra_repr",
]:
    setattr(RemoteModule, _name, _make_unsupported(_name))


def _receive(reference: tuple, attributes: dict) -> RemoteModule:
    self = object.__new__(RemoteModule)
    Module.__init__(self)
    self.__dict__.update(attributes)
    self.module_rref = rebuild(reference)
    return self


def _send(module: RemoteModule) -> tuple:
    sent = {name: getattr(module, name) for name in _REMOTE_MODULE_PICKLED_ATTRIBUTES if name != "module_rref"}
    return _receive, (module.module_rref._serialize(), sent)


_internal_rpc_pickler._register_reducer(RemoteModule, _send)
_RemoteModule = RemoteModule
