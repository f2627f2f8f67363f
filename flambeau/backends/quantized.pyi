# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.
from builtins import str as _str

from ..compat.switches.quantized import *
engine: _str
supported_engines: list[_str]
