"""The kinds of metrics."""

import enum


class MetricTypes(enum.Enum):
    """What happens to a metric's value when it is reported again: added up, replaced, or sorted into buckets."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
