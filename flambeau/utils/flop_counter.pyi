# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.

from ..profiler.flop_counter import FlopCounterMode as FlopCounterMode
from ..profiler.flop_counter import ModuleTracker as ModuleTracker
from ..profiler.flop_counter import OpOverloadPacket as OpOverloadPacket
from ..profiler.flop_counter import Tensor as Tensor
from ..profiler.flop_counter import convert_num_with_suffix as convert_num_with_suffix
from ..profiler.flop_counter import convert_to_percent_str as convert_to_percent_str
from ..profiler.flop_counter import flop_registry as flop_registry
from ..profiler.flop_counter import get_shape as get_shape
from ..profiler.flop_counter import get_suffix_str as get_suffix_str
from ..profiler.flop_counter import operator_name as operator_name
from ..profiler.flop_counter import register_flop_formula as register_flop_formula
from ..profiler.flop_counter import shape_wrapper as shape_wrapper
from ..profiler.flop_counter import tree_map as tree_map
