"""DTensor: one tensor, distributed over the ranks of a mesh."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ...autograd.function import Function
from ...core import naming as _naming
from ...core.graph import grad_mode
from ...core.layout import contiguous_format
from ...core.sharded import SpreadTensor
from ...core.size import make_size
from ...core.tensor import Tensor, contiguous_strides, is_contiguous_layout
from .. import _functional_collectives as funcol
from .. import collectives, groups
from ..device_mesh import DeviceMesh, _mesh_resources
from ..object_collectives import all_gather_object
from ._dtensor_spec import DTensorSpec, meta_of
from ._norm import total_norm
from ._op_schema import dispatcher
from ._redistribute import Redistribute, redistribute_local_tensor
from ._utils import assert_no_mixed_partial_types, compute_global_tensor_info, normalize_to_torch_size
from .placement_types import Partial, Placement, Replicate, Shard, _is_shard_like, _StridedShard

_new_object = object.__new__


class DTensor(SpreadTensor):
    """Tensor that is distributed over the ranks of a mesh. It has the shape of the whole, and operators work on it as on any other tensor;
    each rank holds a part (`to_local()`), according to the `placements`."""

    _local_tensor: Tensor
    _spec: DTensorSpec
    _op_dispatcher = dispatcher

    def __new__(cls, local_tensor: Tensor, spec: DTensorSpec, *, requires_grad: bool = False) -> DTensor:
        if local_tensor.requires_grad and not requires_grad:
            warnings.warn(
                "To construct DTensor from torch.Tensor, it's recommended to use local_tensor.detach() and make requires_grad"
                " consistent.",
                stacklevel=2,
            )
        t = _new_object(cls)
        t._autograd = t._base = None
        t._hold(local_tensor if local_tensor._autograd is None else local_tensor._bare_alias(), spec)
        if requires_grad:
            t.requires_grad = True
        return t

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def _hold(self, local: Tensor, spec: DTensorSpec) -> None:
        meta = spec.tensor_meta
        assert meta is not None, "a DTensor needs to know what the whole looks like"
        self._local_tensor, self._spec = local, spec
        self.shape, self.dtype, self.device = make_size(tuple(meta.shape)), meta.dtype, local.device

    @property
    def _storage(self) -> Any:  # type: ignore[override]
        return self._local_tensor._storage

    def _bare_alias(self) -> DTensor:
        return type(self)(self._local_tensor._bare_alias(), self._spec, requires_grad=False)

    def _adopt(self, other: Tensor) -> None:
        if not isinstance(other, DTensor):
            raise RuntimeError("a DTensor can take over the data of a DTensor only")
        self._hold(other._local_tensor, other._spec)

    def _call_spread(self, face: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run an operator that has this tensor among its arguments."""
        return _naming.above("distributed.tensor._dispatch").dispatch(face, args, kwargs)

    def _mold(self) -> Callable[[Tensor], DTensor]:
        spec = self._spec
        return lambda local: DTensor(local, spec)

    def _beside(self, other: Tensor) -> Tensor:
        if not isinstance(other, DTensor):
            raise RuntimeError("the gradient and the state of a DTensor must be DTensors")
        if other.placements == self.placements:
            return other._local_tensor
        return redistribute_local_tensor(other._local_tensor, other._spec, other._spec.with_placements(self.placements))

    # -- where it is placed ----------------------------------------------------------------------------------------------------------------

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh that the tensor is distributed over."""
        return self._spec.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Placement on each dimension of the mesh."""
        return self._spec.placements

    @staticmethod
    def from_local(
        local_tensor: Tensor,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        run_check: bool = False,
        shape: Any = None,
        stride: Any = None,
        grad_placements: Sequence[Placement] | None = None,
    ) -> DTensor:
        """Make a DTensor from the ranks' parts. Without `shape` and `stride` all parts are assumed to be equally large; with `run_check`
        replicated parts are made equal. It is differentiable; the gradient has the tensor's placements (or `grad_placements`)."""
        if isinstance(local_tensor, DTensor):
            raise RuntimeError(
                f"the local_tensor argument only accepts torch.Tensor but got {type(local_tensor)} value."
            )
        mesh = device_mesh or _mesh_resources.get_current_mesh()
        if mesh.device_type != local_tensor.device.type and local_tensor.device.type != "meta":
            local_tensor = local_tensor.to(mesh.device_type)
        wanted = _normalised(placements, local_tensor.ndim, mesh)
        assert_no_mixed_partial_types(wanted)
        back = None if grad_placements is None else tuple(grad_placements)
        return _FromLocal.apply(local_tensor, mesh, wanted, run_check, shape, stride, back)

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """Return this rank's part. It is differentiable: the gradient of the part has this tensor's placements, or `grad_placements`."""
        back = None if grad_placements is None else tuple(grad_placements)
        result: Any = _ToLocal.apply(self, back) if grad_mode.enabled else self._local_tensor
        if getattr(self, "_is_param", False) and not getattr(result, "_is_param", False):
            result = result._bare_alias() if result is self._local_tensor else result
            result._is_param = True
        return result

    def redistribute(
        self,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        async_op: bool = False,
        forward_dtype: Any = None,
        backward_dtype: Any = None,
    ) -> DTensor:
        """Return this tensor with other placements on the mesh. It is differentiable. `forward_dtype` and `backward_dtype` are the dtypes
        in which values and gradients are communicated."""
        mesh = device_mesh or self.device_mesh
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        if mesh != self.device_mesh:
            raise NotImplementedError("Cross device mesh comm not supported yet!")
        wanted = list(placements)
        for i, placement in enumerate(wanted):
            if placement.is_partial() and self.placements[i] != placement:
                raise RuntimeError(
                    f"Can not redistribute from {self.placements[i]} to {placement}, redistributing to Partial is for internal"
                    " use only!"
                )
        return Redistribute.apply(
            self, mesh, _normalised(wanted, self.ndim, mesh), async_op, (forward_dtype, backward_dtype)
        )

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """Return the whole tensor, on every rank. It is differentiable."""
        whole = self.redistribute(placements=[Replicate()] * self.device_mesh.ndim)
        return _ToLocal.apply(whole, None if grad_placements is None else tuple(grad_placements))

    @staticmethod
    def _total_norm(tensors: list[Any], norm_type: float) -> DTensor:
        """Return the norm of all tensors, for `clip_grad_norm_`."""
        return total_norm(tensors, norm_type)

    # -- what plain tensors are asked ------------------------------------------------------------------------------------------------

    def stride(self, dim: Any = None) -> Any:
        strides = self._spec.stride
        return tuple(strides) if dim is None else strides[dim]

    def storage_offset(self) -> int:
        return self._local_tensor.storage_offset()

    def data_ptr(self) -> int:
        return self._local_tensor.data_ptr()

    def untyped_storage(self) -> Any:
        return self._local_tensor.untyped_storage()

    def is_contiguous(self, memory_format: Any = None) -> bool:
        if memory_format is not None and memory_format is not contiguous_format:
            return self._local_tensor.is_contiguous(memory_format=memory_format)
        return is_contiguous_layout(tuple(self.shape), tuple(self._spec.stride))

    def contiguous(self, memory_format: Any = contiguous_format) -> Tensor:
        """Return the tensor in contiguous memory: itself, if it is contiguous."""
        return self if self.is_contiguous(memory_format) else super().contiguous(memory_format=memory_format)

    @property
    def data(self) -> Tensor:
        """Return the tensor's data, detached from the graph."""
        return self._bare_alias()

    @data.setter
    def data(self, value: Any) -> None:
        self._adopt(value)

    def __setitem__(self, key: Any, value: Any) -> None:
        if grad_mode.enabled and (self.requires_grad or getattr(value, "requires_grad", False)):
            raise NotImplementedError(
                "x[key] = value on a DTensor whose history is recorded is not in Flambeau yet: use torch.where or index_put"
            )
        whole = _whole(self).clone()
        whole[_wholes(key)] = _whole(value) if isinstance(value, DTensor) else value
        self._local_tensor.copy_(_part_of(whole, self.device_mesh, self.placements))

    def _new_filled(self, name: str, size: Any, args: tuple, kwargs: dict[str, Any]) -> DTensor:
        """Make a new tensor, placed as this one if it has the same shape."""
        placements: tuple[Placement, ...] = (Replicate(),) * self.device_mesh.ndim
        local_size = size
        if size == self.shape:
            sums = name in ("new_empty", "new_zeros")
            placements = tuple(Replicate() if p.is_partial() and not sums else p for p in self.placements)
            local_size = self._local_tensor.shape
        local = getattr(self._local_tensor, name)(local_size, *args, **kwargs)
        meta = meta_of(size, contiguous_strides(tuple(size)), local.dtype)
        return DTensor(local, DTensorSpec(self.device_mesh, placements, meta), requires_grad=local.requires_grad)

    def new_empty(self, *size: Any, **kwargs: Any) -> DTensor:
        return self._new_filled("new_empty", normalize_to_torch_size(size), (), kwargs)

    def new_zeros(self, *size: Any, **kwargs: Any) -> DTensor:
        return self._new_filled("new_zeros", normalize_to_torch_size(size), (), kwargs)

    def new_ones(self, *size: Any, **kwargs: Any) -> DTensor:
        return self._new_filled("new_ones", normalize_to_torch_size(size), (), kwargs)

    def new_full(self, size: Any, fill_value: Any, **kwargs: Any) -> DTensor:
        return self._new_filled("new_full", make_size(tuple(size)), (fill_value,), kwargs)

    def new_empty_strided(self, size: Any, stride: Any, **kwargs: Any) -> DTensor:
        return self._new_filled("new_empty", make_size(tuple(size)), (), kwargs)

    # -- checkpoints: what `distributed.checkpoint` asks ------------------------------------------------------------------------------

    def _need_whole_values(self) -> None:
        if any(p.is_partial() for p in self.placements):
            raise ValueError(
                "Any checkpointing related operations are not supported for DTensor with partial placements!"
            )

    def __create_write_items__(self, fqn: str, object: Any) -> Any:
        self._need_whole_values()
        helpers = _naming.above("distributed.checkpoint.planner_helpers")
        return [helpers._create_write_items_for_dtensor(fqn, object)]

    def __create_chunk_list__(self) -> Any:
        self._need_whole_values()
        helpers = _naming.above("distributed.checkpoint.planner_helpers")
        return [helpers._create_chunk_from_dtensor(self)]

    def __get_tensor_shard__(self, index: Any) -> Tensor:
        self._need_whole_values()
        return self.to_local()

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"DTensor(local_tensor={self._local_tensor}, device_mesh={self._spec.mesh}, placements={self._spec.placements})"

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __deepcopy__(self, memo: dict) -> DTensor:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment."
            )
        result = type(self)(self._local_tensor.clone(), self._spec, requires_grad=self.requires_grad)
        memo[id(self)] = result
        result.__dict__.update({k: v for k, v in self.__dict__.items() if k not in ("_local_tensor", "_spec")})
        if self.grad is not None:
            result.grad = self.grad.__deepcopy__(memo)
        return result

    def __reduce_ex__(self, protocol: Any) -> tuple:
        marks = {k: v for k, v in self.__dict__.items() if k not in ("_local_tensor", "_spec")}
        return _rebuilt, (self._local_tensor, self._spec, self.requires_grad, marks)

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["_local_tensor"], (self._spec, self.requires_grad)

    @staticmethod
    def __tensor_unflatten__(inner_tensors: dict, flatten_spec: Any, outer_size: Any, outer_stride: Any) -> DTensor:
        spec, requires_grad = flatten_spec
        return DTensor(inner_tensors["_local_tensor"], spec, requires_grad=requires_grad)


def _whole(spread: DTensor) -> Tensor:
    everywhere = (Replicate(),) * spread.device_mesh.ndim
    return redistribute_local_tensor(spread._local_tensor, spread._spec, spread._spec.with_placements(everywhere))


def _wholes(key: Any) -> Any:
    """Return an index with DTensors replaced by whole tensors."""
    if isinstance(key, DTensor):
        return _whole(key)
    return type(key)([_wholes(k) for k in key]) if type(key) in (tuple, list) else key


def _part_of(whole: Tensor, mesh: DeviceMesh, placements: tuple[Placement, ...]) -> Tensor:
    """Return this rank's part of a tensor that all ranks have."""
    part = whole
    for i, p in enumerate(placements):
        if _is_shard_like(p):
            part = p.part_of(part, mesh.size(i), mesh.get_local_rank(i))
        elif isinstance(p, Partial):
            part = p._partition_value(part, mesh, i)
        else:
            part = _checked(part, p, i)
    return part


def _rebuilt(local: Tensor, spec: DTensorSpec, requires_grad: bool, marks: dict[str, Any]) -> DTensor:
    result = DTensor(local, spec, requires_grad=requires_grad)
    result.__dict__.update(marks)
    return result


def _normalised(placements: Any, ndim: int, mesh: DeviceMesh) -> tuple[Placement, ...]:
    """Return placements with dimensions counted from the front; by default replicated."""
    if placements is None:
        return (Replicate(),) * mesh.ndim
    found: list[Placement] = []
    for p in placements:
        if type(p) is Shard and p.dim < 0:
            p = Shard(p.dim + ndim)
        elif type(p) is _StridedShard and p.dim < 0:
            p = _StridedShard(p.dim + ndim, split_factor=p.split_factor)
        found.append(p)
    return tuple(found)


def _for_gradient(placements: tuple[Placement, ...]) -> tuple[Placement, ...]:
    return tuple(Replicate() if p.is_partial() else p for p in placements)


class _ToLocal(Function):
    @staticmethod
    def forward(ctx: Any, input: DTensor, grad_placements: Any) -> Tensor:
        ctx.spec, ctx.back = input._spec, grad_placements
        return input._local_tensor._bare_alias()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple:
        meta = ctx.spec.tensor_meta
        placements = _for_gradient(ctx.spec.placements) if ctx.back is None else ctx.back
        found = _FromLocal.apply(gradient, ctx.spec.mesh, placements, False, meta.shape, meta.stride, None)
        return found, None


class _FromLocal(Function):
    @staticmethod
    def forward(
        ctx: Any, input: Tensor, mesh: DeviceMesh, placements: Any, run_check: bool, shape: Any, stride: Any, back: Any
    ) -> DTensor:
        ctx.mesh, ctx.placements, ctx.back = mesh, placements, back
        if (shape is None) != (stride is None):
            raise RuntimeError(
                f"Found shape:{shape}, stride:{stride}.", "Please pass both shape and stride at the same time."
            )
        given = shape
        if shape is None:
            shape, stride = compute_global_tensor_info(input, mesh, placements)
        if mesh.get_coordinate() is None:
            input = input.new_empty(0)
        elif run_check:
            _check_alike(input, given is None)
            input = input.detach().contiguous()
            for i, placement in enumerate(placements):
                if placement.is_replicate():
                    _from_first(input, mesh, i)
        return DTensor(input._bare_alias(), DTensorSpec(mesh, placements, meta_of(shape, stride, input.dtype)))

    @staticmethod
    def backward(ctx: Any, gradient: DTensor) -> tuple:
        placements = _for_gradient(ctx.placements) if ctx.back is None else ctx.back
        if not isinstance(gradient, DTensor):
            return (gradient, *(None,) * 6)
        if gradient.placements != placements:
            gradient = Redistribute.apply(gradient, ctx.mesh, placements, False, (None, None))
        return (_ToLocal.apply(gradient, None), *(None,) * 6)


def _check_alike(tensor: Tensor, shapes: bool) -> None:
    """Check that all ranks have tensors of one dtype and number of dimensions (and of one shape)."""
    own = (str(tensor.dtype), tensor.requires_grad, *((tuple(tensor.shape), tensor.stride()) if shapes else ()))
    found: list[Any] = [None] * groups.get_world_size()
    all_gather_object(found, own)
    if any(other != own for other in found):
        raise ValueError("Inconsistent tensor metadata (including shape and stride) across ranks.")


def _from_first(tensor: Tensor, mesh: DeviceMesh, i: int, rank: int = 0) -> None:
    """Broadcast the values of one rank along a dimension of the mesh."""
    funcol._told("c10d.broadcast_")
    collectives.broadcast(tensor, group=mesh.get_group(i), group_src=rank)


def _checked(whole: Tensor, p: Placement, i: int) -> Tensor:
    if not p.is_replicate():
        raise RuntimeError(f"Trying to distribute tensor with unsupported placements {p} on device mesh dimension {i}!")
    return whole
