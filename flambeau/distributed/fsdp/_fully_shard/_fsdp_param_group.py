"""Groups of parameters that are communicated together: those of one call of `fully_shard`.

Before the module runs, forward or backward, they are gathered; afterwards their memory is freed, and after the backward pass of the module
the gradients are reduced while the pass continues with other modules."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from ....autograd.engine import running
from ....autograd.function import Function
from ....core.graph import grad_mode, unrecorded
from ....core.modes import named_range
from ....core.tensor import Tensor
from ....nn import Module, Parameter
from ...pieces import Share, contiguous, even_shares
from ...utils import _apply_to_tensors
from ._fsdp_api import AllGather, CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, ReduceScatter
from ._fsdp_collectives import Gathering, Reduction, foreach_all_gather
from ._fsdp_common import DataParallelMeshInfo, DDPMeshInfo, FSDPMeshInfo, HSDPMeshInfo, TrainingState
from ._fsdp_lanes import Lane, lane_for
from ._fsdp_param import FSDPParam, ParamModuleInfo, ShardedState


class FSDPCommContext:
    """Shared state of the groups of one model: the order in which they ran, and the gradient reductions in flight."""

    def __init__(self) -> None:
        self.post_forward_order: list[FSDPParamGroup] = []
        self.reductions: list[Reduction] = []
        self.gathers: Lane | None = None
        self.reduces: Lane | None = None

    def use_streams_of(self, device: Any) -> None:
        """Use separate streams for gathering and reducing on a GPU."""
        if self.gathers is None:
            self.gathers, self.reduces = lane_for(device), lane_for(device)

    def settle(self, most: int = 0) -> None:
        """Finish reductions, the oldest first, until at most `most` are in flight."""
        while len(self.reductions) > most:
            self.reductions.pop(0).finish()


class FSDPParamGroup:
    """Parameters that are gathered and reduced in one operation each."""

    keeps_low_precision = False  # whether gradients stay in the dtype in which they were reduced
    overlaps = True  # reductions and prefetched gathers run in a thread of the process group

    def __init__(
        self,
        params: list[Parameter],
        modules: tuple[Module, ...],
        mesh_info: DataParallelMeshInfo,
        post_forward_mesh_info: FSDPMeshInfo | None,
        device: Any,
        shard_placement_fn: Callable | None,
        mp_policy: MixedPrecisionPolicy,
        offload_policy: OffloadPolicy,
    ):
        self.modules, self.mesh_info, self.device = modules, mesh_info, device
        self.post_forward_mesh_info = post_forward_mesh_info
        self.mp_policy, self.offload_policy = mp_policy, offload_policy
        self.fsdp_params = [
            FSDPParam(
                param, info, mesh_info, post_forward_mesh_info, device, shard_placement_fn, mp_policy, offload_policy
            )
            for param, info in zip(params, _get_param_module_infos(params, modules))
        ]
        self._training_state, self._sharded_state = TrainingState.IDLE, ShardedState.SHARDED
        self._module_fqn: str | None = None
        self._reset_sharded_params = False
        self._has_state_hooks = False
        self.comm_ctx = FSDPCommContext()
        self._post_forward_indices: list[int] = []
        self._all_gather_result: Gathering | None = None
        self._partial_reduce_output: Tensor | None = None
        self._orig_dtype: Any = None
        self._reduce_dtype: Any = None
        # what a program may set
        self.reduce_grads = self.all_reduce_grads = self.reshard_after_backward = self.unshard_in_backward = True
        self.unshard_async_op = self.reduce_scatter_unused_params = self.force_sum_reduction_for_comms = False
        self.reduce_scatter_max_input_buffers = 1
        self.gradient_divide_factor: float | None = None
        self._all_gather_comm: AllGather | None = None
        self._reduce_scatter_comm: ReduceScatter | None = None
        self._all_reduce_hook: Callable[[Tensor], None] | None = None

    # -- before the first pass ----------------------------------------------------------------------------------------------

    def lazy_init(self) -> None:
        if self.is_sharded and not self._reset_sharded_params:
            for param in self.fsdp_params:
                param.reset_sharded_param()
            self._reset_sharded_params = True
        self._refuse_meta()
        self._refuse_other_devices()
        self._init_mp_dtypes()
        self.comm_ctx.use_streams_of(self.device)
        if not self._has_state_hooks:
            self._has_state_hooks = True
            for module in {p._module_info.module for p in self.fsdp_params}:
                module.register_state_dict_pre_hook(lambda *_: self._to_sharded())
                module._register_load_state_dict_pre_hook(lambda *_: self._to_sharded())

    def _refuse_meta(self) -> None:
        names = [p._param_fqn for p in self.fsdp_params if p.sharded_param.device.type == "meta"]
        if names:
            raise RuntimeError(
                "FSDP parameters should be materialized from meta device before training, but the following were still on meta"
                f" device: {names}\nFor example, call module.to_empty(device) to materialize to device and call"
                " module.reset_parameters() on each module to initialize values."
            )

    def _refuse_other_devices(self) -> None:
        if not isinstance(self.offload_policy, CPUOffloadPolicy):
            return
        others = [
            (p._param_fqn, p.sharded_param.device) for p in self.fsdp_params if p.sharded_param.device.type != "cpu"
        ]
        if others:
            raise RuntimeError(
                "FSDP parameters should be materialized on CPU when enabling CPU offloading. For example, load a CPU state dict"
                f' or call module.to_empty(device="cpu"). Found following parameters on non-CPU device: {others}\n'
            )

    def _init_mp_dtypes(self) -> None:
        for param in self.fsdp_params:
            param.init_dtype_attrs(self.mp_policy)
        trained = [p for p in self.fsdp_params if p.sharded_param.requires_grad]
        kept, reduced = {p.orig_dtype for p in trained}, {p.reduce_dtype for p in trained}
        if len(kept) > 1:
            raise AssertionError(f"FSDP expects uniform original parameter dtype but got {kept}")
        if len(reduced) > 1:
            raise AssertionError(f"FSDP expects uniform reduce dtype but got {reduced}")
        self._orig_dtype = kept.pop() if kept else None
        self._reduce_dtype = reduced.pop() if reduced else None

    # -- gathering and letting go -------------------------------------------------------------------------------------------

    def unshard(self, async_op: bool = False) -> None:
        """Start to gather the parameters."""
        if self._all_gather_result is not None or self.is_unsharded:
            return
        if not self.unshard_in_backward and self._training_state is TrainingState.PRE_BACKWARD:
            return
        lane = self.comm_ctx.gathers
        in_a_pass = self._training_state in (TrainingState.FORWARD, TrainingState.PRE_BACKWARD)
        if lane is not None and (not in_a_pass or self.is_sharded_post_forward):
            lane.follow()  # the program may have changed the shards; larger ones are cut on the stream that computes
        with named_range(self._with_fqn("FSDP::all_gather")):
            self._all_gather_result = foreach_all_gather(
                self.fsdp_params, self.all_gather_group(), async_op, self.device, self._all_gather_comm, lane
            )

    def wait_for_unshard(self) -> None:
        """Wait until the whole parameters have been gathered, and set them in the modules."""
        if self._all_gather_result is None:
            return
        self._all_gather_result.wait()
        self._all_gather_result = None
        with self._keeping_until_read():
            for param in self.fsdp_params:
                param.init_unsharded_param()
        self._to_unsharded()

    def reshard(self) -> None:
        """Free the memory of whole parameters."""
        if self._training_state is TrainingState.FORWARD:
            if self.post_forward_mesh_info is None:
                return
            if self.post_forward_mesh_info is not self.mesh_info:
                if not self.is_sharded_post_forward:
                    with self._keeping_until_read():
                        for param in self.fsdp_params:
                            param.to_sharded_post_forward()
                    self._sharded_state = ShardedState.SHARDED_POST_FORWARD
                return
        self._to_sharded()

    def _to_sharded(self) -> None:
        if not self.is_sharded:
            with self._keeping_until_read():
                for param in self.fsdp_params:
                    param.to_sharded()
            self._sharded_state = ShardedState.SHARDED

    @contextlib.contextmanager
    def _keeping_until_read(self) -> Iterator[None]:
        """Context manager around freeing gathered parameters: their memory is held while the compute stream may still read it."""
        lane = self.comm_ctx.gathers
        if lane is None:
            yield
            return
        storages = [(t._storage, t._storage.owner) for param in self.fsdp_params for t in param.all_gather_outputs]
        yield
        lane.keep([owner for storage, owner in storages if owner is not None and storage.owner is not owner])

    def _to_unsharded(self) -> None:
        if not self.is_unsharded:
            for param in self.fsdp_params:
                param.to_unsharded()
            self._sharded_state = ShardedState.UNSHARDED

    @property
    def is_sharded(self) -> bool:
        return self._sharded_state is ShardedState.SHARDED

    @property
    def is_sharded_post_forward(self) -> bool:
        return self._sharded_state is ShardedState.SHARDED_POST_FORWARD

    @property
    def is_unsharded(self) -> bool:
        return self._sharded_state is ShardedState.UNSHARDED

    # -- around the passes --------------------------------------------------------------------------------------------------

    def pre_forward(self, module: Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        first = self._training_state is not TrainingState.FORWARD  # of the modules that were sharded together
        self._training_state = TrainingState.FORWARD
        self.unshard(self.unshard_async_op)
        self.wait_for_unshard()
        return self._register_post_backward_hook(args, kwargs) if first else (args, kwargs)

    def post_forward(self, module: Any, input: Any, output: Any) -> Any:
        if running.current is None:  # else it is a layer that runs again for the backward pass
            self.reshard()
            self._post_forward_indices.append(len(self.comm_ctx.post_forward_order))
            self.comm_ctx.post_forward_order.append(self)
        self._training_state = TrainingState.IDLE
        return output

    def pre_backward(self, default_prefetch: bool, *unused: Any) -> None:
        if self._training_state is TrainingState.PRE_BACKWARD:
            return
        self._training_state = TrainingState.PRE_BACKWARD
        self.unshard(self.unshard_async_op)
        self.wait_for_unshard()
        if default_prefetch and self._post_forward_indices:
            here = self._post_forward_indices.pop()
            if here > 0:
                self._prefetch_unshard(self.comm_ctx.post_forward_order[here - 1], "backward")

    def post_backward(self, *unused: Any) -> None:
        """Free the whole parameters and start to reduce the gradients, after the module's backward pass. No effect without gradients."""
        # Only some of several modules ran: there is nothing to wait for at the end.
        alone = self._training_state is TrainingState.FORWARD
        self._training_state = TrainingState.POST_BACKWARD
        for param in self.fsdp_params:
            param.accumulate_unsharded_grad_if_needed()
        if not self.reduce_grads:
            if self.reshard_after_backward:
                self.reshard()
            for param in self.fsdp_params:
                param.to_accumulated_grad_if_needed()
            return
        found = [(p, p.take_gradient(self.reduce_scatter_unused_params)) for p in self.fsdp_params]
        params, grads = [p for p, g in found if g is not None], [g for _, g in found if g is not None]
        del found
        if self.reshard_after_backward:
            self.reshard()
        self.comm_ctx.settle(self.reduce_scatter_max_input_buffers - 1)
        if params:
            with named_range(self._with_fqn("FSDP::post_backward_reduce")):
                self.comm_ctx.reductions.append(unrecorded(Reduction, self, params, grads))
        if alone:
            self.comm_ctx.settle()

    def finalize_backward(self) -> None:
        self.comm_ctx.settle()
        if self._all_gather_result is not None:  # fetched for nothing
            self._all_gather_result.wait()
            self._all_gather_result = None
            with self._keeping_until_read():
                for param in self.fsdp_params:
                    param.free_unsharded_param()
        self._post_forward_indices.clear()

    def _reset_iter_state(self) -> None:
        self.finalize_backward()
        self._partial_reduce_output = None
        self._training_state = TrainingState.IDLE
        for param in self.fsdp_params:
            param.forget_gradients()
        self._to_sharded()

    @staticmethod
    def _prefetch_unshard(target: FSDPParamGroup, pass_type: str) -> None:
        """Start to gather another group's parameters, while this one computes."""
        state = {"backward": TrainingState.PRE_BACKWARD, "forward": TrainingState.FORWARD}.get(pass_type)
        if state is None:
            raise ValueError(f"Unknown pass type: {pass_type}")
        with target.use_training_state(state):
            target.unshard(target.overlaps or target.unshard_async_op)

    @contextlib.contextmanager
    def use_training_state(self, training_state: TrainingState) -> Iterator[None]:
        before, self._training_state = self._training_state, training_state
        try:
            yield
        finally:
            self._training_state = before

    def _register_post_backward_hook(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Insert a node that runs `post_backward` with the inputs' gradients, which are computed after those of the parameters."""
        if not grad_mode.enabled:
            return args, kwargs
        found: list[Tensor] = collect_grad_tensors((args, kwargs))
        if not found:
            return args, kwargs
        passed = iter(RegisterPostBackwardFunction.apply(self, *found))
        return _apply_to_tensors(lambda t: next(passed) if t.requires_grad else t, (args, kwargs))

    def shares(self, params: list[Any], grads: list[Any], counts: list[int], ranks: int) -> list[list[Share]]:
        """Return each rank's share of the gradients."""
        return even_shares([contiguous(param.by_rank(grad)) for param, grad in zip(params, grads)], counts, ranks)

    # -- who takes part ------------------------------------------------------------------------------------------------------

    def all_gather_group(self) -> Any:
        info = self.post_forward_mesh_info if self.is_sharded_post_forward else self.mesh_info
        return info.shard_process_group if isinstance(info, FSDPMeshInfo) else None

    def reduce_scatter_group(self) -> Any:
        info = self.mesh_info
        if not isinstance(info, FSDPMeshInfo):
            return None
        return info.reduce_scatter_process_group or info.shard_process_group

    def all_reduce_group(self) -> Any:
        return self.mesh_info.replicate_process_group if isinstance(self.mesh_info, DDPMeshInfo) else None

    @property
    def _is_hsdp(self) -> bool:
        return isinstance(self.mesh_info, HSDPMeshInfo)

    @property
    def _reshard_after_forward(self) -> bool:
        return self.post_forward_mesh_info is not None

    def _with_fqn(self, label: str) -> str:
        return f"{label} ({self._module_fqn})" if self._module_fqn else label

    def __repr__(self) -> str:
        return f"FSDPParamGroup(fqn={self._module_fqn})"


class RegisterPostBackwardFunction(Function):
    """Identity whose backward notifies a group that the backward pass of its module is over."""

    @staticmethod
    def forward(ctx: Any, param_group: FSDPParamGroup, *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.param_group = param_group
        ctx.set_materialize_grads(False)
        return tuple(t.view_as(t) for t in inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        ctx.param_group.post_backward()
        return (None, *grads)


def collect_grad_tensors(container: Any) -> list[Tensor]:
    """Return the tensors in a container that require grad."""
    found: list[Tensor] = []

    def look(value: Any) -> None:
        if isinstance(value, Tensor):
            if value.requires_grad:
                found.append(value)
        elif isinstance(value, dict):
            for one in value.values():
                look(one)
        elif isinstance(value, (list, tuple, set)):
            for one in value:
                look(one)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            for one in dataclasses.fields(value):
                look(getattr(value, one.name))

    look(container)
    return found


def _get_param_module_infos(params: list[Parameter], modules: tuple[Module, ...]) -> list[ParamModuleInfo]:
    """Return the modules and names of each parameter, including shared ones."""
    wanted = {id(p) for p in params}
    infos: dict[int, ParamModuleInfo] = {}
    for module in modules:
        for _, child in module.named_modules(remove_duplicate=False):
            for name, param in child._parameters.items():
                if param is None or id(param) not in wanted:
                    continue
                info = infos.get(id(param))
                if info is None:
                    infos[id(param)] = ParamModuleInfo(child, name)
                else:
                    info.shared_modules.append(child)
                    info.shared_param_names.append(name)
    if len(infos) != len(params):
        raise AssertionError(f"Some parameters are not in the module tree of {modules}")
    return [infos[id(p)] for p in params]
