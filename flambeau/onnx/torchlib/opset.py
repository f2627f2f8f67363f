"""ONNX's operators as torchlib's functions call them (`op.Add(x, 1)`), written into the builder of the running export.

torchlib targets version 18. The schemas in the onnx package say what another version needs: an input that was an attribute there is passed
as one, and what a version does not have is refused."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import flambeau

from ...core.dtype import dtype as DType  # noqa: N812
from ..builder import Builder, Value
from ..dtypes import DTYPE, NUMBER
from ..serialize import onnx_package
from .schemas import computed, dtype_named, find_shape, schema_of, type_name

WRITTEN_FOR = 18
_builder: contextvars.ContextVar[Builder] = contextvars.ContextVar("builder")


@contextlib.contextmanager
def writing(g: Builder) -> Iterator[None]:
    """Context manager: operators of the opset are written into this builder."""
    token = _builder.set(g)
    try:
        yield
    finally:
        _builder.reset(token)


class Unknown:
    """A dynamic size: not a number, and equal to none."""

    def __repr__(self) -> str:
        return "?"


UNKNOWN = Unknown()


class Operand:
    """A value as torchlib's functions see it: dtypes are onnx_ir's, and arithmetic adds nodes."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    @property
    def dtype(self) -> Any:
        return None if self.value.dtype is None else _data_type()(NUMBER[self.value.dtype])

    @dtype.setter
    def dtype(self, number: Any) -> None:
        self.value.dtype = DTYPE[int(number)]

    @property
    def type(self) -> Operand:
        return self

    @property
    def shape(self) -> Any:
        shape = self.known_value().shape
        return None if shape is None else [n if isinstance(n, int) else UNKNOWN for n in shape]

    def known_value(self) -> Value:
        """Return the value, after inferring its shape if it is unknown."""
        if self.value.shape is None:
            find_shape(self.value, _builder.get().opset)
        return self.value

    def __add__(self, other: Any) -> Any:
        return _write("Add", self, other)

    def __radd__(self, other: Any) -> Any:
        return _write("Add", other, self)

    def __sub__(self, other: Any) -> Any:
        return _write("Sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return _write("Sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return _write("Mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return _write("Mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return _write("Div", self, other)

    def __neg__(self) -> Any:
        return _write("Neg", self)

    def __lt__(self, other: Any) -> Any:
        return _write("Less", self, other)

    def __gt__(self, other: Any) -> Any:
        return _write("Greater", self, other)

    def __le__(self, other: Any) -> Any:
        return _write("LessOrEqual", self, other)

    def __ge__(self, other: Any) -> Any:
        return _write("GreaterOrEqual", self, other)

    def __bool__(self) -> bool:
        if self.value.constant is None:
            raise NotImplementedError("it depends on a value that is not known before the model runs")
        return bool(self.value.constant)


@functools.cache
def _data_type() -> Any:
    from onnxscript import ir  # noqa: PLC0415  an extra

    return ir.DataType


def operand(thing: Any) -> Any:
    """Wrap values as operands, also inside lists."""
    if isinstance(thing, Value):
        return Operand(thing)
    return type(thing)(operand(t) for t in thing) if isinstance(thing, (list, tuple)) else thing


def plain(thing: Any) -> Any:
    """Unwrap operands to values, also inside lists."""
    if isinstance(thing, Operand):
        return thing.value
    return [plain(t) for t in thing] if isinstance(thing, (list, tuple)) else thing


class Opset:
    """Namespace of ONNX's operators."""

    def __getattr__(self, kind: str) -> Callable[..., Any]:
        if kind.startswith("_"):
            raise AttributeError(kind)
        own = _SPECIAL_WRITERS.get(kind)
        made = functools.partial(own or _write, *(() if own else (kind,)))
        setattr(self, kind, made)
        return made


OPSET = Opset()


def _write(kind: str, *args: Any, **named: Any) -> Any:
    """Add a node. Numbers among its inputs get the dtype of the inputs that share their type variable."""
    g = _builder.get()
    schema = schema_of(kind, WRITTEN_FOR)
    inputs, attributes = _split_arguments(schema, args, named)
    kinds = _dtypes(schema, inputs)
    values = [_value(g, thing, kinds.get(declared.type_str)) for declared, thing in inputs]
    short = _skip_node(kind, values)
    if short is not None:
        return operand(short)
    count = _outputs(schema, args, attributes)
    there = schema_of(kind, g.opset)
    if there.since_version != schema.since_version:
        values, attributes = _convert_version(there, schema, values, attributes)
    _check_dtypes(there, values)
    made = g.op(kind, *values, outputs=count, **_attributes(there, attributes))
    results = made if isinstance(made, tuple) else (made,)
    for i, result in enumerate(results):
        result.dtype = _result_dtype(schema, i, kinds, attributes)
    if count == 1 and kind not in _RANDOM_NODES:
        found = computed(made.producer, g.opset)
        return operand(made if found is None else g._constant(found))
    return operand(made)


_RANDOM_NODES = (
    "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout",
)  # fmt: skip


def _skip_node(kind: str, values: list[Any]) -> Value | None:
    """Return the input of a node that has no effect (a product with 1, a rounded integer), or None if the node is needed."""
    if kind in ("Mul", "Div") and values[1].constant is not None and values[1].rank == 0 and values[1].constant == 1:
        return values[0]
    if kind == "Mul" and values[0].constant is not None and values[0].rank == 0 and values[0].constant == 1:
        return values[1]
    if kind in ("Ceil", "Floor", "Round") and not values[0].dtype.is_floating_point:
        return values[0]
    return None


def _split_arguments(schema: Any, args: tuple, named: dict[str, Any]) -> tuple[list[tuple[Any, Any]], dict[str, Any]]:
    """Sort arguments into inputs, with their declarations, and attributes."""
    declared = list(schema.inputs)
    while declared and len(declared) < len(args):  # the last one stands for many
        declared.append(declared[-1])
    given: list[Any] = list(args) + [None] * (len(declared) - len(args))
    attributes = {}
    places = {one.name: i for i, one in enumerate(declared)}
    for key, thing in named.items():
        if key in places:
            given[places[key]] = thing
        elif thing is not None:
            attributes[key] = thing
    while given and given[-1] is None:
        given.pop()
    return list(zip(declared, given)), attributes


def _dtypes(schema: Any, inputs: list[tuple[Any, Any]]) -> dict[str, DType]:
    """Return the dtypes that the type variables of a schema have in this call."""
    found: dict[str, DType] = {}
    for declared, thing in inputs:
        if isinstance(thing, Operand) and thing.value.dtype is not None:
            found.setdefault(declared.type_str, thing.value.dtype)
    return found


def _value(g: Builder, thing: Any, dtype: DType | None) -> Any:
    if thing is None or isinstance(thing, Operand):
        return plain(thing)
    if isinstance(thing, (list, tuple)) and any(isinstance(t, Operand) for t in thing):
        return g.ints([plain(t) for t in thing])
    if isinstance(thing, (list, tuple)) and not thing:
        return g.constant(np.array([], np.int64))
    return g.constant(thing, dtype) if dtype is not None else g.value(thing)


def _convert_version(there: Any, schema: Any, values: list[Any], attributes: dict[str, Any]) -> tuple[list, dict]:
    """Convert a node's inputs and attributes to another version: inputs that are attributes there become attributes."""
    known = {one.name for one in there.inputs}
    many = bool(there.inputs) and there.inputs[-1].option == there.inputs[-1].option.Variadic
    kept, moved = [], dict(attributes)
    for i, value in enumerate(values):
        name = schema.inputs[min(i, len(schema.inputs) - 1)].name
        if name in known or many or i < there.min_input:
            kept.append(value)
        elif value is None:
            continue
        elif name in there.attributes and value.constant is not None:
            kind = there.attributes[name].type.name
            moved[name] = value.constant.tolist() if kind.endswith("S") else value.constant.item()
        else:
            raise NotImplementedError(f"{there.name} with {name} needs opset {schema.since_version} or later")
    for name, given in list(moved.items()):
        if name in there.attributes:
            continue
        if not _is_omissible(schema, name, given):
            raise NotImplementedError(f"{there.name} with {name}={given!r} needs another opset")
        del moved[name]
    return kept, moved


def _is_omissible(schema: Any, name: str, given: Any) -> bool:
    """Return whether an attribute can be left out for an older version: it has its default value, or repeats what is known."""
    if (schema.name, name) in (("Split", "num_outputs"), ("Reshape", "allowzero")):
        return True
    if (schema.name, name) == ("MaxPool", "dilations"):
        return set(given) == {1}
    default = schema.attributes[name].default_value if name in schema.attributes else None
    found = None if default is None else onnx_package().helper.get_attribute_value(default)
    return (found.decode() if isinstance(found, bytes) else found) == given


def _check_dtypes(there: Any, values: list[Any]) -> None:
    """Raise if the operator does not support the dtypes in this version."""
    for i, value in enumerate(values):
        if value is None or value.dtype is None or not there.inputs:
            continue
        declared = there.inputs[min(i, len(there.inputs) - 1)]
        if type_name(value.dtype) not in declared.types:
            raise NotImplementedError(f"{there.name} of {value.dtype} in this opset")


def _result_dtype(schema: Any, i: int, kinds: dict[str, DType], attributes: dict[str, Any]) -> DType | None:
    """Return the dtype of a result, or None if the schema does not determine it."""
    declared = schema.outputs[min(i, len(schema.outputs) - 1)]
    wanted = attributes.get("to", attributes.get("dtype"))
    if wanted is not None and declared.type_str not in kinds:
        return DTYPE[int(wanted)]
    if schema.name == "ConstantOfShape":
        return DTYPE[int(attributes["value"].dtype)] if "value" in attributes else flambeau.float32
    if schema.name.endswith("Like") and declared.type_str not in kinds:  # random numbers as those of the input
        return kinds.get(schema.inputs[0].type_str)
    return kinds.get(declared.type_str) or dtype_named(declared.type_str)


def _outputs(schema: Any, args: tuple, attributes: dict[str, Any]) -> int:
    if schema.name == "BatchNormalization" and not attributes.get("training_mode"):
        return 1
    if schema.name == "Split":
        return attributes["num_outputs"] if "num_outputs" in attributes else len(args[1])
    return len(schema.outputs)


def _attributes(there: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Convert attributes to the types in the schema: torchlib writes 1 for 1.0, True for 1, and tensors of onnx_ir."""
    return {key: _AS_DECLARED.get(there.attributes[key].type.name, _unchanged)(thing) for key, thing in given.items()}


def _unchanged(thing: Any) -> Any:
    return thing


_AS_DECLARED: dict[str, Callable[[Any], Any]] = {
    "INT": int, "FLOAT": float, "INTS": lambda t: [int(n) for n in t], "FLOATS": lambda t: [float(n) for n in t],
    "TENSOR": lambda t: t.numpy(),
}  # fmt: skip


# -- what needs no node, or another one -------------------------------------------------------------------------------------------


def _constant(**named: Any) -> Any:
    (key, given), g = next(iter(named.items())), _builder.get()
    given = getattr(given, "value", given) if key != "value" else given.numpy()
    kind = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}.get(
        key
    )
    if isinstance(given, (list, tuple)) and any(isinstance(n, Operand) for n in given):
        return operand(g.ints([plain(n) for n in given]))
    return operand(g._constant(np.asarray(given, kind)))


def _shape(x: Any, start: int = 0, end: int | None = None) -> Any:
    g, value = _builder.get(), x.known_value()
    whole = value.shape
    if whole is not None and all(isinstance(n, int) for n in whole[start:end]):
        return operand(g.constant(np.array(whole[start:end], np.int64)))
    made = g.op("Shape", value).known(flambeau.int64, None if whole is None else (len(whole),))
    if start or end is not None:
        made = g.slice(made, [0], [start], [2**63 - 1 if end is None else end])
    return operand(made)


def _size(x: Any) -> Any:
    return operand(_builder.get().value(_builder.get().numel(x.known_value())))


def _cast(x: Any, to: int, saturate: int = 1) -> Any:
    g = _builder.get()
    return operand(g.cast(g.value(plain(x)), DTYPE[int(to)]))


def _cast_like(x: Any, like: Any) -> Any:
    g, dtype = _builder.get(), like.value.dtype
    if dtype is None:
        return _write("CastLike", x, like)
    return operand(g.cast(plain(x), dtype) if isinstance(x, Operand) else g.constant(x, dtype))


def _identity(x: Any) -> Any:
    return x


def _of_floats(kind: str, x: Any, **named: Any) -> Any:
    """Write IsNaN or IsInf, which do not accept integers, on a floating-point input."""
    value = x.value
    dtype = value.dtype if value.dtype.is_floating_point and kind == "IsNaN" else flambeau.float32
    return _write(kind, operand(_builder.get().cast(value, dtype)), **named)


def _not(kind: str, a: Any, b: Any) -> Any:
    """Write GreaterOrEqual or LessOrEqual; before version 12, which introduced them, as a negated comparison."""
    if _builder.get().opset >= 12:
        return _write(kind, a, b)
    return _write("Not", _write({"GreaterOrEqual": "Less", "LessOrEqual": "Greater"}[kind], a, b))


def _bitwise_not(x: Any) -> Any:
    """Write BitwiseNot; before version 18, which introduced it, as -x - 1."""
    return _write("BitwiseNot", x) if _builder.get().opset >= 18 else _write("Sub", _write("Neg", x), 1)


def _extreme(kind: str, *values: Any) -> Any:
    """Write Max or Min; for integers before version 12, by comparisons."""
    first = next(v for v in values if isinstance(v, Operand))
    if _builder.get().opset >= 12 or first.value.dtype is None or first.value.dtype.is_floating_point:
        return _write(kind, *values)
    found, *rest = values
    for other in rest:
        found = _write("Where", _write("Greater" if kind == "Max" else "Less", found, other), found, other)
    return found


def _clip(x: Any, low: Any = None, high: Any = None) -> Any:
    if _builder.get().opset >= 12 or x.value.dtype.is_floating_point:
        return _write("Clip", x, low, high)
    for kind, bound in (("Max", low), ("Min", high)):
        x = x if bound is None else _extreme(kind, x, bound)
    return x


def _pow(x: Any, exponent: Any) -> Any:
    """Write Pow; before version 12 its operands must have one dtype."""
    number = exponent if isinstance(exponent, Operand) or _builder.get().opset >= 12 else _cast_like(exponent, x)
    return _write("Pow", x, number)


def _concat_from_sequence(parts: Any, axis: int, new_axis: int = 0) -> Any:
    g = _builder.get()
    values = [g.unsqueeze(plain(p), [axis]) for p in parts] if new_axis else [plain(p) for p in parts]
    return operand(g.op("Concat", *values, axis_i=axis).known(values[0].dtype, None))


def _write_rearrangement(kind: str, x: Any, *sizes: Any, **named: Any) -> Any:
    """Write Reshape, Unsqueeze, Squeeze or Expand with constant sizes by the builder, so that shapes stay known."""
    g, value = _builder.get(), _builder.get().value(plain(x))
    given = sizes[0] if sizes else named.pop("axes", named.pop("shape", None))
    numbers = _numbers(given)
    if isinstance(value, Value) and (numbers is not None or given is None) and value.constant is None:
        if kind == "Reshape":
            return operand(g.reshape(value, numbers, bool(named.get("allowzero", 0)) and 0 in (numbers or ())))
        if kind == "Expand":
            return operand(g.expand(value, numbers) if _fits(value, numbers) else _write(kind, operand(value), given))
        if kind == "Squeeze":
            return operand(g.squeeze(value, numbers))
        return operand(g.unsqueeze(value, numbers or []))
    return _write(kind, operand(value), *sizes, **named, **({} if sizes else {"axes": given}))


def _fits(value: Value, sizes: Any) -> bool:
    """Return whether an Expand to these sizes yields exactly them: a 1 would keep the size of the input."""
    return 1 not in sizes and -1 not in sizes


def _numbers(given: Any) -> list[int] | None:
    """Return a list of numbers if all are known, else None."""
    if isinstance(given, Operand):
        return None if given.value.constant is None else [int(n) for n in given.value.constant.reshape(-1)]
    if isinstance(given, int):
        return [given]
    if isinstance(given, (list, tuple)) and all(isinstance(n, int) for n in given):
        return list(given)
    return None


_SPECIAL_WRITERS: dict[str, Callable[..., Any]] = {
    "Constant": _constant, "Shape": _shape, "Size": _size, "Cast": _cast, "CastLike": _cast_like, "Identity": _identity,
    "ConcatFromSequence": _concat_from_sequence, "BitwiseNot": _bitwise_not,
    **{kind: functools.partial(_of_floats, kind) for kind in ("IsNaN", "IsInf")},
    "Clip": _clip, "Pow": _pow, **{kind: functools.partial(_extreme, kind) for kind in ("Max", "Min")},
    **{kind: functools.partial(_not, kind) for kind in ("GreaterOrEqual", "LessOrEqual")},
    **{kind: functools.partial(_write_rearrangement, kind) for kind in ("Reshape", "Unsqueeze", "Squeeze", "Expand")},
}  # fmt: skip
REWRITTEN = frozenset(_SPECIAL_WRITERS)  # operators that need no version of their own
