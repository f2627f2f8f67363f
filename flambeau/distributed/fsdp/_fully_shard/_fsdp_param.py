"""Parameter of a sharded module: its permanent shard, and the whole parameter, which is allocated and freed.

The whole parameter is always the same tensor object, since graphs hold it; its memory is freed and allocated again."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from ....autograd.grad_mode import no_grad
from ....core.size import Size, make_size
from ....core.storage import UntypedStorage
from ....core.tensor import Tensor, contiguous_strides, new_tensor
from ....nn import Module, Parameter
from ....ops import namespace
from ...device_mesh import DeviceMesh
from ...tensor import DTensor, Replicate, Shard
from ...tensor._dtensor_spec import DTensorSpec, TensorMeta
from ...tensor.placement_types import Placement, _StridedShard
from ._fsdp_api import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from ._fsdp_common import (
    DataParallelMeshInfo,
    DDPMeshInfo,
    FSDPMeshInfo,
    HSDPMeshInfo,
    _to_dtype_if_needed,
    resolve_shard_placement,
)

_identities = itertools.count()
_torch = namespace("torch")


class ShardedState(Enum):
    """State of a sharded parameter: the module holds this rank's shard, a larger shard of fewer ranks, or all of it."""

    SHARDED = auto()
    SHARDED_POST_FORWARD = auto()
    UNSHARDED = auto()


@dataclass
class ParamModuleInfo:
    """Modules that have a parameter as an attribute: one module, and others that share it."""

    module: Module
    param_name: str
    shared_modules: list[Module] = field(default_factory=list)
    shared_param_names: list[str] = field(default_factory=list)

    def set(self, value: Any) -> None:
        """Replace the module's parameter by another tensor."""
        for module, name in zip((self.module, *self.shared_modules), (self.param_name, *self.shared_param_names)):
            if type(module).__setattr__ is Module.__setattr__:
                module._parameters[name] = value  # what assignment checks is known here
            else:
                setattr(module, name, value)


class FSDPParam:
    """A parameter sharded along one dimension over the ranks of a mesh."""

    all_gather_outputs: list[Tensor]
    _unsharded_inner_tensors: list[Tensor]
    sharded_param: Any
    _sharded_param_data: Tensor

    def __init__(
        self,
        param: Parameter,
        module_info: ParamModuleInfo,
        mesh_info: DataParallelMeshInfo,
        post_forward_mesh_info: FSDPMeshInfo | None,
        device: Any,
        shard_placement_fn: Callable | None,
        mp_policy: MixedPrecisionPolicy,
        offload_policy: OffloadPolicy,
    ):
        self._module_info, self.mp_policy, self.device = module_info, mp_policy, device
        self.mesh_info, self.post_forward_mesh_info = mesh_info, post_forward_mesh_info
        self.offload_to_cpu = isinstance(offload_policy, CPUOffloadPolicy)
        pins = isinstance(offload_policy, CPUOffloadPolicy) and offload_policy.pin_memory
        self.pin_memory = pins and device.type != "cpu"
        self.all_gather_outputs, self._unsharded_inner_tensors = [], []
        self.unsharded_accumulated_grad: Any = None
        self._param_fqn: str | None = None
        self._unsharded_param: Any = None
        self._sharded_post_forward_param_data: Tensor | None = None
        self._extension: tuple[Any, list] | None = None  # what fsdp_pre_all_gather says, until fsdp_post_all_gather
        self._orig_param_uid = param.__dict__.setdefault("_fsdp_orig_uid", next(_identities))
        self._shard(param, shard_placement_fn)
        self._post_load_hook_handle = module_info.module.register_load_state_dict_post_hook(
            lambda *args, **kwargs: self.reset_sharded_param()
        )

    # -- the shard ------------------------------------------------------------------------------------------------------

    @no_grad()
    def _shard(self, param: Any, shard_placement_fn: Callable | None) -> None:
        placement = None
        if shard_placement_fn is not None:
            chosen = resolve_shard_placement(shard_placement_fn(param), self.mesh_info)  # type: ignore[arg-type]
            self.mesh_info, placement = chosen.mesh_info, chosen.placement
        if param.device != self.device and param.device.type != "meta":
            raise AssertionError(
                f"Expects the parameter to already be moved to device {self.device} but got {param.device}"
            )
        if not param.is_contiguous():
            raise NotImplementedError(
                f"FSDP does not support non-contiguous parameters yet: param.shape={param.shape} param.stride()={param.stride()}"
            )
        placement = Shard(0) if placement is None else placement
        if placement.dim < 0:
            placement = Shard(placement.dim + param.ndim)
        self.fsdp_placement, self.is_dtensor = placement, isinstance(param, DTensor)
        data = self._describe(param)
        if placement.dim >= data.ndim:
            raise AssertionError(f"Shard dim {placement.dim} is invalid for {data.ndim}D tensor: {param.shape}")
        self._orig_size = Size(data.shape)
        rank, ranks = 0, 1
        if isinstance(self.mesh_info, FSDPMeshInfo):
            rank, ranks = self.mesh_info.shard_mesh_rank, self.mesh_info.shard_mesh_size
        self._ranks = ranks
        length = data.shape[placement.dim]
        if placement.dim > 0 and length % ranks:
            raise NotImplementedError(
                f"FSDP does not support uneven sharding on dim {placement.dim}: {data.size()} (world size: {ranks})"
            )
        count, start = Shard.local_shard_size_and_offset(length, ranks, rank)
        self.padded_sharded_param_size = _replace_size(self._orig_size, placement.dim, -(-length // ranks))
        self.sharded_size = _replace_size(self._orig_size, placement.dim, count)
        padded = data.new_zeros(self.padded_sharded_param_size)
        if count:
            padded.narrow(placement.dim, 0, count).copy_(data.narrow(placement.dim, start, count))
        if self.offload_to_cpu and padded.device.type != "meta":
            padded = padded.cpu()
            padded = padded.pin_memory() if self.pin_memory else padded
        self._sharded_param_data = padded.view(-1)
        self.sharded_param = Parameter(
            self.to_sharded_dtensor(padded.narrow(placement.dim, 0, count)), param.requires_grad
        )
        self._setattr_on_modules(self.sharded_param)
        self.sharded_state = ShardedState.SHARDED

    def _describe(self, param: Any) -> Tensor:
        """Set the placement of shards on the mesh; return this rank's shard of the parameter."""
        info, placement = self.mesh_info, self.fsdp_placement
        own: tuple[Placement, ...] = (placement,) if isinstance(info, FSDPMeshInfo) else ()
        self._unsharded_dtensor_spec = None
        if info.is_spmd_mesh:
            raise NotImplementedError(
                "fully_shard(dp_mesh_dims=...): parameters on one mesh for everything are not in Flambeau yet"
            )
        mesh, rest, data, meta = info.mesh, (), param, TensorMeta(Size(param.shape), param.stride(), param.dtype)
        if self.is_dtensor:
            spec = self._unsharded_dtensor_spec = param._spec
            parts = 1
            for along, given in enumerate(spec.placements):
                parts *= spec.mesh.size(along) if given.is_shard(placement.dim) else 1
            if parts > 1 and own:  # of what the other dimension of the mesh leaves of it
                own = (_StridedShard(placement.dim, split_factor=parts),)
            mesh, rest, data, meta = (
                DeviceMesh._concatenate([mesh, spec.mesh]), tuple(spec.placements), param._local_tensor, spec.tensor_meta,
            )  # fmt: skip
        if isinstance(info, DDPMeshInfo):
            own = (Replicate(), *own)
        self._spmd_mesh, self._spmd_placements = mesh, (*own, *rest)
        self._sharding_spec = DTensorSpec(mesh, self._spmd_placements, tensor_meta=meta)
        return data

    def to_sharded_dtensor(self, tensor: Tensor) -> Any:
        """Return a shard of the parameter or of its gradient as a DTensor."""
        if tuple(tensor.shape) != tuple(self.sharded_size):
            raise AssertionError(f"Expects size {self.sharded_size} but got {tensor.shape}")
        return DTensor(tensor, self._sharding_spec, requires_grad=tensor.requires_grad)

    @property
    def _sharded_local_tensor(self) -> Tensor:
        return self.sharded_param._local_tensor

    @property
    def shard_mesh(self) -> DeviceMesh:
        mesh = self.mesh_info.mesh
        return mesh if mesh.ndim == 1 else mesh[mesh.mesh_dim_names[-1]]  # type: ignore[index]

    shard_mesh_from_root = shard_mesh

    @no_grad()
    def reset_sharded_param(self) -> None:
        """Use the memory of the module's current shard, which `to` or `load_state_dict(assign=True)` may have replaced."""
        info = self._module_info
        new = getattr(info.module, info.param_name)
        if not isinstance(new, DTensor):
            return  # the whole parameter is there; its shard has not changed
        self.sharded_param = new
        local = new._local_tensor
        if local.device.type == "meta":
            self._sharded_param_data = local.new_empty(self.padded_sharded_param_size).view(-1)
            return
        dim, length = self.fsdp_placement.dim, local.shape[self.fsdp_placement.dim]
        same = self._sharded_param_data.data_ptr() > 0 and self._sharded_param_data.data_ptr() == local.data_ptr()
        changed = False
        if tuple(local.shape) != tuple(self.padded_sharded_param_size) and not same:
            if dim != 0:
                raise AssertionError(f"Shard({dim}) requires even sharding: {local.size()=}")
            padded = local.new_zeros(self.padded_sharded_param_size)
            padded.narrow(0, 0, length).copy_(local)
            local, changed = padded, True
        if self.pin_memory and not local.is_pinned():
            local, changed = local.cpu().pin_memory(), True
        if not same:
            self._sharded_param_data = local.view(-1)
        if changed:
            new._local_tensor = local.narrow(dim, 0, length)
        self._sharding_spec = new._spec

    def init_dtype_attrs(self, policy: MixedPrecisionPolicy) -> None:
        self.orig_dtype = self.sharded_param.dtype
        self.reduce_dtype = None if policy.reduce_dtype is policy.param_dtype else policy.reduce_dtype
        plain = policy.param_dtype is self.orig_dtype or not self.orig_dtype.is_floating_point
        self.param_dtype = None if plain else policy.param_dtype

    # -- gathering ------------------------------------------------------------------------------------------------------

    @property
    def all_gather_inputs(self) -> list[Tensor]:
        """The flat tensors that this rank contributes to the whole parameter."""
        if self.sharded_state is ShardedState.SHARDED_POST_FORWARD:
            return [self._sharded_post_forward_param_data]  # type: ignore[list-item]
        if self.sharded_state is not ShardedState.SHARDED:
            raise AssertionError(f"Expects to be in one of the sharded states, not {self.sharded_state}")
        if hasattr(self._sharded_local_tensor, "fsdp_pre_all_gather"):
            return self._extended_inputs()
        data = self._sharded_param_data
        if self.offload_to_cpu:
            data = data.to(self.device, non_blocking=True)
        return [_to_dtype_if_needed(data, self.param_dtype)]

    def _extended_inputs(self) -> list[Tensor]:
        """Return the tensors to gather for a tensor class that defines them itself."""
        local: Any = self._sharded_local_tensor
        if self.offload_to_cpu:
            local = local.to(self.device, non_blocking=True)
        function = local.fsdp_pre_all_gather
        wanted = len(inspect.signature(function).parameters)
        if wanted not in (1, 5):
            raise AssertionError(
                f"Invalid fsdp_pre_all_gather: {inspect.signature(function)}\nExpects fsdp_pre_all_gather(self, mesh: DeviceMesh,"
                " outer_size: torch.Size, outer_stride: tuple[int, ...], module: nn.Module, mp_policy: MixedPrecisionPolicy)"
            )
        stride = contiguous_strides(self._orig_size)
        rest = (self._orig_size, stride, self._module_info.module, self.mp_policy) if wanted == 5 else ()
        inputs, metadata = function(self.shard_mesh, *rest)
        if tuple(local.shape) != tuple(self.padded_sharded_param_size) and any(
            tuple(t.shape) != tuple(self.padded_sharded_param_size) for t in inputs
        ):
            raise AssertionError(
                f"When a parameter is unevenly sharded by FSDP (orig size={self._orig_size}, FSDP world"
                f" size={self.mesh_info.mesh.size()}), fsdp_pre_all_gather must return all-gather inputs with the padded sharded size"
                f" {self.padded_sharded_param_size} but got {[t.size() for t in inputs]}"
            )
        self._extension = (metadata, [t.size() for t in inputs])
        return [t.view(-1) for t in inputs]

    def alloc_all_gather_outputs(self, inputs: Sequence[Tensor], ranks: int) -> list[Tensor]:
        """Allocate memory for the contributions of all ranks."""
        if not self.all_gather_outputs:
            self.all_gather_outputs = [_empty(t.numel() * ranks, t.dtype, self.device) for t in inputs]
        for tensor in self.all_gather_outputs:
            tensor._storage.refill(tensor.numel() * tensor.dtype.itemsize)
        return self.all_gather_outputs

    @no_grad()
    def init_unsharded_param(self) -> None:
        """Build the whole parameter from the gathered tensors."""
        local: Any = self._sharded_local_tensor
        if hasattr(local, "fsdp_post_all_gather"):
            self._extended_output(local)
        elif self.fsdp_placement.dim > 0:
            self._rearrange_gathered()
        elif self._unsharded_param is None:
            self._make_unsharded(self.all_gather_outputs[0])

    def _make_unsharded(self, flat: Tensor) -> None:
        whole: Any = flat.as_strided(self._orig_size, contiguous_strides(self._orig_size), 0)
        spec = self._unsharded_dtensor_spec
        if spec is not None:
            meta = spec.tensor_meta
            if meta is not None and meta.dtype is not whole.dtype:
                spec = DTensorSpec(
                    spec.mesh, spec.placements, tensor_meta=TensorMeta(meta.shape, meta.stride, whole.dtype)
                )
            whole = DTensor(whole, spec, requires_grad=False)
        self._unsharded_param = Parameter(whole, self.sharded_param.requires_grad)

    def _rearrange_gathered(self) -> None:
        """Rearrange gathered shards along a dimension other than the first: they are received one after another."""
        dim, gathered = self.fsdp_placement.dim, self.all_gather_outputs[0]
        if self._unsharded_param is None:
            self._unsharded_inner_tensors = [_empty(gathered.numel(), gathered.dtype, self.device)]
        flat = self._unsharded_inner_tensors[0]
        flat._storage.refill(flat.numel() * flat.dtype.itemsize)
        if self._unsharded_param is None:
            self._make_unsharded(flat)
        version = flat._storage.version
        parts = gathered.view(self._ranks, *self.padded_sharded_param_size)
        wide = flat.view(*self._orig_size[:dim], self._ranks, -1, *self._orig_size[dim + 1 :])
        wide.copy_(parts.movedim(0, dim))
        flat._storage.version = version
        gathered._storage.give_back()

    def _extended_output(self, local: Any) -> None:
        assert self._extension is not None
        metadata, sizes = self._extension
        outputs = tuple(t.view(-1, *size[1:]) for t, size in zip(self.all_gather_outputs, sizes))
        wanted = self.param_dtype or self.orig_dtype
        self._extension = None
        if self._unsharded_param is None:
            whole, self._unsharded_inner_tensors = local.fsdp_post_all_gather(outputs, metadata, wanted)
            self._unsharded_param = Parameter(
                whole.as_strided(self._orig_size, contiguous_strides(self._orig_size), 0),
                self.sharded_param.requires_grad,
            )
            return
        for tensor in self._unsharded_inner_tensors:
            tensor._storage.refill(tensor.numel() * tensor.dtype.itemsize)
        local.fsdp_post_all_gather(outputs, metadata, wanted, out=self._unsharded_param)

    # -- what the module holds --------------------------------------------------------------------------------------------

    def _setattr_on_modules(self, param: Any) -> None:
        self._module_info.set(param)

    def to_sharded(self) -> None:
        self._setattr_on_modules(self.sharded_param)
        self.free_unsharded_param()
        self._sharded_post_forward_param_data = None
        self.sharded_state = ShardedState.SHARDED

    @no_grad()
    def to_sharded_post_forward(self) -> None:
        """Keep a larger shard, over the fewer ranks of `post_forward_mesh_info`."""
        if self.is_dtensor:
            raise NotImplementedError("Resharding to smaller mesh is not supported for DTensor parameters yet")
        info = self.post_forward_mesh_info
        assert isinstance(info, HSDPMeshInfo)
        whole = self.all_gather_outputs[0]
        if whole.numel() % info.shard_mesh_size:
            raise AssertionError(
                f"All-gather output size ({whole.numel()}) must be divisible by the shard world size ({info.shard_mesh_size})"
            )
        count = whole.numel() // info.shard_mesh_size
        data = whole.narrow(0, count * info.shard_mesh_rank, count).clone()
        self._sharded_post_forward_param_data = data
        rows, _ = Shard.local_shard_size_and_offset(self._orig_size[0], info.shard_mesh_size, info.shard_mesh_rank)
        self.sharded_post_forward_size = _replace_size(self._orig_size, 0, rows)
        part = data.as_strided(self.sharded_post_forward_size, contiguous_strides(self.sharded_post_forward_size), 0)
        spec = DTensorSpec(info.mesh, (Replicate(), Shard(0)), tensor_meta=self._sharding_spec.tensor_meta)
        self._setattr_on_modules(Parameter(DTensor(part, spec, requires_grad=False), self.sharded_param.requires_grad))
        self.free_unsharded_param()
        self.sharded_state = ShardedState.SHARDED_POST_FORWARD

    def to_unsharded(self) -> None:
        if self.sharded_param.requires_grad != self._unsharded_param.requires_grad:
            self._unsharded_param.requires_grad_(self.sharded_param.requires_grad)
        self._setattr_on_modules(self._unsharded_param)
        self._sharded_post_forward_param_data = None
        self.sharded_state = ShardedState.UNSHARDED

    def free_unsharded_param(self) -> None:
        for tensor in itertools.chain(self.all_gather_outputs, self._unsharded_inner_tensors):
            tensor._storage.give_back()

    # -- gradients --------------------------------------------------------------------------------------------------------

    @property
    def unsharded_param(self) -> Any:
        return self._unsharded_param

    def to_accumulated_grad_if_needed(self) -> None:
        """Keep a gradient that is not reduced yet in the dtype of the reduction."""
        grad = None if self._unsharded_param is None else self._unsharded_param.grad
        if self.reduce_dtype is None or grad is None or grad.dtype is self.reduce_dtype:
            return
        self._unsharded_param.grad = None
        self.unsharded_accumulated_grad = grad.to(self.reduce_dtype)

    @no_grad()
    def accumulate_unsharded_grad_if_needed(self) -> None:
        if self.unsharded_accumulated_grad is not None and self._unsharded_param.grad is not None:
            self.unsharded_accumulated_grad += self._unsharded_param.grad
            self._unsharded_param.grad = None

    def forget_gradients(self) -> None:
        """Drop gradients that were not reduced."""
        self.unsharded_accumulated_grad = None
        if self._unsharded_param is not None:
            self._unsharded_param.grad = None

    def take_gradient(self, zeros: bool) -> Any:
        """Return and clear the gradient of the whole parameter; `zeros` replaces a missing one if requested."""
        whole = self._unsharded_param
        if whole is None:
            return None
        grad, self.unsharded_accumulated_grad = self.unsharded_accumulated_grad, None
        if grad is None:
            grad, whole.grad = whole.grad, None
        if grad is None and zeros and whole.requires_grad:
            grad = _torch["zeros_like"](whole)
        return None if grad is None else self._get_grad_inner_tensor(grad)

    def _get_grad_inner_tensor(self, grad: Any) -> Tensor:
        if self.is_dtensor:
            assert self._unsharded_dtensor_spec is not None
            placements = self._unsharded_dtensor_spec.placements
            if tuple(grad.placements) != tuple(placements):
                grad = grad.redistribute(placements=placements)
            return grad._local_tensor
        return grad

    def by_rank(self, grad: Tensor) -> Tensor:
        """Return the gradient in memory in which the parts of the ranks follow each other."""
        dim = self.fsdp_placement.dim
        if dim == 0:
            return grad
        return grad.view(*grad.shape[:dim], self._ranks, -1, *grad.shape[dim + 1 :]).movedim(dim, 0).contiguous()

    @no_grad()
    def accept(self, shard: Tensor, gather: bool) -> None:
        """Add a reduced gradient (`shard`, flat and padded) to the existing one."""
        dim = self.fsdp_placement.dim
        shard = shard.view(self.padded_sharded_param_size).narrow(dim, 0, self.sharded_size[dim])
        if self.offload_to_cpu and gather:
            shard = shard.cpu()
        present = self.sharded_param.grad
        if present is None:
            self.sharded_param.grad = self.to_sharded_dtensor(shard)
        else:
            present._local_tensor.add_(shard)

    @property
    def trained(self) -> list[Any]:
        """The parameters on which a program may register gradient hooks."""
        return [self.sharded_param]

    def __repr__(self) -> str:
        return f"FSDPParam(fqn={self._param_fqn}, orig_size={self._orig_size})"


def _replace_size(size: Sequence[int], dim: int, length: int) -> Size:
    return Size((*size[:dim], length, *size[dim + 1 :]))


def _empty(count: int, dtype: Any, device: Any) -> Tensor:
    """Return a tensor without memory, to be allocated later."""
    storage = UntypedStorage(0, device)
    storage.version = 0
    return new_tensor(storage, make_size((count,)), (1,), 0, dtype, storage.device, True)
