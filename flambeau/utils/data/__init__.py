"""Datasets, samplers and the data loader.

>>> from flambeau.utils.data import DataLoader, TensorDataset
>>> loader = DataLoader(TensorDataset(flambeau.randn(100, 8)), batch_size=10, shuffle=True)
"""

from . import _utils, dataloader, dataset, distributed, sampler
from .dataloader import DataLoader, _DatasetKind, default_collate, default_convert, get_worker_info
from .dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from .distributed import DistributedSampler
from .sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler",
    "IterableDataset", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset",
    "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "_DatasetKind", "_utils", "dataloader",
    "dataset", "default_collate", "default_convert", "distributed", "get_worker_info", "random_split", "sampler",
]  # fmt: skip
