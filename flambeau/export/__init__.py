"""Export of programs as graphs of operators, to be saved and run elsewhere.

>>> program = export(flambeau.nn.Linear(3, 2), (flambeau.ones(1, 3),))
>>> program.module()(flambeau.ones(1, 3)).shape
torch.Size([1, 2])
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ..fx import _pytree as fx_pytree
from ..nn import Module
from ..utils import _pytree as pytree
from . import dynamic_shapes as _dynamic_shapes
from ._trace import Unsupported, trace
from .decompositions import CustomDecompTable
from .dynamic_shapes import AdditionalInputs, Constraint, Dim, ShapesCollection, dims
from .exported_program import (
    ExportedProgram,
    ModuleCallEntry,
    ModuleCallSignature,
    ValueRange,
    default_decompositions,
    holder,
)
from .graph_signature import ExportBackwardSignature, ExportGraphSignature
from .serialize import load, save
from .unflatten import FlatArgsAdapter, UnflattenedModule, unflatten

__all__ = [
    "AdditionalInputs", "Constraint", "CustomDecompTable", "Dim", "ExportBackwardSignature", "ExportGraphSignature", "ExportedProgram",
    "FlatArgsAdapter", "ModuleCallEntry", "ModuleCallSignature", "ShapesCollection", "UnflattenedModule",
    "Unsupported", "default_decompositions", "dims", "export", "export_for_training", "load", "register_dataclass",
    "save", "unflatten",
]  # fmt: skip


def export(
    mod: Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """Export a module as a graph of operators, recorded by running it on these arguments. Decisions in Python (ifs, loops, sizes) are fixed
    as for them; `dynamic_shapes` says which sizes may differ: the module is run with several, and what depends on them is computed in the
    graph. The submodules in `preserve_module_call_signature` can be called as before once the program is unflattened."""
    if not isinstance(mod, Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise TypeError(f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}")
    given = kwargs or {}
    missing = set(preserve_module_call_signature) - {path for path, _ in mod.named_modules()}
    if missing:
        raise ValueError(f"preserve_module_call_signature names modules that do not exist: {sorted(missing)}")
    if isinstance(dynamic_shapes, (AdditionalInputs, ShapesCollection)):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(mod, args, given)
    found, sizes = trace(mod, args, given, dynamic_shapes, tuple(preserve_module_call_signature))
    names = _dynamic_shapes.parameter_names(mod, args, given)
    hidden = found.signature.non_persistent_buffers
    buffers = dict(mod.named_buffers())
    constants = {**found.reader.constants_found, **{name: buffers[name] for name in hidden}}
    entry = ModuleCallEntry("", ModuleCallSignature([], [], found.in_spec, found.out_spec, names))
    calls = dict(found.calls)
    entries = [ModuleCallEntry(path, calls.pop(path, None)) for path, _ in mod.named_modules() if path]
    entries += [ModuleCallEntry(path, signature) for path, signature in calls.items()]
    return ExportedProgram(
        holder(found.pieces),
        found.graph,
        found.signature,
        dict(mod.state_dict(keep_vars=True)),
        {symbol: ValueRange(*bounds) for symbol, bounds in sizes.ranges.items()},
        [entry, *entries],
        (args, given),
        constants,
    )


export_for_training = export


def register_dataclass(cls: type[Any], *, serialized_type_name: str | None = None) -> None:
    """Register a dataclass whose instances may be arguments and results of exported programs."""
    if not dataclasses.is_dataclass(cls):
        raise AssertionError(f"Only dataclasses can be registered with this function: {cls}")
    names = [f.name for f in dataclasses.fields(cls) if f.init]

    def take_apart(value: Any) -> tuple[list[Any], Any]:
        present = [name for name in names if getattr(value, name) is not None]
        absent = [name for name in names if getattr(value, name) is None]
        return [getattr(value, name) for name in present], [present, absent]

    def put_together(values: Any, context: Any) -> Any:
        present, absent = context
        return cls(**dict(zip(present, values)), **dict.fromkeys(absent))

    def with_keys(value: Any) -> tuple[list[Any], Any]:
        values, context = take_apart(value)
        return [(pytree.GetAttrKey(name), v) for name, v in zip(context[0], values)], context

    fx_pytree.register_pytree_flatten_spec(cls, lambda value, spec: [getattr(value, name) for name in spec.context[0]])
    name = serialized_type_name or f"{cls.__module__}.{cls.__qualname__}"
    pytree.register_pytree_node(
        cls, take_apart, put_together, serialized_type_name=name, flatten_with_keys_fn=with_keys
    )
