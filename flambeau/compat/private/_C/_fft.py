"""`torch._C._fft`: the compiled functions of `fft`, each with the prefix `fft_`."""

from ....ops import namespace as _namespace

globals().update({f"fft_{name}": function for name, function in _namespace("fft").items()})
