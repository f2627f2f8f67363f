"""Facts from the onnx package: declarations of operators by version, names of dtypes, shapes of results."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...core.dtype import dtype as DType  # noqa: N812
from ..builder import OnnxGraph, OnnxNode, Value
from ..dtypes import NUMBER
from ..serialize import node_proto, onnx_package, tensor_proto

_MAX_SIZE = 1 << 10  # elements: constants with more say nothing of a shape


@functools.cache
def schema_of(kind: str, version: int) -> Any:
    """Return ONNX's declaration of an operator in an opset version."""
    onnx = onnx_package()
    try:
        return onnx.defs.get_schema(kind, version, "")
    except onnx.defs.SchemaError:
        raise NotImplementedError(f"needs opset {first_version(kind)} or later") from None


@functools.cache
def first_version(kind: str) -> int:
    """Return the version that introduced an operator to ONNX; 0 if there is no such operator."""
    history = onnx_package().defs.get_all_schemas_with_history()
    return min((schema.since_version for schema in history if schema.name == kind and not schema.domain), default=0)


@functools.cache
def type_name(dtype: DType) -> str:
    """Return the name of tensors of a dtype in ONNX's schemas, such as "tensor(float)"."""
    word = onnx_package().TensorProto.DataType.Name(NUMBER[dtype]).lower()
    return f"tensor({word})"


@functools.cache
def dtype_named(name: str) -> DType | None:
    """Return the dtype of a type name in a schema, or None if it is a type variable."""
    return next((d for d in NUMBER if type_name(d) == name), None)


def find_shape(value: Value, version: int) -> None:
    """Infer the shape of a node's results, by onnx's own inference."""
    node = value.producer
    if node is None or node.domain or any(isinstance(a, OnnxGraph) for a in node.attributes.values()):
        return
    onnx = onnx_package()
    for given in node.inputs:
        if given is not None and given.shape is None:
            find_shape(given, version)
    names = {id(v): f"v{i}" for i, v in enumerate(node.inputs) if v is not None}
    names.update((id(v), f"r{i}") for i, v in enumerate(node.outputs))
    held = [v for v in node.inputs if v is not None]
    if any(v.dtype is None for v in held):
        return
    types = {names[id(v)]: _type_proto(v, onnx) for v in held}
    data = {
        names[id(v)]: tensor_proto(v.constant) for v in held if v.constant is not None and v.constant.size <= _MAX_SIZE
    }
    proto = node_proto(node, onnx)
    proto.input[:] = ["" if v is None else names[id(v)] for v in node.inputs]
    proto.output[:] = [names[id(v)] for v in node.outputs]
    imports = [onnx.helper.make_opsetid("", version)]
    schema = schema_of(node.op_type, version)
    found = onnx.shape_inference.infer_node_outputs(schema, proto, types, data, opset_imports=imports)
    for result in node.outputs:
        about = found.get(names[id(result)])
        if result.shape is None and about is not None and about.tensor_type.HasField("shape"):
            dims = about.tensor_type.shape.dim
            result.shape = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in dims)


def _type_proto(value: Value, onnx: Any) -> Any:
    return onnx.helper.make_tensor_type_proto(NUMBER[value.dtype], None if value.shape is None else list(value.shape))


def computed(node: OnnxNode, version: int) -> np.ndarray | None:
    """Return the value of a node whose inputs are constants; None if they are unknown or the result is too large to keep."""
    arrays: list[Any] = [None if v is None else v.constant for v in node.inputs]
    if not arrays or any(a is None and v is not None for a, v in zip(arrays, node.inputs)):
        return None
    if any(a is not None and (a.size > _MAX_SIZE or a.dtype.kind not in "biuf") for a in arrays):
        return None
    if node.op_type in _LARGE or node.op_type in _SIZED and np.prod(arrays[-1]) > _MAX_SIZE:
        return None
    found = evaluated(node, arrays, version)
    return found if found.size <= _MAX_SIZE else None


def evaluated(node: OnnxNode, arrays: list[Any], version: int) -> np.ndarray:
    """Return a node's result for these arrays, by onnx's reference implementation."""
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415  only exports need it

    onnx = onnx_package()
    proto = node_proto(node, onnx)
    names = [f"v{i}" if a is not None else "" for i, a in enumerate(arrays)]
    proto.input[:], proto.output[:] = names, ["r"]
    given = {n: a for n, a in zip(names, arrays) if a is not None}
    inputs = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in given.items()
    ]
    graph = onnx.helper.make_graph([proto], "one", inputs, [onnx.helper.make_empty_tensor_value_info("r")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)])
    results: Any = ReferenceEvaluator(model).run(None, given)
    return np.asarray(results[0])


_LARGE = ("Tile", "EyeLike")  # what they give is larger than what they are given
_SIZED = ("Expand", "ConstantOfShape")  # the last input is the size of what they give
