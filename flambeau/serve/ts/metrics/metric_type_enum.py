"""The kinds of metrics."""

import enum


class MetricTypes(enum.Enum):
    """The treatment of a metric's value when it is reported again: added up, replaced, or sorted into buckets."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
