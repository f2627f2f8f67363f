"""ZeroRedundancyOptimizer: each rank keeps the optimizer state of a part of the parameters (ZeRO, stage 1)."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from ...autograd.grad_mode import enable_grad, no_grad
from ...core.tensor import Tensor
from ...ops import namespace
from ...optim import Optimizer
from .. import collectives, groups
from ..algorithms.join import Join, Joinable, JoinHook
from ..object_collectives import broadcast_object_list

__all__ = ["ZeroRedundancyOptimizer"]

_torch = namespace("torch")


def _recursive_copy_to_device(value: Any, non_blocking: bool, device: Any) -> Any:
    """Return a value with its tensors on a device."""
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=non_blocking)
    if isinstance(value, (list, tuple)):
        return type(value)(_recursive_copy_to_device(v, non_blocking, device) for v in value)
    if isinstance(value, dict):
        return {k: _recursive_copy_to_device(v, non_blocking, device) for k, v in value.items()}
    return value


def _broadcast_object(obj: Any, src_rank: int, group: Any = None, device: Any = None) -> Any:
    """Return the object of global rank `src_rank` on all ranks."""
    box = [obj]
    broadcast_object_list(box, src_rank, group)
    return box[0]


class _ZeROJoinHook(JoinHook):
    """Hook by which a rank without inputs takes part in the steps of the others."""

    def __init__(self, zero: ZeroRedundancyOptimizer):
        self.zero = zero

    @enable_grad()
    def main_hook(self) -> None:
        self.zero.step()


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """Optimizer whose parameters are partitioned over the ranks; each rank updates its own and broadcasts them.

    >>> optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotImplementedError("ZeroRedundancyOptimizer(overlap_with_ddp=True) is not in Flambeau yet")
        given = _check_params(params)
        self.initialized = False
        Optimizer.__init__(self, given, defaults)
        Joinable.__init__(self)
        self.process_group = groups._get_default_group() if process_group is None else process_group
        self.rank, self.world_size = self.process_group.rank(), self.process_group.size()
        self.global_rank = groups.get_global_rank(self.process_group, self.rank)
        self._optim_constructor, self._optim_defaults = optimizer_class, defaults
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self._buckets: list[Tensor] = []
        self._all_state_dicts: list[dict] = []
        self._assign_owners()
        self.initialized = True

    # -- who has what -------------------------------------------------------------------------------------------------------

    @property
    def _all_params(self) -> list[Any]:
        return [p for group in self.param_groups for p in group["params"]]

    def _assign_owners(self) -> None:
        """Assign parameters to ranks: large ones first, each to the rank with the fewest elements so far."""
        load = [0] * self.world_size
        self._owner: dict[Tensor, int] = {}
        for group in self.param_groups:
            for parameter in sorted(group["params"], key=lambda p: -p.numel()):
                rank = load.index(min(load))
                load[rank] += parameter.numel()
                self._owner[parameter] = rank
        self._mask = [p.requires_grad for p in self._all_params]
        if self.parameters_as_bucket_view:
            self._make_contiguous()
        own = [{**g, "params": self._owned_by(g, self.rank)} for g in self.param_groups]
        own = [{k: v for k, v in g.items() if k == "params" or g["params"]} for g in own]
        self.optim = self._optim_constructor([{**self._fill_empty_group(g)} for g in own], **self._optim_defaults)
        self._copy_settings(self.optim.param_groups, self.param_groups)
        hook_step = inspect.signature(self.optim.step).parameters
        self._takes_closure = "closure" in hook_step or any(p.kind is p.VAR_POSITIONAL for p in hook_step.values())

    def _fill_empty_group(self, group: dict[str, Any]) -> dict[str, Any]:
        """Return the group with an empty tensor if it has no parameters: optimizers require one in every group."""
        return group if group["params"] else {**group, "params": [_torch["zeros"](0)]}

    def _owned_by(self, group: dict[str, Any], rank: int) -> list[Any]:
        return [p for p in group["params"] if self._owner[p] == rank]

    def _partition_parameters(self) -> list[list[dict[str, Any]]]:
        """Return the parameter groups of each rank."""
        return [[{**g, "params": self._owned_by(g, r)} for g in self.param_groups] for r in range(self.world_size)]

    @no_grad()
    def _make_contiguous(self) -> None:
        """Make each rank's parameters contiguous in memory, so that they are broadcast together."""
        self._buckets = []
        for rank in range(self.world_size):
            members = [p for p in self._all_params if self._owner[p] == rank and p.requires_grad]
            if not members:
                continue
            flat = _torch["cat"]([p.detach().reshape(-1) for p in members])
            start = 0
            for p in members:
                p.data = flat[start : start + p.numel()].view(p.shape)
                start += p.numel()
            self._buckets.append(flat)

    @staticmethod
    def _copy_settings(source: list[dict[str, Any]], target: list[dict[str, Any]]) -> None:
        """Copy settings such as learning rates, which a scheduler changes on one side and an optimizer may add on the other."""
        for one, other in zip(source, target):
            for key, value in one.items():
                if key != "params":
                    other[key] = value

    # -- a step -------------------------------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], float] | None = None, **kwargs: Any) -> Any:
        """Update this rank's parameters, and receive the others'."""
        Join.notify_join_context(self)
        mask = [p.requires_grad for p in self._all_params]
        if mask != self._mask:
            self._mask = mask
            if self.parameters_as_bucket_view:
                self._make_contiguous()
        self._copy_settings(self.param_groups, self.optim.param_groups)
        if closure is not None and self._takes_closure:
            result = self.optim.step(closure, **kwargs)
        else:
            result = self.optim.step(**kwargs)
        self._copy_settings(self.optim.param_groups, self.param_groups)
        self._sync_params()
        return result

    def _sync_params(self) -> None:
        if self.parameters_as_bucket_view:
            moving = list(zip(self._buckets, sorted({rank for p, rank in self._owner.items() if p.requires_grad})))
        else:
            moving = [(p.detach(), rank) for p, rank in self._owner.items()]
        works = [
            collectives.broadcast(tensor, group=self.process_group, group_src=rank, async_op=True)
            for tensor, rank in moving
        ]
        for work in filter(None, works):
            work.wait()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, and partition all of them anew."""
        super().add_param_group(param_group)
        if getattr(self, "initialized", False):
            kept = dict(self.optim.state)
            self._assign_owners()
            for param, state in kept.items():
                if self._owner.get(param) == self.rank:
                    self.optim.state[param] = state

    # -- what happens where ranks have different numbers of inputs ------------------------------------------------------------

    def join_hook(self, **kwargs: Any) -> JoinHook:
        return _ZeROJoinHook(self)

    @property
    def join_device(self) -> Any:
        return self._all_params[0].device

    @property
    def join_process_group(self) -> Any:
        return self.process_group

    # -- state --------------------------------------------------------------------------------------------------------------

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Collect the state of all ranks on rank `to`, so that `state_dict()` can be called there."""
        self._copy_settings(self.param_groups, self.optim.param_groups)
        self._all_state_dicts = []
        for rank in range(self.world_size):
            source = groups.get_global_rank(self.process_group, rank)
            own = copy.deepcopy(self.optim.state_dict()) if rank == self.rank else None
            found = _broadcast_object(own, source, self.process_group)
            if self.rank == to:
                self._all_state_dicts.append(_recursive_copy_to_device(found, False, "cpu"))

    def state_dict(self) -> dict[str, Any]:
        """Return the whole optimizer's state; call `consolidate_state_dict` on all ranks first."""
        if not self._all_state_dicts:
            raise RuntimeError(
                f"Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to={self.rank})` on"
                " all ranks beforehand if you meant to save the global state."
            )
        whole = super().state_dict()
        numbers = {id(p): n for n, p in enumerate(self._all_params)}
        whole["state"] = {}
        for rank, local in enumerate(self._all_state_dicts):
            for group, saved in zip(self.param_groups, local["param_groups"]):
                for param, position in zip(self._owned_by(group, rank), saved["params"]):
                    if position in local["state"]:
                        whole["state"][numbers[id(param)]] = local["state"][position]
        whole["state"] = dict(sorted(whole["state"].items()))
        return whole

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load this rank's part of a whole state."""
        super().load_state_dict({**state_dict, "state": {}})
        local = self.optim.state_dict()
        local["state"] = {}
        numbers = {id(p): n for n, p in enumerate(self._all_params)}
        for group, saved in zip(self.param_groups, local["param_groups"]):
            for param, position in zip(self._owned_by(group, self.rank), saved["params"]):
                if numbers[id(param)] in state_dict["state"]:
                    local["state"][position] = state_dict["state"][numbers[id(param)]]
        self.optim.load_state_dict(local)
        self._copy_settings(self.param_groups, self.optim.param_groups)


def _check_params(params: Any) -> list[Any]:
    """Return all parameters, which must be dense and of one type."""
    if isinstance(params, Tensor):
        raise TypeError(f"`params` argument should be an iterable of Tensors, but got {type(params).__name__}")
    try:
        given = list(params)
    except TypeError:
        raise TypeError(
            f"`params` argument should be an iterable of Tensors or dicts, but got {type(params).__name__}"
        ) from None
    if not given:
        raise ValueError("ZeroRedundancyOptimizer got an empty parameter list")
    found: list[Any] = []
    for item in given:
        if isinstance(item, Tensor):
            found.append(item)
        elif isinstance(item, dict):
            if "params" not in item:
                raise ValueError("A parameter group passed-in via `params` must have a 'params' key")
            found += list(item["params"])
        else:
            raise TypeError(
                f"`params` argument should be an iterable of Tensors or dicts, but got {type(item).__name__}"
            )
    if any(p.is_sparse for p in found):
        raise ValueError(
            f"ZeroRedundancyOptimizer only supports using the same dense type for all parameters but got {found[0].type()}"
        )
    if len({p.dtype for p in found}) > 1:
        raise ValueError("ZeroRedundancyOptimizer only supports using the same dense type for all parameters")
    return given
