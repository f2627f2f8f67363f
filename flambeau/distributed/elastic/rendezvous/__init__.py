"""Rendezvous of agents: they meet, and agree who takes part in the next round."""

from . import api
from .api import *

__all__ = [*api.__all__]
