"""Options for preparing, converting and fusing a traced model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..backend_config import BackendConfig
from ..qconfig_mapping import QConfigMapping
from ..quant_type import QuantType, _get_quant_type_to_str, _quant_type_from_str

__all__ = ["ConvertCustomConfig", "FuseCustomConfig", "PrepareCustomConfig", "StandaloneModuleConfigEntry"]

STANDALONE_MODULE_NAME_DICT_KEY = "standalone_module_name"
STANDALONE_MODULE_CLASS_DICT_KEY = "standalone_module_class"
FLOAT_TO_OBSERVED_DICT_KEY = "float_to_observed_custom_module_class"
OBSERVED_TO_QUANTIZED_DICT_KEY = "observed_to_quantized_custom_module_class"
NON_TRACEABLE_MODULE_NAME_DICT_KEY = "non_traceable_module_name"
NON_TRACEABLE_MODULE_CLASS_DICT_KEY = "non_traceable_module_class"
INPUT_QUANTIZED_INDEXES_DICT_KEY = "input_quantized_idxs"
OUTPUT_QUANTIZED_INDEXES_DICT_KEY = "output_quantized_idxs"
PRESERVED_ATTRIBUTES_DICT_KEY = "preserved_attributes"


@dataclass
class StandaloneModuleConfigEntry:
    """Configuration of a part of a model that is traced and prepared separately."""

    qconfig_mapping: QConfigMapping | None
    example_inputs: tuple[Any, ...]
    prepare_custom_config: PrepareCustomConfig | None
    backend_config: BackendConfig | None


class _CustomConfig:
    """Base of custom configurations; the repr shows settings that are not empty."""

    preserved_attributes: list[str]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({ {k: v for k, v in self.__dict__.items() if len(v) > 0} })"

    def set_preserved_attributes(self, attributes: list[str]) -> Any:
        """Set the attributes of the model that its traced form keeps."""
        self.preserved_attributes = attributes
        return self


def _check_type(kind: Any, obj: Any, key: str) -> Any:
    if obj is None or isinstance(obj, kind):
        return obj
    if isinstance(obj, dict):
        return kind.from_dict(obj)
    raise ValueError(f"Expected {kind.__name__} in prepare_custom_config_dict[\"{key}\"], got '{type(obj)}'")


def _entry_dict(key: Any, entry: StandaloneModuleConfigEntry) -> tuple:
    mapping, config = entry.qconfig_mapping, entry.prepare_custom_config
    told = (mapping.to_dict() if mapping else None, entry.example_inputs, config.to_dict() if config else None)
    return (key, *told, entry.backend_config)


class PrepareCustomConfig(_CustomConfig):
    """Options of `prepare_fx`: modules traced separately, not traced, or swapped; inputs and results that are quantized."""

    def __init__(self) -> None:
        self.standalone_module_names: dict[str, StandaloneModuleConfigEntry] = {}
        self.standalone_module_classes: dict[type, StandaloneModuleConfigEntry] = {}
        self.float_to_observed_mapping: dict[QuantType, dict[type, type]] = {}
        self.non_traceable_module_names: list[str] = []
        self.non_traceable_module_classes: list[type] = []
        self.input_quantized_indexes: list[int] = []
        self.output_quantized_indexes: list[int] = []
        self.preserved_attributes: list[str] = []

    def set_standalone_module_name(
        self,
        module_name: str,
        qconfig_mapping: QConfigMapping | None,
        example_inputs: tuple[Any, ...],
        prepare_custom_config: PrepareCustomConfig | None,
        backend_config: BackendConfig | None,
    ) -> PrepareCustomConfig:
        """Set a module, by its name, that is traced and prepared separately."""
        self.standalone_module_names[module_name] = StandaloneModuleConfigEntry(
            qconfig_mapping, example_inputs, prepare_custom_config, backend_config
        )
        return self

    def set_standalone_module_class(
        self,
        module_class: type,
        qconfig_mapping: QConfigMapping | None,
        example_inputs: tuple[Any, ...],
        prepare_custom_config: PrepareCustomConfig | None,
        backend_config: BackendConfig | None,
    ) -> PrepareCustomConfig:
        """Set modules, by their class, that are traced and prepared separately."""
        self.standalone_module_classes[module_class] = StandaloneModuleConfigEntry(
            qconfig_mapping, example_inputs, prepare_custom_config, backend_config
        )
        return self

    def set_float_to_observed_mapping(
        self, float_class: type, observed_class: type, quant_type: QuantType = QuantType.STATIC
    ) -> PrepareCustomConfig:
        """Set the class (with `from_float`) that replaces a module in the prepared model."""
        if quant_type != QuantType.STATIC:
            raise ValueError("set_float_to_observed_mapping is currently only supported for static quantization")
        self.float_to_observed_mapping.setdefault(quant_type, {})[float_class] = observed_class
        return self

    def set_non_traceable_module_names(self, module_names: list[str]) -> PrepareCustomConfig:
        self.non_traceable_module_names = module_names
        return self

    def set_non_traceable_module_classes(self, module_classes: list[type]) -> PrepareCustomConfig:
        self.non_traceable_module_classes = module_classes
        return self

    def set_input_quantized_indexes(self, indexes: list[int]) -> PrepareCustomConfig:
        """Set the positions of the model's arguments that are quantized tensors."""
        self.input_quantized_indexes = indexes
        return self

    def set_output_quantized_indexes(self, indexes: list[int]) -> PrepareCustomConfig:
        """Set the positions of the model's results that are to be quantized tensors."""
        self.output_quantized_indexes = indexes
        return self

    @classmethod
    def from_dict(cls, prepare_custom_config_dict: dict[str, Any]) -> PrepareCustomConfig:
        """Make a configuration from the result of `to_dict`."""
        given, made = prepare_custom_config_dict, cls()
        for key, kept in (
            (STANDALONE_MODULE_NAME_DICT_KEY, made.standalone_module_names),
            (STANDALONE_MODULE_CLASS_DICT_KEY, made.standalone_module_classes),
        ):
            for which, mapping, example_inputs, config, backend_config in given.get(key, []):
                kept[which] = StandaloneModuleConfigEntry(
                    _check_type(QConfigMapping, mapping, key),
                    example_inputs,
                    _check_type(PrepareCustomConfig, config, key),
                    _check_type(BackendConfig, backend_config, key),
                )
        for name, classes in given.get(FLOAT_TO_OBSERVED_DICT_KEY, {}).items():
            for float_class, observed_class in classes.items():
                made.set_float_to_observed_mapping(float_class, observed_class, _quant_type_from_str(name))
        for key, name in _LISTS.items():
            setattr(made, name, given.get(key, []))
        return made

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that are not empty as a dict."""
        made: dict[str, Any] = {
            STANDALONE_MODULE_NAME_DICT_KEY: [_entry_dict(k, e) for k, e in self.standalone_module_names.items()],
            STANDALONE_MODULE_CLASS_DICT_KEY: [_entry_dict(k, e) for k, e in self.standalone_module_classes.items()],
            FLOAT_TO_OBSERVED_DICT_KEY: {
                _get_quant_type_to_str(k): v for k, v in self.float_to_observed_mapping.items()
            },
            **{key: getattr(self, name) for key, name in _LISTS.items()},
        }
        return {k: v for k, v in made.items() if v}


_LISTS = {
    NON_TRACEABLE_MODULE_NAME_DICT_KEY: "non_traceable_module_names",
    NON_TRACEABLE_MODULE_CLASS_DICT_KEY: "non_traceable_module_classes",
    INPUT_QUANTIZED_INDEXES_DICT_KEY: "input_quantized_indexes",
    OUTPUT_QUANTIZED_INDEXES_DICT_KEY: "output_quantized_indexes",
    PRESERVED_ATTRIBUTES_DICT_KEY: "preserved_attributes",
}


class ConvertCustomConfig(_CustomConfig):
    """Options of `convert_fx`: classes (with `from_observed`) that replace observed modules."""

    def __init__(self) -> None:
        self.observed_to_quantized_mapping: dict[QuantType, dict[type, type]] = {}
        self.preserved_attributes: list[str] = []

    def set_observed_to_quantized_mapping(
        self, observed_class: type, quantized_class: type, quant_type: QuantType = QuantType.STATIC
    ) -> ConvertCustomConfig:
        self.observed_to_quantized_mapping.setdefault(quant_type, {})[observed_class] = quantized_class
        return self

    @classmethod
    def from_dict(cls, convert_custom_config_dict: dict[str, Any]) -> ConvertCustomConfig:
        """Make a configuration from the result of `to_dict`."""
        made = cls()
        for name, classes in convert_custom_config_dict.get(OBSERVED_TO_QUANTIZED_DICT_KEY, {}).items():
            for observed_class, quantized_class in classes.items():
                made.set_observed_to_quantized_mapping(observed_class, quantized_class, _quant_type_from_str(name))
        return made.set_preserved_attributes(convert_custom_config_dict.get(PRESERVED_ATTRIBUTES_DICT_KEY, []))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that are not empty as a dict."""
        mapping = {_get_quant_type_to_str(k): v for k, v in self.observed_to_quantized_mapping.items()}
        made = {OBSERVED_TO_QUANTIZED_DICT_KEY: mapping, PRESERVED_ATTRIBUTES_DICT_KEY: self.preserved_attributes}
        return {k: v for k, v in made.items() if v}


class FuseCustomConfig(_CustomConfig):
    """Options of `fuse_fx`: attributes of the model to preserve."""

    def __init__(self) -> None:
        self.preserved_attributes: list[str] = []

    @classmethod
    def from_dict(cls, fuse_custom_config_dict: dict[str, Any]) -> FuseCustomConfig:
        """Make a configuration from the result of `to_dict`."""
        return cls().set_preserved_attributes(fuse_custom_config_dict.get(PRESERVED_ATTRIBUTES_DICT_KEY, []))

    def to_dict(self) -> dict[str, Any]:
        return {PRESERVED_ATTRIBUTES_DICT_KEY: self.preserved_attributes} if self.preserved_attributes else {}
