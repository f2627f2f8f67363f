"""Quantization of traced models: `prepare_fx`, calibrate (or `prepare_qat_fx`, train), `convert_fx`."""

from __future__ import annotations

import copy
from typing import Any

from ... import nn
from ...fx import GraphModule, symbolic_trace
from ...fx.graph_module import _USER_PRESERVED_ATTRIBUTES_KEY
from ..nn.quantized.modules.functional_modules import FloatFunctional, FXFloatFunctional
from .fx.convert import convert
from .fx.custom_config import ConvertCustomConfig, FuseCustomConfig, PrepareCustomConfig
from .fx.fuse import from_former_dict, fuse
from .fx.graph_module import ObservedGraphModule
from .fx.prepare import prepare
from .fx.tracer import QuantizationTracer, Scope, ScopeContextManager
from .fx.utils import get_skipped_module_name_and_classes
from .utils import deprecated

__all__ = [
    "ObservedGraphModule", "Scope", "ScopeContextManager", "attach_preserved_attrs_to_model", "convert_fx",
    "convert_to_reference_fx", "fuse_fx", "prepare_fx", "prepare_qat_fx",
]  # fmt: skip


def attach_preserved_attrs_to_model(model: Any, preserved_attrs: dict[str, Any]) -> None:
    """Set attributes on a model that copies of it keep."""
    model.meta[_USER_PRESERVED_ATTRIBUTES_KEY] = copy.copy(preserved_attrs)
    for name, value in preserved_attrs.items():
        setattr(model, name, value)


def _preserved_attributes(model: Any, names: list[str]) -> dict[str, Any]:
    return {name: getattr(model, name) for name in names if hasattr(model, name)}


def _check_is_graph_module(model: Any) -> None:
    if not isinstance(model, GraphModule):
        raise ValueError(
            f"input model must be a GraphModule, Got type:{type(model)} Please make sure to follow the tutorials."
        )


def _swap_ff_with_fxff(model: nn.Module) -> None:
    """Replace FloatFunctional modules by FXFloatFunctional, whose operators are traced."""
    for name, module in list(model.named_children()):
        if isinstance(module, FloatFunctional):
            model._modules[name] = FXFloatFunctional()
        else:
            _swap_ff_with_fxff(module)


def _prepare_fx(
    model: nn.Module,
    qconfig_mapping: Any,
    is_qat: bool,
    example_inputs: tuple[Any, ...],
    prepare_custom_config: Any = None,
    _equalization_config: Any = None,
    backend_config: Any = None,
    is_standalone_module: bool = False,
) -> GraphModule:
    custom = from_former_dict(PrepareCustomConfig, prepare_custom_config, "prepare_custom_config_dict", "prepare")
    custom = PrepareCustomConfig() if custom is None else custom
    _swap_ff_with_fxff(model)
    kept = _preserved_attributes(model, custom.preserved_attributes)
    tracer = QuantizationTracer(*get_skipped_module_name_and_classes(custom, is_standalone_module))
    graph_module = GraphModule(model, tracer.trace(model))
    graph_module = fuse(graph_module, is_qat, None, backend_config)
    prepared = prepare(
        graph_module,
        qconfig_mapping,
        is_qat,
        tracer.node_name_to_scope,
        example_inputs=example_inputs,
        prepare_custom_config=custom,
        _equalization_config=_equalization_config,
        backend_config=backend_config,
        is_standalone_module=is_standalone_module,
    )
    attach_preserved_attrs_to_model(prepared, kept)
    return prepared


def _prepare_standalone_module_fx(
    model: nn.Module,
    qconfig_mapping: Any,
    is_qat: bool,
    example_inputs: tuple[Any, ...],
    prepare_custom_config: Any = None,
    backend_config: Any = None,
) -> GraphModule:
    return _prepare_fx(
        model, qconfig_mapping, is_qat, example_inputs, prepare_custom_config, backend_config=backend_config,
        is_standalone_module=True,
    )  # fmt: skip


def fuse_fx(model: nn.Module, fuse_custom_config: Any = None, backend_config: Any = None) -> GraphModule:
    """Return the traced model with batch norms folded into the weights of layers before them, and relus fused. For evaluation mode."""
    custom = from_former_dict(FuseCustomConfig, fuse_custom_config, "fuse_custom_config_dict", "fuse")
    kept = _preserved_attributes(model, custom.preserved_attributes if custom is not None else [])
    fused = fuse(symbolic_trace(model), False, None, backend_config)
    attach_preserved_attrs_to_model(fused, kept)
    return fused


@deprecated
def prepare_fx(
    model: nn.Module,
    qconfig_mapping: Any,
    example_inputs: tuple[Any, ...],
    prepare_custom_config: Any = None,
    _equalization_config: Any = None,
    backend_config: Any = None,
) -> GraphModule:
    """Return the model (in evaluation mode), traced and fused, with observers; run it on representative data before `convert_fx`.

    >>> prepared = prepare_fx(model.eval(), get_default_qconfig_mapping("x86"), (example,))
    """
    return _prepare_fx(
        model, qconfig_mapping, False, example_inputs, prepare_custom_config, _equalization_config, backend_config
    )


@deprecated
def prepare_qat_fx(
    model: nn.Module,
    qconfig_mapping: Any,
    example_inputs: tuple[Any, ...],
    prepare_custom_config: Any = None,
    backend_config: Any = None,
) -> GraphModule:
    """Return the model (in training mode), traced and fused, with fake quantization, to be trained before `convert_fx`."""
    return _prepare_fx(
        model, qconfig_mapping, True, example_inputs, prepare_custom_config, backend_config=backend_config
    )


def _convert_fx(
    graph_module: GraphModule,
    is_reference: bool,
    convert_custom_config: Any = None,
    is_standalone_module: bool = False,
    _remove_qconfig: bool = True,
    qconfig_mapping: Any = None,
    backend_config: Any = None,
    is_decomposed: bool = False,
    keep_original_weights: bool = False,
) -> GraphModule:
    custom = from_former_dict(ConvertCustomConfig, convert_custom_config, "convert_custom_config_dict", "convert")
    _check_is_graph_module(graph_module)
    kept = _preserved_attributes(graph_module, custom.preserved_attributes if custom is not None else [])
    quantized = convert(
        graph_module, is_reference, custom, is_standalone_module, _remove_qconfig, qconfig_mapping, backend_config,
        is_decomposed, keep_original_weights,
    )  # fmt: skip
    attach_preserved_attrs_to_model(quantized, kept)
    return quantized


@deprecated
def convert_fx(
    graph_module: GraphModule,
    convert_custom_config: Any = None,
    _remove_qconfig: bool = True,
    qconfig_mapping: Any = None,
    backend_config: Any = None,
    keep_original_weights: bool = False,
) -> GraphModule:
    """Return the prepared model with quantized layers and operators."""
    return _convert_fx(
        graph_module, False, convert_custom_config, False, _remove_qconfig, qconfig_mapping, backend_config,
        keep_original_weights=keep_original_weights,
    )  # fmt: skip


def convert_to_reference_fx(
    graph_module: GraphModule,
    convert_custom_config: Any = None,
    _remove_qconfig: bool = True,
    qconfig_mapping: Any = None,
    backend_config: Any = None,
) -> GraphModule:
    """Return the prepared model with quantize and dequantize around layers that compute in floating point, for other backends."""
    return _convert_fx(
        graph_module, True, convert_custom_config, False, _remove_qconfig, qconfig_mapping, backend_config
    )


def _convert_to_reference_decomposed_fx(
    graph_module: GraphModule,
    convert_custom_config: Any = None,
    qconfig_mapping: Any = None,
    backend_config: Any = None,
) -> GraphModule:
    return _convert_fx(
        graph_module, True, convert_custom_config, False, False, qconfig_mapping, backend_config, is_decomposed=True
    )


def _convert_standalone_module_fx(
    graph_module: GraphModule, is_reference: bool = False, convert_custom_config: Any = None
) -> GraphModule:
    return _convert_fx(graph_module, is_reference, convert_custom_config, is_standalone_module=True)
