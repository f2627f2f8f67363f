"""Where PyTorch keeps its compiled `linalg`, each function with a prefix."""

from ....ops import namespace as _namespace

globals().update({f"linalg_{name}": function for name, function in _namespace("linalg").items()})
