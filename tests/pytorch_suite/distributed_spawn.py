"""PyTorch's tests of process groups, which are part of its wheel: each in several processes.

BACKEND=gloo WORLD_SIZE=2 python -m tests.pytorch_suite tests/pytorch_suite/distributed_spawn.py
"""

import os
import sys

os.environ.setdefault("BACKEND", "gloo")
os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")


from torch.testing._internal.distributed.distributed_test import (
    DistributedTest,
    TestBucketCapacityConfig,
    TestBucketCapacityConfigComputeLimits,
    TestBucketCapacityConfigConstants,
    TestBucketCapacityConfigEdgeCases,
    TestDistBackend,
)

_name = DistributedTest.__module__  # models that the tests save are found again under Flambeau's name for torch
sys.modules[_name.replace("torch", "flambeau", 1)] = sys.modules[_name]

__all__ = [
    "TestBucketCapacityConfig",
    "TestBucketCapacityConfigComputeLimits",
    "TestBucketCapacityConfigConstants",
    "TestBucketCapacityConfigEdgeCases",
    "TestDistBackendWithSpawn",
]


class TestDistBackendWithSpawn(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()


del TestDistBackend
