# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.

from . import _common_utils as _common_utils
from . import _flat_param as _flat_param
from . import _full_state as _full_state
from . import _fully_shard as _fully_shard
from . import _init_utils as _init_utils
from . import _optim_state as _optim_state
from . import _state_dict_methods as _state_dict_methods
from . import _traversal_utils as _traversal_utils
from . import api as api
from . import fully_sharded_data_parallel as fully_sharded_data_parallel
from . import materialise as materialise
from . import sharded_grad_scaler as sharded_grad_scaler
from . import unit_state as unit_state
from . import wrap as wrap
from ._flat_param import FlatParameter as FlatParameter
from ._fully_shard import CPUOffloadPolicy as CPUOffloadPolicy
from ._fully_shard import DataParallelMeshDims as DataParallelMeshDims
from ._fully_shard import FSDPModule as FSDPModule
from ._fully_shard import MixedPrecisionPolicy as MixedPrecisionPolicy
from ._fully_shard import OffloadPolicy as OffloadPolicy
from ._fully_shard import UnshardHandle as UnshardHandle
from ._fully_shard import fully_shard as fully_shard
from ._fully_shard import register_fsdp_forward_method as register_fsdp_forward_method
from ._fully_shard import share_comm_ctx as share_comm_ctx
from .api import BackwardPrefetch as BackwardPrefetch
from .api import CPUOffload as CPUOffload
from .api import FullOptimStateDictConfig as FullOptimStateDictConfig
from .api import FullStateDictConfig as FullStateDictConfig
from .api import LocalOptimStateDictConfig as LocalOptimStateDictConfig
from .api import LocalStateDictConfig as LocalStateDictConfig
from .api import MixedPrecision as MixedPrecision
from .api import OptimStateDictConfig as OptimStateDictConfig
from .api import OptimStateKeyType as OptimStateKeyType
from .api import ShardedOptimStateDictConfig as ShardedOptimStateDictConfig
from .api import ShardedStateDictConfig as ShardedStateDictConfig
from .api import ShardingStrategy as ShardingStrategy
from .api import StateDictConfig as StateDictConfig
from .api import StateDictSettings as StateDictSettings
from .api import StateDictType as StateDictType
from .fully_sharded_data_parallel import FullyShardedDataParallel as FullyShardedDataParallel
from .materialise import load_shards as load_shards

