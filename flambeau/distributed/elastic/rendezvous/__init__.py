"""Rendezvous of agents: they agree on the participants of the next round."""

from . import api
from .api import *

__all__ = [*api.__all__]
