"""Where PyTorch keeps its compiled `nn.functional`."""

from ..nn import functional as _functional
from ..nn.functional import *  # noqa: F403

log_sigmoid = _functional.logsigmoid
