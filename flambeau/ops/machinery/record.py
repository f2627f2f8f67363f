"""Operator records (`Op`), and the table of records by name.

A record is made by the decorators of `declare`, next to the operator's definition. All code that needs properties of operators (autocast,
vmap, tracing, export, profiling, compilation) reads them from the record; there are no lists of operator names elsewhere."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...core import modes, naming
from ...core.aliases import AnyFunction
from ...core.tensor import Tensor
from .aten_form import AtenForm
from .inferred_schema import described
from .matching import bound
from .parameters import NO_DEFAULT
from .quirks import NO_QUIRKS, Quirks
from .schema import Schema

# NumPy's names for the same arguments, which PyTorch takes too.
NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other"}

_PREFIXES = {"linalg": "linalg_", "fft": "fft_", "special": "special_"}

# Layout of an operator's new results: (shape, dtype, device), followed by strides if not contiguous; a list of those if there are
# several, or further results that only the derivative reads.
NewTensor: TypeAlias = "tuple[Any, ...] | list[tuple[Any, ...]]"
NewTensors: TypeAlias = NewTensor


@dataclass(frozen=True)
class Batched:
    """Rule by which `vmap` calls an operator for a whole batch, where a rule's name (see `Op`) is not sufficient: the arguments `dims` that
    count dimensions (of the result, with `extra` more), whether tensors that are equal for all elements must be repeated, and which argument
    is the `shape` of a batch."""

    form: str
    dims: tuple[str, ...] = ("dim",)
    extra: int = 0
    repeat: bool = True
    shape: str | None = None


@dataclass(eq=False)
class Op:
    """Record of one operator: its function, kernels, rules and other forms.

    `function` is the function that users call; `method`, `inplace` and `has_out` say which other forms exist. `kind` is "pointwise",
    "reduction", "view", "primitive" (a kernel of its own), "composite" (calls other operators, touches no memory itself), "random" or
    "creation".

    `layout(*args)` returns the layout of the results without touching memory: (shape, dtype, device) or (shape, dtype, device, strides), or a
    list of those. `kernels` compute them, by type of device; "any" stands for every device that compiles kernels.
    Graph passes read the following, up to `beside`; the functions among them return None for calls that they do not apply to.
    `formula(**arguments)`, of a primitive that only evaluates a formula (a copy, a fill), returns the pointwise operator and the operands with
    which each element of the result is computed.
    `reduces(**arguments)`, of a primitive that only reduces its argument `input`, returns the reduction and the dimensions.
    `places(**arguments)`, of a primitive that writes tensors into parts of zeros, returns pairs of such a tensor and the view function that
    selects its part.
    `loads` names arguments that kernels read element by element and compute with in full precision: an argument that was converted to a wider
    float only for this operator may be read unconverted. `stores` are the positions of results that kernels round when they store them: a
    result that is only converted afterwards may be stored in that dtype directly.
    `remade` = (argument, other, operator), of an operator that reads a result which another operator saved for it: while that operator's
    argument `other` is unchanged, `operator` computes the same from it in place of `argument`. `lean`, of the operator that saves it, is the
    same operator without that last result.
    `over` names an argument in whose memory kernels may store the only result: each of its elements is read before that one is stored.
    `updates` is set for an optimizer's update of lists of tensors, which changes all lists but the second, the gradients, which may be of any
    float dtype; a further list may hold a float32 factor for each gradient.
    `strided` are the positions of results that kernels store with any strides whose last is 1: a result that is only copied may be stored at
    its destination directly.
    `pieces(*arguments)`, of a primitive that only copies tensors into parts of its result, returns for each part the index of the tensor among
    the arguments, and shape, strides and offset of the part.
    `affine(**arguments)`, of a primitive that in some calls only multiplies each element by a factor of its channel (dimension 1) and adds an
    addend, returns the operands of both (tensors with an element per channel, and numbers), the formulas of factor and addend over them, and
    the other results to write.
    `rows(**arguments)`, of a primitive that computes each row from rows, returns its formulas (`rows.Rows`).
    `convolution(**arguments)`, of a primitive that is a convolution or gradients of one, returns its tensors by role ("x", "w", "bias", and
    the gradient "dy"), the roles of its results ("y"; "dx", "dw", "db"), and the window. Kernels take each feature map in either memory
    format, channels first or last.
    `channels_last(**arguments)`, of another primitive whose kernels also take feature maps channels last, returns the milliseconds saved per
    million bytes, negative if it is slower.
    `table_rows(**arguments)`, of a primitive that returns rows of a table, returns the table and the indices of the rows;
    `row_sums(**arguments)`, of one that adds rows to those of a table of zeros, returns the rows and the indices of those that they are added
    to.
    `states(**arguments)`, of a primitive that takes the rows of a batch through time independently, returns those operands of its kernels for
    one time step that hold a row per batch element, and their widths in multiples of the hidden size: all others hold the rows of all time
    steps, step by step.
    `summed` = (argument, operator, reduction), of a primitive whose last result is that reduction of an argument over its first dimension,
    where `operator` computes the other results: the kernel that computes the argument can then also sum it.
    `beside` is set if only an optimizer needs the results, as for gradients of parameters; or it is a function of a call's arguments, which
    returns whether that is likely.
    `writes` names the arguments that are changed, `unfilled` is set if the memory of the results is uninitialized, `draws` if random numbers
    are drawn, `reads_values` if the host must read a value to know the result's shape or type; `tells` names the result where it is a Python
    value made of the elements ("number", "list"); `describes` is set if the result is no tensor and depends only on metadata of the arguments
    (shapes, dtypes). `data` names the argument whose Python data become the elements of the result. `sends` is "whole" if it exchanges
    messages with other processes, "start" if it only starts that, "end" if it waits for it: each such call is made in every run of a program,
    in order, even if its results are unused.

    `autocast` is the precision it computes in under autocast: "lower", "float32" or "widest" (of its arguments); "parts" if the operators it
    calls choose, "" if autocast does not apply to it or them; or a function of a call that returns one of these and the function to run;
    `autocast_cuda` replaces it on CUDA. `batching` is the rule of `vmap`: the name of a common one ("along" a dimension, "leading" dimensions,
    images "folded" into one batch, ..., "each" element by itself; see func.rules), or the rule. Only primitives and views need one. `sharding`
    says how arguments and results may be placed on a mesh of ranks, where that does not follow from the kind, the formula or the batching rule
    (see distributed.tensor._rules). `sparse` is the form for sparse tensors, `quantized` that for quantized ones, `forms` those for tensors
    that hold another one, by kind ("mkldnn", see ops.kinds), `names` the rule for named dimensions (see ops.names).

    `aten` is PyTorch's operator, with its arguments in its order, where these are not the operator's own name and arguments (see
    `aten_form`); `aten_calls(recorder, *args, **kwargs)` makes the calls of PyTorch's operators where several are needed, or which
    one depends on the arguments (declared with `as_aten`); `scripted` are the overloads that TorchScript compiles where PyTorch's function
    is no operator but Python (declared with `in_script`). `aten_backward` is PyTorch's operator for the derivative (see
    `library.aten.derivatives`)."""

    name: str
    kind: str
    function: AnyFunction
    namespaces: tuple[str, ...] = ("torch",)
    method: AnyFunction | None = None
    inplace: AnyFunction | None = None
    has_out: bool = False
    differentiable: bool = True
    impl: Any = None  # the Pointwise, Reduction, ViewOp, Primitive or (of a user's operator) derivative behind it
    aliases: tuple[str, ...] = ()
    doc: str = ""
    key: str = ""  # its key in the registry; unique among registered operators
    overload: str = ""
    source: AnyFunction | None = None  # the function that was declared: names, order and defaults of its arguments
    layout: AnyFunction | None = None
    formula: AnyFunction | None = None
    reduces: AnyFunction | None = None
    places: AnyFunction | None = None
    loads: tuple[str, ...] = ()
    stores: tuple[int, ...] = ()
    remade: tuple[str, str, AnyFunction] | None = None
    lean: AnyFunction | None = None
    over: str = ""
    updates: bool = False
    strided: tuple[int, ...] = ()
    pieces: AnyFunction | None = None
    affine: AnyFunction | None = None
    rows: AnyFunction | None = None
    convolution: AnyFunction | None = None
    channels_last: AnyFunction | None = None
    table_rows: AnyFunction | None = None
    row_sums: AnyFunction | None = None
    states: AnyFunction | None = None
    summed: tuple[str, Any, Any] | None = None
    beside: bool | Callable[..., bool] = False
    kernels: dict[str, AnyFunction] = field(default_factory=dict)
    chosen: dict[str, AnyFunction] = field(default_factory=dict)  # the kernels chosen by `door`, by type of device
    writes: tuple[str, ...] = ()
    unfilled: bool = False
    draws: bool = False
    reads_values: bool = False
    tells: str = ""
    describes: bool = False
    data: str = ""
    sends: str = ""
    autocast: str | AnyFunction | None = None
    autocast_cuda: str | AnyFunction | None = None
    batching: str | Batched | AnyFunction | None = None
    sharding: str | AnyFunction | None = None
    sparse: AnyFunction | None = None
    quantized: AnyFunction | None = None
    forms: dict[str, AnyFunction] = field(default_factory=dict)
    names: AnyFunction | None = None
    flops: AnyFunction | None = None
    onnx: Any = None
    quirks: Quirks = NO_QUIRKS
    aten: str | tuple[str, ...] = ""
    aten_calls: AnyFunction | None = None
    scripted: tuple[AnyFunction, ...] = ()
    aten_backward: str | tuple[str, ...] = ""
    tags: tuple[Any, ...] = ()
    plain: Op | None = None  # of an in-place form: the operator that returns the same result in a new tensor
    is_bound: bool = False  # whether tensors have its methods, if it has any (see `binding`)

    @classmethod
    def of_schema(cls, schema: Schema, kind: str, **fields: Any) -> Op:
        """Return the record of an operator that was declared in PyTorch's notation; `namespace::name` is its name and its key."""
        writes = tuple(a.name for a in schema.arguments if a.is_write)
        spaces = (schema.name.split("::")[0],)
        op = cls(schema.name, kind, functools.partial(bound, schema), spaces, key=schema.name, writes=writes, **fields)
        vars(op).update(schema=schema, arguments=schema.parameters)  # others find them out when they are first asked
        return op

    def __repr__(self) -> str:
        return f"<operator {self.key or self.name}: {self.kind}>"

    @property
    def unwatched(self) -> AnyFunction:
        """Return the function without its test of the modes, for a mode that has seen the call already."""
        return modes.unwatched(self.function)

    @property
    def inplace_function(self) -> bool:
        """Return whether the in-place form is a public function too: `torch.relu_` is, `Tensor.add_` is a method only."""
        if self.inplace is None or "torch" not in self.namespaces:
            return False
        chosen = self.quirks.inplace_function
        return getattr(self.impl, "arity", 0) == 1 if chosen is None else chosen

    @property
    def in_place(self) -> bool:
        """Return whether the operator changes its first argument and returns it; PyTorch's names of such operators end with one underscore."""
        return self.name.endswith("_") and not self.name.endswith("__")

    @property
    def has_parts(self) -> bool:
        """Return whether a call of the operator consists of calls of others, which pass the door themselves."""
        return self.kind == "composite" or (self.kind == "random" and not self.draws)

    # -- kernels ----------------------------------------------------------------------------------------------------
    def on(self, device_type: str) -> Callable[[AnyFunction], AnyFunction]:
        """Decorator: declare the kernel for one type of device, or for "any" that compiles kernels: `kernel(out, *args)`, where `out` is the
        new tensor (a list, if there are several) to be filled."""

        def declare(kernel: AnyFunction) -> AnyFunction:
            if device_type in self.kernels:
                raise ValueError(f"operator '{self.name}' has two kernels for {device_type}")
            self.kernels[device_type] = kernel
            self.chosen.clear()
            return kernel

        return declare

    # -- PyTorch's name -----------------------------------------------------------------------------------------------
    @functools.cached_property
    def aten_forms(self) -> tuple[AtenForm, ...]:
        """Return the forms in `aten`, parsed."""
        return tuple(map(AtenForm, (self.aten,) if isinstance(self.aten, str) else self.aten)) if self.aten else ()

    @property
    def aten_name(self) -> str:
        """Return the name of PyTorch's operator, such as "linalg_norm"; the own name of a part that PyTorch does not have."""
        if self.aten:
            return self.aten_forms[0].name
        prefix = _PREFIXES.get(self.namespaces[0], "") if self.namespaces else ""
        return prefix + self.name

    def as_aten(self, calls: AnyFunction) -> AnyFunction:
        """Decorator: declare the calls of PyTorch's operators that replace a call: `calls(recorder, *args, **kwargs)`."""
        self.aten_calls = calls
        return calls

    def in_script(self, calls: AnyFunction) -> AnyFunction:
        """Decorator: declare an overload that TorchScript compiles for a call, written like those of `as_aten`; the types of its arguments
        choose it."""
        self.scripted += (calls,)
        return calls

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """Return the defaults of the arguments."""
        return {name: p.default for name, p in self.arguments.items() if p.default is not NO_DEFAULT}

    # -- arguments --------------------------------------------------------------------------------------------------
    @functools.cached_property
    def arguments(self) -> dict[str, inspect.Parameter]:
        """Return the arguments by name, in order."""
        if self.source is None:
            return {}
        found = inspect.signature(self.source, follow_wrapped=False).parameters
        if self.kind == "pointwise":
            return {n: _optional(p) for n, p in found.items() if n != "compute"}
        if self.kind == "reduction":
            return dict(inspect.signature(_reduction_signature).parameters)
        return dict(found)

    @functools.cached_property
    def _bindable(self) -> inspect.Signature:
        return inspect.Signature(list(self.arguments.values()))

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return a call in canonical form: every argument by name, in order, defaults filled in, synonyms (`axis` for `dim`) resolved. `out`
        is included only if it was given."""
        known = self.arguments
        named = {NUMPY_NAMES[k] if k not in known and k in NUMPY_NAMES else k: v for k, v in kwargs.items()}
        out = named.pop("out", None) if "out" not in known else None
        bound = self._bindable.bind(*args, **named)
        bound.apply_defaults()
        return {**bound.arguments, "out": out} if out is not None else dict(bound.arguments)

    @functools.cached_property
    def schema(self) -> Schema:
        """Return the operator in PyTorch's notation: `aten::add(Tensor input, Tensor other, *, Scalar alpha=1) -> Tensor`."""
        returns = getattr(self.source, "__annotations__", {}).get("return", "Tensor")
        space = "aten" if self.namespaces or self.method is not None else "flambeau"
        name = f"{space}::{self.name}" + (f".{self.overload}" if self.overload else "")
        operands = getattr(self.impl, "operand_names", ())
        return described(name, self.arguments.values(), returns, self.writes, operands)


def _optional(p: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter with the internal default of an optional operand replaced by None."""
    stands_for_none = p.default is not NO_DEFAULT and type(p.default).__name__ == "OPTIONAL"
    return p.replace(default=None) if stands_for_none else p


def _reduction_signature(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> None:
    """Stand for the signature that every reduction has."""


OPS: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Add a record to `OPS`, under a free key if it has none yet."""
    key = op.key or _free_key(op)
    if key in OPS:
        raise ValueError(f"operator '{key}' is declared twice")
    if op.autocast is None:
        op.autocast = "parts" if op.kind in ("composite", "pointwise", "reduction", "view") else ""
    op.key = key
    form: Any = op.inplace
    for twin in (form and form.op, OPS.get(f"{key}_")):
        if twin is not None:
            twin.plain = op
    if op.in_place:
        op.plain = OPS.get(key[:-1])
    OPS[key] = op
    return op


def _free_key(op: Op) -> str:
    space = op.namespaces[0] if op.namespaces else "Tensor" if op.method is not None else "internal"
    key = op.name if space in ("torch", "Tensor") else f"{space}.{op.name}"
    if key in OPS and space == "Tensor":  # a method whose arguments differ from the function's
        key = f"Tensor.{op.name}"
    return f"{key}.{op.overload}" if op.overload else key


def lookup(name: str) -> Op:
    try:
        return OPS[name] if name in OPS else naming.above("ops.late").OPS[name]
    except KeyError:
        raise KeyError(f"there is no operator called '{name}'") from None
