# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.

from . import nn as nn
from . import ns as ns
from . import pruning as pruning
from . import quantization as quantization

