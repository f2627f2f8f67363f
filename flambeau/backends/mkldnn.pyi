# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.
from builtins import bool as _bool

from ..compat.switches.mkldnn import *
deterministic: _bool
allow_tf32: None | _bool
enabled: _bool
