"""Datasets, samplers and the data loader.

>>> from flambeau.utils.data import DataLoader, TensorDataset
>>> loader = DataLoader(TensorDataset(flambeau.randn(100, 8)), batch_size=10, shuffle=True)
"""

from . import _utils, dataloader, dataset, distributed, sampler
from .dataloader import DataLoader, _DatasetKind, default_collate, default_convert, get_worker_info
from .dataset import *
from .distributed import DistributedSampler
from .sampler import *

__all__ = [
    *dataset.__all__, *sampler.__all__, "DataLoader", "DistributedSampler", "_DatasetKind", "_utils", "dataloader",
    "dataset", "default_collate", "default_convert", "distributed", "get_worker_info", "sampler",
]  # fmt: skip
