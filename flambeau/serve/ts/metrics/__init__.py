"""Metrics that a handler reports: each report becomes a line that the server reads."""

from __future__ import annotations

import enum
import logging
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...archive_reader import read_yaml


class Units:
    """Short names of units, and their names in logs."""

    def __init__(self) -> None:
        self.units = {
            "ms": "Milliseconds", "s": "Seconds", "percent": "Percent", "count": "Count", "MB": "Megabytes",
            "GB": "Gigabytes", "kB": "Kilobytes", "B": "Bytes", "": "unit", None: "unit",
        }  # fmt: skip


class MetricTypes(enum.Enum):
    """The treatment of a metric's value when it is reported again: added up, replaced, or sorted into buckets."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Dimension:
    """A name and a value, such as ModelName: resnet."""

    def __init__(self, name: str, value: str):
        self.name = name
        self.value = value

    def __str__(self) -> str:
        return f"{self.name}:{self.value}"

    def to_dict(self) -> dict[str, str]:
        return {"Name": self.name, "Value": self.value}


class MetricsCacheTypeError(TypeError):
    """Raised for a metric or configuration of the wrong type."""


class MetricsCacheValueError(ValueError):
    """Raised for a unit or value that a metric cannot have."""


class MetricsCacheKeyError(KeyError):
    """Raised for a metric that does not exist."""


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
        """Report a value. Labels that do not fit, or a decreasing counter, are logged and not reported."""
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


class Metric:
    """A metric with its value, as text for a log."""

    def __init__(
        self, name: str, value: Any, unit: str, dimensions: list[Dimension], request_id: str | None = None,
        metric_method: str | None = None,
    ):  # fmt: skip
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


class MetricsCacheYamlImpl:
    """The metrics of a handler, which it gets as `context.metrics`."""

    def __init__(self, config_file_path: str | None = None, emit: Callable[[str], None] = _log):
        self.cache: dict[MetricTypes, dict[str, CachingMetric]] = {}
        self.request_ids: dict[int, str] | str | None = None
        self.model_name: str | None = None
        self.config_file_path = config_file_path
        self._emit = emit

    def initialize_cache(self) -> None:
        """Make the model metrics that metrics.yaml declares."""
        if not self.config_file_path:
            return
        declared = read_yaml(Path(self.config_file_path), MetricsCacheTypeError).get("model_metrics") or {}
        for kind in MetricTypes:
            for entry in declared.get(kind.value) or ():
                self.add_metric_to_cache(entry["name"], entry["unit"], list(entry["dimensions"]), kind)

    def set_request_ids(self, request_ids: Any) -> None:
        self.request_ids = request_ids

    # -- metrics by name --

    def add_metric_to_cache(
        self,
        metric_name: str,
        unit: str,
        dimension_names: list[str] | None = None,
        metric_type: MetricTypes = MetricTypes.COUNTER,
    ) -> CachingMetric:
        """Make a metric, to be reported with its `add_or_update`."""
        if not isinstance(metric_name, str) or not isinstance(unit, str):
            raise MetricsCacheTypeError("`metric_name` and `unit` must be str")
        if not isinstance(metric_type, MetricTypes):
            raise MetricsCacheTypeError("`metric_type` must be a MetricTypes enum")
        if not all(isinstance(name, str) for name in dimension_names or ()):
            raise MetricsCacheTypeError("`dimension_names` must be a list of str")
        metric = CachingMetric(metric_name, unit, dimension_names, metric_type, self._emit)
        self.cache.setdefault(metric_type, {})[metric_name] = metric
        return metric

    add_metric_to_cache_from_yaml = add_metric_to_cache

    def get_metric(self, metric_name: str, metric_type: MetricTypes = MetricTypes.COUNTER) -> CachingMetric:
        """Return the metric of this name and kind."""
        try:
            return self.cache[metric_type][metric_name]
        except KeyError:
            raise MetricsCacheKeyError(
                f"Metric of type '{metric_type}' and name '{metric_name}' doesn't exist"
            ) from None

    def cache_keys(self) -> list[str]:
        return [f"{kind.value}:{name}" for kind, metrics in self.cache.items() for name in metrics]

    # -- reports in one call --

    def _request(self, idx: Any) -> Any:
        ids = self.request_ids
        if isinstance(ids, dict):
            return ids[idx] if idx is not None and idx in ids else ",".join(ids.values())
        return ids

    def add_metric(
        self, name: str, value: float, unit: str, idx: Any = None, dimensions: list[Dimension] | None = None,
        metric_type: MetricTypes = MetricTypes.COUNTER,
    ) -> None:  # fmt: skip
        """Report a value of any unit."""
        request = self._request(idx)
        labels = list(dimensions or ())
        present = {d.name for d in labels}
        if request is None:
            labels += [] if "Level" in present else [Dimension("Level", "Error")]
        else:
            labels += [] if "ModelName" in present else [Dimension("ModelName", str(self.model_name))]
            labels += [] if "Level" in present else [Dimension("Level", "Model")]
        metric = self.cache.get(metric_type, {}).get(name)
        names = [d.name for d in labels]
        if metric is None or metric.dimension_names != names:
            metric = self.add_metric_to_cache(name, unit, names, metric_type)
        metric.add_or_update(value, [d.value for d in labels], request)

    def add_counter(self, name: str, value: float, idx: Any = None, dimensions: list[Dimension] | None = None) -> None:
        """Add a value to a counter."""
        self.add_metric(name, value, "count", idx, dimensions, MetricTypes.COUNTER)

    def add_time(
        self, name: str, value: float, idx: Any = None, unit: str = "ms", dimensions: list[Dimension] | None = None,
        metric_type: MetricTypes = MetricTypes.GAUGE,
    ) -> None:  # fmt: skip
        """Report a time, in ms or s."""
        if unit not in ("ms", "s"):
            raise MetricsCacheValueError("the unit for a timed metric should be one of ['ms', 's']")
        self.add_metric(name, value, unit, idx, dimensions, metric_type)

    def add_size(
        self, name: str, value: float, idx: Any = None, unit: str = "MB", dimensions: list[Dimension] | None = None,
        metric_type: MetricTypes = MetricTypes.GAUGE,
    ) -> None:  # fmt: skip
        """Report a size, in B, kB, MB or GB."""
        if unit not in ("MB", "kB", "GB", "B"):
            raise ValueError("The unit for size based metric is one of ['MB','kB', 'GB', 'B']")
        self.add_metric(name, value, unit, idx, dimensions, metric_type)

    def add_percent(
        self,
        name: str,
        value: float,
        idx: Any = None,
        dimensions: list[Dimension] | None = None,
        metric_type: MetricTypes = MetricTypes.GAUGE,
    ) -> None:
        """Report a percentage."""
        self.add_metric(name, value, "percent", idx, dimensions, metric_type)

    def add_error(self, name: str, value: float, dimensions: list[Dimension] | None = None) -> None:
        """Report an error as a metric with separate labels."""
        labels = list(dimensions or ())
        labels += [] if any(d.name == "Level" for d in labels) else [Dimension("Level", "Error")]
        metric = self.add_metric_to_cache(name, "", [d.name for d in labels], MetricTypes.COUNTER)
        metric.add_or_update(value, [d.value for d in labels])
