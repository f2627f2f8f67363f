"""An ONNX graph under construction: values, nodes, and the builder that the operators' forms write to."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import flambeau

from ..core.dtype import dtype as DType  # noqa: N812  `dtype` is an attribute of every value here
from ..core.tensor import Tensor
from .dtypes import NUMBER, array_of, dtype_of_array

Size = Any  # an int, the name of a size that may change, or None where nothing is known
LARGEST = 2**63 - 1


class Value:
    """Value in an ONNX graph: the output of a node, an input, or a parameter."""

    def __init__(self, name: str = "", dtype: DType | None = None, shape: Sequence[Size] | None = None) -> None:
        self.name = name
        self.dtype: Any = dtype  # None where it is not known, as the shape
        self.shape: Any = None if shape is None else tuple(shape)
        self.constant: np.ndarray | None = None  # what it is, where that is known
        self.producer: OnnxNode | None = None
        self.items: list[Value] | None = None  # for a sequence that is only put together here
        self.label = ""  # what it would like to be called
        self.number = 0  # its place among all values, which names it where nothing else does

    @property
    def rank(self) -> Any:
        return None if self.shape is None else len(self.shape)

    def known(self, dtype: DType | None, shape: Sequence[Size] | None) -> Value:
        """Set the value's dtype and shape, and return the value."""
        self.dtype = dtype
        self.shape = None if shape is None else tuple(shape)
        return self

    # PyTorch's names, for symbolic functions of users.
    def type(self) -> ValueType:
        return ValueType(self.dtype, self.shape)

    def setType(self, kind: ValueType) -> None:  # noqa: N802
        self.known(kind._dtype, kind._shape)

    def node(self) -> OnnxNode | None:
        return self.producer

    def debugName(self) -> str:  # noqa: N802
        return self.name

    def isCompleteTensor(self) -> bool:  # noqa: N802
        return self.dtype is not None and self.shape is not None and all(isinstance(s, int) for s in self.shape)

    def __repr__(self) -> str:
        return f"%{self.name or '?'} : {self.dtype}{list(self.shape) if self.shape is not None else ''}"


class Absent(Value):
    """A result without an ONNX form, of an operator whose other results have one; it is an error only if the model reads it."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why


class ValueType:
    """Type of a value, with the names of PyTorch's type objects."""

    def __init__(self, dtype: DType | None, shape: Sequence[Size] | None) -> None:
        self._dtype, self._shape = dtype, shape

    def scalarType(self) -> str | None:  # noqa: N802
        return None if self._dtype is None else self._dtype.scalar_type

    def dtype(self) -> DType | None:
        return self._dtype

    def sizes(self) -> list[int | None] | None:
        return None if self._shape is None else [s if isinstance(s, int) else None for s in self._shape]

    varyingSizes = sizes  # noqa: N815

    def dim(self) -> int | None:
        return None if self._shape is None else len(self._shape)

    def kind(self) -> str:
        return "TensorType"

    def with_sizes(self, sizes: Sequence[Size]) -> ValueType:
        return ValueType(self._dtype, list(sizes))

    def with_dtype(self, dtype: DType) -> ValueType:
        return ValueType(dtype, self._shape)


class OnnxNode:
    """Call of an ONNX operator. Attributes are numbers, strings, arrays, lists of these, and graphs."""

    def __init__(
        self, domain: str, kind: str, inputs: list[Value | None], attributes: dict[str, Any], count: int
    ) -> None:
        self.domain, self.op_type, self.inputs, self.attributes = domain, kind, inputs, attributes
        self.outputs = [Value() for _ in range(count)]
        for value in self.outputs:
            value.producer = self
        self.name = self.scope = ""
        self.ghosts = 0  # values that PyTorch numbers before it and then computes away

    def kind(self) -> str:
        return f"{self.domain or 'onnx'}::{self.op_type}"


class OnnxGraph:
    """Nodes in order, with the graph's inputs, outputs and parameters."""

    def __init__(self, name: str = "main_graph") -> None:
        self.name = name
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.nodes: list[OnnxNode] = []
        self.parameters: dict[str, tuple[Value, Any]] = {}  # name -> the value, its tensor
        self.counted: int | None = None  # how many values there were when they were numbered

    def fresh(self, reader: str) -> str:
        """Return a numbered name for a new parameter that a node reads (`onnx::Conv_17`), or "" if values are not numbered."""
        if self.counted is None:
            return ""
        self.counted += 1
        return f"onnx::{reader}_{self.counted - 1}"


class Builder:
    """Writer of ONNX nodes, as forms use it: `g.op("Conv", x, w, strides_i=[1, 1])`.

    An attribute's name ends in its kind: _i integers, _f floats, _s strings, _t tensors, _g graphs. Numbers, lists of numbers and tensors
    given as inputs become constants.
    """

    def __init__(self, opset: int, graph: OnnxGraph | None = None, parent: Builder | None = None) -> None:
        self.opset, self.parent = opset, parent
        self.graph = graph or OnnxGraph()
        self.domains: set[str] = set() if parent is None else parent.domains
        self.training: bool = False if parent is None else parent.training
        # Whether nodes stand as PyTorch's older exporter puts them.
        self.older: bool = False if parent is None else parent.older
        self.scope: str = "" if parent is None else parent.scope
        self._constants: dict[Any, Value] = {}

    # -- nodes --------------------------------------------------------------------------------------------------------------
    def op(self, kind: str, *inputs: Any, outputs: Any = 1, **attributes: Any) -> Any:
        """Add a node, and return its output or a tuple of outputs."""
        domain, _, name = kind.rpartition("::")
        node = OnnxNode(
            "" if domain in ("onnx", "aten") and domain == "onnx" else domain,
            name,
            [self.value(i) for i in inputs],
            {
                key[:-2] if key[-2:] in _KINDS else key: _attribute(key, v)
                for key, v in attributes.items()
                if v is not None
            },
            outputs,
        )
        while node.inputs and node.inputs[-1] is None:
            node.inputs.pop()
        if node.domain:
            self.domains.add(node.domain)
        node.scope = self.scope
        self.graph.nodes.append(node)
        if outputs == 1:
            return node.outputs[0]
        return tuple(node.outputs)

    def value(self, given: Any) -> Any:
        """Convert a Python number or a tensor to a constant; return values unchanged."""
        if isinstance(given, Absent):
            raise NotImplementedError(given.why)
        if given is None or isinstance(given, Value):
            return given
        if isinstance(given, Tensor):
            return self._constant(array_of(given))
        if isinstance(given, (list, tuple)) and any(isinstance(g, Value) for g in given):
            return self.ints(given)
        return self.constant(np.asarray(given))

    def constant(self, array: Any, dtype: DType | None = None) -> Value:
        """Return a constant; Python numbers become int64 or float32 unless a dtype is given."""
        if dtype is not None:
            array = array_of(flambeau.tensor(np.asarray(array).tolist(), dtype=dtype))
        array = np.asarray(array)
        if array.dtype == np.float64 and dtype is None:
            array = array.astype(np.float32)
        return self._constant(array)

    def _constant(self, array: np.ndarray) -> Value:
        """Return a constant of exactly the array's dtype; small equal ones share a node."""
        key = (array.dtype.str, array.shape, array.tobytes()) if array.nbytes <= 4096 else None
        known = self._find_constant(key)
        if known is not None:
            return known
        node = OnnxNode("", "Constant", [], {"value": array}, 1)
        node.scope = self.scope
        self.graph.nodes.append(node)
        made = node.outputs[0].known(dtype_of_array(array), array.shape)
        made.constant = array
        if key is not None:
            self._constants[key] = made
        return made

    def _find_constant(self, key: Any) -> Value | None:
        """Return an existing constant, also from the graphs around this one, which it can read; else None."""
        found = self._constants.get(key)
        return self.parent._find_constant(key) if found is None and self.parent is not None else found

    def ints(self, numbers: Any) -> Value:
        """Return a list of sizes, some of which may be values, as one int64 vector."""
        if isinstance(numbers, Value):
            return numbers if numbers.rank != 0 else self.unsqueeze(numbers, [0])
        if isinstance(numbers, int):
            numbers = [numbers]
        if all(isinstance(n, (int, np.integer)) for n in numbers):
            return self.constant(np.array(numbers, np.int64))
        parts: list[Value] = []
        run: list[int] = []
        for n in numbers:
            if isinstance(n, Value):
                if run:
                    parts.append(self.constant(np.array(run, np.int64)))
                    run = []
                n = self.cast(n, flambeau.int64) if n.dtype not in (None, flambeau.int64) else n
                parts.append(n if n.rank == 1 else self.reshape(n, [1]) if n.rank is None else self.unsqueeze(n, [0]))
            else:
                run.append(int(n))
        if run:
            parts.append(self.constant(np.array(run, np.int64)))
        made = parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis_i=0)
        return made.known(flambeau.int64, (len(numbers),))

    @contextlib.contextmanager
    def inside(self, scope: str) -> Iterator[None]:
        before, self.scope = self.scope, scope
        try:
            yield
        finally:
            self.scope = before

    # -- forms that depend on the version, or that constants shorten ---------------------------------------------------------
    def _axes(self, kind: str, x: Value, axes: Sequence[int] | None, since: int, **attributes: Any) -> Value:
        """Add a node whose axes are an attribute before opset `since`, and an input from then on."""
        if axes is None:
            return self.op(kind, x, **attributes)
        if self.opset < since:
            return self.op(kind, x, axes_i=list(axes), **attributes)
        return self.op(kind, x, self.constant(np.array(axes, np.int64)), **attributes)

    def unsqueeze(self, x: Any, axes: Sequence[int]) -> Value:
        x = self.value(x)
        made = None
        if x.constant is not None and x.constant.size <= 64:
            return self.constant(np.expand_dims(x.constant, tuple(axes)))
        if x.shape is not None:
            rank = len(x.shape) + len(axes)
            axes = sorted(a % rank for a in axes)
            shape = list(x.shape)
            for a in axes:
                shape.insert(a, 1)
            made = shape
        return self._axes("Unsqueeze", x, axes, 13).known(x.dtype, made)

    def squeeze(self, x: Value, axes: Sequence[int] | None = None) -> Value:
        shape = None
        if x.shape is not None and axes is not None:
            axes = [a % max(len(x.shape), 1) for a in axes]
            shape = [s for i, s in enumerate(x.shape) if i not in axes]
        return self._axes("Squeeze", x, axes, 13).known(x.dtype, shape)

    def reduce(self, kind: str, x: Value, axes: Sequence[int] | None, keepdim: bool) -> Value:
        """Add a reduction: ReduceSum, ReduceMean and similar."""
        since = 13 if kind == "ReduceSum" else 18
        made = self._axes(kind, x, None if axes is None else list(axes), since, keepdims_i=int(keepdim))
        shape: list[Size] | None = None
        if x.shape is not None:
            all_axes = range(len(x.shape)) if axes is None else [a % max(len(x.shape), 1) for a in axes]
            kept = [1 if i in all_axes else s for i, s in enumerate(x.shape)]
            shape = kept if keepdim else [s for i, s in enumerate(kept) if i not in all_axes]
        return made.known(x.dtype, shape)

    def reshape(self, x: Value, sizes: Any, allow_zero: bool = False) -> Value:
        shape = None if isinstance(sizes, Value) else self._sizes_after_reshape(x, list(sizes), allow_zero)
        if not isinstance(sizes, Value) and all(isinstance(s, int) and s >= 0 for s in sizes):
            if x.shape == tuple(sizes):
                return x
            if not isinstance(x.rank, int) or 0 in sizes[x.rank :] or 0 in (x.shape or ()):
                allow_zero, shape = 0 in sizes, list(sizes)
        flag = {"allowzero_i": int(allow_zero)} if self.opset >= 14 else {}
        return self.op("Reshape", x, self.ints(sizes), **flag).known(x.dtype, shape)

    def _sizes_after_reshape(self, x: Value, sizes: list[Any], allow_zero: bool) -> list[Size]:
        """Return the sizes after a reshape, as far as they are known: 0 keeps a size, -1 is inferred."""
        found: list[Any] = [s if isinstance(s, int) else None for s in sizes]
        if not allow_zero and x.shape is not None:
            found = [x.shape[i] if s == 0 and i < len(x.shape) else s for i, s in enumerate(found)]
        whole = x.shape is not None and all(isinstance(s, int) for s in x.shape)
        rest = [s for s in found if s != -1]
        if whole and all(isinstance(s, int) and s for s in rest):
            left = math.prod(x.shape) // math.prod(rest)
            return [left if s == -1 else s for s in found]
        return [None if s == -1 else s for s in found]

    def cast(self, x: Any, dtype: DType) -> Value:
        x = self.value(x)
        if x.dtype == dtype:
            return x
        if x.constant is not None:
            return (
                self.constant(x.constant.reshape(-1).tolist() if x.constant.ndim else x.constant.item(), dtype)
                if (x.constant.ndim <= 1)
                else self.recast(x, dtype)
            )
        return self.recast(x, dtype)

    def recast(self, x: Value, dtype: DType) -> Value:
        """Add a Cast, even if the value has the dtype already."""
        if dtype.is_complex:
            raise NotImplementedError("complex numbers")
        return self.op("Cast", x, to_i=NUMBER[dtype]).known(dtype, x.shape)

    def slice(self, x: Value, axes: Sequence[int], starts: Any, ends: Any, steps: Sequence[int] | None = None) -> Value:
        steps = list(steps or [1] * len(axes))
        static = all(isinstance(n, int) for n in (*starts, *ends))
        if static and x.constant is not None:
            index: list[Any] = [slice(None)] * x.constant.ndim
            for a, b, e, s in zip(axes, starts, ends, steps):
                index[a] = slice(b, e, s)
            return self.constant(x.constant[tuple(index)])
        if self.opset < 10:
            if not static or steps != [1] * len(axes):
                raise NotImplementedError("slices with steps or changing ends need opset 10 or later")
            made = self.op("Slice", x, axes_i=list(axes), starts_i=list(starts), ends_i=list(ends))
        else:
            tail = [] if steps == [1] * len(axes) else [self.ints(steps)]
            made = self.op("Slice", x, self.ints(starts), self.ints(ends), self.ints(list(axes)), *tail)
        shape = None
        if x.shape is not None:
            sizes = list(x.shape)
            for a, b, e, s in zip(axes, starts, ends, steps):
                size = sizes[a]
                fixed = isinstance(size, int) and isinstance(b, int) and isinstance(e, int)
                sizes[a] = len(range(*slice(b, e, s).indices(size))) if fixed else None
            shape = sizes
        return made.known(x.dtype, shape)

    def size(self, x: Value, dim: int) -> Any:
        """Return one size of a value: an int if it is constant, else a 0-d value."""
        if x.shape is not None:
            size = x.shape[dim]
            if isinstance(size, int):
                return size
        shape = self.op("Shape", x).known(flambeau.int64, None if x.shape is None else (len(x.shape),))
        if dim < 0 and x.shape is not None:
            dim += len(x.shape)
        return self.op("Gather", shape, self.constant(np.array(dim, np.int64)), axis_i=0).known(flambeau.int64, ())

    def sizes(self, x: Value) -> list[Any]:
        if x.shape is None:
            raise NotImplementedError("an operator needs to know how many dimensions a tensor has")
        return [self.size(x, d) for d in range(len(x.shape))]

    def shape_of(self, x: Value) -> Value:
        """Return all sizes as one vector."""
        if x.shape is not None and all(isinstance(s, int) for s in x.shape):
            return self.constant(np.array(x.shape, np.int64))
        return self.op("Shape", x).known(flambeau.int64, None if x.shape is None else (len(x.shape),))

    def numel(self, x: Value) -> Any:
        if x.shape is not None and all(isinstance(s, int) for s in x.shape):
            return int(np.prod(x.shape, dtype=np.int64))
        return self.op("Size", x).known(flambeau.int64, ())

    def expand(self, x: Value, sizes: Any) -> Value:
        shape = None if isinstance(sizes, Value) else [s if isinstance(s, int) else None for s in sizes]
        if shape is not None and x.shape is not None and tuple(shape) == x.shape and None not in shape:
            return x
        return self.op("Expand", x, self.ints(sizes)).known(x.dtype, shape)

    def number(self, value: Any, like: Value | DType | None) -> Value:
        """Return a Python number (or a value) in the dtype of another value."""
        dtype = like.dtype if isinstance(like, Value) else like
        if isinstance(value, Value):
            return value if dtype is None else self.cast(value, dtype)
        return self.constant(value, dtype)

    def arithmetic(self, kind: str, a: Any, b: Any) -> Any:
        """Return Add, Sub, Mul, Div or Mod of two sizes: an int if both are ints, else the output of a node."""
        if isinstance(a, int) and isinstance(b, int):
            return _INTEGERS[kind](a, b)
        if (kind, b) in (("Add", 0), ("Sub", 0), ("Mul", 1), ("Div", 1)):
            return a
        if (kind, a) in (("Add", 0), ("Mul", 1)):
            return b
        return self.op(kind, a, b).known(flambeau.int64, ())

    def range(self, start: Any, end: Any, step: Any, dtype: DType) -> Value:
        if all(isinstance(n, (int, float)) for n in (start, end, step)):
            return self.constant(array_of(flambeau.arange(start, end, step, dtype=dtype)))
        made = self.op("Range", self.number(start, dtype), self.number(end, dtype), self.number(step, dtype))
        return made.known(dtype, (None,))

    def inner(self, name: str) -> Builder:
        """Return a builder for a graph inside a node (a branch, the body of a loop)."""
        return Builder(self.opset, OnnxGraph(name), self)

    # PyTorch's names
    @property
    def block(self) -> OnnxGraph:
        return self.graph

    def at(self, operator: str, *args: Any, overload_name: str = "", **kwargs: Any) -> Any:
        return self.op(f"aten::{operator}", *args, **kwargs)


_INTEGERS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": operator.floordiv, "Mod": operator.mod,
    "Min": min, "Max": max,
}  # fmt: skip
_KINDS = ("_i", "_f", "_s", "_t", "_g")


def _attribute(key: str, value: Any) -> Any:
    kind = key[-2:]
    if kind == "_f":
        return [float(v) for v in value] if isinstance(value, (list, tuple)) else float(value)
    if kind == "_i":
        return [int(v) for v in value] if isinstance(value, (list, tuple)) else int(value)
    if kind == "_t" and isinstance(value, Tensor):
        return array_of(value)
    return value
