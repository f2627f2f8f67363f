"""Loggers named after the calling module."""

from __future__ import annotations

import inspect
import logging
import os


def get_logger(name: str | None = None) -> logging.Logger:
    """Return the logger `name`, by default that of the calling module; its level is LOGLEVEL, or WARNING."""
    if name is None:
        module = inspect.getmodule(inspect.stack()[1].frame)
        name = module.__name__ if module is not None else "__main__"
    logger = logging.getLogger(name)
    logger.setLevel(os.environ.get("LOGLEVEL", "WARNING"))
    return logger
