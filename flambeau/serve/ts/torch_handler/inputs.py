"""Inputs of a model: their names, and the conversion of a request's JSON to tensors for them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import flambeau as torch
from flambeau.cpp.native_model import NativeModel

from ... import bounded_json
from ..utils.util import PredictionException

_KINDS = {"float": "float32", "double": "float64"}  # ONNX's names where they differ


class InvalidInput(PredictionException):  # noqa: N818  beside PredictionException
    """Raised for a request that the model cannot accept: answered with 400 and the reason."""

    def __init__(self, message: str):
        super().__init__(message, 400)


@dataclass(frozen=True)
class Input:
    """An input of a model. `shape` begins with the batch size, and has None for dynamic sizes; it is None if unknown."""

    name: str
    dtype: Any = torch.float32
    shape: tuple[int | None, ...] | None = None
    is_optional: bool = False


def _sizes(shape: Iterable[Any]) -> tuple[int | None, ...]:
    return tuple(s if isinstance(s, int) else None for s in shape)


def _kind(name: str) -> Any:
    name = name.removeprefix("tensor(").rstrip(")")
    return getattr(torch, _KINDS.get(name, name), torch.float32)


def of_program(program: Any) -> list[Input]:
    """Return the inputs of an exported program (.pt2), from the example values in its graph."""
    made = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    return [
        Input(name, made[name].dtype, _sizes(made[name].shape))
        for name in program.graph_signature.user_inputs
        if isinstance(made.get(name), torch.Tensor)
    ]


def of_model(model: Any) -> list[Input]:
    """Return the inputs of a loaded model: as its file declares them, or from the signature of its `forward`."""
    if hasattr(model, "get_inputs"):  # a session of onnxruntime
        return [Input(i.name, _kind(i.type), _sizes(i.shape)) for i in model.get_inputs()]
    if hasattr(model, "input_names"):  # an ONNX file as a module
        return [Input(name) for name in model.input_names]
    if isinstance(model, NativeModel):
        facts = enumerate(model.facts["inputs"])
        return [Input(f"input_{i}", _kind(kind), _sizes(shape)) for i, (shape, kind) in facts]
    if isinstance(model, torch.jit.ScriptModule):
        arguments = cast(Any, model).forward.schema.arguments[1:]
        return [Input(a.name, is_optional=a.has_default_value()) for a in arguments]
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(getattr(model, "forward", model)).parameters.values()
    except (TypeError, ValueError):  # written in C, say
        return []
    return [Input(p.name, is_optional=p.default is not p.empty) for p in parameters if p.kind in plain]


def _parse(value: Any) -> Any:
    if not isinstance(value, (bytes, bytearray, str)):
        return value
    try:
        return bounded_json.loads(value)
    except ValueError as e:
        raise InvalidInput(f"The request's body is no JSON: {e}") from e


def _by_name(values: dict[str, Any], inputs: list[Input]) -> dict[str, Any] | None:
    """Return the values of the inputs by name, or None unless all required ones are present."""
    names = {i.name for i in inputs}
    if not all(i.name in values or i.is_optional for i in inputs) or not names & values.keys():
        return None
    if unknown := sorted(values.keys() - names):
        raise InvalidInput(f"{_describe_inputs(inputs)} It has no input {', '.join(map(repr, unknown))}.")
    return dict(values)


def _describe_inputs(inputs: list[Input]) -> str:
    needed = [i.name for i in inputs if not i.is_optional]
    example = ", ".join(f'"{name}": [...]' for name in needed)
    return f"The model takes {len(needed)} input{'s' * (len(needed) != 1)}: {{{example}}}."


def values_of(row: dict[str, Any], inputs: list[Input]) -> dict[str, Any]:
    """Return a request's value for each input: fields of a form or of a JSON object by name, or a list in the inputs' order."""
    if (found := _by_name(row, inputs)) is not None:
        return {name: _parse(value) for name, value in found.items()}
    value = _parse(row["data"] if "data" in row else row.get("body"))
    for key in ("data", "inputs", "instances", None):
        if isinstance(value, dict):
            if (found := _by_name(value, inputs)) is not None:
                return found
            if key in value and len(value) == 1:
                value = value[key]
    needed = [i.name for i in inputs if not i.is_optional] or [i.name for i in inputs[:1]]
    if isinstance(value, dict) or value is None:
        raise InvalidInput(f"{_describe_inputs(inputs)} Got {'nothing' if value is None else sorted(map(str, value))}.")
    if len(needed) == 1:
        return {needed[0]: value}
    if not isinstance(value, list) or not len(needed) <= len(value) <= len(inputs):
        raise InvalidInput(f"{_describe_inputs(inputs)} A list has one value for each of them, in this order.")
    return {i.name: v for i, v in zip(inputs, value)}


def tensors_of(row: dict[str, Any], inputs: list[Input]) -> tuple[dict[str, Any], bool]:
    """Return a request as tensors with a batch dimension in front, and whether the request itself had that dimension."""
    made, own_batch = {}, False
    known = {i.name: i for i in inputs}
    for name, value in values_of(row, inputs).items():
        given = known[name]
        try:
            tensor = torch.tensor(value, dtype=given.dtype)
        except (TypeError, ValueError, RuntimeError, OverflowError, RecursionError) as e:
            raise InvalidInput(f"Input {name!r} is no array of numbers: {e}") from e
        if given.shape is not None and tensor.dim() == len(given.shape):
            own_batch = True
        else:
            tensor = tensor.unsqueeze(0)
        made[name] = tensor
    return made, own_batch


def example_for(inputs: list[Input], model: Any) -> Any:
    """Return JSON that the model should accept: ones in the shapes of its inputs or of its first layer; None if they are unknown."""
    needed = [i for i in inputs if not i.is_optional]
    shapes = {i.name: i.shape for i in needed}
    if len(needed) == 1 and needed[0].shape is None and hasattr(model, "parameters"):
        first = next((p for p in model.parameters()), None)
        if first is not None and first.dim() == 2:
            shapes[needed[0].name] = (None, first.shape[1])
    values = {}
    for name, shape in shapes.items():
        if shape is None:
            return None
        values[name] = torch.ones([s or 1 for s in shape[1:]], dtype=torch.int64).tolist()
    return values if len(values) > 1 else next(iter(values.values()), None)
