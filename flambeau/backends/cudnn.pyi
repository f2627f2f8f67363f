# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.
from builtins import bool as _bool
from builtins import int as _int

from ..compat.switches.cudnn import *
enabled: _bool
benchmark: _bool
benchmark_limit: _int | None
deterministic: _bool
allow_tf32: _bool
