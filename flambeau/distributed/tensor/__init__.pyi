# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.

from . import _api as _api
from . import _collective_utils as _collective_utils
from . import _compute_rules as _compute_rules
from . import _dispatch as _dispatch
from . import _dtensor as _dtensor
from . import _dtensor_spec as _dtensor_spec
from . import _norm as _norm
from . import _op_schema as _op_schema
from . import _ops as _ops
from . import _random as _random
from . import _recorded as _recorded
from . import _redistribute as _redistribute
from . import _rules as _rules
from . import _shard_order as _shard_order
from . import _utils as _utils
from . import _view_rules as _view_rules
from . import debug as debug
from . import experimental as experimental
from . import parallel as parallel
from . import placement_types as placement_types
from ...distributed import device_mesh as device_mesh
from ..device_mesh import DeviceMesh as DeviceMesh
from ..device_mesh import init_device_mesh as init_device_mesh
from ._api import DTensor as DTensor
from ._api import distribute_module as distribute_module
from ._api import distribute_tensor as distribute_tensor
from ._api import empty as empty
from ._api import full as full
from ._api import ones as ones
from ._api import rand as rand
from ._api import randn as randn
from ._api import zeros as zeros
from ._dtensor import _rebuilt as _rebuilt
from ._dtensor_spec import DTensorSpec as DTensorSpec
from ._dtensor_spec import TensorMeta as TensorMeta
from .placement_types import Partial as Partial
from .placement_types import Placement as Placement
from .placement_types import Replicate as Replicate
from .placement_types import Shard as Shard
from .placement_types import _StridedShard as _StridedShard

