"""State dicts of models and optimizers under FullyShardedDataParallel: whole, in shards, or local.

For a whole state dict a unit's parameters are gathered while the state dict is made, and what is in it is copied. Loading is the
same the other way round: the whole parameters are written to, and each rank keeps its part."""

from __future__ import annotations

from typing import Any

from ...autograd.grad_mode import no_grad
from ...core.tensor import Tensor
from ...nn import Module
from ...ops import namespace
from .. import groups
from ..collectives import broadcast
from ..object_collectives import all_gather_object, broadcast_object_list
from ..tensor import DTensor, Shard
from ._common_utils import FLAT_PARAM, FSDP_PREFIX, clean_tensor_name, fsdp_units
from .api import OptimStateKeyType, StateDictSettings, StateDictType

_torch = namespace("torch")


def _is_local(unit: Any) -> bool:
    return unit._state_dict_type is StateDictType.LOCAL_STATE_DICT


# -- models -----------------------------------------------------------------------------------------------------------------


def before_saving(unit: Any, prefix: str, keep_vars: bool) -> None:
    if unit._group is None:
        return
    if _is_local(unit):
        unit._group._to_sharded()
    else:
        unit._summon()


@no_grad()
def after_saving(unit: Any, state: dict[str, Any], prefix: str, *rest: Any) -> dict[str, Any]:
    """Names as they were before modules were wrapped; copies of what is about to go."""
    inner = prefix + FSDP_PREFIX
    own = {inner + piece.fqn for piece in unit._group._flat.pieces} if unit._group is not None else set()
    shared = _shared_names(unit, inner)
    settings, first = unit._state_dict_config, groups.get_rank() == 0
    leaves_out = getattr(settings, "rank0_only", False) and not first
    for key in [k for k in state if k.startswith(inner)]:
        value = state.pop(key)
        if key == inner + FLAT_PARAM and not _is_local(unit):
            continue
        if (key in own or key in shared) and not _is_local(unit):
            if leaves_out:
                continue
            value = _detached(unit, value)
        elif leaves_out:
            continue
        dtype = unit._buffer_dtypes.get(clean_tensor_name(key[len(inner) :]))
        if dtype is not None:
            value = value.to(dtype)
        if settings.offload_to_cpu and isinstance(value, Tensor):
            value = value.cpu()
        state[prefix + key[len(inner) :]] = value
    if unit._group is not None and not _is_local(unit):
        unit._dismiss(False)
    return state


def _shared_names(unit: Any, inner: str) -> set[str]:
    """Names under which parameters of the unit are found a second time."""
    if unit._group is None:
        return set()
    modules = {id(m): name for name, m in unit._fsdp_wrapped_module.named_modules(remove_duplicate=False)}
    found = set()
    for piece in unit._group._flat.pieces:
        for module, name in zip(piece.info.shared_modules, piece.info.shared_param_names):
            place = modules.get(id(module), "")
            found.add(f"{inner}{place}.{name}" if place else inner + name)
    return found


def _detached(unit: Any, value: Tensor) -> Any:
    if unit._state_dict_type is StateDictType.FULL_STATE_DICT or not value.shape:
        return value.detach().clone()
    mesh = unit._info.mesh
    if mesh.ndim > 1:
        mesh = mesh[mesh.mesh_dim_names[-1]]
    return _cut(value.detach(), mesh)


def _cut(value: Tensor, mesh: Any) -> Any:
    """This rank's rows of a tensor that all ranks have."""
    size, start = Shard.local_shard_size_and_offset(value.shape[0], mesh.size(), mesh.get_local_rank())
    local = value.narrow(0, start, size).clone()
    return DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=value.size(), stride=value.stride())


def before_loading(unit: Any, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    inner = prefix + FSDP_PREFIX
    for key in [k for k in state if k.startswith(prefix)]:
        value = state.pop(key)
        if isinstance(value, DTensor):
            value = value.full_tensor()
        state[inner + key[len(prefix) :]] = value
    if unit._group is None:
        return
    if _is_local(unit):
        unit._group._to_sharded()
        return
    unit._summon()


def after_loading(unit: Any, keys: Any) -> None:
    keys.missing_keys[:] = [clean_tensor_name(key) for key in keys.missing_keys]
    keys.unexpected_keys[:] = [clean_tensor_name(key) for key in keys.unexpected_keys]
    if unit._group is not None and not _is_local(unit):
        unit._dismiss(True)


# -- optimizers -------------------------------------------------------------------------------------------------------------


def _units(model: Module) -> list[Any]:
    return [unit for unit in fsdp_units(model) if unit._group is not None]


def _named(model: Module) -> dict[int, str]:
    return {id(p): clean_tensor_name(name) for name, p in model.named_parameters()}


def _pieces(model: Module) -> dict[int, list[tuple[Any, Any, str]]]:
    """For each parameter that an optimizer may know: (unit, piece, name) of what it stands for."""
    prefixes = {id(m): name for name, m in model.named_modules()}
    found: dict[int, list] = {}
    for unit in _units(model):
        flat = unit._group._flat
        prefix = clean_tensor_name(f"{prefixes[id(unit)]}.") if prefixes[id(unit)] else ""
        for piece in flat.pieces:
            param = piece.param if flat.use_orig_params else flat.sharded_param
            found.setdefault(id(param), []).append((unit, piece, prefix + clean_tensor_name(piece.fqn)))
    return found


def _listed(optim: Any) -> list[Any]:
    return [p for group in optim.param_groups for p in group["params"]]


@no_grad()
def optimizer_state(model: Module, optim: Any, state_dict: dict, settings: StateDictSettings) -> dict[str, Any]:
    """State and groups with names for keys."""
    params, pieces, names = _listed(optim), _pieces(model), _named(model)
    state: dict[str, Any] = {}
    known = _known_anywhere(state_dict["state"], len(params))
    for number, param in enumerate(params):
        if number not in known:
            continue
        own = state_dict["state"].get(number, {})
        if id(param) not in pieces:
            state[names[id(param)]] = dict(own)
            continue
        for unit, piece, name in pieces[id(param)]:
            state[name] = {
                key: _gathered(unit, piece, own.get(key), like, settings) for key, like in known[number].items()
            }
    groups_of = []
    for group in state_dict["param_groups"]:
        members = []
        for number in group["params"]:
            param = params[number]
            members += [name for _, _, name in pieces[id(param)]] if id(param) in pieces else [names[id(param)]]
        groups_of.append({**group, "params": members})
    if getattr(settings.optim_state_dict_config, "rank0_only", False) and groups.get_rank() != 0:
        return {}
    return {"state": state, "param_groups": groups_of}


def _known_anywhere(state: dict, count: int) -> dict[int, dict[str, Any]]:
    """Which parameters have which state on some rank: a rank without elements of a parameter may have none. Plain values come along."""
    own = {n: {k: None if _is_spread(v) else v for k, v in state[n].items()} for n in range(count) if n in state}
    everybody: list[Any] = [None] * groups.get_world_size()
    all_gather_object(everybody, own)
    found: dict[int, dict[str, Any]] = {}
    for one in everybody:
        for number, values in one.items():
            for key, value in values.items():
                found.setdefault(number, {}).setdefault(key, value)
    return found


def _is_spread(value: Any) -> bool:
    """Whether a state has a value for each element."""
    return isinstance(value, (Tensor, _OnRank0)) and len(value.shape) > 0


def _gathered(unit: Any, piece: Any, value: Any, like: Any, settings: StateDictSettings) -> Any:
    """One state of one parameter, in its own shape."""
    if like is not None:
        return like
    flat = unit._group._flat
    part = flat._sharded_param_data
    if flat.use_orig_params:
        part = part.new_zeros(part.numel(), dtype=None if value is None else value.dtype)
        for one, low, high in flat.own_parts():
            if one is piece and value is not None:
                part[low:high].copy_(value.reshape(-1))
    else:
        part = value
    whole = flat.whole(part)[piece.start : piece.start + piece.size].view(piece.shape).clone()
    if settings.state_dict_type is StateDictType.SHARDED_STATE_DICT and whole.shape:
        mesh = unit._info.mesh
        return _cut(whole, mesh if mesh.ndim == 1 else mesh[mesh.mesh_dim_names[-1]])
    return whole.cpu() if settings.optim_state_dict_config.offload_to_cpu else whole


@no_grad()
def optimizer_state_to_load(model: Module, optim: Any, state_dict: dict) -> dict[str, Any]:
    """State by number, each rank's part, of state by name."""
    given, pieces, names = state_dict["state"], _pieces(model), _named(model)
    params = _listed(optim)
    state: dict[int, dict[str, Any]] = {}
    for number, param in enumerate(params):
        if id(param) not in pieces:
            if names[id(param)] in given:
                state[number] = {key: _fetched(value) for key, value in given[names[id(param)]].items()}
            continue
        members = pieces[id(param)]
        if members[0][2] in given:
            state[number] = _part(members, given)
    place, group_list = 0, []
    for group, mine in zip(state_dict["param_groups"], optim.param_groups):
        group_list.append({**group, "params": list(range(place, place + len(mine["params"])))})
        place += len(mine["params"])
    return {"state": state, "param_groups": group_list}


def _part(members: list[tuple[Any, Any, str]], given: dict[str, Any]) -> dict[str, Any]:
    flat = members[0][0]._group._flat
    result: dict[str, Any] = {}
    for key, value in given[members[0][2]].items():
        if not _is_spread(value):
            result[key] = value
            continue
        size, part = flat._sharded_param_data.numel(), None
        bounds = {id(piece): (low, high) for piece, low, high in flat.own_parts()}
        for _, piece, name in members:
            whole = _fetched(given[name][key])
            part = whole.new_zeros(size) if part is None else part
            low, high = bounds[id(piece)]
            begin = size * flat.rank + low - piece.start
            part[low:high].copy_(whole.reshape(-1)[begin : begin + high - low])
        assert part is not None
        if flat.use_orig_params:
            low, high = bounds[id(members[0][1])]
            part = flat._part(members[0][1], part[low:high].clone())
        result[key] = part.to(flat._sharded_param_data.device)
    return result


class _OnRank0:
    """A tensor that rank 0 has: the others know what it looks like, and ask for it when they need it, all at the same time."""

    def __init__(self, tensor: Tensor, group: Any):
        self.tensor, self.group, self.shape, self.dtype = tensor, group, tuple(tensor.shape), tensor.dtype

    def __getstate__(self) -> dict[str, Any]:
        """What the others learn of it."""
        return {"shape": self.shape, "dtype": self.dtype}

    def fetch(self) -> Tensor:
        tensor = self.__dict__.pop("tensor", None)  # rank 0 keeps it no longer than needed
        if tensor is None:
            tensor = _torch["empty"](self.shape, dtype=self.dtype)
        broadcast(tensor, 0, self.group)
        return tensor


def _fetched(value: Any) -> Any:
    """A value as a whole, wherever it is."""
    if isinstance(value, DTensor):
        return value.full_tensor()
    return value.fetch() if isinstance(value, _OnRank0) else value


def from_rank_0(state_dict: dict | None, group: Any) -> dict:
    """What rank 0 has; its tensors come one by one, as they are used."""
    box: list[Any] = [None]
    if groups.get_rank(group) == 0:
        given = state_dict or {}
        state = {
            name: {k: _OnRank0(v, group) if _is_spread(v) else v for k, v in one.items()}
            for name, one in given["state"].items()
        }
        box = [{**given, "state": state}]
    kept = box[0]
    broadcast_object_list(box, 0, group)
    if kept is not None:
        return kept
    for value in (value for one in box[0]["state"].values() for value in one.values()):
        if isinstance(value, _OnRank0):
            value.group = group
    return box[0]


def with_keys(state_dict: dict, kind: OptimStateKeyType, model: Module, optim: Any) -> dict[str, Any]:
    """State of a model that is not sharded, with other keys."""
    names = _named(model)
    order = [names[id(p)] for p in _listed(optim)]
    table: dict[Any, Any] = (
        dict(enumerate(order)) if kind is OptimStateKeyType.PARAM_NAME else {n: i for i, n in enumerate(order)}
    )
    groups_of = [{**g, "params": [table[key] for key in g["params"]]} for g in state_dict["param_groups"]]
    return {"state": {table[key]: value for key, value in state_dict["state"].items()}, "param_groups": groups_of}
