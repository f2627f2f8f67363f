"""State that `fully_shard` attaches to a module: hooks that gather and free its parameters around the passes."""

from __future__ import annotations

import functools
import logging
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

from ....autograd.engine import running
from ....core.graph import grad_mode
from ....core.tensor import Tensor
from ....nn import Module
from ..._composable_state import _get_module_state, _insert_module_state, _State
from ...utils import _apply_to_tensors, _to_kwargs
from ._fsdp_api import MixedPrecisionPolicy
from ._fsdp_common import TrainingState, _cast_fp_tensor
from ._fsdp_param_group import FSDPCommContext, FSDPParamGroup, collect_grad_tensors

logger = logging.getLogger("torch.distributed.fsdp.fully_shard")


class FSDPStateContext:
    """State that all modules of one model share."""

    def __init__(self) -> None:
        self.all_states: list[FSDPState] = []
        self.iter_forward_root: FSDPState | None = None  # whose forward pass runs; it may be a part of the model only
        self.post_backward_final_callback_queued = False
        self.is_last_backward = True
        self.post_optim_event: Any = None


class FSDPState(_State):
    """The state of one call of `fully_shard`."""

    _state_name = "FSDP"
    _had_no_root: tuple[bool, ...] = (True, False)  # states inside that say so have run in another order

    def __init__(self) -> None:
        self._fsdp_param_groups: list[FSDPParamGroup] = []
        self._is_root: bool | None = None
        self._state_ctx, self._comm_ctx = FSDPStateContext(), FSDPCommContext()
        self._training_state = TrainingState.IDLE
        self._states_to_forward_prefetch: list[FSDPState] = []
        self._states_to_backward_prefetch: list[FSDPState] = []
        self._modules_to_run_forward: set[Module] = set()

    @property
    def _fsdp_param_group(self) -> FSDPParamGroup | None:
        if len(self._fsdp_param_groups) > 1:
            raise AssertionError(
                f"Expected at most 1 param group for backward compatibility, but got {len(self._fsdp_param_groups)}"
            )
        return self._fsdp_param_groups[0] if self._fsdp_param_groups else None

    def init(self, modules: tuple[Module, ...], device: Any, mp_policy: MixedPrecisionPolicy, auto: bool) -> None:
        for module in modules:
            _insert_module_state(module, self)
        self._references = [weakref.ref(m) for m in modules]
        self._device, self._mp_policy, self._auto_reshard_after_forward = device, mp_policy, auto
        if len(modules) > 1:
            _hook_together(modules, self)
            return
        self._pre_forward_hook_handle = modules[0].register_forward_pre_hook(
            self._pre_forward, prepend=True, with_kwargs=True
        )
        self._post_forward_hook_handle = modules[0].register_forward_hook(self._post_forward, prepend=False)

    @property
    def _modules(self) -> tuple[Module, ...]:
        return tuple(m for m in (reference() for reference in self._references) if m is not None)

    # -- before the first pass ----------------------------------------------------------------------------------------------

    def _lazy_init(self) -> None:
        """Make the module that runs first the root of all others; called once, when the modules are complete."""
        if self._is_root is not None:
            return
        self._is_root = True
        if len(self._modules) > 1:
            raise RuntimeError(f"{self._state_name} requires a single root module but got {self._modules}")
        root = self._modules[0]
        seen: list[FSDPState] = self._state_ctx.all_states
        for name, module in root.named_modules():
            state = _get_module_fsdp_state(module)
            if state is None:
                continue
            if module is not root:
                if state not in seen and state._is_root in self._had_no_root:
                    raise RuntimeError(
                        f"{self._state_name} state has already been lazily initialized for {name}\n{self._state_name} requires"
                        " running forward through the root module first"
                    )
                state._is_root = False
            if state not in seen:
                seen.append(state)
        if self._auto_reshard_after_forward:  # what comes last in the forward pass comes first in the backward pass
            for group in self._fsdp_param_groups:
                group.post_forward_mesh_info = None
        self._init_fqns(root)
        self._init_shared_state()
        for state in seen:
            for group in state._fsdp_param_groups:
                group.lazy_init()

    def _init_fqns(self, root: Module) -> None:
        """Set the qualified names of parameters, for messages and profiles."""
        names = {id(p): name for name, p in root.named_parameters()}
        modules = {id(m): name for name, m in root.named_modules()}
        known: set[int] = set()
        for state in self._state_ctx.all_states:
            for group in state._fsdp_param_groups:
                group._module_fqn = ", ".join(modules[id(m)] for m in group.modules if id(m) in modules)
                for param in group.fsdp_params:
                    param._param_fqn = names.get(id(param.sharded_param), param._param_fqn)
                    if param._orig_param_uid in known:
                        raise ValueError(
                            f"Parameter '{param._param_fqn}' is shared with a parameter already managed by another FSDP group. For"
                            " shared/tied parameters, use fully_shard([module_a, module_b]) to place them in the same FSDP group."
                        )
                    known.add(param._orig_param_uid)

    def _init_shared_state(self) -> None:
        for state in self._state_ctx.all_states:
            state._state_ctx, state._comm_ctx = self._state_ctx, self._comm_ctx
            for group in state._fsdp_param_groups:
                group.comm_ctx = self._comm_ctx

    # -- the forward pass ---------------------------------------------------------------------------------------------------

    def _pre_forward(self, module: Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        if self._training_state is TrainingState.PRE_BACKWARD:  # the layer runs again for its backward pass
            for group in self._fsdp_param_groups:
                group.unshard()
                group.wait_for_unshard()
            return self._cast_forward_inputs(args, kwargs)
        first = self._training_state is not TrainingState.FORWARD
        self._training_state = TrainingState.FORWARD
        if first:
            args, kwargs = self._root_pre_forward(args, kwargs)
        args, kwargs = self._cast_forward_inputs(args, kwargs)
        for group in self._fsdp_param_groups:
            args, kwargs = group.pre_forward(module, args, kwargs)
        if first:
            for state in self._states_to_forward_prefetch:
                for group in state._fsdp_param_groups:
                    FSDPParamGroup._prefetch_unshard(group, "forward")
        return args, kwargs

    def _root_pre_forward(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        self._lazy_init()
        if self._state_ctx.iter_forward_root is not None:
            return args, kwargs
        self._state_ctx.iter_forward_root = self
        if self._comm_ctx.gathers is not None:  # behind what changed the parameters
            self._comm_ctx.gathers.follow(self._state_ctx.post_optim_event)
        self._state_ctx.post_optim_event = None
        if self._device.type not in ("cpu", "meta") and (args or kwargs):
            moved, named = _to_kwargs(args, kwargs, self._device)
            return moved[0], named[0]
        return args, kwargs

    def _post_forward(self, module: Any, input: Any, output: Any) -> Any:
        if self._training_state is TrainingState.PRE_BACKWARD:
            return self._cast_output_dtype(output)
        for group in self._fsdp_param_groups:
            output = group.post_forward(module, input, output)
        output = self._register_pre_backward_hook(output)
        self._training_state = TrainingState.IDLE
        if self._state_ctx.iter_forward_root is self:
            output = self._complete(output)
            self._state_ctx.iter_forward_root = None
        return self._cast_output_dtype(output)

    def _complete(self, output: Any) -> Any:
        """Run the end-of-forward hooks for modules that were sharded together, of which some may not have run."""
        for state in reversed(self._state_ctx.all_states):
            if state is self or not state._modules_to_run_forward:
                continue
            for group in state._fsdp_param_groups:
                output = group.post_forward(None, None, output)
            output = state._cast_output_dtype(state._register_pre_backward_hook(output))
            state._training_state = TrainingState.IDLE
            state._modules_to_run_forward.clear()
        return output

    def _cast_forward_inputs(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        policy = self._mp_policy
        if not (policy.cast_forward_inputs and policy.param_dtype):
            return args, kwargs
        cast = functools.partial(_cast_fp_tensor, policy.param_dtype)
        return _apply_to_tensors(cast, args), _apply_to_tensors(cast, kwargs)

    def _cast_output_dtype(self, output: Any) -> Any:
        wanted = self._mp_policy.output_dtype
        return output if wanted is None else _apply_to_tensors(functools.partial(_cast_fp_tensor, wanted), output)

    # -- the backward pass --------------------------------------------------------------------------------------------------

    def _register_pre_backward_hook(self, output: Any) -> Any:
        if grad_mode.enabled:
            for tensor in collect_grad_tensors(output):
                if tensor._base is not None:
                    names = ", ".join(type(m).__name__ for m in self._modules) or "?"
                    warnings.warn(
                        f"FSDP2-wrapped module ({names}) returned a view tensor. An in-place op on this view (e.g., `x += y`) will"
                        " silently drop the pre-backward hook and skip the all-gather, which can cause backward to fail or produce"
                        " wrong gradients. Use out-of-place ops (`out = out + y`, not `out += y`) or `.clone()` the output before any"
                        " in-place op.",
                        UserWarning,
                        stacklevel=2,
                    )
                tensor.register_hook(self._pre_backward)
        return output

    def _pre_backward(self, grad: Tensor) -> Tensor:
        self._training_state = TrainingState.PRE_BACKWARD
        if not self._state_ctx.post_backward_final_callback_queued:
            self._state_ctx.post_backward_final_callback_queued = True
            assert running.current is not None
            running.current.outermost.callbacks.append(self._root_post_backward_final_callback)
        for group in self._fsdp_param_groups:
            group.pre_backward(not self._states_to_backward_prefetch)
        for state in self._states_to_backward_prefetch:
            for group in reversed(state._fsdp_param_groups):
                FSDPParamGroup._prefetch_unshard(group, "backward")
        return grad

    def _root_post_backward_final_callback(self) -> None:
        """Finish the backward pass: wait for reductions, and reset the state."""
        context = self._state_ctx
        context.iter_forward_root = None
        for state in context.all_states:
            state._modules_to_run_forward.clear()
            for group in reversed(state._fsdp_param_groups):
                if group._training_state is not TrainingState.POST_BACKWARD:  # its inputs required no gradient
                    group.post_backward()
                group._training_state = TrainingState.IDLE
            state._training_state = TrainingState.IDLE
        if context.is_last_backward:
            for state in context.all_states:
                for group in state._fsdp_param_groups:
                    group.finalize_backward()
            self._comm_ctx.post_forward_order.clear()
        context.post_backward_final_callback_queued = False

    def _reset_iter_state(self) -> None:
        """Reset the state of the pass after an error in it."""
        if self._is_root is False:
            raise RuntimeError("reset_iter_state must be called on the root FSDP module")
        for state in self._state_ctx.all_states:
            state._modules_to_run_forward.clear()
            state._training_state = TrainingState.IDLE
            for group in state._fsdp_param_groups:
                group._reset_iter_state()
        self._comm_ctx.post_forward_order.clear()
        self._state_ctx.iter_forward_root = None
        self._state_ctx.post_backward_final_callback_queued = False


def _get_module_fsdp_state(module: Module) -> FSDPState | None:
    state = _get_module_state(module)
    return state if isinstance(state, FSDPState) else None


def _hook_together(modules: Sequence[Module], state: FSDPState) -> None:
    """Register the hooks of modules that share a group: it is gathered before the first of them and freed after the last."""
    waiting, everyone = state._modules_to_run_forward, set(modules)

    def before(module: Module, args: tuple, kwargs: dict) -> Any:
        if not waiting:
            waiting.update(everyone)
        return state._pre_forward(module, args, kwargs)

    def after(module: Module, input: Any, output: Any) -> Any:
        if module in waiting:
            waiting.remove(module)
            if not waiting:
                return state._post_forward(module, input, output)
        return state._cast_output_dtype(output)

    for module in modules:
        module.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
        module.register_forward_hook(after, prepend=False, always_call=True)
