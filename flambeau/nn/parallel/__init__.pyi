# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.

from . import scatter_gather as scatter_gather
from ...distributed import data_parallel as distributed
from ...distributed.data_parallel import DistributedDataParallel as DistributedDataParallel
from .data_parallel import DataParallel as DataParallel
from .data_parallel import data_parallel as data_parallel
from .data_parallel import gather as gather
from .data_parallel import parallel_apply as parallel_apply
from .data_parallel import replicate as replicate
from .data_parallel import scatter as scatter

