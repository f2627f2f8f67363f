"""Special functions: every operator declared in the namespace "special", and three that are also elsewhere.

>>> flambeau.special.expit(flambeau.tensor([-1.0, 0.0, 1.0]))
tensor([0.2689, 0.5000, 0.7311])
>>> flambeau.special.log_softmax(flambeau.zeros(2), 0)
tensor([-0.6931, -0.6931])
"""

from . import ops as _ops

_everywhere = _ops.namespace("torch")

softmax, log_softmax, logsumexp = (_everywhere[name] for name in ("softmax", "log_softmax", "logsumexp"))
globals().update(_ops.namespace("special"))
