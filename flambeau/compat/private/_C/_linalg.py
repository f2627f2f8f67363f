"""`torch._C._linalg`: the compiled functions of `linalg`, each with the prefix `linalg_`."""

from ....ops import namespace as _namespace

globals().update({f"linalg_{name}": function for name, function in _namespace("linalg").items()})
