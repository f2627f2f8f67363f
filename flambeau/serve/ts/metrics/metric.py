"""Value of a metric, in TorchServe's older interface."""

from __future__ import annotations

import time
from typing import Any

from .caching_metric import HOST, CachingMetric
from .dimension import Dimension


class Metric:
    """A metric with its value, as text for a log."""

    def __init__(
        self,
        name: str,
        value: Any,
        unit: str,
        dimensions: list[Dimension],
        request_id: str | None = None,
        metric_method: str | None = None,
    ):
        self.name, self.value, self.dimensions = name, value, dimensions
        self.request_id, self.metric_method = request_id, metric_method
        self._caching = CachingMetric(name, unit, [d.name for d in dimensions])
        self.unit = self._caching.unit

    def update(self, value: Any) -> None:
        self._caching.add_or_update(value, [d.value for d in self.dimensions], self.request_id)

    def reset(self) -> None:
        self.update(0)

    def __str__(self) -> str:
        labels = ",".join(map(str, self.dimensions))
        tail = f",{self.request_id}" if self.request_id else ""
        return f"{self.name}.{self.unit}:{self.value}|#{labels}|#hostname:{HOST},{int(time.time())}{tail}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "MetricName": self.name,
            "Value": self.value,
            "Unit": self.unit,
            "Dimensions": self.dimensions,
            "Timestamp": int(time.time()),
            "HostName": HOST,
            "RequestId": self.request_id,
        }
