"""`torch._C._special`: the compiled functions of `special`, each with the prefix `special_`."""

from ....ops import namespace as _namespace

globals().update({f"special_{name}": function for name, function in _namespace("special").items()})
