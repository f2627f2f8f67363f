"""Comparing eager models with their quantized forms: weights by name, results of layers, and layers fed with the same inputs (shadows).

>>> compare_weights(model.state_dict(), quantized.state_dict())      # {"fc._packed_params._packed_params": {"float": ..., ...}}
>>> compare_model_outputs(model, quantized, images)                  # {"fc.stats": {"float": [...], "quantized": [...]}}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import flambeau as torch

from ... import nn
from ...core.tensor import Tensor
from ..nn import quantized as nnq
from ..nn.quantized import dynamic as nnqd
from ..quantization import QConfig, prepare
from ..quantization.quantization_mappings import get_default_compare_output_module_list

NON_LEAF_MODULE_TO_ADD_OBSERVER_ALLOW_LIST = {nnqd.Linear, nnq.Linear, nnqd.LSTM, nn.LSTM}


def _find_match(names: Iterable[str], key: str, postfix: str) -> str | None:
    """Return the first name that has the same parent (or grandparent, for packed weights) as a key ending in `postfix`, or None."""
    *path, last = key.split(".")
    if last != postfix:
        return None
    wanted = ["".join(path)]
    if postfix == "_packed_params" and "".join(path[:-1]):  # fc._packed_params._packed_params is fc.weight
        wanted.append("".join(path[:-1]))
    for beginning in wanted:
        for name in names:
            parts = name.split(".")
            if beginning in ("".join(parts[:-1]), "".join(parts[:-2])):
                return name
    return None


def compare_weights(float_dict: dict[str, Any], quantized_dict: dict[str, Any]) -> dict[str, dict[str, Tensor]]:
    """Return the weights of two state dicts side by side: {name in the quantized one: {"float": ..., "quantized": ...}}."""
    found: dict[str, dict] = {}
    for key, value in quantized_dict.items():
        for postfix in ("weight", "_packed_params"):
            match = _find_match(float_dict, key, postfix)
            if match is not None:
                found[key] = {"float": float_dict[match], "quantized": value if postfix == "weight" else value[0]}
        parts = key.split(".")
        # Of a recurrent layer: the hidden state's weights.
        if parts[-1] == "param" and parts[-3] == "_all_weight_values":
            name = f"{'.'.join(parts[:-3])}.weight_hh_l{parts[-2]}"
            if name in float_dict:
                found[key] = {"float": float_dict[name], "quantized": value.w_hh.unpack()[0]}
    return found


def get_logger_dict(mod: nn.Module, prefix: str = "") -> dict[str, dict]:
    """Return the records of all loggers of a model, by the names of the modules that hold them."""
    found: dict[str, dict] = {}

    def visit(module: nn.Module, path: str) -> None:
        dotted = f"{path}." if path else ""
        logger = next((child for child in module.children() if isinstance(child, Logger)), None)
        if logger is not None:
            found[f"{dotted}stats"] = logger.stats
        for name, child in module.named_children():
            visit(child, dotted + name)

    visit(mod, prefix)
    return found


class Logger(nn.Module):
    """Base of modules that record the tensors passing through them in `stats`."""

    def __init__(self) -> None:
        super().__init__()
        self.stats: dict[str, Any] = {}
        self.dtype = torch.quint8  # as an observer of values that are to be quantized

    def forward(self, x: Any) -> Any:
        """Do nothing; subclasses override it."""


class ShadowLogger(Logger):
    """Logger of the outputs of a quantized layer and its shadow."""

    def __init__(self) -> None:
        super().__init__()
        self.stats.update(float=[], quantized=[])

    def forward(self, x: Any, y: Any) -> None:  # type: ignore[override]
        for name, given in (("quantized", x), ("float", y)):
            self.stats[name].append((given[0] if len(given) > 1 else given).detach())


class OutputLogger(Logger):
    """Logger of a layer's outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.stats["tensor_val"] = []

    def forward(self, x: Any) -> Any:
        self.stats["tensor_val"].append(x)
        return x


def _dequantize(given: Any) -> Any:
    if isinstance(given, (list, tuple)):
        return [_dequantize(item) for item in given]
    return given.dequantize() if isinstance(given, Tensor) and given.is_quantized else given


class Shadow(nn.Module):
    """A quantized module with its float original: both run on the same inputs, a logger records both results, and the quantized one's is
    returned."""

    def __init__(self, q_module: nn.Module, float_module: nn.Module, logger_cls: Callable):
        super().__init__()
        self.orig_module, self.shadow_module = q_module, float_module
        self.dequant = nnq.DeQuantize()
        self.logger = logger_cls()

    def _run_both(self, name: str, *args: Any) -> Any:
        output = getattr(self.orig_module, name)(*args)
        self.logger(output, getattr(self.shadow_module, name)(*_dequantize(args)))
        return output

    def forward(self, *x: Any) -> Any:
        return self._run_both("__call__", *x)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self._run_both("add", x, y)

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        return self._run_both("add_scalar", x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return self._run_both("mul", x, y)

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        return self._run_both("mul_scalar", x, y)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        return self._run_both("cat", x, dim)

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        return self._run_both("add_relu", x, y)


def _is_identical_module_type(mod1: nn.Module, mod2: nn.Module) -> bool:
    return [type(m) for m in mod1.modules()] == [type(m) for m in mod2.modules()]


def prepare_model_with_stubs(
    float_module: nn.Module, q_module: nn.Module, module_swap_list: Any, logger_cls: Callable
) -> None:
    """Replace each of a quantized model's modules whose float form is of a type in the list by a Shadow."""
    floats = dict(float_module.named_children())
    for name, mod in list(q_module.named_children()):
        if name not in floats:
            continue
        if type(floats[name]) not in module_swap_list:
            prepare_model_with_stubs(floats[name], mod, module_swap_list, logger_cls)
        elif not _is_identical_module_type(mod, floats[name]):
            q_module._modules[name] = Shadow(mod, floats[name], logger_cls)


def compare_model_stub(
    float_model: nn.Module, q_model: nn.Module, module_swap_list: Any, *data: Any, logger_cls: Callable = ShadowLogger
) -> dict[str, dict]:
    """Return the outputs of modules of these types in both models, each fed with the quantized model's inputs."""
    prepare_model_with_stubs(float_model, q_model, module_swap_list, logger_cls)
    q_model(*data)
    return get_logger_dict(q_model)


def get_matching_activations(float_module: nn.Module, q_module: nn.Module) -> dict[str, dict[str, Tensor]]:
    """Return the records of the loggers of both models, side by side."""
    floats, quantized = get_logger_dict(float_module), get_logger_dict(q_module)
    found: dict[str, dict] = {}
    for key, stats in quantized.items():
        match = _find_match(sorted(floats, reverse=True), key, "stats") if stats["tensor_val"] else None
        if match is not None:
            found[key] = {"float": floats[match]["tensor_val"], "quantized": stats["tensor_val"]}
    return found


def prepare_model_outputs(
    float_module: nn.Module, q_module: nn.Module, logger_cls: Any = OutputLogger, allow_list: Any = None
) -> None:
    """Add loggers after the modules of both models whose type is in the list."""
    if allow_list is None:
        allow_list = get_default_compare_output_module_list()
    for module, more in (
        (float_module, {}),
        (q_module, {"observer_non_leaf_module_list": NON_LEAF_MODULE_TO_ADD_OBSERVER_ALLOW_LIST}),
    ):
        module.qconfig = QConfig(activation=logger_cls, weight=None)
        prepare(module, inplace=True, allow_list=allow_list, prepare_custom_config_dict={}, **more)


def compare_model_outputs(
    float_model: nn.Module, q_model: nn.Module, *data: Any, logger_cls: Any = OutputLogger, allow_list: Any = None
) -> dict[str, dict[str, Tensor]]:
    """Return the outputs of the modules of both models for one input."""
    prepare_model_outputs(float_model, q_model, logger_cls, allow_list)
    float_model(*data)
    q_model(*data)
    return get_matching_activations(float_model, q_model)
