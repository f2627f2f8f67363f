"""Timing of a handler's steps as metrics, enabled by `handler: {profile: true}` in model-config.yaml."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any


def timed(func: Callable) -> Callable:
    """Decorate a method of a handler: its time becomes the metric `ts_handler_<name>`."""

    @functools.wraps(func)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        settings = getattr(getattr(self, "context", None), "model_yaml_config", None) or {}
        if not (settings.get("handler") or {}).get("profile"):
            return func(self, *args, **kwargs)
        start = time.perf_counter()
        result = func(self, *args, **kwargs)
        self.context.metrics.add_time(f"ts_handler_{func.__name__}", (time.perf_counter() - start) * 1000)
        return result

    return wrapper
