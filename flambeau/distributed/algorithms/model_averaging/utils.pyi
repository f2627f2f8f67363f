# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.

from ....distributed.algorithms.model_averaging import HierarchicalModelAverager as HierarchicalModelAverager
from ....distributed.algorithms.model_averaging import ModelAverager as ModelAverager
from ....distributed.algorithms.model_averaging import PeriodicModelAverager as PeriodicModelAverager
from ....distributed.algorithms.model_averaging import Tensor as Tensor
from ....distributed.algorithms.model_averaging import average_parameters as average_parameters
from ....distributed.algorithms.model_averaging import average_parameters_or_parameter_groups as average_parameters_or_parameter_groups
from ....distributed.algorithms.model_averaging import get_params_to_average as get_params_to_average
from ....distributed.algorithms.model_averaging import settle as settle
from ....distributed.algorithms.model_averaging import unrecorded as unrecorded
