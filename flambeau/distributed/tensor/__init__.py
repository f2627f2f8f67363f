"""`torch.distributed.tensor`: tensors that are distributed over a mesh of ranks.

>>> mesh = init_device_mesh("cpu", (4,))
>>> weight = distribute_tensor(flambeau.randn(8, 8), mesh, [Shard(0)])      # each rank has two rows
>>> (weight @ weight.T).sum().full_tensor()
"""

from __future__ import annotations

from ...core import naming as _naming
from ...serialization.unpickler import add_safe_globals as _add_safe_globals
from ..device_mesh import DeviceMesh, init_device_mesh
from ._api import DTensor, distribute_module, distribute_tensor, empty, full, ones, rand, randn, zeros
from ._dtensor import _rebuilt
from ._dtensor_spec import DTensorSpec, TensorMeta
from .placement_types import Partial, Placement, Replicate, Shard, _StridedShard

DTensor.__module__ = __name__  # by which programs know it
_add_safe_globals([DTensor, DTensorSpec, TensorMeta, DeviceMesh, Partial, Replicate, Shard, _rebuilt, _StridedShard])

__all__ = [
    "DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor", "empty", "full",
    "init_device_mesh", "ones", "rand", "randn", "zeros",
]  # fmt: skip


def __getattr__(name: str):
    return _naming.submodule(__name__, name)
