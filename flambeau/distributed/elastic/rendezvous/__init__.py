"""Where agents meet, and agree who takes part in the next round."""

# ruff: noqa: F403, F405

from . import api
from .api import *

__all__ = [*api.__all__]
