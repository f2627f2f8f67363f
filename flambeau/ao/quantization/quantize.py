"""Eager quantization: prepare a model with observers, convert its layers; after training, during it, or dynamically."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import flambeau as torch

from ... import nn
from ...core.tensor import Tensor
from ...nn.utils.parametrize import type_before_parametrizations
from ..nn import quantizable, quantized
from ..nn.intrinsic import _FusedModule
from .observer import _is_activation_post_process
from .qconfig import (
    _activation_is_memoryless,
    _add_module_to_qconfig_obs_ctr,
    _assert_valid_qconfig,
    default_dynamic_qconfig,
    float16_dynamic_qconfig,
    float_qparams_weight_only_qconfig,
    float_qparams_weight_only_qconfig_4bit,
)
from .quantization_mappings import (
    _get_special_act_post_process,
    _has_special_act_post_process,
    get_default_dynamic_quant_module_mappings,
    get_default_qat_module_mappings,
    get_default_qconfig_propagation_list,
    get_default_static_quant_module_mappings,
    get_default_static_quant_reference_module_mappings,
    no_observer_set,
)
from .stubs import DeQuantStub, QuantWrapper
from .utils import deprecated, get_qparam_dict, has_no_children_ignoring_parametrizations

__all__ = [
    "add_quant_dequant", "convert", "get_default_custom_config_dict", "prepare", "prepare_qat", "propagate_qconfig_", "quantize",
    "quantize_dynamic", "quantize_qat", "swap_module",
]  # fmt: skip

nnq: Any = quantized
is_activation_post_process = _is_activation_post_process
_DEFAULT_CUSTOM_CONFIG_DICT = {
    "float_to_observed_custom_module_class": {
        nn.LSTM: quantizable.LSTM,
        nn.MultiheadAttention: quantizable.MultiheadAttention,
    },
    "observed_to_quantized_custom_module_class": {
        quantizable.LSTM: nnq.LSTM,
        quantizable.MultiheadAttention: nnq.MultiheadAttention,
    },
}


def get_default_custom_config_dict() -> dict[str, dict[Any, Any]]:
    """Return the mappings of layers that are observed in parts (LSTM, attention) to their observed and quantized classes."""
    return _DEFAULT_CUSTOM_CONFIG_DICT


# -- which layer is quantized how ----------------------------------------------------------------------------------------


def _propagate(module: Any, qconfigs: dict, inherited: Any, prefix: str, skipped: dict) -> None:
    qconfig = qconfigs.get(type_before_parametrizations(module), inherited)
    qconfig = getattr(module, "qconfig", qconfigs.get(prefix, qconfig))
    _assert_valid_qconfig(qconfig, module)
    module.qconfig = qconfig = _add_module_to_qconfig_obs_ctr(qconfig, module)
    names, kinds = skipped.get("non_traceable_module_name", []), skipped.get("non_traceable_module_class", [])
    for name, child in module.named_children():
        if name not in names and type(child) not in kinds:
            _propagate(child, qconfigs, qconfig, f"{prefix}.{name}" if prefix else name, {})


def propagate_qconfig_(
    module: nn.Module, qconfig_dict: dict[Any, Any] | None = None, prepare_custom_config_dict: dict[Any, Any] | None = None,
) -> None:  # fmt: skip
    """Set the `qconfig` of each module: its own, that of its name or type in `qconfig_dict`, or that of its parent."""
    _propagate(module, qconfig_dict or {}, None, "", prepare_custom_config_dict or {})


# -- observers -----------------------------------------------------------------------------------------------------------


def _observer_forward_hook(self: Any, input: Any, output: Any) -> Any:
    return self.activation_post_process(output)


def _observer_forward_pre_hook(self: Any, input: Any) -> Any:
    return self.activation_post_process(input[0])


def _register_activation_post_process_hook(module: nn.Module, pre_hook: bool = False) -> None:
    if not hasattr(module, "activation_post_process"):
        raise AssertionError("Expect activation_post_process attribute already attached to the module")
    if pre_hook:
        module.register_forward_pre_hook(_observer_forward_pre_hook, prepend=True)
    else:
        module.register_forward_hook(_observer_forward_hook, prepend=True)


def _needs_observation(module: nn.Module) -> bool:
    return getattr(module, "qconfig", None) is not None


class _ObserverInsertion:
    """Walk over a model that inserts observers."""

    def __init__(self, observed_types: set, non_leaf_types: Any, device: Any, custom: dict):
        self.observed_types, self.non_leaf_types = observed_types, non_leaf_types or ()
        self.device, self.custom = device, custom

    def _make_observer(self, qconfig: Any, special: Callable | None) -> Any:
        made = qconfig.activation() if special is None else special()
        return made if self.device is None else made.to(self.device)

    def insert(self, module: Any, special: Callable | None = None) -> None:
        if _needs_observation(module) and not isinstance(module, DeQuantStub):
            module.add_module("activation_post_process", self._make_observer(module.qconfig, special))
            _register_activation_post_process_hook(module, _activation_is_memoryless(module.qconfig))

    def _child(self, parent: nn.Module, name: str, child: Any) -> None:
        kind = type_before_parametrizations(child)
        if kind is nn.Dropout:
            return
        if issubclass(kind, (nnq.FloatFunctional, nnq.QFunctional)):
            if _needs_observation(child):
                if not hasattr(child, "activation_post_process"):
                    raise AssertionError(f"functional class {kind} has no pre-defined `activation_post_process`")
                child.activation_post_process = self._make_observer(child.qconfig, None)
        elif isinstance(child, _FusedModule) or kind in self.non_leaf_types:
            self.insert(child)
        elif _has_special_act_post_process(child):
            self.insert(child, _get_special_act_post_process(child))
        elif _needs_observation(child) and kind in self.custom:
            observed = self.custom[kind].from_float(child)
            setattr(parent, name, observed)
            if not issubclass(self.custom[kind], tuple(no_observer_set())):
                self.insert(observed)
        else:
            self.walk(child)

    def walk(self, module: Any) -> None:
        for name, child in list(module.named_children()):
            self._child(module, name, child)
        if isinstance(module, nn.Sequential) or type_before_parametrizations(module) not in self.observed_types:
            return
        if has_no_children_ignoring_parametrizations(module) or hasattr(module, "weight_fake_quant"):
            self.insert(module)


def _unique_device(module: nn.Module, doing: str) -> Any:
    devices = _get_unique_devices_(module)
    if len(devices) > 1:
        raise AssertionError(f"{doing} only works with cpu or single-device CUDA modules, but got devices {devices}")
    return next(iter(devices), None)


def _add_observer_(
    module: nn.Module,
    qconfig_propagation_list: set | None = None,
    non_leaf_module_list: Any = None,
    device: Any = None,
    custom_module_class_mapping: dict | None = None,
) -> None:
    kinds = get_default_qconfig_propagation_list() if qconfig_propagation_list is None else qconfig_propagation_list
    device = _unique_device(module, "_add_observer_") if device is None else device
    _ObserverInsertion(kinds, non_leaf_module_list, device, custom_module_class_mapping or {}).walk(module)


def _get_unique_devices_(module: nn.Module) -> set:
    tensors: list[Tensor] = [*module.parameters(), *module.buffers()]
    return {t.device for t in tensors if t.device.type != "meta"}


def add_quant_dequant(module: Any) -> nn.Module:
    """Return the model with each layer that has a qconfig wrapped between QuantStub and DeQuantStub."""
    if has_no_children_ignoring_parametrizations(module) and getattr(module, "qconfig", None):
        return QuantWrapper(module)
    for name, child in module.named_children():
        module._modules[name] = add_quant_dequant(child)
    return module


@deprecated
def prepare(
    model: Any,
    inplace: bool = False,
    allow_list: set[Any] | None = None,
    observer_non_leaf_module_list: Any = None,
    prepare_custom_config_dict: dict[Any, Any] | None = None,
) -> Any:
    """Return the model with observers after its layers, to be run on representative data before `convert`."""
    custom = (prepare_custom_config_dict or get_default_custom_config_dict()).get(
        "float_to_observed_custom_module_class", {}
    )
    if not inplace:
        model = copy.deepcopy(model)
    propagate_qconfig_(model, qconfig_dict=None)
    if not any(getattr(m, "qconfig", None) for m in model.modules()):
        warnings.warn(
            "None of the submodule got qconfig applied. Make sure you passed correct configuration through `qconfig_dict` or "
            "by assigning the `.qconfig` attribute directly on submodules",
            stacklevel=3,
        )
    _add_observer_(model, allow_list, observer_non_leaf_module_list, custom_module_class_mapping=custom)
    return model


def _remove_activation_post_process(module: nn.Module) -> None:
    if _is_activation_post_process(getattr(module, "activation_post_process", None)):
        delattr(module, "activation_post_process")
    for hooks, ours in (
        (module._forward_pre_hooks, _observer_forward_pre_hook),
        (module._forward_hooks, _observer_forward_hook),
    ):
        for key in [key for key, hook in hooks.items() if hook is ours]:
            hooks.pop(key)


def _remove_qconfig(module: Any) -> None:
    for child in module.children():
        _remove_qconfig(child)
    if hasattr(module, "qconfig"):
        del module.qconfig
    _remove_activation_post_process(module)


# -- the ways to a quantized model ---------------------------------------------------------------------------------------


@deprecated
def quantize(
    model: Any, run_fn: Callable[..., Any], run_args: Any, mapping: dict[Any, Any] | None = None, inplace: bool = False
) -> Any:
    """Quantize a model after training: `prepare`, `run_fn(model, *run_args)` to calibrate the observers, `convert`."""
    if not inplace:
        model = copy.deepcopy(model)
    model.eval()
    prepare(model, inplace=True)
    run_fn(model, *run_args)
    return convert(model, mapping, inplace=True)


_RECURRENT = (nn.Linear, nn.LSTM, nn.GRU, nn.LSTMCell, nn.RNNCell, nn.GRUCell)
_DYNAMIC: dict[Any, tuple[Any, tuple]] = {
    torch.qint8: (default_dynamic_qconfig, _RECURRENT),
    torch.float16: (float16_dynamic_qconfig, _RECURRENT),
    torch.quint8: (float_qparams_weight_only_qconfig, (nn.EmbeddingBag, nn.Embedding)),
    torch.quint4x2: (float_qparams_weight_only_qconfig_4bit, (nn.EmbeddingBag,)),
}


@deprecated
def quantize_dynamic(
    model: Any, qconfig_spec: Any = None, dtype: Any = torch.qint8, mapping: dict[Any, Any] | None = None,
    inplace: bool = False,
) -> Any:  # fmt: skip
    """Return the model with quantized weights; activations are quantized at each call, with the scale they need then.

    `qconfig_spec` are types or names of modules, as a set or with a qconfig each; without it, linear and recurrent layers.

    >>> quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    """
    if qconfig_spec is None:
        if dtype not in _DYNAMIC:
            raise ValueError(
                f"Don't know how to quantize with default settings for {dtype}. Provide full qconfig please"
            )
        qconfig, kinds = _DYNAMIC[dtype]
        qconfig_spec = dict.fromkeys(kinds, qconfig)
    elif isinstance(qconfig_spec, set):
        if dtype not in _DYNAMIC:
            raise RuntimeError("Unknown dtype specified for quantize_dynamic: ", str(dtype))
        qconfig_spec = dict.fromkeys(qconfig_spec, _DYNAMIC[dtype][0])
    if not inplace:
        model = copy.deepcopy(model)
    model.eval()
    propagate_qconfig_(model, qconfig_spec)
    return convert(model, get_default_dynamic_quant_module_mappings() if mapping is None else mapping, inplace=True)


@deprecated
def prepare_qat(model: Any, mapping: dict[Any, Any] | None = None, inplace: bool = False) -> Any:
    """Return the model with QAT layers, and fake quantization of activations, to be trained before `convert`."""
    if not model.training:
        raise AssertionError("prepare_qat only works on models in training mode")
    mapping = get_default_qat_module_mappings() if mapping is None else mapping
    if not inplace:
        model = copy.deepcopy(model)
    propagate_qconfig_(model, qconfig_dict=None)
    convert(model, mapping=mapping, inplace=True, remove_qconfig=False)
    prepare(model, observer_non_leaf_module_list=set(mapping.values()), inplace=True)
    return model


@deprecated
def quantize_qat(model: Any, run_fn: Callable[..., Any], run_args: Any, inplace: bool = False) -> Any:
    """Train a model for quantization: `prepare_qat`, `run_fn(model, *run_args)` to train, `convert`."""
    if not inplace:
        model = copy.deepcopy(model)
    model.train()
    prepare_qat(model, inplace=True)
    run_fn(model, *run_args)
    return convert(model, inplace=True)


@deprecated
def convert(
    module: Any,
    mapping: dict[Any, Any] | None = None,
    inplace: bool = False,
    remove_qconfig: bool = True,
    is_reference: bool = False,
    convert_custom_config_dict: dict[Any, Any] | None = None,
    use_precomputed_fake_quant: bool = False,
) -> Any:
    """Return the prepared model with its layers in their quantized forms, whose scales the observers have found."""
    if not inplace:
        module = copy.deepcopy(module)
    _convert(module, mapping, True, is_reference, convert_custom_config_dict, use_precomputed_fake_quant)
    if remove_qconfig:
        _remove_qconfig(module)
    return module


def _convert(
    module: Any,
    mapping: dict | None = None,
    inplace: bool = False,
    is_reference: bool = False,
    convert_custom_config_dict: dict | None = None,
    use_precomputed_fake_quant: bool = False,
) -> Any:
    if mapping is None:
        mapping = (
            get_default_static_quant_reference_module_mappings()
            if is_reference
            else get_default_static_quant_module_mappings()
        )
    config = convert_custom_config_dict or get_default_custom_config_dict()
    custom = config.get("observed_to_quantized_custom_module_class", {})
    if not inplace:
        module = copy.deepcopy(module)
    _convert_children(module, mapping, custom, use_precomputed_fake_quant)
    return module


def _convert_children(module: Any, mapping: dict, custom: dict, precomputed: bool) -> None:
    swapped = {}
    for name, child in module.named_children():
        if not isinstance(child, _FusedModule) and type_before_parametrizations(child) not in custom:
            _convert_children(child, mapping, custom, precomputed)
        swapped[name] = swap_module(child, mapping, custom, precomputed)
    module._modules.update(swapped)


def _swap_module(mod: Any, target: Any, precomputed: bool) -> Any:
    if getattr(target, "_IS_REFERENCE", False):
        weight_post_process = mod.qconfig.weight()
        weight_post_process(mod.weight)
        return target.from_float(mod, get_qparam_dict(weight_post_process))
    if "use_precomputed_fake_quant" in inspect.signature(target.from_float).parameters:
        return target.from_float(mod, use_precomputed_fake_quant=precomputed)
    return target.from_float(mod)


def swap_module(
    mod: Any, mapping: dict[Any, Any], custom_module_class_mapping: dict[Any, Any], use_precomputed_fake_quant: bool = False,
) -> Any:  # fmt: skip
    """Return the quantized form of a module, if it has a qconfig and such a form; else the module. Hooks are kept, except observers'."""
    kind = type_before_parametrizations(mod)
    if getattr(mod, "qconfig", None) is None:
        return mod
    if kind in custom_module_class_mapping:
        made = custom_module_class_mapping[kind].from_observed(mod)
    elif kind in mapping:
        made = _swap_module(mod, mapping[kind], use_precomputed_fake_quant)
    else:
        return mod
    for pre_hook in mod._forward_pre_hooks.values():
        made.register_forward_pre_hook(pre_hook)
    for hook in mod._forward_hooks.values():
        if hook is not _observer_forward_hook:
            made.register_forward_hook(hook)
    device = _unique_device(mod, "swap_module")
    return made if device is None else made.to(device)


def _get_observer_dict(mod: Any, target_dict: dict, prefix: str = "") -> None:
    """Collect the observers of a model by name into `target_dict`."""
    for name, module in mod.named_modules(prefix=prefix):
        if hasattr(module, "activation_post_process"):
            target_dict[f"{name}.activation_post_process".removeprefix(".")] = module.activation_post_process
