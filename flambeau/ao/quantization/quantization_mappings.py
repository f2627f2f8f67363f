"""Tables of the classes that replace others when a model is prepared or converted."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import flambeau as torch

from ... import nn
from ...nn.modules.linear import NonDynamicallyQuantizableLinear
from ...nn.utils.parametrize import type_before_parametrizations
from ..nn import intrinsic as nni
from ..nn import qat as nnqat
from ..nn import quantizable, quantized
from ..nn.intrinsic import qat as nniqat
from ..nn.intrinsic import quantized as nniq
from ..nn.intrinsic.quantized import dynamic as nniqd
from ..nn.qat import dynamic as nnqatd
from ..nn.quantized import dynamic as nnqd
from ..nn.quantized import reference as nnqr
from .fake_quantize import default_fixed_qparams_range_0to1_fake_quant, default_fixed_qparams_range_neg1to1_fake_quant
from .stubs import DeQuantStub, QuantStub

__all__ = [
    "DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS", "DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS",
    "DEFAULT_MODULE_TO_ACT_POST_PROCESS", "DEFAULT_QAT_MODULE_MAPPINGS", "DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS",
    "DEFAULT_STATIC_QUANT_MODULE_MAPPINGS", "get_default_compare_output_module_list",
    "get_default_dynamic_quant_module_mappings", "get_default_float_to_quantized_operator_mappings",
    "get_default_qat_module_mappings", "get_default_qconfig_propagation_list", "get_default_static_quant_module_mappings",
    "get_default_static_quant_reference_module_mappings", "get_dynamic_quant_module_class", "get_embedding_qat_module_mappings",
    "get_embedding_static_quant_module_mappings", "get_quantized_operator", "get_static_quant_module_class", "no_observer_set",
]  # fmt: skip

Mapping = dict[Any, Any]
nnq: Any = quantized
F = nn.functional
_STUBS: Mapping = {QuantStub: nnq.Quantize, DeQuantStub: nnq.DeQuantize}


def _map_classes(names: str, theirs: Any) -> Mapping:
    return {getattr(nn, name): getattr(theirs, name) for name in names.split()}


_WEIGHTED = "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d Embedding EmbeddingBag"
DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS: Mapping = {
    **_STUBS,
    **_map_classes(f"Linear {_WEIGHTED} GRUCell LSTMCell RNNCell LSTM", nnqr),
}
DEFAULT_STATIC_QUANT_MODULE_MAPPINGS: Mapping = {
    **_STUBS,
    **_map_classes("BatchNorm2d BatchNorm3d Dropout", nnq),
    **_map_classes(_WEIGHTED, nnq),
    **_map_classes("ELU GroupNorm Hardswish InstanceNorm1d InstanceNorm2d InstanceNorm3d LayerNorm LeakyReLU", nnq),
    NonDynamicallyQuantizableLinear: nnq.Linear,
    **_map_classes("Linear ReLU6 PReLU", nnq),
    nnq.FloatFunctional: nnq.QFunctional,
    nni.BNReLU2d: nniq.BNReLU2d,
    nni.BNReLU3d: nniq.BNReLU3d,
    nni.ConvReLU1d: nniq.ConvReLU1d,
    nni.ConvReLU2d: nniq.ConvReLU2d,
    nni.ConvReLU3d: nniq.ConvReLU3d,
    nni.ConvAdd2d: nniq.ConvAdd2d,
    nni.ConvAddReLU2d: nniq.ConvAddReLU2d,
    nni.LinearReLU: nniq.LinearReLU,
    nni.LinearLeakyReLU: nniq.LinearLeakyReLU,
    nni.LinearTanh: nniq.LinearTanh,
    nniqat.ConvBn1d: nnq.Conv1d,
    nniqat.ConvBn2d: nnq.Conv2d,
    nniqat.ConvBn3d: nnq.Conv3d,
    nniqat.ConvBnReLU1d: nniq.ConvReLU1d,
    nniqat.ConvBnReLU2d: nniq.ConvReLU2d,
    nniqat.ConvBnReLU3d: nniq.ConvReLU3d,
    nniqat.ConvReLU2d: nniq.ConvReLU2d,
    nniqat.ConvReLU3d: nniq.ConvReLU3d,
    nniqat.LinearReLU: nniq.LinearReLU,
    nniqat.LinearBn1d: nnq.Linear,
    nnqat.Linear: nnq.Linear,
    nnqat.Conv2d: nnq.Conv2d,
    nnqat.Conv3d: nnq.Conv3d,
}
DEFAULT_QAT_MODULE_MAPPINGS: Mapping = {
    **_map_classes("Conv2d Conv3d Linear", nnqat),
    NonDynamicallyQuantizableLinear: nnqat.Linear,
    **{
        getattr(nni, name): getattr(nniqat, name)
        for name in (
            "ConvBn1d", "ConvBn2d", "ConvBn3d", "ConvBnReLU1d", "ConvBnReLU2d", "ConvBnReLU3d", "ConvReLU2d", "ConvReLU3d",
            "LinearReLU", "LinearBn1d",
        )
    },
}  # fmt: skip
DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS: Mapping = {
    **_map_classes("GRUCell Linear", nnqd),
    nnqatd.Linear: nnqd.Linear,
    NonDynamicallyQuantizableLinear: nnqd.Linear,
    **_map_classes("LSTM GRU LSTMCell RNNCell", nnqd),
    nni.LinearReLU: nniqd.LinearReLU,
    **_map_classes("EmbeddingBag Embedding", nnq),
}
_INCLUDE_QCONFIG_PROPAGATE_LIST = {nn.Sequential}
_ops = torch.ops.quantized
DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS: Mapping = {
    F.elu: _ops.elu,
    F.hardswish: _ops.hardswish,
    F.instance_norm: _ops.instance_norm,
    F.layer_norm: _ops.layer_norm,
    F.leaky_relu: _ops.leaky_relu,
    F.dropout: _ops.dropout,
}
DEFAULT_MODULE_TO_ACT_POST_PROCESS: Mapping = {
    **dict.fromkeys((nn.Hardsigmoid, nn.Sigmoid, nn.Softmax), default_fixed_qparams_range_0to1_fake_quant),
    nn.Tanh: default_fixed_qparams_range_neg1to1_fake_quant,
}


def no_observer_set() -> set[Any]:
    """Return layers whose parts are observed, so that their result needs no observer."""
    return {quantizable.LSTM, quantizable.MultiheadAttention}


def get_default_static_quant_module_mappings() -> Mapping:
    """Return the map from float and QAT layers to quantized ones."""
    return copy.deepcopy(DEFAULT_STATIC_QUANT_MODULE_MAPPINGS)


def get_default_static_quant_reference_module_mappings() -> Mapping:
    """Return the map from float layers to reference layers."""
    return copy.deepcopy(DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS)


def get_embedding_static_quant_module_mappings() -> Mapping:
    """Return the map from float and QAT layers to quantized ones, including QAT embeddings."""
    return {
        **DEFAULT_STATIC_QUANT_MODULE_MAPPINGS,
        nnqat.EmbeddingBag: nnq.EmbeddingBag,
        nnqat.Embedding: nnq.Embedding,
    }


def _class_for(float_module_class: Any, mapping: Mapping, additional: Mapping | None) -> Any:
    found = {**mapping, **(additional or {})}.get(float_module_class)
    if found is None:
        raise AssertionError(
            f"Floating point module class {float_module_class} does not have a corresponding quantized module class"
        )
    return copy.deepcopy(found)


def get_static_quant_module_class(
    float_module_class: Any, additional_static_quant_mapping: Mapping | None = None, is_reference: bool = False
) -> Any:
    """Return the quantized (or reference) class of a float layer."""
    mapping = DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS if is_reference else DEFAULT_STATIC_QUANT_MODULE_MAPPINGS
    return _class_for(float_module_class, mapping, additional_static_quant_mapping)


def get_dynamic_quant_module_class(
    float_module_class: Any, additional_dynamic_quant_mapping: Mapping | None = None
) -> Any:
    """Return the dynamically quantized class of a float layer."""
    return _class_for(float_module_class, DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS, additional_dynamic_quant_mapping)


def get_default_qat_module_mappings() -> Mapping:
    """Return the map from float layers to QAT layers."""
    return copy.deepcopy(DEFAULT_QAT_MODULE_MAPPINGS)


def get_embedding_qat_module_mappings() -> Mapping:
    """Return the map from float layers to QAT layers, including embeddings."""
    return {**DEFAULT_QAT_MODULE_MAPPINGS, nn.EmbeddingBag: nnqat.EmbeddingBag, nn.Embedding: nnqat.Embedding}


def get_default_dynamic_quant_module_mappings() -> Mapping:
    """Return the map from float layers to dynamically quantized ones."""
    return DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS


_ALL = (DEFAULT_STATIC_QUANT_MODULE_MAPPINGS, DEFAULT_QAT_MODULE_MAPPINGS, DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS)


def get_default_qconfig_propagation_list() -> set[Any]:
    """Return the classes of layers that get a qconfig."""
    return {kind for mapping in _ALL for kind in mapping} | _INCLUDE_QCONFIG_PROPAGATE_LIST


def get_default_compare_output_module_list() -> set[Any]:
    """Return the classes of layers, float and quantized, whose results can be compared."""
    return {kind for mapping in _ALL for kind in mapping.values()} | get_default_qconfig_propagation_list()


def get_default_float_to_quantized_operator_mappings() -> Mapping:
    """Return the quantized operator for each float function, as a copy."""
    return copy.copy(DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS)


def get_quantized_operator(float_op: Any) -> Callable[..., Any]:
    """Return the operator on quantized tensors for a function of nn.functional."""
    found = DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS.get(float_op)
    if found is None:
        raise AssertionError(f"Operator {float_op} does not have corresponding quantized op")
    return found


def _get_special_act_post_process(module: nn.Module) -> Any:
    """Return the constructor of the fake quantization of a layer whose results have known limits, for training."""
    return DEFAULT_MODULE_TO_ACT_POST_PROCESS.get(type_before_parametrizations(module))


def _has_special_act_post_process(module: nn.Module) -> bool:
    return module.training and type(module) in DEFAULT_MODULE_TO_ACT_POST_PROCESS
