# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.
from builtins import bool as _bool
from builtins import str as _str

from ..compat.switches.opt_einsum import *
enabled: _bool
strategy: _str | None
