"""The flat parameter of FullyShardedDataParallel: all parameters of a unit, concatenated, sharded evenly over the ranks.

It is a parameter of `fully_shard`'s engine (`FSDPParam`) with one dimension, of which modules see views."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...autograd.grad_mode import no_grad
from ...core.size import Size
from ...core.tensor import Tensor
from ...nn import Module, Parameter
from ...nn.parameter import _ParameterMeta
from ...ops import namespace
from ..pieces import Share, contiguous, stretches
from ..records import all_gather_parts_
from ._common_utils import FLAT_PARAM
from ._fully_shard._fsdp_common import FSDPMeshInfo
from ._fully_shard._fsdp_param import FSDPParam, ParamModuleInfo, ShardedState
from ._fully_shard._fsdp_param_group import FSDPParamGroup, _get_param_module_infos

_torch = namespace("torch")
_FSDP_SKIP_WRITEBACK_CHECK = "FSDP_SKIP_WRITEBACK_CHECK"  # a variable of the environment, "1" for yes


class _FlatParameterMeta(_ParameterMeta):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and getattr(instance, "_is_flat_param", False)


class FlatParameter(Parameter, metaclass=_FlatParameterMeta):
    """Class for `isinstance(p, FlatParameter)`, which holds for parameters that are marked as flat."""


class Piece(NamedTuple):
    """The position of one parameter in a flat parameter."""

    info: ParamModuleInfo
    fqn: str
    shape: Size
    start: int
    size: int
    param: Any  # the parameter that the optimizer holds, with use_orig_params


class FlatParam(FSDPParam):
    """Parameters that are sharded as one flat parameter."""

    def __init__(self, params: list[Any], root: Module, use_orig_params: bool, ranks: int, *settings: Any):
        self.use_orig_params, self.root = use_orig_params, root
        self._skips_check = os.environ.get(_FSDP_SKIP_WRITEBACK_CHECK) == "1"
        names = {id(p): name for name, p in root.named_parameters()}
        self.pieces, self._hollow, start = [], list[Tensor](), 0
        policy = settings[4]
        # Parts begin at 16 bytes.
        unit = 16 // (policy.param_dtype or params[0].dtype).itemsize if use_orig_params else 1
        for param, info in zip(params, _get_param_module_infos(params, (root,))):
            start = -(-start // unit) * unit
            self.pieces.append(Piece(info, names[id(param)], Size(param.shape), start, param.numel(), param))
            start += param.numel()
        self.numel = start
        flat = _torch["zeros"](-(-start // ranks) * ranks, dtype=params[0].dtype, device=params[0].device)
        with no_grad():
            for piece, param in zip(self.pieces, params):
                flat[piece.start : piece.start + piece.size].copy_(param.detach().reshape(-1))
        if not use_orig_params:
            self.pieces = [piece._replace(param=None) for piece in self.pieces]
        trained = any(p.requires_grad for p in params)
        self.leaves: list[
            Tensor
        ] = []  # what the modules see in the passes: their gradients stay where autograd puts them
        self._accumulated: list[Tensor | None] = []  # gradients of backward passes that do not reduce
        super().__init__(Parameter(flat, trained), ParamModuleInfo(root, FLAT_PARAM), *settings)
        self.sharded_param._is_flat_param = True

    @property
    def uses_sharded_strategy(self) -> bool:
        """Return whether ranks have different parts."""
        return isinstance(self.mesh_info, FSDPMeshInfo)

    @property
    def flat_param(self) -> Any:
        """The parameter that holds this rank's shard."""
        return self.sharded_param

    # -- the shard: a plain tensor ------------------------------------------------------------------------------------------

    def _describe(self, param: Any) -> Tensor:
        self._unsharded_dtensor_spec = None
        return param.detach()

    def to_sharded_dtensor(self, tensor: Tensor) -> Any:
        return tensor

    @property
    def _sharded_local_tensor(self) -> Tensor:
        return self.sharded_param

    @no_grad()
    def reset_sharded_param(self) -> None:
        """Adopt the tensors that have replaced the shard, or the parts of the original parameters, in the modules (by `to`)."""
        if self.use_orig_params:
            self._gather_pieces()
            return
        self.sharded_param = self.root._parameters.get(FLAT_PARAM, self.sharded_param)
        self.sharded_param._is_flat_param = True
        self._sharded_param_data = self.sharded_param.detach()

    def _gather_pieces(self) -> None:
        """Update the shard after `to` has moved or cast the parameters of the modules."""
        first = self.pieces[0].param
        if first.device.type == "meta" or (first.dtype is self._sharded_param_data.dtype and self._shares_memory()):
            return
        data = _torch["zeros"](self._sharded_param_data.numel(), dtype=first.dtype, device=first.device)
        for piece, low, high in self.own_parts():
            data[low:high].copy_(piece.param.detach().reshape(-1))
        self._sharded_param_data = data
        self.sharded_param = Parameter(data, self.sharded_param.requires_grad)
        self.sharded_param._is_flat_param = True
        self._cut_parts()

    @property
    def all_gather_inputs(self) -> list[Tensor]:
        if self.use_orig_params and self.sharded_state is ShardedState.SHARDED:
            self._write_back_parts()
        return super().all_gather_inputs

    @no_grad()
    def _write_back_parts(self) -> None:
        """Copy replacements of a part (another parameter, other data) into the shard."""
        shard = self._sharded_param_data
        for at, (piece, low, high) in enumerate(self.own_parts()):
            now = piece.info.module._parameters.get(piece.info.param_name)
            if now is piece.param and (self._skips_check or now._storage is shard._storage or low == high):
                continue
            if now is None:
                raise RuntimeError(f"{piece.fqn} is no parameter of its module any more")
            part = self._part(piece, shard[low:high])
            if now.shape != part.shape:
                raise RuntimeError(
                    f"Cannot writeback when the parameter shape changes\nExpects {part.shape} but got {now.shape}"
                )
            part.copy_(now.detach())
            now.data = part
            self.pieces[at] = piece._replace(param=now)

    def check_unchanged(self) -> None:
        """Check that whole parameters kept between passes were not changed."""
        for piece, leaf in zip(self.pieces, self.leaves):
            now = piece.info.module._parameters.get(piece.info.param_name)
            if now is not leaf or leaf._storage is not self.all_gather_outputs[0]._storage:
                raise AssertionError("FSDP does not support changing the parameters between forward and backward")

    def _shares_memory(self) -> bool:
        whole = self._sharded_param_data
        return all(
            piece.param.data_ptr() == whole[low:].data_ptr() for piece, low, high in self.own_parts() if high > low
        )

    def own_parts(self) -> Iterator[tuple[Piece, int, int]]:
        """Yield the elements of this rank's shard by piece: (piece, low, high), with bounds in the shard."""
        size = self._sharded_param_data.numel()
        begin = size * self.rank
        for piece in self.pieces:
            low, high = max(piece.start, begin), min(piece.start + piece.size, begin + size)
            yield piece, *((low - begin, high - begin) if low < high else (0, 0))

    @property
    def rank(self) -> int:
        return getattr(self.mesh_info, "shard_mesh_rank", 0)

    # -- what modules see -----------------------------------------------------------------------------------------------------

    def _setattr_on_modules(self, param: Any) -> None:
        if param is self._unsharded_param and param is not None:
            self.show_whole()
        else:
            self.show_shard()

    def show_shard(self) -> None:
        """Set the flat parameter, or each rank's parts of the original parameters, in the modules, for the time between passes."""
        if self.use_orig_params:
            for piece in self.pieces:
                piece.info.set(piece.param)
            return
        self.root._parameters[FLAT_PARAM] = self.sharded_param
        for piece, hollow in zip(self.pieces, self._hollow):
            for module, name in _owners(piece.info):
                module._parameters.pop(name, None)
                module.__dict__[name] = hollow

    def _shard(self, param: Any, shard_placement_fn: Any) -> None:
        self._hollow = [_torch["empty"](p.shape, dtype=param.dtype, device="meta") for p in self.pieces]
        super()._shard(param, shard_placement_fn)
        if self.use_orig_params:
            self._cut_parts()

    @no_grad()
    def _cut_parts(self) -> None:
        """Make the original parameters this rank's parts of them, in the memory of the shard."""
        for piece, low, high in self.own_parts():
            piece.param.data = self._part(piece, self._sharded_param_data[low:high])

    def _part(self, piece: Piece, flat: Tensor) -> Tensor:
        """Return a rank's part of a parameter: flat, or in its own shape if it is not sharded."""
        return flat if self.uses_sharded_strategy else flat.view(piece.shape)

    def show_whole(self) -> None:
        """Set parameters to views of the gathered flat parameter, each with a separate gradient, for forward and backward."""
        for piece, leaf in zip(self.pieces, self.leaves):
            wanted = self.sharded_param.requires_grad if piece.param is None else piece.param.requires_grad
            if leaf.requires_grad is not wanted:
                leaf.requires_grad_(wanted)
            self._set_in_modules(piece, leaf)

    def show_parameters(self) -> None:
        """Set whole parameters, for programs that read them outside of forward and backward."""
        self.root._parameters.pop(FLAT_PARAM, None)
        for piece, leaf in zip(self.pieces, self.leaves):
            self._set_in_modules(piece, Parameter(leaf.detach(), self.sharded_param.requires_grad))

    @staticmethod
    def _set_in_modules(piece: Piece, tensor: Tensor) -> None:
        for module, name in _owners(piece.info):
            module.__dict__.pop(name, None)
            module._parameters[name] = tensor  # type: ignore[assignment]

    def _make_unsharded(self, flat: Tensor) -> None:
        super()._make_unsharded(flat)
        self.leaves = [flat[p.start : p.start + p.size].view(p.shape).detach() for p in self.pieces]

    def to_unsharded(self) -> None:
        if self.use_orig_params:
            self.sharded_param.requires_grad_(any(piece.param.requires_grad for piece in self.pieces))
        super().to_unsharded()

    # -- gradients ------------------------------------------------------------------------------------------------------------

    def to_accumulated_grad_if_needed(self) -> None:
        if self.reduce_dtype is None or all(leaf.grad is None for leaf in self.leaves):
            return
        self._accumulated = [None if leaf.grad is None else leaf.grad.to(self.reduce_dtype) for leaf in self.leaves]
        for leaf in self.leaves:
            leaf.grad = None

    @no_grad()
    def accumulate_unsharded_grad_if_needed(self) -> None:
        for at, kept in enumerate(self._accumulated):
            grad = self.leaves[at].grad
            if grad is not None:
                self._accumulated[at] = grad.to(self.reduce_dtype) if kept is None else kept.add_(grad)
                self.leaves[at].grad = None

    def forget_gradients(self) -> None:
        self._accumulated = [] if self._accumulated else self._accumulated  # a step leaves everything as it was
        for leaf in self.leaves:
            leaf.grad = None

    def take_gradient(self, zeros: bool) -> list[Tensor] | None:
        """Return the gradients of the pieces, with zeros for missing ones if others exist."""
        grads = self._accumulated or [leaf.grad for leaf in self.leaves]
        self.forget_gradients()
        if all(grad is None for grad in grads) and not (zeros and self.sharded_param.requires_grad):
            return None
        return [
            _torch["zeros"](leaf.numel() if leaf.requires_grad else 0, dtype=leaf.dtype, device=leaf.device)
            if grad is None
            else grad
            for grad, leaf in zip(grads, self.leaves)
        ]

    @no_grad()
    def accept(self, shard: Tensor, gather: bool) -> None:
        size = self._sharded_param_data.numel()
        end = min(max(self.numel - size * self.rank, 0), size)
        if end < size:
            shard[end:].zero_()  # what fills the last shards up
        if self.offload_to_cpu and gather:
            shard = shard.cpu()
        if not self.use_orig_params:
            _add_gradient(self.sharded_param, shard)
            return
        for piece, low, high in self.own_parts():
            if not piece.param.requires_grad or (low == high and piece.size):
                continue  # frozen, or all of it elsewhere
            _add_gradient(piece.param, self._part(piece, shard[low:high]))

    @property
    def trained(self) -> list[Any]:
        if not self.use_orig_params:
            return [self.sharded_param]
        return [piece.param for piece, low, high in self.own_parts() if high > low and piece.param.requires_grad]

    def exchange_whole(self, other: tuple) -> tuple:
        """Replace (memory, whole, leaves, dtype) of the whole parameter, and return the former ones."""
        before = (self.all_gather_outputs, self._unsharded_param, self.leaves, self.param_dtype)
        self.all_gather_outputs, self._unsharded_param, self.leaves, self.param_dtype = other
        return before

    @no_grad()
    def write_back(self) -> None:
        """Copy changes of the whole parameters into the shard."""
        size = self._sharded_param_data.numel()
        whole = self.all_gather_outputs[0]
        self._sharded_param_data.copy_(whole[size * self.rank : size * (self.rank + 1)])

    @no_grad()
    def whole(self, part: Tensor) -> Tensor:
        """Gather the flat tensor of all ranks from their `part`."""
        group = getattr(self.mesh_info, "shard_process_group", None)
        if group is None or group.size() == 1:
            return part
        gathered = part.new_empty(part.numel() * group.size())
        all_gather_parts_([gathered], [part], group)
        return gathered


def _add_gradient(param: Any, grad: Tensor) -> None:
    """Add to a parameter's gradient, even if its dtype differs, which `keep_low_precision_grads` allows."""
    if param.grad is None:
        param._ensure_autograd().grad = grad
    else:
        param.grad.add_(grad)


def _owners(info: ParamModuleInfo) -> list[tuple[Module, str]]:
    return list(zip((info.module, *info.shared_modules), (info.param_name, *info.shared_param_names)))


class FlatGroup(FSDPParamGroup):
    """Group of a unit's single flat parameter."""

    def __init__(
        self, params: list[Any], root: Module, use_orig_params: bool, mesh_info: Any, post_forward: Any, device: Any,
        mp_policy: Any, offload_policy: Any,
    ):  # fmt: skip
        ranks = getattr(mesh_info, "shard_mesh_size", 1)
        settings = (mesh_info, post_forward, device, None, mp_policy, offload_policy)
        self._flat = FlatParam(params, root, use_orig_params, ranks, *settings)
        super().__init__([], (root,), *settings)
        self.fsdp_params = [self._flat]
        self._has_state_hooks = True  # the unit has its own

    def pre_backward(self, default_prefetch: bool, *unused: Any) -> None:
        if self.is_unsharded and self._flat.use_orig_params:
            self._flat.check_unchanged()
        super().pre_backward(default_prefetch, *unused)

    def shares(self, params: list[Any], grads: list[Any], counts: list[int], ranks: int) -> list[list[Share]]:
        """Return each rank's share of the pieces' gradients, as if they were concatenated like the pieces."""
        starts = [piece.start for piece in self._flat.pieces]
        return stretches([contiguous(grad) for grad in grads[0]], starts, counts[0], ranks)


FlatParamHandle = FlatParam
