"""A metric that is reported as often as its handler likes."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from typing import Any

from .dimension import Dimension
from .metric_type_enum import MetricTypes
from .unit import Units

logger = logging.getLogger(__name__)
UNITS = Units().units
HOST = socket.gethostname()


def _log(line: str) -> None:
    logger.info("[METRICS]%s", line)


class CachingMetric:
    """A metric's name, unit, labels and kind; each report becomes a line that the server reads."""

    def __init__(
        self,
        metric_name: str,
        unit: str,
        dimension_names: list[str] | None = None,
        metric_type: MetricTypes = MetricTypes.COUNTER,
        emit: Callable[[str], None] = _log,
    ):
        self.metric_name = metric_name
        self.unit = UNITS.get(unit, unit)
        self.dimension_names = list(dimension_names or [])
        self.metric_type = metric_type
        self._emit = emit

    def add_or_update(self, value: float, dimension_values: list[Any] | tuple = (), request_id: Any = "") -> None:
        """Report a value. Labels that do not fit, or a counter that would fall, are logged and not reported."""
        if dimension_values is None or len(dimension_values) != len(self.dimension_names):
            logger.error(
                "[METRICS]Failed to update metric with name:%s with value: %s: Dimension values: %s should correspond to"
                " Dimension names: %s",
                self.metric_name, value, dimension_values, self.dimension_names,
            )  # fmt: skip
            return
        labels = ",".join(f"{n}:{v}" for n, v in zip(self.dimension_names, dimension_values))
        if self.metric_type is MetricTypes.COUNTER and value < 0:
            logger.error(
                "[METRICS]Failed to update metric with name:%s and dimensions: %s with value: %s: Counter metric update"
                " value cannot be negative",
                self.metric_name, labels, value,
            )  # fmt: skip
            return
        tail = f",{request_id}" if request_id else ""
        kind = self.metric_type.name
        self._emit(
            f"{self.metric_name}.{self.unit}:{value}|#{labels}|#type:{kind}|#hostname:{HOST},{int(time.time())}{tail}"
        )

    def update(self, value: float, request_id: str = "", dimensions: list[Dimension] | tuple = ()) -> None:
        """Report a value under other labels: the older interface."""
        self.dimension_names = [d.name for d in dimensions]
        self.add_or_update(value, [d.value for d in dimensions], request_id)
