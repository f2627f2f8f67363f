"""Iterators and samplers for training that begins again."""

from .cycling_iterator import CyclingIterator
from .elastic_distributed_sampler import ElasticDistributedSampler

__all__ = ["CyclingIterator", "ElasticDistributedSampler"]
