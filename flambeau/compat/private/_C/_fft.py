"""Where PyTorch keeps its compiled `fft`, each function with a prefix."""

from ....ops import namespace as _namespace

globals().update({f"fft_{name}": function for name, function in _namespace("fft").items()})
