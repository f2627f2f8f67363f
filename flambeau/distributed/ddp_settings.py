"""Settings of DistributedDataParallel: sizes of buckets, mixed precision, environment variables."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from .buckets import DEFAULT_FIRST_BUCKET_BYTES

_DEFAULT_BUCKET_CAP_MB = 25
_MB_TO_BYTES = 1024 * 1024


@dataclasses.dataclass(frozen=True)
class _BucketCapacityConfig:
    """Sizes of the buckets of gradients: one size for all, with a smaller first one by default, or a size for each."""

    bucket_bytes_cap: int
    per_bucket_bytes_caps: tuple[int, ...]
    first_bucket_bytes_cap: int

    @classmethod
    def create(
        cls, bucket_cap_mb: float | None, bucket_cap_mb_list: Sequence[float] | None, use_python_reducer: bool
    ) -> _BucketCapacityConfig:
        if bucket_cap_mb_list:
            if use_python_reducer:
                raise AssertionError("when using bucket_cap_mb_list, python reducer is not supported")
            caps = tuple(int(size * _MB_TO_BYTES) for size in bucket_cap_mb_list)
            return cls(max(caps), caps, max(caps))
        cap = int((_DEFAULT_BUCKET_CAP_MB if bucket_cap_mb is None else bucket_cap_mb) * _MB_TO_BYTES)
        return cls(cap, (), DEFAULT_FIRST_BUCKET_BYTES if bucket_cap_mb is None else cap)

    @property
    def bucket_cap_mb(self) -> int:
        return self.bucket_bytes_cap // _MB_TO_BYTES

    @property
    def has_custom_per_bucket_caps(self) -> bool:
        return bool(self.per_bucket_bytes_caps)

    def compute_bucket_size_limits(
        self, static_graph: bool, find_unused_parameters: bool
    ) -> tuple[list[int], list[int]]:
        """Return the limits of the initial buckets, and of those rebuilt when the order of gradients is known."""
        if self.per_bucket_bytes_caps:
            return list(self.per_bucket_bytes_caps), list(self.per_bucket_bytes_caps)
        if static_graph or not find_unused_parameters:
            return [sys.maxsize], []  # they are rebuilt after the first iteration
        if self.first_bucket_bytes_cap == self.bucket_bytes_cap:
            return [self.bucket_bytes_cap], []
        return [self.first_bucket_bytes_cap, self.bucket_bytes_cap], []


@dataclasses.dataclass
class _MixedPrecision:
    """Dtypes of parameters, gradients and buffers during computation (not supported yet)."""

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None
    _low_precision_param: Any = None
