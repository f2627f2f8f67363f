# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.

from . import intrinsic as intrinsic
from . import qat as qat
from . import quantizable as quantizable
from . import quantized as quantized

