"""BackendConfig: the patterns of operators that a backend can compute on quantized values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ....core.dtype import dtype as _dtype

__all__ = ["BackendConfig", "BackendPatternConfig", "DTypeConfig", "DTypeWithConstraints", "ObservationType"]


class ObservationType(Enum):
    """Observers that a pattern needs: a separate one for the result, the one of its input, or none."""

    OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT = 0
    OUTPUT_SHARE_OBSERVER_WITH_INPUT = 1
    INPUT_OUTPUT_NOT_OBSERVED = 2


@dataclass
class DTypeWithConstraints:
    """A dtype, and the backend's constraints on limits, scales and zero points."""

    dtype: _dtype | None = None
    quant_min_lower_bound: float | None = None
    quant_max_upper_bound: float | None = None
    scale_min_lower_bound: float | None = None
    scale_max_upper_bound: float | None = None
    scale_exact_match: float | None = None
    zero_point_exact_match: int | None = None


def _as_constraints(given: Any) -> DTypeWithConstraints:
    return given if isinstance(given, DTypeWithConstraints) else DTypeWithConstraints(dtype=given)


@dataclass
class DTypeConfig:
    """The dtypes of a pattern's inputs, results, weights and biases."""

    input_dtype_with_constraints: DTypeWithConstraints
    output_dtype_with_constraints: DTypeWithConstraints
    weight_dtype_with_constraints: DTypeWithConstraints
    bias_dtype: _dtype | None
    is_dynamic: bool | None

    def __init__(
        self,
        input_dtype: Any = None,
        output_dtype: Any = None,
        weight_dtype: Any = None,
        bias_dtype: _dtype | None = None,
        is_dynamic: bool | None = None,
    ):
        self.input_dtype_with_constraints = _as_constraints(input_dtype)
        self.output_dtype_with_constraints = _as_constraints(output_dtype)
        self.weight_dtype_with_constraints = _as_constraints(weight_dtype)
        self.bias_dtype = bias_dtype
        self.is_dynamic = is_dynamic

    @property
    def input_dtype(self) -> _dtype | None:
        return self.input_dtype_with_constraints.dtype

    @property
    def output_dtype(self) -> _dtype | None:
        return self.output_dtype_with_constraints.dtype

    @property
    def weight_dtype(self) -> _dtype | None:
        return self.weight_dtype_with_constraints.dtype

    @classmethod
    def from_dict(cls, dtype_config_dict: dict[str, Any]) -> DTypeConfig:
        """Make a configuration from the result of `to_dict`."""
        for name in ("input_dtype", "output_dtype", "weight_dtype"):
            given = dtype_config_dict.get(name)
            if given is not None and not isinstance(given, (_dtype, DTypeWithConstraints)):
                raise ValueError(f"Expected {name} to be a torch.dtype or DTypeWithConstraints")
        names = ("input_dtype", "output_dtype", "weight_dtype", "bias_dtype", "is_dynamic")
        return cls(*(dtype_config_dict.get(name) for name in names))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults as a dict."""
        made: dict[str, Any] = {}
        for name in ("input_dtype", "output_dtype", "weight_dtype"):
            if getattr(self, name) is not None:
                made[name] = getattr(self, f"{name}_with_constraints")
        for name in ("bias_dtype", "is_dynamic"):
            if getattr(self, name) is not None:
                made[name] = getattr(self, name)
        return made


class BackendConfig:
    """The operator patterns that a backend can run quantized."""

    def __init__(self, name: str = ""):
        self.name = name
        self._pattern_complex_format_to_config: dict[Any, BackendPatternConfig] = {}

    def __repr__(self) -> str:
        return f"BackendConfig({self.__dict__})"

    def set_name(self, name: str) -> BackendConfig:
        self.name = name
        return self

    def set_backend_pattern_config(self, config: BackendPatternConfig) -> BackendConfig:
        """Add the configuration of a pattern, replacing an earlier one."""
        self._pattern_complex_format_to_config[config._reversed_pattern()] = config
        return self

    def set_backend_pattern_configs(self, configs: list[BackendPatternConfig]) -> BackendConfig:
        for config in configs:
            self.set_backend_pattern_config(config)
        return self

    @property
    def configs(self) -> list[BackendPatternConfig]:
        return list(self._pattern_complex_format_to_config.values())

    @classmethod
    def from_dict(cls, backend_config_dict: dict[str, Any]) -> BackendConfig:
        """Make a configuration from the result of `to_dict`."""
        made = cls(backend_config_dict.get("name", ""))
        for entry in backend_config_dict.get("configs", []):
            if isinstance(entry, dict):
                entry = BackendPatternConfig.from_dict(entry)
            if not isinstance(entry, BackendPatternConfig):
                raise ValueError("Expected backend_config_dict['configs'] to be a dictionary")
            made.set_backend_pattern_config(entry)
        return made

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "configs": [config.to_dict() for config in self.configs]}


class BackendPatternConfig:
    """A pattern of one or more layers, functions or methods: how it is observed, the dtypes it takes, the modules that replace it.

    >>> BackendPatternConfig((nn.Linear, nn.ReLU)).set_fuser_method(fuse).add_dtype_config(int8)
    """

    def __init__(self, pattern: Any = None):
        self.pattern = pattern
        self.observation_type = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
        self.dtype_configs: list[DTypeConfig] = []
        self.root_module: Any = None
        self.qat_module: Any = None
        self.reference_quantized_module: Any = None
        self.fused_module: Any = None
        self.fuser_method: Callable | None = None
        self._root_node_getter: Callable | None = None
        self._extra_inputs_getter: Callable | None = None
        self._num_tensor_args_to_observation_type: dict[int, ObservationType] = {}
        self._input_type_to_index: dict[str, int] = {}
        self._pattern_complex_format: Any = None

    def __repr__(self) -> str:
        told = {k: v for k, v in self.__dict__.items() if v is not None and not (isinstance(v, (list, dict)) and not v)}
        return f"BackendPatternConfig({told})"

    def set_pattern(self, pattern: Any) -> BackendPatternConfig:
        """Set the pattern, in the order of the operators."""
        if self._pattern_complex_format is not None:
            raise ValueError("Only one of 'pattern' or 'pattern_complex_format' can be set")
        self.pattern = pattern
        return self

    def _set_pattern_complex_format(self, pattern: Any) -> BackendPatternConfig:
        """Set the pattern, from the last operator to the first, each with its arguments."""
        if self.pattern is not None:
            raise ValueError("Only one of 'pattern' or 'pattern_complex_format' can be set")
        self._pattern_complex_format = pattern
        return self

    def _set(self, name: str, value: Any) -> BackendPatternConfig:
        setattr(self, name, value)
        return self

    def set_observation_type(self, observation_type: ObservationType) -> BackendPatternConfig:
        return self._set("observation_type", observation_type)

    def add_dtype_config(self, dtype_config: DTypeConfig) -> BackendPatternConfig:
        self.dtype_configs.append(dtype_config)
        return self

    def set_dtype_configs(self, dtype_configs: list[DTypeConfig]) -> BackendPatternConfig:
        return self._set("dtype_configs", dtype_configs)

    def set_root_module(self, root_module: Any) -> BackendPatternConfig:
        """Set the class of the pattern's layer that has the weight."""
        return self._set("root_module", root_module)

    def set_qat_module(self, qat_module: Any) -> BackendPatternConfig:
        """Set the class that replaces the layer in quantization-aware training."""
        return self._set("qat_module", qat_module)

    def set_reference_quantized_module(self, reference_quantized_module: Any) -> BackendPatternConfig:
        """Set the module type that replaces the root layer when the model is converted."""
        return self._set("reference_quantized_module", reference_quantized_module)

    def set_fused_module(self, fused_module: Any) -> BackendPatternConfig:
        """Set the module type that replaces the layers of the pattern when they are fused."""
        return self._set("fused_module", fused_module)

    def set_fuser_method(self, fuser_method: Callable | None) -> BackendPatternConfig:
        """Set the function `f(is_qat, *layers)` that fuses the pattern's layers into one."""
        return self._set("fuser_method", fuser_method)

    def _set_root_node_getter(self, root_node_getter: Callable | None) -> BackendPatternConfig:
        return self._set("_root_node_getter", root_node_getter)

    def _set_extra_inputs_getter(self, extra_inputs_getter: Callable | None) -> BackendPatternConfig:
        return self._set("_extra_inputs_getter", extra_inputs_getter)

    def _set_num_tensor_args_to_observation_type(self, kinds: dict[int, ObservationType]) -> BackendPatternConfig:
        return self._set("_num_tensor_args_to_observation_type", kinds)

    def _set_input_type_to_index(self, input_type_to_index: dict[str, int]) -> BackendPatternConfig:
        return self._set("_input_type_to_index", input_type_to_index)

    def _reversed_pattern(self) -> Any:
        """Return the pattern from the last operator to the first: (a, b, c) becomes (c, (b, a))."""
        if self._pattern_complex_format is not None:
            return self._pattern_complex_format
        if self.pattern is None:
            raise ValueError("Either 'pattern' or 'pattern_complex_format' must be specified")
        if not isinstance(self.pattern, tuple):
            return self.pattern
        if len(self.pattern) == 2:
            return self.pattern[::-1]
        if len(self.pattern) == 3:
            first, second, third = self.pattern
            return third, (second, first)
        raise ValueError(f"Expected a tuple with 2 or 3 elements, got: {self.pattern}")

    @classmethod
    def from_dict(cls, backend_pattern_config_dict: dict[str, Any]) -> BackendPatternConfig:
        """Make a configuration from the result of `to_dict`."""
        made = cls()
        for key, name in _ENTRIES.items():
            if backend_pattern_config_dict.get(key) is not None:
                setattr(made, name, backend_pattern_config_dict[key])
        made.dtype_configs = [_dtype_config(entry) for entry in backend_pattern_config_dict.get("dtype_configs", [])]
        return made

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults as a dict."""
        told = {key: getattr(self, name) for key, name in _ENTRIES.items()}
        told["dtype_configs"] = [config.to_dict() for config in self.dtype_configs]
        return {k: v for k, v in told.items() if k == "dtype_configs" or not (v is None or v == {})}


def _dtype_config(entry: Any) -> DTypeConfig:
    if isinstance(entry, dict):
        return DTypeConfig.from_dict(entry)
    if isinstance(entry, DTypeConfig):
        return entry
    raise ValueError(
        f"Expected a list of DTypeConfigs in backend_pattern_config_dict[\"dtype_configs\"], got '{type(entry)}'"
    )


_ENTRIES = {  # what each setting is called in a dictionary
    "observation_type": "observation_type",
    "dtype_configs": "dtype_configs",
    "pattern": "pattern",
    "root_module": "root_module",
    "qat_module": "qat_module",
    "reference_quantized_module_for_root": "reference_quantized_module",
    "fused_module": "fused_module",
    "fuser_method": "fuser_method",
    "root_node_getter": "_root_node_getter",
    "extra_inputs_getter": "_extra_inputs_getter",
    "num_tensor_args_to_observation_type": "_num_tensor_args_to_observation_type",
    "input_type_to_index": "_input_type_to_index",
    "pattern_complex_format": "_pattern_complex_format",
}
