"""`fully_shard`: parameters, gradients and optimizer state of a model sharded over the ranks.

>>> for layer in model.layers:
...     fully_shard(layer)
>>> fully_shard(model)
>>> optimizer = flambeau.optim.AdamW(model.parameters())    # made afterwards: it sees the shards
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from typing_extensions import deprecated

from ....core.tensor import Tensor
from ....nn import Module, Parameter
from ... import groups, subgroups
from ..._composable.contract import contract
from ...device_mesh import DeviceMesh
from ...utils import _get_root_modules
from ._fsdp_api import AllGather, DataParallelMeshDims, MixedPrecisionPolicy, OffloadPolicy, ReduceScatter
from ._fsdp_common import FSDPMeshInfo, ShardPlacementResult
from ._fsdp_init import (
    _get_device_from_mesh,
    _get_managed_modules,
    _get_managed_states,
    _get_post_forward_mesh_info,
    _init_default_mesh,
    is_composable,
    make_groups,
    mesh_info_of,
    move_to_device,
    validate_mesh,
    validate_module,
)
from ._fsdp_param_group import FSDPParamGroup
from ._fsdp_state import FSDPState, _get_module_fsdp_state

__all__ = [
    "FSDPModule", "ShardPlacementResult", "UnshardHandle", "fully_shard", "register_fsdp_forward_method", "share_comm_ctx",
]  # fmt: skip


@contract(state_cls=FSDPState)
def fully_shard(
    module: Any,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[[Parameter], Any] | None = None,
    mp_policy: MixedPrecisionPolicy = MixedPrecisionPolicy(),  # noqa: B008
    offload_policy: OffloadPolicy = OffloadPolicy(),  # noqa: B008
    ignored_params: set[Parameter] | None = None,
    dp_mesh_dims: DataParallelMeshDims | None = None,
) -> Any:
    """Shard the parameters of a module (or of modules that are used together) over the ranks of a mesh, along their first dimension.

    The module object stays, with another class: its parameters are DTensors between the passes. Before it runs they are gathered, in one
    operation; afterwards the memory is freed, and the gradients are reduced, so that each rank has those of its shard. Call it for the
    inner modules first: parameters that an earlier call has sharded are left alone.

    mesh: of one dimension, or of two, of which the first replicates parameters. reshard_after_forward: True frees the parameters after the
    forward pass and gathers them again for the backward pass, False keeps them, an int keeps shards of so many ranks; the default is True
    for all but the outermost module. shard_placement_fn(parameter): Shard(dim) for another dimension. mp_policy: dtypes of parameters and
    reductions. offload_policy: where shards are kept. ignored_params: parameters that are not sharded."""
    validate_module(module, "fully_shard")
    if dp_mesh_dims is not None:
        raise NotImplementedError(
            "fully_shard(dp_mesh_dims=...) is not in Flambeau yet: give the mesh of data parallelism"
        )
    mesh = mesh or _init_default_mesh()
    validate_mesh(mesh)
    apply(
        module, mesh, mesh_info_of(mesh), reshard_after_forward, shard_placement_fn, mp_policy, offload_policy,
        ignored_params, fully_shard.state, FSDPModule, "FSDP", is_composable,
    )  # fmt: skip
    return module


def apply(
    module: Any, mesh: DeviceMesh, mesh_info: Any, reshard: bool | int | None, placement_fn: Any, mp_policy: Any,
    offload_policy: Any, ignored_params: Any, state_of: Callable, kind: type, prefix: str, composable: Callable,
) -> None:  # fmt: skip
    """Attach a state to modules, shard their parameters, and change their classes to subclasses of FSDPModule."""
    modules = (module,) if isinstance(module, Module) else tuple(_get_root_modules(module))
    device = _get_device_from_mesh(mesh)
    managed = _get_managed_modules(modules, ignored_params, composable)
    params, buffers = _get_managed_states(managed, ignored_params)
    move_to_device([*params, *buffers], device)
    state = state_of(modules[0])
    state.init(modules, device, mp_policy, reshard is None)
    wanted: bool | int = True if reshard is None else reshard
    make_groups(state, params, modules, mesh_info, wanted, device, placement_fn, mp_policy, offload_policy)
    for one in managed:
        one._is_fsdp_managed_module = one._fsdp_use_orig_params = True
    for one in modules:
        cls = type(one)
        if (prefix, cls) not in _classes:
            _classes[prefix, cls] = type(f"{prefix}{cls.__name__}", (kind, cls), {"__deepcopy__": _no_deepcopy})
        one.__class__ = _classes[prefix, cls]


_classes: dict[tuple[str, type], Any] = {}


def get_cls_to_fsdp_cls() -> dict[type, type]:
    return {cls: made for (prefix, cls), made in _classes.items() if prefix == "FSDP"}


def _no_deepcopy(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("FSDP does not support deepcopy. Please use state dict for serialization.")


_creates_new_object = [True]


@contextlib.contextmanager
def disable_fsdp_module_new_init() -> Iterator[None]:
    before, _creates_new_object[0] = _creates_new_object[0], False
    try:
        yield
    finally:
        _creates_new_object[0] = before


if TYPE_CHECKING:
    _AnyModule = Module  # whatever class `fully_shard` was given a module of
else:
    _AnyModule = object


class FSDPModule(_AnyModule):
    """Methods that a module gets by `fully_shard`."""

    _orig_cls_mro_index = 2

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make a slice of a container (`layers[1:]`) with the container's original class."""
        original = cls.__mro__[cls._orig_cls_mro_index]
        self = original.__new__(original)  # type: ignore[call-overload]
        if _creates_new_object[0]:
            self.__init__(*args, **kwargs)
        return self

    def _get_fsdp_state(self) -> FSDPState:
        state = _get_module_fsdp_state(self)
        if state is None:
            raise AssertionError(f"No FSDP state found on {self}")
        return state

    def _groups(self, recurse: bool = False) -> Iterator[FSDPParamGroup]:
        modules: Iterable = self.modules() if recurse else (self,)
        for module in modules:
            if isinstance(module, FSDPModule):
                yield from module._get_fsdp_state()._fsdp_param_groups

    def _single_group(self, what: str) -> list[FSDPParamGroup]:
        found = list(self._groups())
        if len(found) > 1:
            raise ValueError(
                f"{what} is not supported with multiple param groups (from per-param mesh via shard_placement_fn). It would be"
                " ambiguous across groups with different meshes."
            )
        return found

    def reshard(self) -> None:
        """Free the whole parameters of this module (not of submodules that were sharded on their own)."""
        for group in self._groups():
            group.reshard()

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gather this module's parameters now; with async_op=True return a handle to wait for."""
        found = list(self._groups())
        for group in found:
            group.lazy_init()
            group.unshard(async_op=async_op)
        handle = _UnshardHandle(found)
        if async_op:
            return handle
        handle.wait()
        return None

    def reset_iter_state(self) -> None:
        """Reset the outermost module after an error in a pass: drop the state of the pass and its gradients."""
        self._get_fsdp_state()._reset_iter_state()

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Set whether the next backward pass is the last one before the gradients are used: if not, it need not wait for them."""
        self._get_fsdp_state()._state_ctx.is_last_backward = is_last_backward

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Set whether backward passes reduce gradients. If not, whole gradients are accumulated on each rank."""
        for group in self._groups(recurse):
            group.reduce_grads = group.all_reduce_grads = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Set whether gradients are also reduced over ranks that replicate parameters (on a mesh of two dimensions)."""
        for group in self._groups(recurse):
            group.all_reduce_grads = requires_all_reduce

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Set whether parameters are freed between the passes."""
        if not isinstance(reshard_after_forward, bool):
            raise ValueError(f"reshard_after_forward should be a bool, got {type(reshard_after_forward)}")
        for module in self.modules() if recurse else (self,):
            if isinstance(module, FSDPModule):
                module._get_fsdp_state()._auto_reshard_after_forward = False
                for group in module._groups():
                    assert isinstance(group.mesh_info, FSDPMeshInfo)
                    group.post_forward_mesh_info = _get_post_forward_mesh_info(reshard_after_forward, group.mesh_info)

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Set whether parameters are freed after the backward pass."""
        for group in self._groups(recurse):
            group.reshard_after_backward = reshard_after_backward

    def set_modules_to_forward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Set the modules whose parameters are gathered while this module's forward pass runs."""
        self._get_fsdp_state()._states_to_forward_prefetch = _states_of_modules(modules)

    def set_modules_to_backward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Set the modules whose parameters are gathered during this module's backward pass; by default the one that ran before it."""
        self._get_fsdp_state()._states_to_backward_prefetch = _states_of_modules(modules)

    def set_custom_all_gather(self, comm: AllGather) -> None:
        """Gather parameters with a custom implementation."""
        for group in self._single_group("set_custom_all_gather"):
            group._all_gather_comm = comm

    def set_custom_reduce_scatter(self, comm: ReduceScatter) -> None:
        """Reduce gradients with a custom implementation."""
        for group in self._single_group("set_custom_reduce_scatter"):
            group._reduce_scatter_comm = comm

    def set_all_reduce_hook(self, hook: Callable[[Tensor], None], *, stream: Any = None) -> None:
        """Call hook(reduced flat gradients) before they are assigned to the parameters."""
        for group in self._single_group("set_all_reduce_hook"):
            if stream is not None and group._is_hsdp:
                raise ValueError("stream cannot be set when using native HSDP")
            group._all_reduce_hook = hook

    def set_post_optim_event(self, event: Any) -> None:
        """Set the event that the next pass's gathers wait for: the end of the optimizer step, instead of all work since."""
        self._get_fsdp_state()._state_ctx.post_optim_event = event

    @deprecated("Use `set_gradient_divide_factor` instead", category=FutureWarning)
    def set_reduce_scatter_divide_factor(self, factor: float) -> None:
        self.set_gradient_divide_factor(factor)

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Set the number that summed gradients are divided by, instead of the number of ranks."""
        for group in self._groups():
            group.gradient_divide_factor = factor

    def set_force_sum_reduction_for_comms(self, enable: bool) -> None:
        """Set whether reductions only add, so that each rank divides by itself."""
        for group in self._groups():
            group.force_sum_reduction_for_comms = enable

    def set_reduce_scatter_unused_params(self, reduce_scatter_unused_params: bool, *, recurse: bool = True) -> None:
        """Set whether a missing gradient counts as zeros, which is needed if ranks use different parameters."""
        for group in self._groups(recurse):
            group.reduce_scatter_unused_params = reduce_scatter_unused_params

    def set_reduce_scatter_max_input_buffers(self, max_input_buffers: int, *, recurse: bool = True) -> None:
        """Set how many groups' gradient reductions may be in flight at once."""
        if isinstance(max_input_buffers, bool) or not isinstance(max_input_buffers, int):
            raise TypeError(f"max_input_buffers must be an int, got {type(max_input_buffers).__name__}")
        if max_input_buffers < 1:
            raise ValueError(f"max_input_buffers must be a positive int, got {max_input_buffers}")
        for group in self._groups(recurse):
            group.reduce_scatter_max_input_buffers = max_input_buffers

    def set_separate_reduce_scatter_group(self, enable: bool = True, *, recurse: bool = True) -> None:
        """Set whether gradients use a separate process group, so that they do not wait for gathers."""
        made: dict[tuple[int, ...], Any] = {}
        for group in self._groups(recurse):
            info = group.mesh_info
            assert isinstance(info, FSDPMeshInfo)
            ranks = tuple(groups.get_process_group_ranks(info.shard_process_group))
            if enable and ranks not in made:
                made[ranks] = info.reduce_scatter_process_group or subgroups.new_group(
                    list(ranks), use_local_synchronization=True, group_desc="fsdp_reduce_scatter"
                )
            info.reduce_scatter_process_group = made[ranks] if enable else None

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Set whether the backward pass needs the parameters' values (that of an embedding does not)."""
        for group in self._groups():
            group.unshard_in_backward = unshard_in_backward

    def set_allocate_memory_from_process_group_for_comm(self, enable: bool) -> None:
        """Do nothing but check: buffers of the process group are not used, shards are received where they are needed."""
        for group in self._groups():
            for what, comm in (("all gather", group._all_gather_comm), ("reduce scatter", group._reduce_scatter_comm)):
                if comm is not None:
                    raise AssertionError(
                        f"cannot call set_allocate_memory_from_process_group() when {what} comm is custom: {type(comm).__name__}"
                    )

    def set_symm_mem_for_comm(self, backend: str = "NCCL") -> None:
        raise NotImplementedError("set_symm_mem_for_comm(): NCCL's symmetric memory is not in Flambeau yet")

    def _set_unshard_async_op(self, async_op: bool) -> None:
        for group in self._groups(True):
            group.unshard_async_op = async_op

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self.reshard()
        result = super()._apply(*args, **kwargs)
        for group in self._groups():
            for param in group.fsdp_params:
                param.reset_sharded_param()
        return result


def _states_of_modules(modules: Iterable[Any]) -> list[FSDPState]:
    for module in modules:
        if not isinstance(module, FSDPModule):
            raise ValueError(f"Expects FSDPModule but got {type(module)}: {module}")
    return [module._get_fsdp_state() for module in modules]


class UnshardHandle:
    """Handle of `unshard(async_op=True)`: parameters being gathered."""

    def wait(self) -> None:
        """Wait until the whole parameters are in the module."""


class _UnshardHandle(UnshardHandle):
    def __init__(self, param_groups: list[FSDPParamGroup]):
        self._groups = param_groups

    def wait(self) -> None:
        for group in self._groups:
            group.wait_for_unshard()
        self._groups = []


_UnshardHandleImpl = _UnshardHandle


def register_fsdp_forward_method(module: Module, method_name: str) -> None:
    """Gather the parameters also for a method other than `forward`, and free them after it. No effect on modules that are not sharded."""
    if not isinstance(module, FSDPModule):
        return
    if not hasattr(module, method_name):
        raise ValueError(f"{type(module)} does not have a method {method_name}")
    original = getattr(module, method_name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        state = self._get_fsdp_state()
        args, kwargs = state._pre_forward(self, args, kwargs)
        return state._post_forward(self, args, original(*args, **kwargs))

    setattr(module, method_name, types.MethodType(method, module))


def share_comm_ctx(modules: list[FSDPModule]) -> None:
    """Share one order of gathers and reductions among several outermost modules."""
    for module in modules:
        if not isinstance(module, FSDPModule):
            raise ValueError(f"Expects list of FSDPModules but got {module}")
    states = [module._get_fsdp_state() for module in modules]
    for state in states[1:]:
        state._comm_ctx = states[0]._comm_ctx
        for group in state._fsdp_param_groups:
            group.comm_ctx = states[0]._comm_ctx
