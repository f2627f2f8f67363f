"""Sampler by which each process of a distributed run visits its own part of the dataset."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Iterator
from typing import Any

from flambeau.core.generator import Generator
from flambeau.ops import namespace

from ...core import naming
from .sampler import Sampler

__all__ = ["DistributedSampler"]


def _process_group() -> Any:
    if importlib.util.find_spec("flambeau.distributed") is None:
        raise RuntimeError("Requires distributed package to be available (or num_replicas= and rank= to be given)")
    return naming.above("distributed")


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th index, starting at `rank`, of an order that all processes agree on: it depends on `seed`
    and on the epoch (call `set_epoch` before each). All get the same number of samples: some are repeated for that, or
    with `drop_last` the tail is left out."""

    def __init__(
        self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True,
        seed: int = 0, drop_last: bool = False,
    ) -> None:  # fmt: skip
        num_replicas = _process_group().get_world_size() if num_replicas is None else num_replicas
        rank = _process_group().get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        if drop_last:
            self.num_samples = len(dataset) // num_replicas
        else:
            self.num_samples = math.ceil(len(dataset) / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        if self.shuffle:
            generator = Generator().manual_seed(self.seed + self.epoch)
            indices = namespace("torch")["randperm"](n, generator=generator).tolist()
        else:
            indices = list(range(n))
        if self.total_size > n:
            indices *= math.ceil(self.total_size / n)
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the order."""
        self.epoch = epoch
