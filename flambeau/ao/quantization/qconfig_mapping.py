"""QConfigMapping: the QConfig of each part of a model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ... import nn
from .fake_quantize import FixedQParamsFakeQuantize, default_weight_fake_quant
from .fixed_ranges import by_range
from .observer import (
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
    default_placeholder_observer,
    default_weight_observer,
)
from .qconfig import (
    QConfig,
    QConfigAny,
    default_quint8_weight_qconfig,
    default_reuse_input_qconfig,
    default_symmetric_qnnpack_qat_qconfig,
    default_symmetric_qnnpack_qconfig,
    get_default_qat_qconfig,
    get_default_qconfig,
)

__all__ = ["QConfigMapping", "get_default_qat_qconfig_mapping", "get_default_qconfig_mapping"]

_GLOBAL_DICT_KEY = ""
_OBJECT_TYPE_DICT_KEY = "object_type"
_MODULE_NAME_REGEX_DICT_KEY = "module_name_regex"
_MODULE_NAME_DICT_KEY = "module_name"
_MODULE_NAME_OBJECT_TYPE_ORDER_DICT_KEY = "module_name_object_type_order"

F = nn.functional
_FIXED_QPARAMS_OP_TO_OBSERVER: dict[Callable | str, Any] = by_range(
    default_fixed_qparams_range_0to1_observer, default_fixed_qparams_range_neg1to1_observer
)
_TRANSPOSED = (
    nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d,
)  # fmt: skip
_QCONFIG_STYLE_ORDER = [
    "global_qconfig", "object_type_qconfigs", "module_name_regex_qconfigs", "module_name_qconfigs",
    "module_name_object_type_order_qconfigs",
]  # fmt: skip


class QConfigMapping:
    """QConfigs for a whole model, for types of modules and functions, and for modules by name; each kind overrides those before it.

    >>> mapping = QConfigMapping().set_global(default_qconfig).set_module_name("head", None)
    """

    def __init__(self) -> None:
        self.global_qconfig: QConfigAny = None
        self.object_type_qconfigs: OrderedDict[Any, QConfigAny] = OrderedDict()
        self.module_name_regex_qconfigs: OrderedDict[str, QConfigAny] = OrderedDict()
        self.module_name_qconfigs: OrderedDict[str, QConfigAny] = OrderedDict()
        self.module_name_object_type_order_qconfigs: OrderedDict[tuple, QConfigAny] = OrderedDict()

    def set_global(self, global_qconfig: QConfigAny) -> QConfigMapping:
        """Set the QConfig of everything for which nothing else is set."""
        self.global_qconfig = global_qconfig
        return self

    def set_object_type(self, object_type: Any, qconfig: QConfigAny) -> QConfigMapping:
        """Set the QConfig of a class of modules, a function, or a method's name."""
        self.object_type_qconfigs[object_type] = qconfig
        return self

    def set_module_name_regex(self, module_name_regex: str, qconfig: QConfigAny) -> QConfigMapping:
        """Set the QConfig of modules whose name matches; expressions set first are tried first."""
        self.module_name_regex_qconfigs[module_name_regex] = qconfig
        return self

    def set_module_name(self, module_name: str, qconfig: QConfigAny) -> QConfigMapping:
        """Set the QConfig of a module and of the modules inside it."""
        self.module_name_qconfigs[module_name] = qconfig
        return self

    def set_module_name_object_type_order(
        self, module_name: str, object_type: Any, index: int, qconfig: QConfigAny
    ) -> QConfigMapping:
        """Set the QConfig of one call of a module or function inside a module, counted from 0."""
        self.module_name_object_type_order_qconfigs[module_name, object_type, index] = qconfig
        return self

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for style in _QCONFIG_STYLE_ORDER:
            qconfigs = getattr(self, style)
            lines.append(f" {style}")
            if isinstance(qconfigs, OrderedDict) and qconfigs:
                lines += [f"  {key}: {qconfig}" for key, qconfig in qconfigs.items()]
            else:
                lines.append(f"  {qconfigs}")
        return "\n".join([*lines, ")"])

    def to_dict(self) -> dict[str, Any]:
        """Return the mapping as a dict, the former interface."""
        return {
            _GLOBAL_DICT_KEY: self.global_qconfig,
            _OBJECT_TYPE_DICT_KEY: list(self.object_type_qconfigs.items()),
            _MODULE_NAME_REGEX_DICT_KEY: list(self.module_name_regex_qconfigs.items()),
            _MODULE_NAME_DICT_KEY: list(self.module_name_qconfigs.items()),
            _MODULE_NAME_OBJECT_TYPE_ORDER_DICT_KEY: [
                (*key, qconfig) for key, qconfig in self.module_name_object_type_order_qconfigs.items()
            ],
        }

    @classmethod
    def from_dict(cls, qconfig_dict: dict[str, Any]) -> QConfigMapping:
        """Make a mapping from the result of `to_dict`."""
        made = cls()
        if _GLOBAL_DICT_KEY in qconfig_dict:
            made.set_global(qconfig_dict[_GLOBAL_DICT_KEY])
        for key, setter in (
            (_OBJECT_TYPE_DICT_KEY, made.set_object_type),
            (_MODULE_NAME_REGEX_DICT_KEY, made.set_module_name_regex),
            (_MODULE_NAME_DICT_KEY, made.set_module_name),
            (_MODULE_NAME_OBJECT_TYPE_ORDER_DICT_KEY, made.set_module_name_object_type_order),
        ):
            for entry in qconfig_dict.get(key, []):
                setter(*entry)
        return made


def _get_default_qconfig_mapping(is_qat: bool, backend: str, version: int) -> QConfigMapping:
    qconfig = (get_default_qat_qconfig if is_qat else get_default_qconfig)(backend, version)
    weight = default_weight_fake_quant if is_qat else default_weight_observer
    by_tensor = QConfig(qconfig.activation, weight) if backend in ("fbgemm", "x86") else qconfig
    without_weight = QConfig(qconfig.activation, default_placeholder_observer)
    mapping = QConfigMapping().set_global(qconfig).set_object_type("reshape", default_reuse_input_qconfig)
    for kind in _TRANSPOSED:
        mapping.set_object_type(kind, by_tensor)
    mapping.set_object_type(F.layer_norm, without_weight).set_object_type(nn.LayerNorm, without_weight)
    mapping.set_object_type(nn.PReLU, default_quint8_weight_qconfig)
    known: dict[Any, QConfig] = {}
    for op, observer in _FIXED_QPARAMS_OP_TO_OBSERVER.items():
        if observer not in known:
            activation = FixedQParamsFakeQuantize.with_args(observer=observer) if is_qat else observer
            known[observer] = QConfig(activation, weight)
        mapping.set_object_type(op, known[observer])
    return mapping


def get_default_qconfig_mapping(backend: str = "x86", version: int = 0) -> QConfigMapping:
    """Return the default QConfigs for post-training quantization, for an engine."""
    return _get_default_qconfig_mapping(False, backend, version)


def get_default_qat_qconfig_mapping(backend: str = "x86", version: int = 1) -> QConfigMapping:
    """Return the default QConfigs for quantization-aware training, for an engine."""
    return _get_default_qconfig_mapping(True, backend, version)


def _get_default_qconfig_mapping_with_default_qconfig(
    is_qat: bool, backend: str, default_qconfig: QConfig
) -> QConfigMapping:
    mapping = (get_default_qat_qconfig_mapping if is_qat else get_default_qconfig_mapping)(backend)
    mapping.set_global(default_qconfig)
    for pattern in mapping.object_type_qconfigs:
        if pattern not in _FIXED_QPARAMS_OP_TO_OBSERVER:
            mapping.set_object_type(pattern, default_qconfig)
    return mapping


def _get_symmetric_qnnpack_qconfig_mapping() -> QConfigMapping:
    return _get_default_qconfig_mapping_with_default_qconfig(False, "qnnpack", default_symmetric_qnnpack_qconfig)


def _get_symmetric_qnnpack_qat_qconfig_mapping() -> QConfigMapping:
    return _get_default_qconfig_mapping_with_default_qconfig(True, "qnnpack", default_symmetric_qnnpack_qat_qconfig)
