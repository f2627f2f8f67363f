"""What can be wrong with a metric or its configuration."""


class MetricsCacheTypeError(TypeError):
    """A metric or configuration of the wrong type."""


class MetricsCacheValueError(ValueError):
    """A unit or value that a metric cannot have."""


class MetricsCacheKeyError(KeyError):
    """A metric that does not exist."""
