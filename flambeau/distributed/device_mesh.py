"""DeviceMesh: ranks in a grid, with a process group along each of its dimensions.

>>> mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))
>>> mesh["shard"].get_group()      # the four ranks of this rank's row
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.dtype import BY_NAME
from ..core.tensor import Tensor, copy_of_array
from . import groups, subgroups

__all__ = ["DeviceMesh", "init_device_mesh"]


class _Meshes:
    """Stack of the meshes whose `with` block is open."""

    def __init__(self) -> None:
        self.stack: list[DeviceMesh] = []

    def get_current_mesh(self) -> DeviceMesh:
        if not self.stack:
            raise RuntimeError("No device mesh is currently active!")
        return self.stack[-1]


_mesh_resources = _Meshes()


class DeviceMesh:
    """An array of ranks. All ranks must construct the same one, which also creates the process groups along its dimensions."""

    KNOWN_BY_IDENTITY = True  # its ranks and groups stay

    def __init__(
        self,
        device_type: str,
        mesh: Any,
        *,
        mesh_dim_names: tuple[str, ...] | None = None,
        backend_override: Any = None,
        _init_backend: bool = True,
    ) -> None:
        self._device_type = device_type
        array = mesh.numpy() if isinstance(mesh, Tensor) else np.array(mesh)
        self._array = array.astype(np.int64)
        self._mesh_dim_names = tuple(mesh_dim_names) if mesh_dim_names else None
        if self._mesh_dim_names and len(self._mesh_dim_names) != self._array.ndim:
            raise RuntimeError(
                f"each dimension of the mesh needs a name: {self._array.ndim} dimensions, {len(self._mesh_dim_names)} names"
            )
        self._groups: list[Any] = []
        self._root: DeviceMesh | None = None
        self._flattened: dict[str, DeviceMesh] = {}
        if _init_backend:
            if not groups.is_initialized():
                groups.init_process_group()
            self._make_groups()
        found = np.argwhere(self._array == groups.get_rank()) if groups.is_initialized() else np.empty((0, 0))
        self._coordinate = [int(n) for n in found[0]] if len(found) else None

    def _make_groups(self) -> None:
        size = groups.get_world_size()
        if self._array.size > size:
            raise RuntimeError(
                f"Mesh should not be bigger than default world size {size}, but found {self._array.size} ranks!"
            )
        whole = self._array.ndim == 1 and self._array.size == size
        for dim in range(self._array.ndim):
            if whole:
                self._groups.append(groups._get_default_group())
                continue
            lines = np.moveaxis(self._array, dim, -1).reshape(-1, self._array.shape[dim])
            own = groups.GroupMember.NON_GROUP_MEMBER
            for line in lines:
                made = subgroups.new_group([int(r) for r in line])
                own = made if groups.get_rank() in line else own
            self._groups.append(own)

    # -- what it is made of -------------------------------------------------------------------------------------------------

    @property
    def device_type(self) -> str:
        return self._device_type

    @property
    def mesh(self) -> Tensor:
        """The ranks of the mesh, as a tensor."""
        return copy_of_array(np.ascontiguousarray(self._array), BY_NAME["int64"])

    @property
    def mesh_dim_names(self) -> tuple[str, ...] | None:
        return self._mesh_dim_names

    @property
    def ndim(self) -> int:
        return self._array.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(n) for n in self._array.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        return int(self._array.size if mesh_dim is None else self._array.shape[mesh_dim])

    def get_rank(self) -> int:
        """Return this process's rank in the world."""
        return groups.get_rank()

    def _dim_index(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(
                    f"Found the DeviceMesh have {self.ndim} dimensions"
                    "Optional kwarg `mesh_dim` needs to be specified when device_mesh.ndim > 1."
                    "If you want to get the list of all the ProcessGroups in the DeviceMesh,please use `get_all_groups()` instead."
                )
            return 0
        if isinstance(mesh_dim, str):
            if self._mesh_dim_names is None or mesh_dim not in self._mesh_dim_names:
                raise KeyError(
                    f"Invalid mesh_dim_names {mesh_dim} specified. Valid mesh_dim_names are {self._mesh_dim_names}."
                )
            return self._mesh_dim_names.index(mesh_dim)
        return mesh_dim

    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        """Return the process group along a dimension."""
        if not self._groups:
            raise RuntimeError("DeviceMesh process groups not initialized!")
        return self._groups[self._dim_index(mesh_dim)]

    def get_all_groups(self) -> list[Any]:
        return list(self._groups)

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Return this process's position along a dimension of the mesh."""
        return groups.get_rank(self.get_group(mesh_dim))

    def get_coordinate(self) -> list[int] | None:
        """Return the coordinates of this process; None if it is not in the mesh."""
        return self._coordinate

    @property
    def _coordinate_on_dim(self) -> list[int] | None:
        return self._coordinate

    # -- parts ----------------------------------------------------------------------------------------------------------------

    def __getitem__(self, mesh_dim_names: str | tuple[str, ...]) -> DeviceMesh:
        """Return the submesh along some dimensions that contains this process."""
        names = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else tuple(mesh_dim_names)
        if self._mesh_dim_names is None:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        if len(names) == 1 and names[0] in self._flattened:
            return self._flattened[names[0]]
        places = [self._dim_index(name) for name in names]
        if places == list(range(self.ndim)):
            return self
        if self._coordinate is None:
            raise RuntimeError("this process is not in the mesh")
        index: tuple = tuple(slice(None) if d in places else self._coordinate[d] for d in range(self.ndim))
        order = np.argsort(np.argsort(places))
        part = DeviceMesh(
            self._device_type, self._array[index].transpose(order), mesh_dim_names=names, _init_backend=False
        )
        part._groups, part._root = [self._groups[p] for p in places], self._root or self
        return part

    @staticmethod
    def _concatenate(device_mesh_list: Sequence[DeviceMesh]) -> DeviceMesh:
        """Return the submesh with the dimensions of several submeshes of one mesh, in this order."""
        roots = {id(mesh._root or mesh): mesh._root or mesh for mesh in device_mesh_list}
        names = [name for mesh in device_mesh_list for name in mesh._mesh_dim_names or ()]
        if len(roots) != 1 or len(names) != sum(mesh.ndim for mesh in device_mesh_list):
            raise RuntimeError(
                "parallelism over several dimensions needs parts of one mesh: init_device_mesh(..., mesh_dim_names=...) and mesh[name]"
            )
        return next(iter(roots.values()))[tuple(names)]

    def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:
        """Return a one-dimensional mesh of all ranks."""
        root = self._root or self
        name = mesh_dim_name or "_".join(self._mesh_dim_names or ())
        if name in root._flattened:
            return root._flattened[name]
        part = DeviceMesh(self._device_type, self._array.reshape(-1), mesh_dim_names=(name,), _init_backend=False)
        places = [root._dim_index(n) for n in self._mesh_dim_names or ()]
        rest = [d for d in range(root.ndim) if d not in places]
        for fixed in itertools.product(*(range(root._array.shape[d]) for d in rest)):
            chosen = dict(zip(rest, fixed))
            index = tuple(chosen.get(d, slice(None)) for d in range(root.ndim))
            ranks = [int(r) for r in root._array[index].reshape(-1)]
            made = subgroups.new_group(ranks)
            if groups.get_rank() in ranks:
                part._groups = [made]
        part._root = root
        root._flattened[name] = part
        return part

    @staticmethod
    def from_group(
        group: Any, device_type: str, mesh: Any = None, *, mesh_dim_names: tuple[str, ...] | None = None
    ) -> DeviceMesh:
        """Make a mesh from existing process groups."""
        made = [group] if not isinstance(group, (list, tuple)) else list(group)
        array = np.array(groups.get_process_group_ranks(made[0])) if mesh is None else mesh
        part = DeviceMesh(device_type, array, mesh_dim_names=mesh_dim_names, _init_backend=False)
        part._groups = made
        return part

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state.update(_groups=[getattr(g, "group_name", None) for g in self._groups], _root=None, _flattened={})
        state["_array"] = self._array.tolist()  # data that every reader allows
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._array = np.array(self._array, np.int64)
        names, self._groups = self._groups, []
        if groups.is_initialized():  # groups are found again by their names, where there are any
            known = {g.group_name: g for g in groups._world.pg_map}
            self._groups = [known.get(name, groups.GroupMember.NON_GROUP_MEMBER) for name in names]

    def __enter__(self) -> DeviceMesh:
        _mesh_resources.stack.append(self)
        return self

    def __exit__(self, *details: Any) -> None:
        _mesh_resources.stack.pop()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeviceMesh):
            return NotImplemented
        same = self._device_type == other._device_type and self._mesh_dim_names == other._mesh_dim_names
        return same and np.array_equal(self._array, other._array)

    def __hash__(self) -> int:
        return hash((self._array.tobytes(), self._array.shape, self._device_type, self._mesh_dim_names))

    def __repr__(self) -> str:
        if self._mesh_dim_names:
            shape = ", ".join(f"{name}={n}" for name, n in zip(self._mesh_dim_names, self.shape))
            return f"DeviceMesh(({shape}), '{self._device_type}', stride={self._strides()})"
        return f"DeviceMesh({self.shape}, '{self._device_type}', stride={self._strides()})"

    def _strides(self) -> tuple[int, ...]:
        flat = self._array
        return tuple(
            int(np.take(flat, 1, axis=d).flat[0] - flat.flat[0]) if n > 1 else 1 for d, n in enumerate(flat.shape)
        )


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: tuple[str, ...] | None = None,
    backend_override: Any = None,
) -> DeviceMesh:
    """Make a mesh of all ranks, numbered row by row."""
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError(
                "Each mesh_dim_name must be unique.", f"Found repeated mesh_dim_name in mesh_dim_names {mesh_dim_names}"
            )
        if len(mesh_shape) != len(mesh_dim_names):
            raise RuntimeError(
                "mesh_shape and mesh_dim_names should have same length!",
                f"Found len(mesh_dim_names): {len(mesh_dim_names)} and len(mesh_shape):{len(mesh_shape)}.",
            )
    if device_type and not device_type.isalpha():
        raise RuntimeError(
            f"Device type with index is not supported but got {device_type}. ",
            "If you maintained a 'torch.device' object, it's recommended to pass in 'device.type'.",
        )
    count = int(np.prod(mesh_shape))
    return DeviceMesh(device_type, np.arange(count).reshape(tuple(mesh_shape)), mesh_dim_names=mesh_dim_names)
