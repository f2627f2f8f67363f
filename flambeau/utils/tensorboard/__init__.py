"""Logs for TensorBoard: `SummaryWriter` writes what `tensorboard --logdir runs` shows. Needs the package `tensorboard`."""

import importlib.util as _util

if _util.find_spec("tensorboard") is None:
    raise ImportError("SummaryWriter needs the package tensorboard: pip install tensorboard", name="tensorboard")

from .writer import SummaryWriter

__all__ = ["SummaryWriter"]
