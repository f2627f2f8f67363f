"""Optical flow between two images: RAFT.

>>> from flambeau.vision.models import optical_flow
>>> model = optical_flow.raft_small()
>>> len(model.state_dict())
106
>>> model.update_block.hidden_state_size
96
"""

from .raft import RAFT, Raft_Large_Weights, Raft_Small_Weights, raft_large, raft_small

__all__ = ["RAFT", "Raft_Large_Weights", "Raft_Small_Weights", "raft_large", "raft_small"]
