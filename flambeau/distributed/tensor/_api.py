"""Construction of DTensors from whole tensors, from shapes, and in modules: `distribute_tensor`, `distribute_module`, `zeros` and so on."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ...core.tensor import Tensor, contiguous_strides
from ...nn.parameter import Parameter
from ...ops import namespace
from .. import _functional_collectives as funcol
from .. import collectives
from ..device_mesh import DeviceMesh, _mesh_resources
from . import _random
from ._dtensor import DTensor, _checked, _from_first, _FromLocal, _normalised, _part_of, _ToLocal
from ._dtensor_spec import DTensorSpec, TensorMeta, meta_of
from ._utils import assert_no_mixed_partial_types, compute_local_shape, normalize_to_torch_size
from .placement_types import Partial, Placement, Replicate, _is_shard_like

__all__ = [
    "DTensor", "_FromLocal", "_ToLocal", "distribute_module", "distribute_tensor", "empty", "full", "ones", "rand", "randn", "zeros",
]  # fmt: skip

_torch = namespace("torch")


def _from_source(whole: Tensor, mesh: DeviceMesh, i: int, p: Placement, source: int) -> Tensor:
    """Send the tensor of one rank along a mesh dimension to the others, in the given placement."""
    if not _is_shard_like(p):
        whole = whole.contiguous().clone()
        _from_first(whole, mesh, i, source)
        return p._partition_value(whole, mesh, i) if isinstance(p, Partial) else _checked(whole, p, i)
    placement: Any = p
    parts, _ = placement._split_tensor(whole, mesh.size(i))
    rank = mesh.get_local_rank(i)
    size = placement.sizes(whole.shape[placement.dim], mesh.size(i))[rank]
    found = _torch["empty_like"](parts[rank])
    funcol._told("c10d.scatter_")
    collectives.scatter(found, parts if rank == source else None, group=mesh.get_group(i), group_src=source)
    return found if found.shape[placement.dim] == size else found.narrow(placement.dim, 0, size).clone()


# -- spreading tensors and modules --------------------------------------------------------------------------------------------------


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """Distribute a tensor that one rank (`src_data_rank` of each mesh dimension) has whole over the mesh. With None every rank takes its
    part of its own copy, without communication."""
    mesh = device_mesh or _mesh_resources.get_current_mesh()
    if not tensor.is_leaf:
        raise RuntimeError("`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!")
    if mesh.device_type != tensor.device.type and tensor.device.type != "meta":
        tensor = tensor.to(mesh.device_type)
    wanted = _normalised(placements, tensor.ndim, mesh)
    assert_no_mixed_partial_types(wanted)
    if len(wanted) != mesh.ndim:
        raise ValueError(
            f"`placements` must have the same length as `device_mesh.ndim`! Found placements length: {len(wanted)}, and"
            f" device_mesh.ndim: {mesh.ndim}."
        )
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh:
            raise ValueError(
                f"Cannot distribute a DTensor with device mesh {tensor.device_mesh} to a different device mesh {mesh}."
            )
        if tensor.placements != wanted:
            raise ValueError(
                f"Cannot distribute a DTensor with placements {tensor.placements} to a different placements {wanted}. do you want"
                " to call `redistribute` instead?"
            )
        return tensor
    local = tensor.detach()
    if mesh.get_coordinate() is not None:
        alone = src_data_rank is None or local.device.type == "meta"
        if alone:
            local = _part_of(local, mesh, wanted)
        for i, p in enumerate(() if alone else wanted):
            local = _from_source(local, mesh, i, p, src_data_rank or 0)
    spec = DTensorSpec(mesh, wanted, meta_of(tensor.shape, tensor.stride(), tensor.dtype))
    return DTensor(local._bare_alias(), spec, requires_grad=tensor.requires_grad)


def _shard_tensor(
    full_tensor: Tensor, placements: Sequence[Placement], device_mesh: DeviceMesh | None = None
) -> DTensor:
    """Distribute a tensor that every rank has whole, without communication."""
    return distribute_tensor(full_tensor, device_mesh, placements, src_data_rank=None)


def distribute_module(
    module: Any,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Callable[..., Any] | None = None,
    input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
) -> Any:
    """Make the parameters and buffers of a module DTensors: by `partition_fn(name, submodule, mesh)`, or replicated if it leaves them
    unchanged. `input_fn(module, inputs, mesh)` and `output_fn(module, outputs, mesh)` transform inputs and outputs."""
    if getattr(module, "_distribute_module_applied", False):
        raise RuntimeError(
            "distribute_module should only be called once on a module, but it has already been called on this module!"
        )
    mesh = device_mesh or _mesh_resources.get_current_mesh()
    for name, part in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, part, mesh)
        _replicate_rest(part, mesh)
    if input_fn is not None:
        module.register_forward_pre_hook(_input_hook("input_fn", input_fn, mesh))
    if output_fn is not None:
        module.register_forward_hook(_output_hook(output_fn, mesh))
    module._distribute_module_applied = True
    return module


def _replicate_rest(part: Any, mesh: DeviceMesh) -> None:
    everywhere = [Replicate()] * mesh.ndim
    for key, param in part._parameters.items():
        if param is not None and not isinstance(param, DTensor):
            spread = distribute_tensor(param.data, mesh, everywhere)
            part.register_parameter(key, Parameter(spread, requires_grad=param.requires_grad))
    for key, buffer in part._buffers.items():
        if buffer is not None and not isinstance(buffer, DTensor):
            part._buffers[key] = distribute_tensor(buffer, mesh, everywhere)


def _argument_count(name: str, function: Callable) -> int:
    count = len(inspect.signature(function).parameters)
    kind = name.partition("_")[0]
    if count == 2:
        warnings.warn(
            f"Deprecating {name} that takes two arguments ({kind}s, device_mesh), please use {name} that takes in (module,"
            f" {kind}s, device_mesh) instead!",
            FutureWarning,
            stacklevel=4,
        )
    elif count != 3:
        raise ValueError(f"{name} should take in 3 arguments, but got {count} arguments!")
    return count


def _input_hook(name: str, function: Callable, mesh: DeviceMesh) -> Callable:
    if _argument_count(name, function) == 2:
        return lambda module, inputs: function(inputs, mesh)
    return lambda module, inputs: function(module, inputs, mesh)


def _output_hook(function: Callable, mesh: DeviceMesh) -> Callable:
    if _argument_count("output_fn", function) == 2:
        return lambda module, inputs, outputs: function(outputs, mesh)
    return lambda module, inputs, outputs: function(module, outputs, mesh)


# -- new tensors ------------------------------------------------------------------------------------------------------------------


def _make_filled(
    name: str, size: Any, mesh: DeviceMesh | None, placements: Any, requires_grad: bool, *fill: Any, **options: Any
) -> DTensor:
    mesh = mesh or _mesh_resources.get_current_mesh()
    shape = normalize_to_torch_size(size)
    wanted = _normalised(placements, len(shape), mesh)
    if len(wanted) != mesh.ndim:
        raise AssertionError("mesh dimension does not match the length of placements")
    meta = TensorMeta(shape, contiguous_strides(tuple(shape)), options.get("dtype"))
    local_shape = compute_local_shape(shape, mesh, wanted)
    options["device"] = mesh.device_type
    if name in ("rand", "randn"):
        with _random.drawing(DTensorSpec(mesh, wanted, meta)):
            local = _torch[name](local_shape, **options)
    else:
        local = _torch[name](local_shape, *fill, **options)
    spec = DTensorSpec(mesh, wanted, meta._replace(dtype=local.dtype))
    return DTensor(local, spec, requires_grad=requires_grad)


def _factory(name: str, doc: str) -> Callable[..., DTensor]:
    def make(
        *size: Any,
        dtype: Any = None,
        layout: Any = None,
        requires_grad: bool = False,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
    ) -> DTensor:
        options = {} if layout is None else {"layout": layout}
        return _make_filled(name, size, device_mesh, placements, requires_grad, dtype=dtype, **options)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = doc
    return make


zeros = _factory("zeros", "A spread tensor of zeros; each rank makes its part.")
ones = _factory("ones", "A spread tensor of ones; each rank makes its part.")
empty = _factory("empty", "A spread tensor whose values are not defined; each rank makes its part.")
rand = _factory("rand", "A spread tensor of random numbers between 0 and 1; each rank draws its part.")
randn = _factory("randn", "A spread tensor of normally distributed random numbers; each rank draws its part.")


def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    requires_grad: bool = False,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> DTensor:
    """Make a DTensor filled with one number; each rank makes its part."""
    return _make_filled("full", (size,), device_mesh, placements, requires_grad, fill_value, dtype=dtype)
