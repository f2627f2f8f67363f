"""State of optimizers under FullyShardedDataParallel, by the names of parameters: whole, or sharded.

An optimizer has parts of parameters, or flat parameters that stand for several. Their order may differ between ranks; operations that
involve all ranks run in the order of names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...autograd.grad_mode import no_grad
from ...core.tensor import Tensor
from ...nn import Module
from ...ops import namespace
from .. import groups
from ..collectives import broadcast
from ..object_collectives import all_gather_object, broadcast_object_list
from ..tensor import DTensor
from ._common_utils import clean_tensor_name, fsdp_units
from ._full_state import _shard_rows, shard_mesh
from .api import OptimStateKeyType, StateDictSettings, StateDictType

_torch = namespace("torch")
_PER_ELEMENT = "a value for each element"  # in place of such a value, in messages between ranks


class _ParameterNames:
    """Names of a model's parameters, including those inside flat parameters."""

    def __init__(self, model: Module):
        self.names = {id(p): clean_tensor_name(name) for name, p in model.named_parameters()}
        self.members: dict[
            int, list[tuple[Any, Any, str]]
        ] = {}  # of a parameter: unit, piece and name of each parameter inside it
        prefixes = {id(m): name for name, m in model.named_modules()}
        units = [unit for unit in fsdp_units(model) if unit._group is not None]
        for unit in units:
            flat = unit._group._flat
            prefix = clean_tensor_name(f"{prefixes[id(unit)]}.") if prefixes[id(unit)] else ""
            for piece in flat.pieces:
                param = piece.param if flat.use_orig_params else flat.sharded_param
                name = prefix + clean_tensor_name(piece.fqn)
                self.members.setdefault(id(param), []).append((unit, piece, name))
        self.first = {parts[0][2]: parts for parts in self.members.values()}
        self.group = units[0].process_group if units else None

    def of(self, param: Any) -> list[str]:
        """Return the names that a parameter stands for."""
        parts = self.members.get(id(param))
        return [self.names[id(param)]] if parts is None else [name for _, _, name in parts]

    def order(self) -> list[str]:
        """Return all names in the order of the model, the same on all ranks."""
        return [n for key, name in self.names.items() for n in ([m[2] for m in self.members.get(key, ())] or [name])]


def listed(model: Module, optim: Any, optim_input: Iterable[Any] | None = None) -> list[Any]:
    """Return an optimizer's parameters in its order: its own, those it was made with, or the model's."""
    if optim_input is None:
        return list(model.parameters()) if optim is None else [p for g in optim.param_groups for p in g["params"]]
    given = list(optim_input)
    return [p for g in given for p in g["params"]] if given and isinstance(given[0], dict) else given


def is_spread(value: Any) -> bool:
    """Return whether a state value has an entry for each element of the parameter."""
    return isinstance(value, (Tensor, _OnRank0)) and len(value.shape) > 0


# -- saving -----------------------------------------------------------------------------------------------------------------


@no_grad()
def optimizer_state(model: Module, params: list[Any], state_dict: dict, settings: StateDictSettings) -> dict[str, Any]:
    """Return an optimizer's state and groups keyed by names of parameters."""
    known = _ParameterNames(model)
    own = {known.of(p)[0]: state_dict["state"][n] for n, p in enumerate(params) if n in state_dict["state"]}
    told = _gather_state_keys(own, known)
    state: dict[str, Any] = {}
    for first in sorted(told):
        mine = own.get(first, {})
        if first not in known.first:
            if first in own:
                state[first] = dict(mine)
            continue
        for unit, piece, name in known.first[first]:
            state[name] = {
                key: _gather_state(unit, piece, mine.get(key), settings) if value is _PER_ELEMENT else value
                for key, value in told[first].items()
            }
    if getattr(settings.optim_state_dict_config, "rank0_only", False) and groups.get_rank(known.group) != 0:
        return {}
    result: dict[str, Any] = {"state": {name: state[name] for name in (*known.order(), *state) if name in state}}
    if "param_groups" in state_dict:
        result["param_groups"] = [
            {**group, "params": [name for number in group["params"] for name in known.of(params[number])]}
            for group in state_dict["param_groups"]
        ]
    return result


def _gather_state_keys(own: dict[str, dict], known: _ParameterNames) -> dict[str, dict[str, Any]]:
    """Return the state keys (and scalar values) of each parameter on any rank: a rank without elements of a parameter may have none."""
    mine = {n: {k: _PER_ELEMENT if is_spread(v) else v for k, v in state.items()} for n, state in own.items()}
    everybody: list[Any] = [None] * groups.get_world_size(known.group)
    all_gather_object(everybody, mine, known.group)
    found: dict[str, dict[str, Any]] = {}
    for one in everybody:
        for name, values in one.items():
            for key, value in values.items():
                spread = isinstance(value, str) and value == _PER_ELEMENT
                found.setdefault(name, {}).setdefault(key, _PER_ELEMENT if spread else value)
    for name in everybody[0]:
        parts = known.first.get(name)
        flat = None if parts is None else parts[0][0]._group._flat
        if flat is not None and not flat.use_orig_params and not all(name in one for one in everybody):
            raise RuntimeError(
                "FSDP currently requires each rank to have at least the optimizer states needed by rank 0's optimizer but some ranks"
                f" are missing some of those states: {name}"
            )
    return found


def _gather_state(unit: Any, piece: Any, value: Any, settings: StateDictSettings) -> Any:
    """Gather one state of one parameter, in its own shape."""
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
        return _shard_rows(whole, shard_mesh(unit))
    return whole.cpu() if settings.optim_state_dict_config.offload_to_cpu else whole


# -- loading ----------------------------------------------------------------------------------------------------------------


@no_grad()
def optimizer_state_to_load(model: Module, params: list[Any], state_dict: dict) -> dict[str, Any]:
    """Convert state keyed by name to this rank's state keyed by number."""
    given, known = state_dict["state"], _ParameterNames(model)
    state: dict[int, dict[str, Any]] = {}
    numbers = {name: number for number, param in enumerate(params) for name in known.of(param)}
    for first in sorted({*known.first, *known.names.values()}):  # the same on all ranks, whatever their optimizers hold
        if first not in given or first not in known.first and first not in numbers:
            continue
        members = known.first.get(first)
        if members is None:
            made = {key: _fetch(value) for key, value in given[first].items()}
        else:
            made = _local_state(members, given)
        if first in numbers:
            state[numbers[first]] = made
    result: dict[str, Any] = {"state": {number: state[number] for number in sorted(state)}}
    if "param_groups" in state_dict:
        result["param_groups"] = [
            {**group, "params": sorted({numbers[name] for name in group["params"] if name in numbers})}
            for group in state_dict["param_groups"]
        ]
    return result


def _local_state(members: list[tuple[Any, Any, str]], given: dict[str, Any]) -> dict[str, Any]:
    """Return this rank's part of the state of one parameter."""
    flat = members[0][0]._group._flat
    bounds = {id(piece): (low, high) for piece, low, high in flat.own_parts()}
    size = flat._sharded_param_data.numel()
    result: dict[str, Any] = {}
    for key, value in given[members[0][2]].items():
        if not is_spread(value):
            result[key] = _check_scalars_agree(key, value, members, given)
            continue
        part = None
        for _, piece, name in members:
            whole = _fetch(given[name][key])
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


def _check_scalars_agree(key: str, value: Any, members: list[tuple[Any, Any, str]], given: dict[str, Any]) -> Any:
    """Return a scalar state value, after checking that all parameters of a flat one have the same."""
    for _, _, name in members[1:]:
        if name not in given or key not in given[name] or not _is_same_value(given[name][key], value):
            raise ValueError(
                "All unflattened parameters comprising a single flat parameter must have scalar state with the same value and dtype:"
                f" {key} of {name}"
            )
    return value


def _is_same_value(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype is other.dtype and bool(one == other)
    return type(one) is type(other) and one == other


class _OnRank0:
    """A tensor that rank 0 has: the others know its shape and dtype, and all request its broadcast at the same time."""

    def __init__(self, tensor: Tensor, group: Any):
        self.tensor, self.group, self.shape, self.dtype = tensor, group, tuple(tensor.shape), tensor.dtype

    def __getstate__(self) -> dict[str, Any]:
        """Return the data for the other ranks: shape and dtype."""
        return {"shape": self.shape, "dtype": self.dtype}

    def fetch(self) -> Tensor:
        tensor = self.__dict__.pop("tensor", None)  # rank 0 keeps it no longer than needed
        if tensor is None:
            tensor = _torch["empty"](self.shape, dtype=self.dtype)
        broadcast(tensor, 0, self.group)
        return tensor


def _fetch(value: Any) -> Any:
    """Return a value as a whole tensor, gathered or broadcast if needed."""
    if isinstance(value, DTensor):
        return value.full_tensor()
    return value.fetch() if isinstance(value, _OnRank0) else value


def from_rank_0(state_dict: dict | None, group: Any) -> dict:
    """Return the state dict of rank 0, whose tensors are sent one by one on use."""
    box: list[Any] = [None]
    if groups.get_rank(group) == 0:
        given = state_dict or {}
        state = {
            name: {k: _OnRank0(v, group) if is_spread(v) else v for k, v in one.items()}
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


def with_keys(state_dict: dict, kind: OptimStateKeyType, model: Module, params: list[Any]) -> dict[str, Any]:
    """Convert the optimizer state of an unsharded model between names and numbers as keys."""
    names = _ParameterNames(model).names
    order = [names[id(p)] for p in params]
    table: dict[Any, Any] = (
        dict(enumerate(order)) if kind is OptimStateKeyType.PARAM_NAME else {n: i for i, n in enumerate(order)}
    )
    groups_of = [
        {
            **g,
            "params": sorted(
                (table[key] for key in g["params"]), key=str if kind is OptimStateKeyType.PARAM_NAME else int
            ),
        }
        for g in state_dict["param_groups"]
    ]
    return {"state": {table[key]: value for key, value in state_dict["state"].items()}, "param_groups": groups_of}
