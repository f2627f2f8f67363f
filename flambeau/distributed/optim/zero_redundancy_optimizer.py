"""ZeroRedundancyOptimizer: each rank keeps the optimizer's state of a part of the parameters (ZeRO, stage 1)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from ...core.tensor import Tensor
from ...ops import namespace
from ...optim import Optimizer
from .. import collectives, groups, object_collectives

__all__ = ["ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(Optimizer):
    """Shares out the parameters over the ranks; each steps its own and sends them to the others.

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
            raise NotImplementedError("ZeroRedundancyOptimizer(overlap_with_ddp=True) is not supported yet")
        self.process_group = groups._get_default_group() if process_group is None else process_group
        self.rank, self.world_size = self.process_group.rank(), self.process_group.size()
        self._optim_constructor, self._defaults = optimizer_class, defaults
        self._all_state_dicts: list[dict] = []
        super().__init__(params, defaults)
        self._share_out()

    def _share_out(self) -> None:
        """Large parameters first, each to the rank with the least so far."""
        load = [0] * self.world_size
        self._owner: dict[Tensor, int] = {}
        for group in self.param_groups:
            for parameter in sorted(group["params"], key=lambda p: -p.numel()):
                rank = load.index(min(load))
                load[rank] += parameter.numel()
                self._owner[parameter] = rank
        mine = []
        for group in self.param_groups:
            own = [p for p in group["params"] if self._owner[p] == self.rank]
            mine.append({**group, "params": own})
        self.optim = self._optim_constructor(
            [g for g in mine if g["params"]] or [{"params": [_placeholder()]}], **self._defaults
        )
        self._places = [i for i, g in enumerate(mine) if g["params"]]

    def _copy_settings(self) -> None:
        """Learning rates and the like may have been changed by a scheduler."""
        for own, place in zip(self.optim.param_groups, self._places):
            own.update({key: value for key, value in self.param_groups[place].items() if key != "params"})

    def step(self, closure: Callable[[], float] | None = None, **kwargs: Any) -> Any:
        self._copy_settings()
        result = self.optim.step(closure, **kwargs) if closure is not None else self.optim.step(**kwargs)
        works = [
            collectives.broadcast(p.detach(), group=self.process_group, group_src=rank, async_op=True)
            for p, rank in self._owner.items()
        ]
        for work in works:
            work.wait()  # type: ignore[union-attr]
        return result

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        if hasattr(self, "optim"):
            self._share_out()

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring the state of all ranks to rank `to`, so that `state_dict()` can be called there."""
        local = copy.deepcopy(self.optim.state_dict())
        gathered: list = [None] * self.world_size
        object_collectives.all_gather_object(gathered, local, self.process_group)
        self._all_state_dicts = gathered if self.rank == to else []

    def state_dict(self) -> dict[str, Any]:
        """The whole optimizer's state; call `consolidate_state_dict` on all ranks first."""
        if not self._all_state_dicts:
            raise RuntimeError(
                f"Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to={self.rank})` on"
                " all ranks beforehand if you meant to save the global state."
            )
        whole = super().state_dict()
        numbers = {id(p): n for n, p in enumerate(p for g in self.param_groups for p in g["params"])}
        whole["state"] = {}
        for rank, local in enumerate(self._all_state_dicts):
            own = [p for g in self.param_groups for p in g["params"] if self._owner[p] == rank]
            for position, parameter in enumerate(own):
                if position in local["state"]:
                    whole["state"][numbers[id(parameter)]] = local["state"][position]
        return whole

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        parameters = [p for g in self.param_groups for p in g["params"]]
        own = [p for p in parameters if self._owner[p] == self.rank]
        local = self.optim.state_dict()
        numbers = {id(p): n for n, p in enumerate(parameters)}
        local["state"] = {
            position: state_dict["state"][numbers[id(p)]]
            for position, p in enumerate(own)
            if numbers[id(p)] in state_dict["state"]
        }
        self.optim.load_state_dict(local)
        for group, saved in zip(self.param_groups, state_dict["param_groups"]):
            group.update({key: value for key, value in saved.items() if key != "params"})

    def join_hook(self, **kwargs: Any) -> Any:
        raise NotImplementedError("ZeroRedundancyOptimizer in a Join context is not supported yet")


def _placeholder() -> Tensor:
    """For a rank that has more peers than there are parameters."""
    return namespace("torch")["zeros"](0)
