"""`FullyShardedDataParallel`: a wrapper that shards a module's parameters over the ranks, FSDP's first interface.

>>> model = FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)

The engine is that of `fully_shard`; what differs is that the parameters of a unit are sharded as one flat parameter."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...autograd.grad_mode import no_grad
from ...core.promotion import promote_types
from ...core.tensor import Tensor
from ...nn import Module, ModuleDict, ModuleList
from ...ops.creation.filled import zeros_like
from ..device_mesh import DeviceMesh
from ..utils import _apply_to_tensors, _sync_params_and_buffers
from . import _full_state
from ._common_utils import FLAT_PARAM, FSDP_PREFIX, FSDP_WRAPPED_MODULE, TrainingState, clean_tensor_name, fsdp_units
from ._flat_param import FlatGroup, FlatParameter
from ._fully_shard._fsdp_api import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from ._fully_shard._fsdp_common import FSDPMeshInfo
from ._fully_shard._fsdp_common import TrainingState as PassState
from ._fully_shard._fsdp_init import move_to_device
from ._init_utils import (
    HYBRID_SHARDING_STRATEGIES,
    NO_RESHARD_AFTER_FORWARD_STRATEGIES,
    auto_wrap,
    device_for,
    ignored_by,
    mesh_info_for,
)
from ._state_dict_methods import StateDictMethods
from .api import (
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    OptimStateDictConfig,
    OptimStateKeyType,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from .unit_state import HookReduction, UnitState, total_norm

__all__ = [
    "BackwardPrefetch", "CPUOffload", "FLAT_PARAM", "FlatParameter", "FullOptimStateDictConfig", "FullStateDictConfig",
    "FullyShardedDataParallel", "LocalOptimStateDictConfig", "LocalStateDictConfig", "MixedPrecision", "OptimStateDictConfig",
    "OptimStateKeyType", "ShardedOptimStateDictConfig", "ShardedStateDictConfig", "ShardingStrategy", "StateDictConfig",
    "StateDictSettings", "StateDictType", "_apply_to_tensors", "clean_tensor_name",
]  # fmt: skip


class FullyShardedDataParallel(StateDictMethods):
    """A module whose parameters are sharded over the ranks of a process group, together with their gradients and optimizer state.

    Modules inside that are wrapped themselves, or that `auto_wrap_policy` chooses, are separate units: only one or two units' parameters
    are whole at a time. `use_orig_params=True` keeps the parameters under their names, each rank with a part of them; otherwise a unit has
    one parameter, `_flat_param`. Make the optimizer afterwards."""

    def __init__(
        self,
        module: Module,
        process_group: Any = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | None = None,
        auto_wrap_policy: Any = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Module] | None = None,
        param_init_fn: Callable[[Module], None] | None = None,
        device_id: Any = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = False,
        ignored_states: Iterable[Any] | None = None,
        device_mesh: DeviceMesh | None = None,
    ):
        super().__init__()
        if isinstance(module, (ModuleList, ModuleDict)):
            warnings.warn(
                f"FSDP will not all-gather parameters for containers that do not implement forward: {module}",
                stacklevel=2,
            )
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        if ignored_modules is not None and ignored_states is not None:
            raise ValueError("Cannot pass both ignored_modules and ignored_states at the same time")
        if isinstance(module, FullyShardedDataParallel):
            raise ValueError("FSDP already applied to this module")
        if param_init_fn is not None and not callable(param_init_fn):
            raise ValueError(f"Expected {param_init_fn} to be callable, but got {type(param_init_fn)}")
        left_out, ignored = ignored_by(module, ignored_modules, ignored_states)
        if (
            strategy in HYBRID_SHARDING_STRATEGIES
            and auto_wrap_policy is None
            and process_group is None
            and device_mesh is None
        ):
            raise ValueError(
                f"Manual wrapping with {strategy} requires explicit specification of process group or device_mesh."
            )
        info = mesh_info_for(strategy, process_group, device_mesh)
        if info.mesh.size() == 1 and strategy is not ShardingStrategy.NO_SHARD:
            warnings.warn(
                f"FSDP is switching to use `NO_SHARD` instead of {strategy} since the world size is 1.", stacklevel=2
            )
            strategy = ShardingStrategy.NO_SHARD
        elif strategy in HYBRID_SHARDING_STRATEGIES and process_group is None:
            device_mesh = info.mesh  # for the units inside, too
        if auto_wrap_policy is not None:
            options = {
                "process_group": process_group, "sharding_strategy": strategy, "cpu_offload": cpu_offload,
                "backward_prefetch": backward_prefetch, "mixed_precision": mixed_precision, "param_init_fn": param_init_fn,
                "device_id": device_id, "sync_module_states": sync_module_states, "forward_prefetch": forward_prefetch,
                "limit_all_gathers": limit_all_gathers, "use_orig_params": use_orig_params, "ignored_states": None,
                "device_mesh": device_mesh,
            }  # fmt: skip
            if ignored:
                options["ignored_states"] = ignored
            auto_wrap(FullyShardedDataParallel, module, auto_wrap_policy, left_out, ignored, options)
        self._fsdp_wrapped_module = module
        self._set_up(strategy, mixed_precision, cpu_offload, backward_prefetch, forward_prefetch, limit_all_gathers)
        self._use_orig_params, self._info, self._device_mesh = use_orig_params, info, device_mesh
        self._ignored_params = {id(p) for p in ignored}
        params = self._own_parameters(left_out)
        device = device_for(device_id, params, info)
        params = self._materialise(params, left_out, param_init_fn, device)
        buffers = [b for b in module.buffers() if b.device.type != "meta"]
        move_to_device([*params, *buffers], device)
        if sync_module_states:
            self._synchronise(params, buffers, info)
        self._make_unit(params, device, left_out)

    def _set_up(self, strategy: Any, precision: Any, offload: Any, prefetch: Any, forward: bool, limit: bool) -> None:
        self.sharding_strategy, self.mixed_precision = strategy, precision or MixedPrecision()
        self.cpu_offload, self.backward_prefetch = offload or CPUOffload(), prefetch
        self.forward_prefetch, self.limit_all_gathers = forward, limit
        self.training_state = TrainingState.IDLE
        self._comm_hook: Callable | None = None
        self._comm_hook_state: object = None
        self._state_dict_type = StateDictType.FULL_STATE_DICT
        self._state_dict_config: StateDictConfig = FullStateDictConfig()
        self._optim_state_dict_config: OptimStateDictConfig = FullOptimStateDictConfig()

    # -- making a unit --------------------------------------------------------------------------------------------------------

    def _own_modules(self, left_out: set[Module]) -> list[Module]:
        """Return the submodules that belong to no inner unit."""
        inner = {m for unit in self.fsdp_modules(self._fsdp_wrapped_module) for m in unit.modules()}
        return [m for m in self._fsdp_wrapped_module.modules() if m not in inner and m not in left_out]

    def _own_parameters(self, left_out: set[Module]) -> list[Any]:
        found: dict[int, Any] = {}
        for module in self._own_modules(left_out):
            for param in module.parameters(recurse=False):
                if id(param) not in self._ignored_params:
                    found[id(param)] = param
        return list(found.values())

    def _materialise(self, params: list[Any], left_out: set[Module], init: Callable | None, device: Any) -> list[Any]:
        """Allocate and initialise meta parameters: only those of this unit, and only until they are sharded."""
        if not any(p.device.type == "meta" for p in params):
            return params
        for module in self._own_modules(left_out):
            tensors = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
            if not any(t.device.type == "meta" for t in tensors):
                continue
            if init is not None:
                init(module)
                continue
            module.to_empty(device=device, recurse=False)
            if not hasattr(module, "reset_parameters"):
                raise RuntimeError(
                    f"{type(module).__name__} has parameters on the device meta and no reset_parameters(): give param_init_fn"
                )
            with no_grad():
                module.reset_parameters()
        return self._own_parameters(left_out)

    def _synchronise(self, params: list[Any], buffers: list[Tensor], info: Any) -> None:
        for name in ("replicate_process_group", "shard_process_group"):
            group = getattr(info, name, None)
            if group is not None:
                _sync_params_and_buffers(group, [t.detach() for t in (*params, *buffers)], 250 << 20, 0)

    def _make_unit(self, params: list[Any], device: Any, left_out: set[Module]) -> None:
        strategy, info, precision = self.sharding_strategy, self._info, self.mixed_precision
        policy = MixedPrecisionPolicy(precision.param_dtype, precision.reduce_dtype)
        state = self._fsdp_state = UnitState()
        state.precision, state.prefetches = precision, self.backward_prefetch is not None
        state.init((self,), device, policy, True)
        self._group: FlatGroup | None = None
        self._buffer_dtypes: dict[str, Any] = {}  # what buffers were, and are in state dicts
        if precision.buffer_dtype is not None:
            names = {id(m): f"{name}." if name else "" for name, m in self._fsdp_wrapped_module.named_modules()}
            for module in self._own_modules(left_out):
                for name, buffer in module.named_buffers(recurse=False):
                    if buffer.dtype.is_floating_point:
                        self._buffer_dtypes[names[id(module)] + name] = buffer.dtype
                        buffer.data = buffer.to(precision.buffer_dtype)
        if params:
            if len({p.dtype for p in params}) > 1:
                raise ValueError("Must flatten tensors with uniform dtype but got " + str({p.dtype for p in params}))
            if not self._use_orig_params and len({p.requires_grad for p in params}) > 1:
                raise ValueError("Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`")
            keeps = strategy in NO_RESHARD_AFTER_FORWARD_STRATEGIES or strategy is ShardingStrategy.NO_SHARD
            offload = CPUOffloadPolicy() if self.cpu_offload.offload_params else OffloadPolicy()
            self._group = FlatGroup(
                params,
                self._fsdp_wrapped_module,
                self._use_orig_params,
                info,
                None if keeps else info,
                device,
                policy,
                offload,
            )
            self._group.keeps_low_precision = precision.keep_low_precision_grads
            state._fsdp_param_groups.append(self._group)
        self.register_state_dict_pre_hook(_full_state.before_saving)
        self._register_state_dict_hook(_full_state.after_saving)
        self.register_load_state_dict_pre_hook(_full_state.before_loading)
        self.register_load_state_dict_post_hook(_full_state.after_loading)

    # -- what it is made of ---------------------------------------------------------------------------------------------------

    @property
    def module(self) -> Any:
        """The wrapped module."""
        inner = self._fsdp_wrapped_module
        return getattr(inner, "_checkpoint_wrapped_module", inner)

    @property
    def _has_params(self) -> bool:
        return self._group is not None

    @property
    def _handle(self) -> Any:
        return None if self._group is None else self._group._flat

    @property
    def params(self) -> list[Any]:
        """The module's flat parameter in a list; empty if it has none."""
        return [] if self._group is None else [self._flat_param]

    @property
    def _flat_param(self) -> Any:
        return None if self._group is None else self._group._flat.sharded_param

    @property
    def process_group(self) -> Any:
        return getattr(self._info, "shard_process_group", None) or self._info.replicate_process_group

    @property
    def _inter_node_pg(self) -> Any:
        return self._info.replicate_process_group

    @property
    def world_size(self) -> int:
        return self.process_group.size()

    @property
    def rank(self) -> int:
        return self.process_group.rank()

    @property
    def _is_root(self) -> bool | None:
        return self._fsdp_state._is_root

    @property
    def compute_device(self) -> Any:
        return self._fsdp_state._device

    def check_is_root(self) -> bool:
        """Return whether this is the outermost unit."""
        self._fsdp_state._lazy_init()
        return bool(self._fsdp_state._is_root)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == FSDP_WRAPPED_MODULE:
                raise
            return getattr(self._fsdp_wrapped_module, name)

    def __getitem__(self, key: int) -> Any:
        return self._fsdp_wrapped_module.__getitem__(key)

    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[FullyShardedDataParallel]:
        """Return the units below and including a module; with `root_only` those that are in no other."""
        found = fsdp_units(module)
        if root_only:
            inner = {m for unit in found for m in unit.modules() if m is not unit}
            found = [unit for unit in found if unit not in inner]
        return found

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._fsdp_wrapped_module(*args, **kwargs)

    def _assert_state(self, state: TrainingState | list[TrainingState]) -> None:
        wanted = state if isinstance(state, list) else [state]
        if self.training_state not in wanted:
            raise ValueError(f"expected to be in states {wanted} but current state is {self.training_state}")

    def apply(self, fn: Callable[[Module], None]) -> FullyShardedDataParallel:
        """Call fn(module) for every module, with whole parameters."""
        self._assert_state(TrainingState.IDLE)
        uninitialised = self._fsdp_state._is_root is None
        with self.summon_full_params(self, recurse=False, writeback=True):
            result = super().apply(fn)
        if uninitialised:
            self._fsdp_state._is_root = None
            self._fsdp_state._state_ctx.all_states.clear()
        return result

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        if self._group is not None:
            self._group._to_sharded()
        result = super()._apply(*args, **kwargs)
        if self._group is not None:
            self._group._flat.reset_sharded_param()
            self._group._flat.init_dtype_attrs(self._group.mp_policy)
        return result

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        cleans = self.training_state is TrainingState.SUMMON_FULL_PARAMS
        for name, param in super().named_parameters(*args, **kwargs):
            yield name.replace(FSDP_PREFIX, "") if cleans else name, param

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Tensor]]:
        cleans = self.training_state is TrainingState.SUMMON_FULL_PARAMS
        for name, buffer in super().named_buffers(*args, **kwargs):
            yield name.replace(FSDP_PREFIX, "") if cleans else name, buffer

    # -- gradients ------------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Context manager: backward passes do not reduce; whole gradients are accumulated on each rank."""
        self._fsdp_state._lazy_init()
        if not self._fsdp_state._is_root:
            raise RuntimeError(
                "`no_sync()` on inner FSDP instances is not supported. Please call `no_sync()` on root FSDP module."
            )
        units = [unit._group for unit in self.fsdp_modules(self) if unit._group is not None]
        before = [group.reduce_grads for group in units]
        for group in units:
            group.reduce_grads = False
        try:
            yield
        finally:
            for group, value in zip(units, before):
                group.reduce_grads = value

    @no_grad()
    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scale all gradients of the model so that their common norm is at most `max_norm`; returns the norm before."""
        self._fsdp_state._lazy_init()
        if not self._fsdp_state._is_root:
            raise RuntimeError("`clip_grad_norm_()` should only be called on the root FSDP instance")
        kind, limit = float(norm_type), float(max_norm)
        sharded: dict[int, Any] = {}
        for unit in self.fsdp_modules(self):
            if unit._group is not None and isinstance(unit._info, FSDPMeshInfo):
                flat = unit._group._flat
                for param in [p.param for p in flat.pieces] if flat.use_orig_params else [flat.sharded_param]:
                    sharded[id(param)] = param
        cut = [p.grad for p in sharded.values() if p.grad is not None]
        whole = [p.grad for p in self.parameters() if p.grad is not None and id(p) not in sharded]
        total = total_norm(cut, whole, kind, self._info, self.compute_device)
        factor = (limit / (total + 1e-6)).clamp(max=1.0)
        for grad in {id(g): g for g in (*cut, *whole)}.values():
            grad.mul_(factor.to(grad.device, grad.dtype))
        if not cut and not whole:
            warnings.warn(
                f"Called FSDP.clip_grad_norm_() on rank {self.rank} with no gradients -- returning the total norm in the default dtype"
                f" {total.dtype}",
                stacklevel=3,
            )
            return total
        return total.to(functools.reduce(promote_types, (g.dtype for g in (*cut, *whole))))

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """Reduce the gradients of each unit's flat parameter by hook(state, gradients, output), or by hook(state, gradients) if it is not
        sharded."""
        if not self.check_is_root():
            raise AssertionError("register_comm_hook can only be called on a root instance.")
        for unit in self.fsdp_modules(self):
            if unit.sharding_strategy in HYBRID_SHARDING_STRATEGIES:
                raise AssertionError(
                    f"Communication hook is not supported for hybrid strategies: {unit.sharding_strategy}"
                )
            if unit._comm_hook is not None:
                raise AssertionError("A communication hook is already registered")
            if not callable(hook):
                raise ValueError(f"The communication hook must be callable but got {hook}")
            unit._comm_hook, unit._comm_hook_state = hook, state
            if unit._group is not None:
                unit._group._reduce_scatter_comm = HookReduction(state, hook)
                unit._group.force_sum_reduction_for_comms, unit._group.gradient_divide_factor = True, 1.0

    # -- whole parameters -----------------------------------------------------------------------------------------------------

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(
        module: Module,
        recurse: bool = True,
        writeback: bool = True,
        rank0_only: bool = False,
        offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> Iterator[None]:
        """Context manager: all parameters (or those of one unit) are whole; changes to them are kept if `writeback`."""
        if writeback and rank0_only:
            raise NotImplementedError("writeback=True and rank0_only=True is not supported yet")
        if offload_to_cpu and not rank0_only:
            warnings.warn(
                "offload_to_cpu=True and rank0_only=False may result in the unsharded parameters being redundantly copied to CPU"
                " memory for GPUs sharing the same CPU memory, which risks CPU OOM. We recommend using offload_to_cpu=True with"
                " rank0_only=True.",
                stacklevel=2,
            )
        units = FullyShardedDataParallel.fsdp_modules(module)
        if not recurse:
            units = [unit for unit in units if unit is module]
        for unit in units:
            unit._assert_state([TrainingState.IDLE])
            unit._gather_for_user(with_grads)
        try:
            yield
        finally:
            for unit in units:
                unit._end_user_access(writeback)

    def _gather_for_user(self, with_grads: bool = False) -> None:
        """Gather whole parameters, in their own precision."""
        if self._fsdp_state._training_state is not PassState.IDLE:
            raise AssertionError(
                f"Cannot manually unshard parameters during forward/backward: {self._fsdp_state._training_state}"
            )
        self.training_state = TrainingState.SUMMON_FULL_PARAMS
        group = self._group
        if group is None:
            return
        group._init_mp_dtypes()
        group._to_sharded()
        flat = group._flat
        self._kept = flat.exchange_whole(([], None, [], None))
        group.unshard()
        group.wait_for_unshard()
        flat.show_parameters()
        if with_grads:
            self._gather_gradients()

    def _gather_gradients(self) -> None:
        flat = self._group._flat  # type: ignore[union-attr]
        part = zeros_like(flat._sharded_param_data)
        if flat.use_orig_params:
            for piece, low, high in flat.own_parts():
                if piece.param.grad is not None:
                    part[low:high].copy_(piece.param.grad.reshape(-1))
        elif flat.sharded_param.grad is not None:
            part.copy_(flat.sharded_param.grad)
        gathered = flat.whole(part)
        for piece in flat.pieces:
            param = getattr(piece.info.module, piece.info.param_name)
            param.grad = gathered[piece.start : piece.start + piece.size].view(piece.shape)

    def _end_user_access(self, writeback: bool) -> None:
        self.training_state = TrainingState.IDLE
        group = self._group
        if group is not None:
            flat = group._flat
            if writeback or not (flat.offload_to_cpu or isinstance(self._info, FSDPMeshInfo)):
                flat.write_back()  # where nothing is cut, a program has the parameters themselves
            group._to_sharded()
            flat.exchange_whole(self._kept)

    def _unshard(self, async_op: bool = False) -> Any:
        if self._group is not None:
            self._group.lazy_init()
            self._group.unshard(async_op)
            self._group.wait_for_unshard()
        return None
