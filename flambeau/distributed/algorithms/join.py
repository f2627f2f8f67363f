"""Training with different numbers of inputs per rank: ranks that have finished shadow the others' collectives.

>>> with Join([ddp_model]):
...     for batch in batches:      # more of them on some ranks than on others
...         train(ddp_model, batch)
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, NamedTuple

from ...ops import namespace
from .. import collectives

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """Hook for a rank without inputs: `main_hook` runs once per iteration of the others, `post_hook` when all have finished."""

    def main_hook(self) -> None:
        """Take part in the collectives of one iteration."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Run once, after the last rank has joined."""


class Joinable(ABC):
    """A class that can be used in a `Join` context."""

    @abstractmethod
    def __init__(self) -> None:
        super().__init__()
        self._join_config = _JoinConfig.construct_disabled_join_config()

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook: ...

    @property
    @abstractmethod
    def join_device(self) -> Any: ...

    @property
    @abstractmethod
    def join_process_group(self) -> Any: ...


class _JoinConfig(NamedTuple):
    """Settings of the open context."""

    enable: bool
    throw_on_early_termination: bool
    is_first_joinable: bool

    @staticmethod
    def construct_disabled_join_config() -> _JoinConfig:
        return _JoinConfig(enable=False, throw_on_early_termination=False, is_first_joinable=False)


class Join:
    """Context manager in which ranks may run out of inputs at different times."""

    def __init__(
        self, joinables: list[Joinable], enable: bool = True, throw_on_early_termination: bool = False, **kwargs: Any
    ) -> None:
        if len(joinables) == 0:
            raise ValueError("The join context manager requires at least one joinable")
        self._joinables = joinables
        self._join_hooks = [joinable.join_hook(**kwargs) for joinable in joinables]
        self._enable, self._throw = enable, throw_on_early_termination
        for position, joinable in enumerate(joinables):
            joinable._join_config = _JoinConfig(enable, throw_on_early_termination, position == 0)
        groups = {id(joinable.join_process_group) for joinable in joinables}
        if len(groups) > 1:
            raise ValueError("Using join context manager with multiple process groups")
        self._process_group = joinables[0].join_process_group
        self._rank = self._process_group.rank()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._enable or kind is not None:
            return
        all_joined, rounds, last = False, 0, True
        warnings.simplefilter("once")
        while not all_joined:
            if rounds == 1000:
                warnings.warn(
                    f"Detected uneven input skew of greater than {rounds}. This means that rank {self._rank} has at least {rounds}"
                    f" fewer inputs than other currently-active ranks. This level of skew could lead to performance degradation"
                    f" during training.",
                    stacklevel=2,
                )
            active = self._count_active(0)
            if active == 0:
                all_joined = True
                break
            if self._throw:
                self._announce_end(1)
            last = False
            for hook in self._join_hooks:
                hook.main_hook()
            rounds += 1
        for hook in self._join_hooks:
            hook.post_hook(last)

    def _count_active(self, mine: int) -> int:
        active = namespace("torch")["tensor"]([mine])
        collectives.all_reduce(active, group=self._process_group)
        return int(active)

    def _announce_end(self, mine: int) -> None:
        ended = namespace("torch")["tensor"]([mine])
        collectives.all_reduce(ended, group=self._process_group)
        raise RuntimeError(f"Rank {self._rank} exhausted all inputs.")

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Any:
        """Tell the ranks that have joined that this one still has inputs; called once per iteration, before its collectives. Returns the
        Work of the message."""
        config = joinable._join_config
        if not config.is_first_joinable or not config.enable:
            return None
        group = joinable.join_process_group
        torch = namespace("torch")
        work = collectives.all_reduce(torch["tensor"]([1]), group=group, async_op=True)
        if config.throw_on_early_termination:
            ended = torch["tensor"]([0])
            collectives.all_reduce(ended, group=group)
            if int(ended):
                raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
        return work


class _DDPJoinHook(JoinHook):
    """Hook of DistributedDataParallel: a rank without inputs takes part in the collectives of the others' forward and backward passes."""

    def __init__(self, ddp: Any, divide_by_initial_world_size: bool):
        self.ddp = ddp
        ddp._divide_by_initial_world_size = divide_by_initial_world_size

    def main_hook(self) -> None:
        ddp = self.ddp
        ddp._rebuild_buckets()
        ddp._check_and_sync_module_buffers()
        syncs = ddp._somebody_will_sync(False)
        ddp.require_forward_param_sync = syncs
        if not syncs:
            return
        ddp._match_backward()

    def post_hook(self, is_last_joiner: bool) -> None:
        self.ddp._sync_final_model(is_last_joiner)
