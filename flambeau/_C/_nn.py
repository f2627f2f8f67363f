"""Where PyTorch keeps its compiled `nn.functional`."""

from ..nn.functional import *  # noqa: F403
