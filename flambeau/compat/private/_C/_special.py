"""Where PyTorch keeps its compiled `special`, each function with a prefix."""

from ....ops import namespace as _namespace

globals().update({f"special_{name}": function for name, function in _namespace("special").items()})
