"""Optical flow between two images: RAFT.

>>> from flambeau.vision.models import optical_flow
>>> model = optical_flow.raft_small()
"""

# ruff: noqa: F403 - re-exports

from .raft import *
