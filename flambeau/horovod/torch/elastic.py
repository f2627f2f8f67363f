"""Training that continues after a failure: state that can be committed, restored and broadcast."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from ...utils.data.sampler import Sampler
from . import functions, state
from .negotiation import HorovodInternalError


class State:
    """State of a program that survives changes of the ranks. `commit` saves it in memory, `restore` reverts to that, `sync` broadcasts rank
    0's."""

    def __init__(self, **kwargs: Any) -> None:
        self._reset_callbacks: list[Callable] = []

    def register_reset_callbacks(self, callbacks: list[Callable]) -> None:
        """Register functions to call after the set of processes has changed."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Do nothing: when hosts change, the launcher restarts the processes."""

    def save(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError

    def reset(self) -> None:
        """Update state that depends on the number of processes."""


class ObjectState(State):
    """State of plain values: ObjectState(epoch=0, batch=0)."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        self._names = list(kwargs)
        for name, value in kwargs.items():
            setattr(self, name, value)
        self._saved = copy.deepcopy(kwargs)

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._names}

    def save(self) -> None:
        self._saved = copy.deepcopy(self._values())

    def restore(self) -> None:
        for name, value in copy.deepcopy(self._saved).items():
            setattr(self, name, value)

    def sync(self) -> None:
        for name, value in functions.broadcast_object(self._values(), 0).items():
            setattr(self, name, value)
        self.save()


class TorchState(ObjectState):
    """State of models, optimizers and samplers (whatever has a state dict) besides plain values."""

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        held = {k: v for k, v in {"model": model, "optimizer": optimizer, **kwargs}.items() if v is not None}
        self._held = {name: value for name, value in held.items() if hasattr(value, "state_dict")}
        for name, value in self._held.items():
            setattr(self, name, value)
        super().__init__(**{name: value for name, value in held.items() if name not in self._held})
        self._dicts: dict[str, Any] = {}
        self.save()

    def save(self) -> None:
        self._dicts = {name: copy.deepcopy(value.state_dict()) for name, value in getattr(self, "_held", {}).items()}
        super().save()

    def restore(self) -> None:
        for name, value in self._held.items():
            value.load_state_dict(copy.deepcopy(self._dicts[name]))
        super().restore()

    def sync(self) -> None:
        told = functions.broadcast_object({name: value.state_dict() for name, value in self._held.items()}, 0)
        for name, value in self._held.items():
            if state.rank() != 0 or isinstance(value, ElasticSampler):  # samplers share out anew what is left
                value.load_state_dict(told[name])
        super().sync()


def run(func: Callable) -> Callable:
    """Decorate a training function `func(state, ...)` so that it restarts from the last commit when a process fails."""

    @functools.wraps(func)
    def wrapped(held: State, *args: Any, **kwargs: Any) -> Any:
        state.init()
        while True:
            held.sync()
            try:
                return func(held, *args, **kwargs)
            except HorovodInternalError:
                held.restore()
            state.shutdown()
            state.init()
            held.on_reset()

    return wrapped


class ElasticSampler(Sampler[int]):
    """Sampler that divides the samples not yet processed in this epoch among the current processes. All processes follow the same order,
    so that one number records the progress."""

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, in which no sample has been processed."""
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Record that every process has processed a batch."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.epoch, self.processed_num = state_dict["epoch"], state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Divide the remaining samples among the current processes."""
        self.num_replicas = state.size() if state.is_initialized() else 1
        self.rank = state.rank() if state.is_initialized() else 0
        order = list(range(len(self.dataset)))
        if self.shuffle:
            Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = order[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        missing = self.total_size - len(self.remaining_indices)
        padded = self.remaining_indices + self.remaining_indices[:missing]
        return iter(padded[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
