"""DistributedDataParallel: the same model in every process, each with its own part of the data, gradients averaged."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..core.graph import grad_mode
from ..core.tensor import Tensor
from ..nn.modules.batchnorm import SyncBatchNorm
from ..nn.modules.module import Module
from ..nn.modules.sparse import Embedding, EmbeddingBag
from ..ops import namespace
from . import collectives, groups
from .algorithms.join import Join, Joinable, JoinHook, _DDPJoinHook
from .buckets import assign_by_size
from .ddp_logging import Logger
from .ddp_settings import _MB_TO_BYTES, _BucketCapacityConfig, _MixedPrecision
from .options import DebugLevel, get_debug_level
from .reducer import BuiltinCommHookType, Reducer
from .replicas import _broadcast_coalesced
from .utils import _find_tensors, _sync_module_states, _to_kwargs, _verify_param_shape_across_processes

_BROADCAST_BYTES = 250 * _MB_TO_BYTES
_NOT_NEEDED = "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient."


class DistributedDataParallel(Module, Joinable):
    """Wraps a module: every backward pass leaves the average of all ranks' gradients in `.grad`.

    >>> model = DistributedDataParallel(model)
    >>> loss(model(x), y).backward()      # gradients travel while the backward pass still runs
    """

    module: Any  # of the wrapped module's type, which a checker cannot infer
    _active_ddp_module: DistributedDataParallel | None = None

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: _MixedPrecision | None = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: list[int] | None = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()
        Joinable.__init__(self)
        self.logger: Logger | None = None
        self._check_arguments(module, device_ids, process_group, device_mesh)
        if mixed_precision is not None or delay_all_reduce_named_params is not None:
            raise NotImplementedError(
                "DistributedDataParallel: mixed_precision and delay_all_reduce_named_params are not supported yet; use autocast"
            )
        if device_mesh is not None:
            process_group = device_mesh.get_group(mesh_dim=0)
        self.process_group = groups._get_default_group() if process_group is None else process_group
        self.device_mesh = device_mesh
        self.module = module
        self.device = next(p for p in module.parameters() if p.requires_grad).device
        self.device_type = self.device.type
        self.device_ids, self.output_device, self.dim = device_ids or None, output_device, dim
        buffers = forward_sync_buffers if broadcast_buffers is None else broadcast_buffers
        self.broadcast_buffers = True if buffers is None else buffers
        self.find_unused_parameters, self.gradient_as_bucket_view = find_unused_parameters, gradient_as_bucket_view
        self.static_graph = static_graph
        self.skip_all_reduce_unused_params = skip_all_reduce_unused_params
        self.mixed_precision = mixed_precision
        self._bucket_config = _BucketCapacityConfig.create(bucket_cap_mb, bucket_cap_mb_list, False)
        self.bucket_bytes_cap = self._bucket_config.bucket_bytes_cap
        self.bucket_bytes_cap_list = list(self._bucket_config.per_bucket_bytes_caps)
        self.parameters_to_ignore = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self.require_backward_grad_sync = True
        self.require_forward_param_sync = True
        self._divide_by_initial_world_size = True
        self._comm_hooks: list[tuple[Callable, Any]] = []
        self.buffer_hook: tuple | None = None
        parameters, expect_sparse = self._build_params_for_reducer()
        if not parameters:
            self._log_and_throw(RuntimeError, _NOT_NEEDED)
        if init_sync:
            _verify_param_shape_across_processes(self.process_group, parameters)
            _sync_module_states(
                module, self.process_group, _BROADCAST_BYTES, 0, self.parameters_to_ignore, self.broadcast_buffers
            )
        self._start_reducer(parameters, expect_sparse)

    def _check_arguments(self, module: Module, device_ids: Any, process_group: Any, device_mesh: Any) -> None:
        if process_group is not None and device_mesh is not None:
            raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
        if device_mesh is not None and device_mesh.ndim != 1:
            raise RuntimeError(f"Only 1D device mesh is supported, but got {device_mesh}.")
        if not any(p.requires_grad for p in module.parameters()):
            self._log_and_throw(RuntimeError, _NOT_NEEDED)
        if device_ids is not None and len(device_ids) > 1:
            self._log_and_throw(ValueError, "device_ids can only be None or contain a single element.")
        kinds = {p.device.type for p in module.parameters()}
        if len(kinds) != 1:
            self._log_and_throw(
                ValueError,
                f"DistributedDataParallel's input module must be on the same type of devices, but input module parameters locate in {kinds}.",
            )
        if device_ids and kinds == {"cpu"}:
            self._log_and_throw(
                ValueError,
                "DistributedDataParallel device_ids and output_device arguments only work with single-device/multiple-device GPU"
                f" modules or CPU modules, but got device_ids {device_ids}, output_device None, and module parameters"
                f" { {p.device for p in module.parameters()} }.",
            )

    def _log_and_throw(self, kind: type[Exception], message: str) -> None:
        if self.logger is not None:
            self.logger.set_error_and_log(f"{kind.__name__}: {message}")
        raise kind(message)

    # -- parameters and the reducer -------------------------------------------------------------------------------------

    def _build_params_for_reducer(self) -> tuple[list[Tensor], list[bool]]:
        """Return the parameters that need gradients, each once, and whether theirs are sparse."""
        parameters: list[Tensor] = []
        sparse: list[bool] = []
        seen: set[int] = set()
        for module_name, module in self.module.named_modules():
            makes_sparse = isinstance(module, (Embedding, EmbeddingBag)) and module.sparse
            for name, parameter in module.named_parameters(recurse=False):
                full = f"{module_name}.{name}" if module_name else name
                if parameter.requires_grad and full not in self.parameters_to_ignore and id(parameter) not in seen:
                    seen.add(id(parameter))
                    parameters.append(parameter)
                    sparse.append(makes_sparse)
        return parameters, sparse

    def _assign_modules_buffers(self) -> None:
        """Update the list and the dict of buffers, in place, since the module may have others than before."""
        found = {n: buffer for n, buffer in self.module.named_buffers() if n not in self.parameters_to_ignore}
        self.modules_buffers[:] = found.values()
        self.named_module_buffers.clear()
        self.named_module_buffers.update(found)

    def _build_debug_param_to_name_mapping(self, parameters: Sequence[Tensor]) -> dict[int, str]:
        places = {id(p): i for i, p in enumerate(parameters)}
        names: dict[int, str] = {}
        for name, parameter in self.module.named_parameters():
            if name in self.parameters_to_ignore or not parameter.requires_grad:
                continue
            if id(parameter) not in places:
                self._log_and_throw(
                    ValueError,
                    f"Param with name {name} found in module parameters, but not DDP parameters. This indicates a bug in DDP,"
                    " please report an issue to PyTorch.",
                )
            names.setdefault(places[id(parameter)], name)
        if len(names) != len(parameters):
            self._log_and_throw(
                ValueError,
                f"Expected param to name mapping to cover all parameters, but got conflicting lengths: {len(parameters)} vs"
                f" {len(names)}. This indicates a bug in DDP, please report an issue to PyTorch.",
            )
        return names

    def _start_reducer(self, parameters: list[Tensor], expect_sparse: list[bool]) -> None:
        self.modules_buffers: list[Tensor] = []
        self.named_module_buffers: dict[str, Tensor] = {}
        config = self._bucket_config
        limits, rebuild = config.compute_bucket_size_limits(self.static_graph, self.find_unused_parameters)
        buckets, _ = assign_by_size(parameters, limits, expect_sparse)
        names = self._build_debug_param_to_name_mapping(parameters) if get_debug_level() is not DebugLevel.OFF else {}
        self.reducer = Reducer(
            parameters,
            list(reversed(buckets)),  # gradients come in about the opposite order
            self.process_group,
            expect_sparse,
            config.bucket_bytes_cap,
            self.find_unused_parameters,
            self.gradient_as_bucket_view,
            names,
            config.first_bucket_bytes_cap,
            self.skip_all_reduce_unused_params,
            rebuild,
        )
        self.logger = Logger(self.reducer)
        has_sync = any(isinstance(m, SyncBatchNorm) for m in self.module.modules())
        name = type(self.module).__name__
        self.logger.set_construction_data_and_log(name, [], -1, self.broadcast_buffers, has_sync, self.static_graph)
        if self.static_graph:
            self._set_static_graph()
        self._assign_modules_buffers()

    def __getstate__(self) -> dict[str, Any]:
        self._check_default_group()
        state = dict(self.__dict__)
        for name in ("process_group", "reducer", "logger", "modules_buffers", "named_module_buffers"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.process_group = groups._get_default_group()
        super().__setstate__(state)
        self.__dict__.setdefault("require_forward_param_sync", True)
        self.__dict__.setdefault("require_backward_grad_sync", True)
        self.logger = None
        self._start_reducer(*self._build_params_for_reducer())

    def _check_default_group(self) -> None:
        if self.process_group is not groups._get_default_group():
            self._log_and_throw(
                RuntimeError,
                "DDP Pickling/Unpickling are only supported when using DDP with the default process group. That is, when you have"
                " called init_process_group and have not passed process_group argument to DDP constructor",
            )

    # -- the forward pass -------------------------------------------------------------------------------------------------

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Context manager: accumulate gradients without averaging; the first backward pass outside averages the sum."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        self._pre_forward()
        output = self._run_ddp_forward(*inputs, **kwargs)
        self._post_forward(output)
        return output

    def _run_ddp_forward(self, *inputs: Any, **kwargs: Any) -> Any:
        DistributedDataParallel._active_ddp_module = self
        try:
            if self.device_ids:
                (inputs,), (kwargs,) = _to_kwargs(inputs, kwargs, self.device)
            return self.module(*inputs, **kwargs)
        finally:
            DistributedDataParallel._active_ddp_module = None

    def _pre_forward(self) -> None:
        if grad_mode.enabled and self.require_backward_grad_sync:
            self.reducer.prepare_for_forward()
        work = Join.notify_join_context(self)
        if work is not None:
            self.reducer.divisor = self._divisor(work)
        if grad_mode.enabled:
            self._rebuild_buckets()
        if self._syncs_buffers():
            self._sync_buffers()
        if self._join_config.enable:
            self._somebody_will_sync(self.require_backward_grad_sync)

    def _divisor(self, work: Any) -> int:
        if self._divide_by_initial_world_size:
            return self.process_group.size()
        return int(work.result()[0])

    def _rebuild_buckets(self) -> None:
        if self.reducer.now is not None:
            return
        if self.reducer._rebuild_buckets() and self.logger is not None:
            self.logger.tell_buckets(self.reducer)

    def _post_forward(self, output: Any) -> None:
        if self._syncs_buffers(after=True):
            self._sync_buffers()
        if not self.require_backward_grad_sync:
            self.reducer.expect_nothing()
        if grad_mode.enabled and self.require_backward_grad_sync:
            self.require_forward_param_sync = True
            searched = self.find_unused_parameters and not self.static_graph
            self.reducer.prepare_for_backward(_find_tensors(output) if searched else [])
        else:
            self.require_forward_param_sync = False

    def train(self, mode: bool = True) -> DistributedDataParallel:
        super().train(mode)
        return self

    # -- buffers ------------------------------------------------------------------------------------------------------------

    def will_sync_module_buffers(self) -> bool:
        return self.require_forward_param_sync and self.broadcast_buffers and len(self.modules_buffers) > 0

    def _syncs_buffers(self, after: bool = False) -> bool:
        """Return whether buffers are synchronized now: before the forward pass, unless a user's hook runs after it."""
        wants_after = self.buffer_hook is not None and self.buffer_hook[2] == _BufferCommHookLocation.POST_FORWARD
        return self.will_sync_module_buffers() and wants_after == after

    def _sync_buffers(self) -> None:
        with contextlib.ExitStack():
            self._assign_modules_buffers()
            if self.buffer_hook is not None:
                hook, state, _ = self.buffer_hook
                futures = hook(state, self.named_module_buffers)
                for future in futures or ():
                    future.wait()
                return
            authority = (
                self._find_common_rank(self.process_group.rank(), self._join_config.enable)
                if self._join_config.enable
                else 0
            )
            _broadcast_coalesced(
                self.process_group, [b.detach() for b in self.modules_buffers], _BROADCAST_BYTES, authority
            )

    def _find_common_rank(self, rank: int, eligible: bool) -> int:
        """Return the highest rank that still has inputs."""
        best = namespace("torch")["tensor"]([rank if eligible else -1])
        collectives.all_reduce(best, collectives.ReduceOp.MAX, self.process_group)
        if int(best) == -1:
            self._log_and_throw(ValueError, "BUG! Expected rank_cond to be true for at least one process. This indicates a bug in PyTorch, please report an issue.")  # fmt: skip
        return int(best)

    def _register_buffer_comm_hook(self, state: Any, hook: Callable, comm_hook_location: Any = None) -> None:
        """Register `hook(state, named_buffers)`, which synchronises the buffers of all ranks."""
        if not callable(hook):
            raise AssertionError("the hook for buffers must be callable")
        self.buffer_hook = (hook, state, comm_hook_location or _BufferCommHookLocation.POST_FORWARD)

    # -- uneven inputs ------------------------------------------------------------------------------------------------------

    def join(
        self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False
    ) -> Join:
        """Return a context manager in which ranks may have different numbers of inputs."""
        return Join(
            [self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size
        )

    def join_hook(self, **kwargs: Any) -> JoinHook:
        return _DDPJoinHook(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> Any:
        return self.device

    @property
    def join_process_group(self) -> Any:
        return self.process_group

    def _somebody_will_sync(self, mine: bool) -> bool:
        """Return whether a rank with inputs is going to reduce gradients in this iteration."""
        wants = namespace("torch")["tensor"]([int(mine)])
        collectives.all_reduce(wants, group=self.process_group)
        return bool(int(wants))

    def _check_and_sync_module_buffers(self) -> None:
        if self.will_sync_module_buffers():
            authority = self._find_common_rank(self.process_group.rank(), False)
            _broadcast_coalesced(
                self.process_group, [b.detach() for b in self.modules_buffers], _BROADCAST_BYTES, authority
            )

    def _match_backward(self) -> None:
        """Contribute zeros to the averages of ranks that still have inputs."""
        futures = []
        for bucket in self.reducer._get_zeros_like_grad_buckets():
            if self.reducer.hook is None:
                futures.append(self.process_group.allreduce([bucket.buffer()]).get_future())
            else:
                futures.append(self.reducer.hook(bucket))
        if self.find_unused_parameters and not self.static_graph:
            self.reducer._used[:] = [0] * len(self.reducer.params)
            self.reducer._used_anywhere()
        for future in futures:
            future.wait()

    def _sync_final_model(self, is_last_joiner: bool) -> None:
        """Broadcast the model of one of the ranks that trained longest."""
        authority = self._find_common_rank(self.process_group.rank(), is_last_joiner)
        _sync_module_states(
            self.module,
            self.process_group,
            _BROADCAST_BYTES,
            authority,
            self.parameters_to_ignore,
            self.broadcast_buffers,
        )

    # -- communication hooks ------------------------------------------------------------------------------------------------

    def register_comm_hook(self, state: Any, hook: Callable) -> None:
        """Register `hook(state, bucket)`, which averages the gradients of a bucket and returns a Future of the flat tensor."""
        self._check_comm_hook(hook)
        if self.logger is not None:
            self.logger.set_comm_hook(getattr(hook, "__qualname__", str(hook)))
        self._comm_hooks.append((hook, state))
        self.reducer.register_hook(hook, state)

    def _register_builtin_comm_hook(self, comm_hook_type: BuiltinCommHookType) -> None:
        if self.logger is not None:
            self.logger.set_comm_hook(str(comm_hook_type))
        self.reducer.register_builtin_hook(comm_hook_type)

    def _check_comm_hook(self, hook: Any) -> None:
        if not callable(hook):
            self._log_and_throw(TypeError, "Communication hook must be callable.")
        parameters = list(inspect.signature(hook).parameters.values())
        annotation = parameters[1].annotation if len(parameters) > 1 else inspect.Parameter.empty
        if annotation not in (inspect.Parameter.empty, "GradBucket", "dist.GradBucket") and getattr(
            annotation, "__name__", ""
        ) not in ("GradBucket",):
            self._log_and_throw(ValueError, "Communication hook: bucket annotation should be dist.GradBucket.")

    # -- the rest of PyTorch's interface --------------------------------------------------------------------------------------

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(
        module: Module, params_and_buffers_to_ignore: Sequence[str]
    ) -> None:
        """Set the names of parameters and buffers that DistributedDataParallel ignores."""
        module._ddp_params_and_buffers_to_ignore = params_and_buffers_to_ignore
        for name, value in [*module.named_parameters(), *module.named_buffers()]:
            if name in params_and_buffers_to_ignore:
                value._ddp_ignored = True

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        assert self.logger is not None
        return self.logger._get_ddp_logging_data()

    def _set_ddp_runtime_logging_sample_rate(self, sample_rate: int) -> None:
        if sample_rate < 1:
            self._log_and_throw(ValueError, "DDP runtime logging sample rate should be equal or greater than 1")
        assert self.logger is not None
        self.logger._set_sample_rate(sample_rate)

    def _set_static_graph(self) -> None:
        """Promise that every iteration uses the same parameters in the same way."""
        if self.static_graph and self.reducer.static_graph:
            warnings.warn(
                "You've set static_graph to be True, no need to call `_set_static_graph` again.", stacklevel=2
            )
            return
        self.reducer._set_static_graph()
        self.static_graph = True
        assert self.logger is not None
        self.logger.set_static_graph()
        if self.find_unused_parameters:
            warnings.warn(
                "You passed find_unused_parameters=true to DistributedDataParallel, `_set_static_graph` will detect unused"
                " parameters automatically, so you do not need to set find_unused_parameters=true, just be sure these unused"
                " parameters will not change during training loop while calling `_set_static_graph`.",
                stacklevel=2,
            )

    def _remove_autograd_hooks(self) -> None:
        self.reducer._remove_autograd_hooks()

    def _check_reducer_finalized(self) -> None:
        self.reducer._check_reducer_finalized()

    def _update_process_group(self, new_process_group: Any) -> None:
        self.process_group = new_process_group
        self.reducer._update_process_group(new_process_group)

    @property
    def _distributed_rank(self) -> int:
        return self.process_group.rank()


class _BufferCommHookLocation:
    PRE_FORWARD, POST_FORWARD = "pre", "post"
