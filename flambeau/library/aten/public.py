"""Calls of public functions as calls of PyTorch's operators.

Most have the operator's name and arguments. Functions that PyTorch writes in Python, and parts that are called differently here, are
below: each entry makes the calls that PyTorch makes. A function that is none of these runs, and the calls it is made of are seen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import flambeau

from ...core.device import default_device
from ...core.tensor import Tensor
from ...ops.index.indexing import Written
from ...ops.machinery.schema_table import overloads_of
from . import formulas
from .choice import choose
from .overloads import aten

_ENTRIES: dict[str, Callable] = {}
_PREFIXES = {"linalg": "linalg_", "fft": "fft_", "special": "special_"}
# Questions about values, which a graph cannot answer.
_READS = {"item", "tolist", "numpy", "equal", "allclose", "is_nonzero", "__bool__"}
# What is no operator: shapes and other knowledge about tensors.
_KNOWLEDGE = {
    "is_floating_point", "is_complex", "numel", "is_tensor", "result_type", "can_cast", "size", "dim", "stride",
}  # fmt: skip


class DataDependent(RuntimeError):
    """The program needs the value of a tensor."""


def entry(*keys: str) -> Callable[[Callable], Callable]:
    """The decorated function makes the calls for these operators."""

    def note(function: Callable) -> Callable:
        for key in keys:
            _ENTRIES[key] = function
        return function

    return note


def translated(recorder: Any, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
    """Make a call's part in the graph; its result."""
    key = getattr(op, "key", "") or getattr(op, "name", "")
    written = getattr(function, "__name__", "")
    for name in (written, key) if written.startswith("__") else (key,):
        if name in _ENTRIES:
            return _ENTRIES[name](recorder, *args, **kwargs)
    if key in _READS and recorder.reads_values:
        return recorder.unseen(function, *args)
    if key in _READS:
        known = getattr(recorder, "known", {})
        if isinstance(args[0], Tensor) and not any(
            id(a) in known for a in args
        ):  # no tensor of the program: a constant
            return recorder.unseen(lambda: function(*args, **kwargs))
        raise DataDependent(
            f"Could not extract specialized integer from data-dependent expression: the program asks for the value of a tensor"
            f" ({key}), which is not known in a graph"
        )
    if key in _KNOWLEDGE:
        return recorder.unseen(function, *args) if not kwargs else function(*args, **kwargs)
    name = _aten_name(key)
    if kwargs.get("requires_grad") is False:
        kwargs = {k: v for k, v in kwargs.items() if k != "requires_grad"}
    if overloads_of(name) and kwargs.get("out") is None:
        if not recorder.keeps(op, name):
            with contextlib.suppress(NotImplementedError):  # what has no parts that PyTorch knows stays whole
                return _in_parts(recorder, op, function, args, kwargs)
        found = choose(name, args, kwargs, loose=True)
        if found is not None:
            schema, values = found
            if getattr(op, "kind", "") == "pointwise":  # the elements of a loss, whose sum or mean is another call
                values = [0 if a.name == "reduction" else v for a, v in zip(schema.arguments, values)]
            overload = getattr(getattr(aten, name), schema.overload_name or "default")
            positional, named = schema.as_call(values)
            makes = not any(isinstance(value, Tensor) for value in positional)
            return overload(*positional, **_with_device(named, makes))
    if getattr(op, "kind", "") == "pointwise" and not getattr(op, "namespaces", ()):
        return formulas.recorded(recorder, op, function, args, kwargs)
    if "::" in key and hasattr(function, "as_node"):  # a user's operator stays one node, unless it is made of others
        return recorder.again(function, args, kwargs) if not function.as_node else recorder.node(function, args, kwargs)
    if getattr(op, "kind", "") != "composite":
        return recorder.unknown(op, function, args, kwargs)
    return recorder.again(function, args, kwargs)


def _in_parts(recorder: Any, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
    if op.kind == "pointwise":
        return formulas.recorded(recorder, op, function, args, kwargs)
    return recorder.again(function, args, kwargs)


def _aten_name(key: str) -> str:
    space, _, name = key.rpartition(".")
    return _PREFIXES.get(space, "") + name


def _with_device(named: dict[str, Any], makes: bool) -> dict[str, Any]:
    """Functions that make tensors say where."""
    if "pin_memory" not in named:
        return named
    named = {**named, "pin_memory": bool(named["pin_memory"])}
    if makes and named.get("device") is None:
        named["device"] = default_device()
    return named


# -- Python's operators and indexing --------------------------------------------------------------------------------------


@entry("__rsub__", "rsub")
def _rsub(recorder: Any, self: Tensor, other: Any, alpha: Any = 1) -> Any:
    return aten.rsub.Scalar(self, other) if not isinstance(other, Tensor) else aten.rsub.Tensor(self, other)


@entry("__rtruediv__", "internal.rdiv")
def _rtruediv(recorder: Any, self: Tensor, other: Any) -> Any:
    return aten.mul.Tensor(aten.reciprocal.default(self), other)


@entry("internal._spread")
def _spread(recorder: Any, part: Tensor, shape: Any, place: Callable) -> Any:
    """The derivative of a view: zeros, with the gradient written where the view points."""
    whole = aten.new_zeros.default(part, list(shape), pin_memory=False)
    aten.copy_.default(recorder.again(place, (whole,), {}), part)
    return whole


def _logical(name: str) -> Callable:
    def call(recorder: Any, self: Tensor, other: Any) -> Any:
        return getattr(getattr(aten, name), "Tensor" if isinstance(other, Tensor) else "Scalar")(self, other)

    return call


for _name in ("__and__", "__or__", "__xor__", "__lshift__", "__rshift__"):
    _ENTRIES[_name] = _logical(_name)


@entry("internal.permute_dims")
def _permute(recorder: Any, self: Tensor, dims: Any) -> Any:
    if list(dims) == list(range(self.dim() - 1, -1, -1)):
        return aten.numpy_T.default(self)
    return aten.permute.default(self, list(dims))


@entry("internal.slice_dim")
def _slice(recorder: Any, self: Tensor, dim: int, start: Any, end: Any, step: int = 1) -> Any:
    if type(end) is Written:
        bounds = (start.given, 9223372036854775807 if end.given is None else end.given)
        return aten.slice.Tensor(self, dim, *bounds, step)
    length = self.size(dim)
    start = None if start == 0 and end != length else start
    end = 9223372036854775807 if end == length else end
    return aten.slice.Tensor(self, dim, start, end, step)


@entry("internal.index")
def _index(recorder: Any, self: Tensor, indices: Any) -> Any:
    found = list(indices)
    while found and found[-1] is None:
        found.pop()
    return aten.index.Tensor(self, found)


@entry("internal.put_at_")
def _put_at(recorder: Any, self: Tensor, indices: Any, values: Tensor, accumulate: bool) -> Any:
    return aten.index_put_.default(self, list(indices), values, accumulate)


@entry("tensor")
def _tensor(recorder: Any, data: Any, **options: Any) -> Any:
    made = recorder.unseen(lambda: flambeau.tensor(data, **options))
    return aten.detach_.default(aten.lift_fresh_copy.default(made))


# -- dtypes ---------------------------------------------------------------------------------------------------------------


def _cast(dtype: Any) -> Callable:
    def cast(recorder: Any, self: Tensor, memory_format: Any = None) -> Any:
        return _to(recorder, self, dtype)

    return cast


for _name in [
    "float",
    "double",
    "half",
    "bfloat16",
    "int",
    "long",
    "short",
    "char",
    "byte",
    "bool",
    "cfloat",
    "cdouble",
]:
    _ENTRIES[_name] = _cast(getattr(flambeau, {"byte": "uint8", "char": "int8"}.get(_name, _name)))


@entry("to")
def _to(recorder: Any, self: Tensor, *args: Any, **kwargs: Any) -> Any:
    recorder.before_cast(self)
    if args and isinstance(args[0], (str, flambeau.device)) or "device" in kwargs:
        device = flambeau.device(args[0] if args else kwargs["device"])
        wanted = args[1] if len(args) > 1 else kwargs.get("dtype")
        if wanted is not None:
            return aten.to.device(self, device, wanted)
        return aten.to.dtype_layout(self, dtype=self.dtype, layout=self.layout, device=device)
    given = args or (kwargs["dtype"] if "dtype" in kwargs else kwargs["other"],)
    options = {k: v for k, v in kwargs.items() if k in ("non_blocking", "copy", "memory_format")}
    which = aten.to.other if isinstance(given[0], Tensor) else aten.to.dtype
    return which(self, *given, **options)


@entry("type_as")
def _type_as(recorder: Any, self: Tensor, other: Tensor) -> Any:
    return aten.type_as.default(self, other) if overloads_of("type_as") else _to(recorder, self, other.dtype)


# -- nn.functional --------------------------------------------------------------------------------------------------------


def _activation(name: str) -> Callable:
    """A function with `inplace` as its last parameter."""

    def call(recorder: Any, input: Tensor, *args: Any, inplace: bool = False, **kwargs: Any) -> Any:
        if args and isinstance(args[-1], bool):
            *args, inplace = args  # type: ignore[assignment]
        packet = getattr(aten, f"{name}_" if inplace else name)
        return packet.default(input, *args, **kwargs)

    return call


for _name in [
    "relu",
    "relu6",
    "elu",
    "selu",
    "celu",
    "leaky_relu",
    "hardtanh",
    "silu",
    "mish",
    "hardswish",
    "hardsigmoid",
    "threshold",
]:
    _ENTRIES[f"nn.functional.{_name}"] = _activation(_name)


@entry("nn.functional.softmax")
def _softmax(recorder: Any, input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    return aten.softmax.int(input, dim, dtype)


@entry("nn.functional.log_softmax")
def _log_softmax(recorder: Any, input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    return aten.log_softmax.int(input, dim, dtype)


@entry("nn.functional.softmin")
def _softmin(recorder: Any, input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    return aten.softmax.int(aten.neg.default(input), dim, dtype)


@entry("softmax")
def _plain_softmax(recorder: Any, input: Tensor, dim: Any, dtype: Any = None) -> Any:
    return aten.softmax.int(input, dim, dtype)


@entry("log_softmax")
def _plain_log_softmax(recorder: Any, input: Tensor, dim: Any, dtype: Any = None) -> Any:
    return aten.log_softmax.int(input, dim, dtype)


@entry("nn.functional.dropout")
def _dropout(recorder: Any, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    return (aten.dropout_ if inplace else aten.dropout).default(input, p, training)


@entry("nn.functional.alpha_dropout")
def _alpha_dropout(recorder: Any, input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    return (aten.alpha_dropout_ if inplace else aten.alpha_dropout).default(input, p, training)


@entry("nn.functional.dropout2d", "nn.functional.dropout3d")
def _feature_dropout(recorder: Any, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    return (aten.feature_dropout_ if inplace else aten.feature_dropout).default(input, p, training)


@entry("nn.functional.batch_norm")
def _batch_norm(
    recorder: Any,
    input: Tensor,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    return aten.batch_norm.default(input, weight, bias, running_mean, running_var, training, momentum, eps, False)


@entry("nn.functional.instance_norm")
def _instance_norm(
    recorder: Any,
    input: Tensor,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    given = (input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, False)
    return aten.instance_norm.default(*given)


@entry("nn.functional.layer_norm", "layer_norm")
def _layer_norm(
    recorder: Any,
    input: Tensor,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *more: Any,
) -> Any:
    return aten.layer_norm.default(input, list(normalized_shape), weight, bias, eps, False)


@entry("nn.functional.group_norm")
def _group_norm(
    recorder: Any, input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    return aten.group_norm.default(input, num_groups, weight, bias, eps, False)


@entry("nn.functional.embedding")
def _embedding(
    recorder: Any,
    input: Tensor,
    weight: Tensor,
    padding_idx: Any = None,
    max_norm: Any = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    if max_norm is not None:
        raise NotImplementedError("embedding with max_norm in a graph")
    padding = -1 if padding_idx is None else padding_idx % weight.size(0)
    return aten.embedding.default(weight, input, padding, scale_grad_by_freq, sparse)


def _max_pool(rank: int) -> Callable:
    def pool(
        recorder: Any,
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        name = f"max_pool{rank}d" + ("_with_indices" if return_indices else "")
        return getattr(aten, name).default(input, kernel_size, stride or [], padding, dilation, ceil_mode)

    return pool


def _avg_pool(rank: int) -> Callable:
    def pool(recorder: Any, input: Tensor, kernel_size: Any, stride: Any = None, *args: Any, **kwargs: Any) -> Any:
        return getattr(aten, f"avg_pool{rank}d").default(input, kernel_size, stride or [], *args, **kwargs)

    return pool


for _rank in (1, 2, 3):
    _ENTRIES[f"nn.functional.max_pool{_rank}d"] = _max_pool(_rank)
    _ENTRIES[f"nn.functional.avg_pool{_rank}d"] = _avg_pool(_rank)


def _adaptive(rank: int) -> Callable:
    def pool(recorder: Any, input: Tensor, output_size: Any) -> Any:
        given = [output_size] * rank if not isinstance(output_size, (list, tuple)) else list(output_size)
        sizes = [s if wanted is None else wanted for wanted, s in zip(given, input.shape[-rank:])]
        return getattr(aten, f"adaptive_avg_pool{rank}d").default(input, sizes)

    return pool


for _rank in (2, 3):
    _ENTRIES[f"nn.functional.adaptive_avg_pool{_rank}d"] = _adaptive(_rank)


def _adaptive_max(rank: int) -> Callable:
    def pool(recorder: Any, input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        given = [output_size] * rank if not isinstance(output_size, (list, tuple)) else list(output_size)
        sizes = [s if wanted is None else wanted for wanted, s in zip(given, input.shape[-rank:])]
        found = getattr(aten, f"adaptive_max_pool{rank}d").default(input, sizes)
        return tuple(found) if return_indices else found[0]

    return pool


for _rank in (1, 2, 3):
    _ENTRIES[f"nn.functional.adaptive_max_pool{_rank}d"] = _adaptive_max(_rank)


_RESIZES = {
    ("nearest", 3): "nearest1d", ("nearest", 4): "nearest2d", ("nearest", 5): "nearest3d", ("linear", 3): "linear1d",
    ("bilinear", 4): "bilinear2d", ("bicubic", 4): "bicubic2d", ("trilinear", 5): "trilinear3d",
}  # fmt: skip


@entry("nn.functional.pad")
def _pad(recorder: Any, input: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    return aten.pad.default(input, list(pad), mode, value)


_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def _loss(name: str, options: str) -> Callable:
    """A loss whose reduction is a number for the operator; `options`: what the function is given after input and target, in order."""
    order = options.split()

    def call(recorder: Any, input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Any:
        kwargs = {**dict(zip(order, args)), **kwargs}
        if kwargs.get("size_average") is not None or kwargs.get("reduce") is not None:
            raise NotImplementedError(f"{name} in a graph: say reduction= instead of size_average and reduce")
        kwargs = {k: v for k, v in kwargs.items() if k not in ("size_average", "reduce")}
        reduction = _REDUCTIONS[kwargs.pop("reduction", "mean")]
        given = {"reduction": reduction, **{k: v for k, v in kwargs.items() if v is not None}}
        return getattr(aten, name).default(input, target, **given)

    return call


def _broadcast_loss(name: str, options: str) -> Callable:
    """A loss whose tensors are broadcast first."""
    plain = _loss(name, options)

    def call(recorder: Any, input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Any:
        return plain(recorder, *aten.broadcast_tensors.default([input, target]), *args, **kwargs)

    return call


_OLD = "size_average reduce reduction"
_INDEXED = "weight size_average ignore_index reduce reduction"
_ENTRIES["nn.functional.mse_loss"] = _broadcast_loss("mse_loss", _OLD)
_ENTRIES["nn.functional.l1_loss"] = _broadcast_loss("l1_loss", _OLD)
_ENTRIES["nn.functional.smooth_l1_loss"] = _broadcast_loss("smooth_l1_loss", f"{_OLD} beta")
_ENTRIES["nn.functional.huber_loss"] = _broadcast_loss("huber_loss", "reduction delta")
_ENTRIES["nn.functional.cross_entropy"] = _loss("cross_entropy_loss", f"{_INDEXED} label_smoothing")
_ENTRIES["nn.functional.nll_loss"] = _loss("nll_loss_nd", _INDEXED)
_ENTRIES["nn.functional.binary_cross_entropy"] = _loss("binary_cross_entropy", f"weight {_OLD}")
_ENTRIES["nn.functional.binary_cross_entropy_with_logits"] = _loss(
    "binary_cross_entropy_with_logits", f"weight {_OLD} pos_weight"
)
_ENTRIES["nn.functional.soft_margin_loss"] = _loss("soft_margin_loss", _OLD)


@entry("nn.functional.normalize")
def _normalize(recorder: Any, input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None) -> Any:
    norm = aten.linalg_vector_norm.default(input, p, [dim] if isinstance(dim, int) else list(dim), True)
    return aten.div.Tensor(input, aten.expand_as.default(aten.clamp_min.default(norm, eps), input))


@entry("nn.functional.sigmoid")
def _sigmoid(recorder: Any, input: Tensor) -> Any:
    return aten.sigmoid.default(input)


@entry("nn.functional.tanh")
def _tanh(recorder: Any, input: Tensor) -> Any:
    return aten.tanh.default(input)


@entry("einsum")
def _einsum(recorder: Any, equation: str, *operands: Any) -> Any:
    return aten.einsum.default(
        equation, list(operands[0]) if isinstance(operands[0], (list, tuple)) else list(operands)
    )


@entry("meshgrid")
def _meshgrid(recorder: Any, *tensors: Any, indexing: Any = None) -> Any:
    given = list(tensors[0]) if isinstance(tensors[0], (list, tuple)) else list(tensors)
    return aten.meshgrid.indexing(given, indexing=indexing or "ij")


@entry("split")
def _split(recorder: Any, tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> Any:
    if isinstance(split_size_or_sections, (list, tuple)):
        return aten.split_with_sizes.default(tensor, list(split_size_or_sections), dim)
    return aten.split.Tensor(tensor, split_size_or_sections, dim)


@entry("where")
def _where(recorder: Any, condition: Tensor, input: Any = None, other: Any = None) -> Any:
    if input is None and other is None:
        places = aten.nonzero.default(condition)
        return tuple(aten.select.int(places, 1, d) for d in range(condition.dim()))
    kinds = (isinstance(input, Tensor), isinstance(other, Tensor))
    names = {(True, True): "self", (True, False): "ScalarOther", (False, True): "ScalarSelf", (False, False): "Scalar"}
    return getattr(aten.where, names[kinds])(condition, input, other)


@entry("Tensor.where")
def _where_method(recorder: Any, self: Tensor, condition: Tensor, other: Any) -> Any:
    return _where(recorder, condition, self, other)


@entry("norm")
def _norm(
    recorder: Any, input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    if p == "nuc":
        return aten.linalg_matrix_norm.str_ord(input, p, [-2, -1] if dim is None else list(dim), keepdim, dtype=dtype)
    power = 2.0 if p in ("fro", None) else p
    dims = None if dim is None else [dim] if isinstance(dim, int) else list(dim)
    return aten.linalg_vector_norm.default(input, power, dims, keepdim, dtype=dtype)


@entry("contiguous")
def _contiguous(recorder: Any, self: Tensor, memory_format: Any = flambeau.contiguous_format) -> Any:
    if self.is_contiguous(memory_format=memory_format):
        return self
    return aten.contiguous.default(self, memory_format=memory_format)


@entry("nn.functional.unfold")
def _unfold(
    recorder: Any, input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Any:
    return aten.im2col.default(input, *map(_pair, (kernel_size, dilation, padding, stride)))


def _pair(value: Any) -> list:
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    return given * 2 if len(given) == 1 else given


@entry("nn.functional.fold")
def _fold(
    recorder: Any,
    input: Tensor,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Any:
    return aten.col2im.default(input, output_size, kernel_size, dilation, padding, stride)


@entry("detach")
def _detach(recorder: Any, self: Tensor) -> Any:
    return aten.detach.default(self)
