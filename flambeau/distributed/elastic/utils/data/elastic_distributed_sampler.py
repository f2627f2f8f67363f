"""Sampler that resumes in the middle of an epoch, possibly with another number of ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from .....core.generator import Generator
from .....ops import namespace
from .....utils.data.distributed import DistributedSampler


class ElasticDistributedSampler(DistributedSampler):
    """Sampler of this rank's share of the shuffled dataset from `start_index` on."""

    def __init__(
        self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, start_index: int = 0
    ) -> None:
        super().__init__(dataset, num_replicas=num_replicas, rank=rank)
        if start_index >= len(dataset):
            raise ValueError(f"Start index {start_index} should be less than dataset size {len(dataset)}")
        self.start_index = start_index
        self.num_samples = math.ceil((len(dataset) - start_index) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator:
        generator = Generator()
        generator.manual_seed(self.epoch)
        behind = len(self.dataset) - self.start_index
        order = [self.start_index + i for i in namespace("torch")["randperm"](behind, generator=generator).tolist()]
        order += order[: self.total_size - len(order)]
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
