"""The metrics of a model: those of metrics.yaml, and those a handler adds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...archive import read_yaml
from .caching_metric import CachingMetric, _log
from .dimension import Dimension
from .metric_cache_errors import MetricsCacheKeyError, MetricsCacheTypeError, MetricsCacheValueError
from .metric_type_enum import MetricTypes


class MetricsCacheYamlImpl:
    """The metrics that a handler calls `context.metrics`."""

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
        """The metric of that name and kind."""
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
        self,
        name: str,
        value: float,
        unit: str,
        idx: Any = None,
        dimensions: list[Dimension] | None = None,
        metric_type: MetricTypes = MetricTypes.COUNTER,
    ) -> None:
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
        self,
        name: str,
        value: float,
        idx: Any = None,
        unit: str = "ms",
        dimensions: list[Dimension] | None = None,
        metric_type: MetricTypes = MetricTypes.GAUGE,
    ) -> None:
        """Report a time, in ms or s."""
        if unit not in ("ms", "s"):
            raise MetricsCacheValueError("the unit for a timed metric should be one of ['ms', 's']")
        self.add_metric(name, value, unit, idx, dimensions, metric_type)

    def add_size(
        self,
        name: str,
        value: float,
        idx: Any = None,
        unit: str = "MB",
        dimensions: list[Dimension] | None = None,
        metric_type: MetricTypes = MetricTypes.GAUGE,
    ) -> None:
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
        """Report an error, with labels of its own."""
        labels = list(dimensions or ())
        labels += [] if any(d.name == "Level" for d in labels) else [Dimension("Level", "Error")]
        metric = self.add_metric_to_cache(name, "", [d.name for d in labels], MetricTypes.COUNTER)
        metric.add_or_update(value, [d.value for d in labels])
