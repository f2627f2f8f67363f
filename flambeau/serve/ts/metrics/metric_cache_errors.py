"""Errors in metrics and their configuration."""


class MetricsCacheTypeError(TypeError):
    """A metric or configuration of the wrong type."""


class MetricsCacheValueError(ValueError):
    """A unit or value that a metric cannot have."""


class MetricsCacheKeyError(KeyError):
    """Raised for a metric that does not exist."""
