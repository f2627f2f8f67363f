"""Graph optimization: constants folded, batch normalisation folded into convolutions, nodes without effect removed."""

from __future__ import annotations

from typing import Any

import numpy as np

from .builder import Builder, OnnxGraph, OnnxNode, Value
from .dtypes import DTYPE, array_of, dtype_of_array, tensor_of
from .torchlib.schemas import evaluated

_LIMIT = 1 << 16  # elements: larger results are not worth a constant


def optimized(g: Builder, *, constants: bool = True, twins: bool = True, norms: bool = True) -> None:
    """Apply passes to a graph under construction: fold nodes of constants and of parameters, merge equal nodes, and fold batch
    normalisation into convolutions."""
    if constants:
        _fold_constants(g.graph, g.opset)
    if twins:
        _merge_twins(g.graph)
    _drop_identities(g.graph)
    if norms:
        _fold_batch_norms(g.graph)
    if constants:
        _fold_parameters(g.graph, g.opset)


# Nodes that arrange elements, and those of integers, which are sizes: what engines compute from them is no surprise.
_REARRANGING = frozenset(["Transpose", "Slice", "Concat", "Unsqueeze", "Squeeze", "Reshape", "Gather", "Identity"])
_SIZE_OPERATORS = frozenset(["Add", "Sub", "Mul", "Neg", "Less", "Equal", "Where"])


def _is_folded(node: OnnxNode, inputs: list[Any]) -> bool:
    """Return whether a node whose inputs are constants is replaced by a constant."""
    if not inputs or node.domain or len(node.outputs) != 1 or any(a is None for a in inputs):
        return False
    if node.op_type == "ConstantOfShape":
        return bool(np.prod(inputs[0]) <= 64)
    whole = node.op_type in _SIZE_OPERATORS and inputs[-1].dtype.kind in "iub"
    known = whole or node.op_type == "Cast" or node.op_type in _REARRANGING
    return known and sum(a.size for a in inputs) <= _LIMIT


def _fold_constants(graph: OnnxGraph, version: int) -> None:
    for i, node in enumerate(graph.nodes):
        inputs = [None if v is None else v.constant for v in node.inputs]
        if not _is_folded(node, inputs):
            continue
        found = _compute(node, inputs, version)
        if found.size > _LIMIT:
            continue
        value = node.outputs[0]
        made = OnnxNode("", "Constant", [], {"value": found}, 0)
        made.outputs, made.scope = [value], node.scope
        value.producer, value.constant = made, found
        value.known(dtype_of_array(found), found.shape)
        graph.nodes[i] = made


def _compute(node: OnnxNode, inputs: list[Any], version: int) -> np.ndarray:
    if node.op_type == "Cast":  # as tensors are converted here
        return array_of(tensor_of(inputs[0]).to(DTYPE[node.attributes["to"]]))
    found = evaluated(node, inputs, version)
    return np.ascontiguousarray(found).reshape(found.shape)


def _merge_twins(graph: OnnxGraph) -> None:
    """Merge nodes that compute the same from the same inputs."""
    seen: dict[Any, list[Value]] = {}
    swapped: dict[int, Value] = {}
    kept = []
    for node in graph.nodes:
        node.inputs = [swapped.get(id(v), v) for v in node.inputs]
        key = _key(node)
        if key is not None and key in seen and not any(o in graph.outputs for o in node.outputs):
            for mine, first in zip(node.outputs, seen[key]):
                swapped[id(mine)] = first
            continue
        if key is not None:
            seen[key] = node.outputs
        kept.append(node)
    graph.nodes = kept
    _replace_inside(graph, swapped)


def _key(node: OnnxNode) -> Any:
    if node.op_type.startswith("Random") or node.op_type in ("Dropout", "Bernoulli", "Multinomial") or node.domain:
        return None
    parts = []
    for name, value in sorted(node.attributes.items()):
        if isinstance(value, OnnxGraph):
            return None
        parts.append(
            (name, (value.dtype.str, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else repr(value))
        )
    return (node.op_type, tuple(id(v) for v in node.inputs), tuple(parts), len(node.outputs))


def _replace_inside(graph: OnnxGraph, swapped: dict[int, Value]) -> None:
    for node in graph.nodes:
        node.inputs = [swapped.get(id(v), v) for v in node.inputs]
        for attribute in node.attributes.values():
            if isinstance(attribute, OnnxGraph):
                _replace_inside(attribute, swapped)
                attribute.outputs = [swapped.get(id(v), v) for v in attribute.outputs]


def _drop_identities(graph: OnnxGraph) -> None:
    swapped: dict[int, Value] = {}
    kept = []
    for node in graph.nodes:
        node.inputs = [swapped.get(id(v), v) for v in node.inputs]
        if (
            node.op_type == "Identity"
            and not node.domain
            and node.outputs[0] not in graph.outputs
            and node.inputs[0] is not None
        ):
            swapped[id(node.outputs[0])] = node.inputs[0]
        else:
            kept.append(node)
    graph.nodes = kept
    _replace_inside(graph, swapped)


def _parameter(graph: OnnxGraph, value: Value | None) -> np.ndarray | None:
    if value is None:
        return None
    if value.constant is not None:
        return value.constant
    found = graph.parameters.get(value.name)
    return array_of(found[1]) if found is not None and found[0] is value else None


def _uses(graph: OnnxGraph) -> dict[int, int]:
    counts: dict[int, int] = {}
    for node in graph.nodes:
        for v in node.inputs:
            counts[id(v)] = counts.get(id(v), 0) + 1
        for attribute in node.attributes.values():
            if isinstance(attribute, OnnxGraph):
                for key, n in _uses(attribute).items():
                    counts[key] = counts.get(key, 0) + n
    for v in graph.outputs:
        counts[id(v)] = counts.get(id(v), 0) + 1
    return counts


def _fold_batch_norms(graph: OnnxGraph) -> None:
    """Replace Conv followed by BatchNormalization by one Conv with other weights."""
    counts = _uses(graph)
    kept = []
    for node in graph.nodes:
        conv = node.inputs[0].producer if node.op_type == "BatchNormalization" and node.inputs[0] is not None else None
        if (
            conv is None
            or conv.op_type != "Conv"
            or counts.get(id(conv.outputs[0])) != 1
            or node.attributes.get("training_mode")
        ):
            kept.append(node)
            continue
        arrays = [_parameter(graph, v) for v in (conv.inputs[1], *node.inputs[1:5])]
        if any(a is None for a in arrays) or counts.get(id(conv.inputs[1])) != 1:
            kept.append(node)
            continue
        weight, scale, shift, mean, var = (a.astype(np.float64) for a in arrays)  # type: ignore[union-attr]
        bias_value = conv.inputs[2] if len(conv.inputs) > 2 else None
        bias = _parameter(graph, bias_value)
        if bias_value is not None and bias is None:
            kept.append(node)
            continue
        factor = scale / np.sqrt(var + node.attributes.get("epsilon", 1e-5))
        new = weight * factor.reshape(-1, *([1] * (weight.ndim - 1)))
        old = np.zeros_like(mean) if bias is None else bias.astype(np.float64)
        offset = (old - mean) * factor + shift
        first = arrays[0]
        assert first is not None and conv.inputs[1] is not None
        own = conv.inputs[1].name
        result = graph.fresh("Conv").rpartition("_")[2]  # the folded node's own
        if result and node.outputs[0].name == str(node.outputs[0].number):
            node.outputs[0].name = result
        name = graph.fresh("Conv") or own
        weights = Value(name, conv.inputs[1].dtype, conv.inputs[1].shape)
        spare = bias_value.name if bias_value is not None and counts.get(id(bias_value)) == 1 else f"{own}_bias"
        offsets_name = graph.fresh("Conv") or spare
        offsets = Value(offsets_name, conv.inputs[1].dtype, offset.shape)
        graph.parameters[name] = (weights, tensor_of(new.astype(first.dtype)))
        graph.parameters[offsets_name] = (offsets, tensor_of(offset.astype(first.dtype)))
        conv.inputs = [conv.inputs[0], weights, offsets]
        conv.outputs = node.outputs
        for out in conv.outputs:
            out.producer = conv
    graph.nodes = kept


def _fold_parameters(graph: OnnxGraph, version: int) -> None:
    """Store parameters rearranged if they are only read rearranged (a transposed weight, the gates of a recurrent layer)."""
    readers: dict[int, list[OnnxNode]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            readers.setdefault(id(value), []).append(node)
        if any(isinstance(a, OnnxGraph) for a in node.attributes.values()):
            return  # what the inner graph reads is not known here
    shown = {id(v) for v in graph.outputs}
    sources = {id(v): name for name, (v, _) in graph.parameters.items()}
    while True:  # a parameter with a reader that must stay keeps all its readers
        made = _rearranged_parameters(graph, sources, shown)
        spoiled = {key for key in sources if any(id(n) not in made for n in readers.get(key, ()))}
        if not spoiled:
            break
        sources = {key: name for key, name in sources.items() if key not in spoiled}
    arrays = {key: array_of(graph.parameters[name][1]) for key, name in sources.items()}
    kept = []
    for node in graph.nodes:
        if id(node) not in made:
            kept.append(node)
            continue
        out = node.outputs[0]
        inputs = [arrays.get(id(v), v.constant) for v in node.inputs]  # type: ignore[union-attr]
        arrays[id(out)] = _compute(node, inputs, version)
        last = [n for n in readers.get(id(out), ()) if id(n) not in made]
        if last:
            out.name, out.producer = graph.fresh(last[0].op_type) or made[id(node)], None
            out.known(out.dtype, arrays[id(out)].shape)
            graph.parameters[out.name] = (out, tensor_of(arrays[id(out)]))
    graph.nodes = kept


def _rearranged_parameters(graph: OnnxGraph, sources: dict[int, str], shown: set[int]) -> dict[int, str]:
    """Return the nodes that only rearrange parameters, each with the name of the first parameter it reads."""
    origin, made = dict(sources), {}
    for node in graph.nodes:
        known = all(v is not None and (id(v) in origin or v.constant is not None) for v in node.inputs)
        held = [origin[id(v)] for v in node.inputs if id(v) in origin]
        if node.op_type in _REARRANGING and not node.domain and known and held and id(node.outputs[0]) not in shown:
            made[id(node)] = origin[id(node.outputs[0])] = held[0]
    return made
