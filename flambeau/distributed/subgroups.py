"""Smaller process groups: chosen ranks, equal parts of the world, splits by color, groups without failed ranks."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from . import mpi_world
from .backend import Backend
from .groups import (
    GroupMember,
    _default_timeout,
    _get_default_group,
    _group_or_default,
    _new_process_group,
    _world,
    get_global_rank,
    get_group_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
)
from .process_group import ProcessGroup
from .store import PrefixStore


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> Any:
    """Make a group of some ranks. All ranks of the world must call it, members or not, in the same order; with `use_local_synchronization`
    the members only."""
    default = _get_default_group()
    world_backend, store = _world.pg_map[default]
    backend = backend or world_backend
    limit = (
        timeout if timeout is not None else default._timeout if backend == world_backend else _default_timeout(backend)
    )
    rank, size = default.rank(), default.size()
    members = list(range(size)) if ranks is None else sorted(ranks) if sort_ranks else list(ranks)
    if len(members) > size:
        raise ValueError(
            "the new group's world size should be less or equal to the world size set by init_process_group"
        )
    if len(set(members)) != len(members):
        raise ValueError(f"ranks list must not contain duplicate entries, got {members}")
    for member in members:
        if not 0 <= member < size:
            raise ValueError(f"Rank {member} is out of range. Valid ranks are 0 to {size - 1} (world_size={size})")
    if use_local_synchronization:
        if backend == Backend.MPI:
            raise ValueError("MPI backend doesn't support use_local_synchronization=True")
        if rank not in members:
            return GroupMember.NON_GROUP_MEMBER
        count = next(_world.own_groups.setdefault(tuple(members), itertools.count()))
        name = "_".join(map(str, members)) + f"_{count}"
    else:
        _world.group_count += 1
        name = str(_world.group_count)
    desc = group_desc or "undefined"
    pg = _new_process_group(backend, PrefixStore(f"group {name}", store), rank, members, limit, name, desc, members)
    if backend != world_backend and backend == Backend.MPI:
        mpi_world.start(store, rank, size)
    return GroupMember.NON_GROUP_MEMBER if pg is None else pg


def new_subgroups(
    group_size: int | None = None,
    group: ProcessGroup | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Split a group into groups of `group_size` neighbours; return this rank's and all of them."""
    if group_size is None:
        group_size = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    size = get_world_size(group)
    if size < group_size:
        raise ValueError(f"The arg 'group_size' ({group_size}) must not exceed the world size ({size})")
    if size % group_size:
        raise ValueError(f"The world size ({size}) must be divisible by 'group_size={group_size}'")
    members = get_process_group_ranks(group)
    lists = [members[start : start + group_size] for start in range(0, size, group_size)]
    if group is not None and group is not GroupMember.WORLD:
        return _local_subgroups(lists, timeout, backend, pg_options, group_desc)
    return new_subgroups_by_enumeration(lists, timeout, backend, pg_options, group_desc)


def _local_subgroups(lists: list[list[int]], timeout: Any, backend: Any, options: Any, desc: Any) -> tuple[Any, list]:
    """Make subgroups of a part of the world; the other ranks do not take part."""
    rank, current, groups = get_rank(), None, []
    for ranks in lists:
        made = new_group(ranks, timeout, backend, options, True, desc)
        groups.append(made)
        current = made if rank in ranks else current
    return current, groups


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Make a group for each list of ranks; return this rank's and all of them."""
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    size, seen = get_world_size(), dict[int, int]()
    for ranks in ranks_per_subgroup_list:
        for rank in ranks:
            if not 0 <= rank < size:
                raise ValueError(f"Rank {rank} is out of range. Must be between 0 and {size - 1}")
    subgroups, current = [], None
    for position, ranks in enumerate(ranks_per_subgroup_list):
        for rank in ranks:
            if rank in seen:
                raise ValueError(
                    f"Rank {rank} has appeared in both subgroup {ranks_per_subgroup_list[seen[rank]]} and {ranks}"
                )
            seen[rank] = position
        made = new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
        subgroups.append(made)
        if get_rank() in ranks:
            current = made
    return current, subgroups


def split_group(
    parent_pg: ProcessGroup | None = None,
    split_ranks: list[Any] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: Any = None,
) -> ProcessGroup | None:
    """Split a group by lists of its ranks, each used at most once; return this rank's part."""
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    parent = _group_or_default(parent_pg)
    for ranks in split_ranks:
        if parent.rank() in ranks:
            members = [get_global_rank(parent, r) for r in sorted(ranks)]
            return new_group(members, timeout, backend, pg_options, True, group_desc)
    return None


def shrink_group(
    ranks_to_exclude: list[int], group: ProcessGroup | None = None, shrink_flags: int = 0, pg_options: Any = None
) -> ProcessGroup:
    """Return the group without some ranks, made by the remaining ones."""
    pg = _group_or_default(group)
    if pg.size() < 2:
        raise ValueError(
            f"Cannot shrink a process group with size {pg.size()}. Group must have at least 2 ranks to support shrinking."
        )
    stay = [r for r in get_process_group_ranks(pg) if get_group_rank(pg, r) not in ranks_to_exclude]
    if not stay or get_rank() not in stay:
        raise ValueError("shrink_group(): only ranks that stay in the group may call this")
    return new_group(stay, use_local_synchronization=True)


__all__ = ["new_group", "new_subgroups", "new_subgroups_by_enumeration", "shrink_group", "split_group"]
