"""Functional forms of the layers: every operator declared in the namespace "nn.functional"."""

from .. import ops

globals().update(ops.namespace("nn.functional"))
