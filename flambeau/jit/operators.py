"""What runs for each operator of a graph: the table from schemas to Flambeau's functions, and the operators on numbers, strings,
lists and dictionaries.

A tensor operator is found by its name: `aten::linalg_norm` is `linalg.norm`, `aten::add_` is `Tensor.add_`, `aten::relu` is
`relu`. Its arguments are handed over as the schema says; those equal to their default are left out.
"""

from __future__ import annotations

import cmath
import functools
import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

import flambeau as torch

from ..core.dtype import dtype
from ..core.layout import layout, memory_format
from ..core.quantized import qscheme
from ..core.tensor import Tensor
from .schema import REQUIRED, Schema, schemas_of
from .types import LAYOUT, MEMORY_FORMAT, SCALAR_TYPE, TENSOR, ListType, OptionalType, Type

# PyTorch's numbers for dtypes, layouts and memory formats.
DTYPE_ORDER = [
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex32",
    "complex64",
    "complex128",
    "bool",
    "qint8",
    "quint8",
    "qint32",
    "bfloat16",
    "quint4x2",
    "quint2x4",
    "bits1x8",
    "bits2x4",
    "bits4x2",
    "bits8",
    "bits16",
    "float8_e5m2",
    "float8_e4m3fn",
    "float8_e5m2fnuz",
    "float8_e4m3fnuz",
    "uint16",
    "uint32",
    "uint64",
]
_LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "_mkldnn", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged")
_SCHEMES = (
    "per_tensor_affine", "per_channel_affine", "per_tensor_symmetric", "per_channel_symmetric", "per_channel_affine_float_qparams",
)  # fmt: skip
_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")


@functools.cache
def _numbers() -> dict[Any, int]:
    found: dict[Any, int] = {}
    for names in (DTYPE_ORDER, _LAYOUTS, _FORMATS, _SCHEMES):
        for number, name in enumerate(names):
            thing = torch.__dict__.get(name)
            if thing is not None and thing not in found:
                found[thing] = number
    return found


def number_of(thing: Any) -> int:
    """The number that TorchScript has for a dtype, a layout, a memory format or a way of quantizing."""
    return _numbers()[thing]


def dtype_of(number: Any) -> Any:
    return getattr(torch, DTYPE_ORDER[number]) if isinstance(number, int) and not isinstance(number, bool) else number


def layout_of(number: Any) -> Any:
    return getattr(torch, _LAYOUTS[number]) if isinstance(number, int) else number


def format_of(number: Any) -> Any:
    return getattr(torch, _FORMATS[number]) if isinstance(number, int) else number


def is_numbered(thing: Any) -> bool:
    return isinstance(thing, (dtype, layout, memory_format, qscheme))


_CONVERT: dict[Type, Callable] = {SCALAR_TYPE: dtype_of, LAYOUT: layout_of, MEMORY_FORMAT: format_of}


# -- finding functions ------------------------------------------------------------------------------------------------------


def _converter(kind: Type) -> Callable | None:
    return _CONVERT.get(kind.element if isinstance(kind, OptionalType) else kind)


def takes_tensor(schema: Schema) -> bool:
    def holds(kind: Type) -> bool:
        return kind is TENSOR or (isinstance(kind, (ListType, OptionalType)) and holds(kind.element))

    return any(holds(a.type) for a in schema.arguments)


_SPACES = (("linalg_", "linalg"), ("fft_", "fft"), ("special_", "special"), ("sparse_", "sparse"))


@functools.cache
def tensor_function(name: str) -> Callable | None:
    """The function or method with the name of an operator of aten."""
    if name.endswith("_") and not name.startswith("__"):
        return getattr(Tensor, name, None) or getattr(torch.nn.functional, name, None) or getattr(torch, name, None)
    for prefix, space in _SPACES:
        if name.startswith(prefix):
            found = getattr(getattr(torch, space), name[len(prefix) :], None)
            if found is not None:
                return found
    if name == "log_sigmoid":  # aten's name
        return torch.nn.functional.logsigmoid
    for home in (torch, Tensor, torch.nn.functional):
        found = getattr(home, name, None)
        if callable(found) and not isinstance(found, type):
            return found
    return None


def _calling(function: Callable, schema: Schema) -> Callable:
    """Call a function with the values of a schema's arguments in order."""
    arguments = schema.arguments
    positional = [a for a in arguments if not a.keyword_only]
    count = len(positional)
    converters = [_converter(a.type) for a in arguments]
    converting = [(i, c) for i, c in enumerate(converters) if c is not None]
    if count == len(arguments) and not converting and all(a.default is REQUIRED for a in arguments):
        return function
    defaults = [a.default for a in arguments]
    names = [a.name for a in arguments]

    def is_default(value: Any, default: Any) -> bool:
        return value is default or (type(value) is type(default) and not isinstance(value, Tensor) and value == default)

    def call(*values: Any) -> Any:
        given = list(values)
        keywords = {names[i]: given[i] for i in range(count, len(given)) if not is_default(given[i], defaults[i])}
        for i, convert in converting:
            if i < count:
                given[i] = convert(given[i])
            elif names[i] in keywords:
                keywords[names[i]] = convert(given[i])
        last = min(count, len(given))
        while last > 0 and is_default(given[last - 1], defaults[last - 1]):
            last -= 1
        return function(*given[:last], **keywords)

    return call


@functools.cache
def find(key: str) -> Callable | None:
    """What runs for an operator, from `aten::add.Tensor`."""
    name = key.partition(".")[0]
    schema = next((s for s in schemas_of(name) if s.key == key), None)
    return None if schema is None else implementation(schema)


def implementation(schema: Schema) -> Callable | None:
    if schema.overload and schema.key in TABLE:
        return TABLE[schema.key]
    space, _, name = schema.name.partition("::")
    plain = TABLE.get(schema.name)
    if plain is not None and (not takes_tensor(schema) or schema.name in _ALWAYS):
        return plain
    if space not in ("aten", "prim"):
        return _user_operator(space, name, schema)
    if name.startswith("__") and name.endswith("__") and not hasattr(Tensor, name):
        return None
    function = tensor_function(name)
    return None if function is None else _calling(function, schema)


def _user_operator(space: str, name: str, schema: Schema) -> Callable | None:
    """An operator that was registered with `torch.library`, or one of torchvision's."""
    if space == "torchvision":
        return _vision_operator(name)
    owner = getattr(torch.ops, space, None)
    function = getattr(owner, name, None)
    return None if function is None else _calling(function, schema)


def _vision_operator(name: str) -> Callable | None:
    """One of torchvision's: sizes are two numbers there, and a pair in the Python functions."""
    function = getattr(torch.vision.ops, name, None)
    if function is None:
        return None
    if name in ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool"):
        return lambda x, boxes, scale, height, width, *more: function(x, boxes, (height, width), scale, *more)
    return function


# -- numbers ----------------------------------------------------------------------------------------------------------------


def _integer_power(a: Any, b: Any) -> Any:
    return float(a) ** b if not isinstance(a, complex) and not isinstance(b, complex) else a**b


def _math(name: str) -> Callable:
    real, both = getattr(math, name, None), getattr(cmath, name, None)

    def run(a: Any, *more: Any) -> Any:
        if isinstance(a, complex) and both is not None:
            return both(a, *more)
        try:
            assert real is not None
            return real(a, *more)
        except OverflowError:
            return math.inf
        except ValueError:  # outside the function's domain, C's answer is a number too
            return -math.inf if name.startswith("log") and a == 0 else math.nan

    return run


def _logarithm(a: Any, b: Any = None) -> Any:
    return _math("log")(a) if b is None else _math("log")(a) / _math("log")(b)


def _true_divide(a: Any, b: Any) -> Any:
    return a / b


def _remainder(a: Any, b: Any) -> Any:
    if b == 0 and not isinstance(a, float) and not isinstance(b, float):
        raise RuntimeError("ZeroDivisionError: integer division or modulo by zero")
    return a % b


def _divided_twice(a: Any, b: Any) -> tuple:
    if b == 0:
        whole = not isinstance(a, float) and not isinstance(b, float)
        raise RuntimeError(f"ZeroDivisionError: {'integer division or modulo by zero' if whole else 'float divmod()'}")
    return divmod(a, b)


def _c_fmod(a: Any, b: Any) -> float:
    return math.fmod(a, b)


def _to_zero(a: int, b: int) -> int:
    return int(a / b) if b else 0


def _range_length(start: int, stop: int, step: int) -> int:
    if step == 0:
        raise RuntimeError("range() arg 3 must not be zero")
    return len(range(start, stop, step))


def _number(kind: type) -> Callable:
    return lambda a: kind(a)


def _to_int(a: Any) -> int:
    return int(a)


def _implicit(kind: type, word: str) -> Callable:
    def run(a: Tensor) -> Any:
        if a.requires_grad:
            raise RuntimeError("Cannot input a tensor that requires grad as a scalar argument")
        if a.dim() != 0:
            raise RuntimeError("Cannot input a tensor of dimension other than 0 as a scalar argument")
        if kind is int and a.is_floating_point():
            raise RuntimeError(f"Cannot input a tensor of type {word} as an integral argument")
        return a.item() if kind is object else kind(a.item())

    return run


# -- lists, strings, dictionaries -------------------------------------------------------------------------------------------


def _item(container: Any, index: Any) -> Any:
    if isinstance(container, (list, str)):
        if not -len(container) <= index < len(container):
            raise IndexError("string index out of range" if isinstance(container, str) else "list index out of range")
    elif index not in container:
        raise RuntimeError(f"KeyError: {index}")
    return container[index]


def _set_item(container: Any, index: Any, value: Any) -> Any:
    if isinstance(container, list) and not -len(container) <= index < len(container):
        raise IndexError("list index out of range")
    container[index] = value
    return container


def _delete(container: Any, index: Any) -> None:
    if isinstance(container, list) and not -len(container) <= index < len(container):
        raise IndexError("list index out of range")
    if isinstance(container, dict) and index not in container:
        raise RuntimeError(f"KeyError: {index}")
    del container[index]


def _slice(sequence: Any, start: Any = None, stop: Any = None, step: int = 1) -> Any:
    if step == 0:
        raise RuntimeError("slice should have non-zero step")
    if step == -(2**63):
        raise RuntimeError("slice step is out of bounds")
    return sequence[start:stop:step]


def _sort(items: list, reverse: bool = False) -> None:
    for item in items:
        _check_sortable(items[0], item)
    items.sort(key=sort_key, reverse=reverse)


def _check_sortable(first: Any, item: Any) -> None:
    if type(first) is not type(item):
        raise RuntimeError("Only values of same type can be compared")
    if isinstance(first, tuple):
        for pair in zip(first, item):
            _check_sortable(*pair)
    elif isinstance(first, (dict, list)):
        raise RuntimeError(f"values of type {type(first).__name__} are not sortable")
    elif hasattr(first, "slots"):
        order = first.script_type.find_method("__lt__")
        if order is None or str(order.schema.result_type()) != "bool" or len(order.schema.arguments) != 2:
            raise RuntimeError(f"To sort objects of {first.script_type}, the class must define a __lt__ that takes another one and returns a bool")  # fmt: skip


def sort_key(item: Any) -> Any:
    if isinstance(item, tuple):
        return tuple(map(sort_key, item))
    return _Ordered(item) if hasattr(item, "slots") else item


class _Ordered:
    """Orders objects of compiled classes by their own __lt__."""

    __slots__ = ("item",)

    def __init__(self, item: Any):
        self.item = item

    def __lt__(self, other: _Ordered) -> bool:
        return bool(self.item.call("__lt__", other.item))


def _extend(items: list, more: list) -> None:
    items.extend(more)


def _extended(items: list, more: list) -> list:
    items += more
    return items


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, list) and a and isinstance(a[0], Tensor):
        return len(a) == len(b) and all(bool(x.eq(y)) for x, y in zip(a, b))
    return a == b


def _is(a: Any, b: Any) -> bool:
    """Identity; of numbers, that they are equal."""
    return a is b or (type(a) is type(b) and isinstance(a, (int, float, complex, str)) and a == b)


def _contains(container: Any, item: Any) -> bool:
    return any(item is x or _equal(item, x) for x in container) if isinstance(container, list) else item in container


def _list_remove(items: list, item: Any) -> None:
    for place, other in enumerate(items):
        if bool(other.eq(item).all()) if isinstance(item, Tensor) and other.shape == item.shape else other is item or (not isinstance(item, Tensor) and other == item):  # fmt: skip
            del items[place]
            return
    raise ValueError("list.remove(x): x not in list")


def _pop(items: Any, *args: Any) -> Any:
    if isinstance(items, dict):
        if len(args) == 1 and args[0] not in items:
            raise RuntimeError(f"KeyError: {args[0]}")
        return items.pop(*args)
    if not items:
        raise IndexError("pop from empty list")
    return items.pop(*args)


def _find(text: str, part: str, start: int = 0, end: int = -1) -> int:
    return text.find(part, start, len(text) if end == -1 else end)


def _rfind(text: str, part: str, start: int = 0, end: int = -1) -> int:
    return text.rfind(part, start, len(text) if end == -1 else end)


def _index(items: Any, item: Any, start: int = 0, end: int = -1) -> int:
    if isinstance(items, str):
        found = _find(items, item, start, end)
        if found < 0:
            raise ValueError("ValueError: substring not found")
        return found
    for place, x in enumerate(items):
        if _equal(x, item):
            return place
    raise ValueError(f"'{item}' is not in list")


def _rindex(text: str, part: str, start: int = 0, end: int = -1) -> int:
    found = _rfind(text, part, start, end)
    if found < 0:
        raise ValueError("ValueError: substring not found")
    return found


def _format(text: str, *values: Any) -> str:
    out, rest, number = "", text, 0
    while "{}" in rest:
        before, _, rest = rest.partition("{}")
        if number >= len(values):
            raise RuntimeError("Too few arguments for format string: " + text)
        out += before + shown(values[number])
        number += 1
    return out + rest


def shown(value: Any) -> str:
    """A value as `print` and `format` of TorchScript show it."""
    return str(value)


def _percent(text: str, *values: Any) -> str:
    """`text % values` with what TorchScript knows: %s %d %i %x %X %e %f %g %c %%."""
    out, place, used = [], 0, 0
    while place < len(text):
        if text[place] != "%":
            out.append(text[place])
            place += 1
            continue
        if place + 1 == len(text):
            raise RuntimeError("Incomplete format specifier")
        letter = text[place + 1]
        place += 2
        if letter == "%":
            out.append("%")
            continue
        if used == len(values):
            raise RuntimeError(f"Too few arguments for format string: {text}")
        out.append(_percent_one(letter, values[used]))
        used += 1
    if used < len(values):
        raise RuntimeError(f"Too many arguments for format string: {text}")
    return "".join(out)


def _percent_one(letter: str, value: Any) -> str:
    word = "String" if isinstance(value, str) else type(value).__name__
    if letter in "dixXeEfFgG":
        if not isinstance(value, (int, float)):
            raise RuntimeError(f"%{letter} requires a number for formatting, but got {word}")
        return f"%{letter}" % (int(value) if letter in "xX" else value)
    if letter == "c":
        if not isinstance(value, int) and not (isinstance(value, str) and len(value) == 1):
            raise RuntimeError(f"%c requires an int or char for formatting, but got {word}")
        return value if isinstance(value, str) else chr(value)
    if letter == "s":
        return shown(value)
    raise RuntimeError(f"The specifier %{letter} is not supported in TorchScript format strings")


def _warn(message: str, stacklevel: int = 2) -> None:
    warnings.warn(message, UserWarning, stacklevel=2)


def _to_list(items: Any) -> list:
    return list(items)


def _hash(value: Any) -> int:
    return hash(value)


def _items(table: dict) -> list:
    return list(table.items())


def _manual_seed(*args: Any) -> Any:
    return torch.manual_seed(*args) if len(args) == 1 and isinstance(args[0], int) else args[0].manual_seed(args[1])


# -- tensors ----------------------------------------------------------------------------------------------------------------


def _select_index(indices: list) -> tuple:
    return tuple(slice(None) if i is None else i for i in indices)


def _tensor_index(x: Tensor, indices: list) -> Tensor:
    return x[_select_index(indices)]


def _index_put(x: Tensor, indices: list, values: Tensor, accumulate: bool = False) -> Tensor:
    return x.index_put_(_known_indices(x, indices), values, accumulate)


def _index_put_copy(x: Tensor, indices: list, values: Tensor, accumulate: bool = False) -> Tensor:
    return x.index_put(_known_indices(x, indices), values, accumulate)


def _known_indices(x: Tensor, indices: list) -> tuple:
    if all(i is not None for i in indices):
        return tuple(indices)
    raise RuntimeError("index_put_ with missing indices is not supported here")


def _tensor_slice(x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    dim = dim + x.dim() if dim < 0 else dim
    if not 0 <= dim < x.dim():
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-x.dim()}, {x.dim() - 1}], but got {dim})"
        )
    return x[(slice(None),) * dim + (slice(start, end, step),)]


def _size(x: Tensor, dim: int | None = None) -> Any:
    return list(x.shape) if dim is None else x.size(dim)


def _to_dtype(
    x: Tensor, dtype: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None
) -> Tensor:
    return x.to(dtype_of(dtype), copy=copy, **_kept(memory_format))


def _to_device(
    x: Tensor, device: Any, dtype: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None
) -> Tensor:
    return x.to(device, dtype_of(dtype), copy=copy, **_kept(memory_format))


def _to_other(
    x: Tensor, other: Tensor, non_blocking: bool = False, copy: bool = False, memory_format: Any = None
) -> Tensor:
    return x.to(other, copy=copy, **_kept(memory_format))


def _to_layout(
    x: Tensor,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Tensor:
    given = {"dtype": dtype_of(dtype), "device": device}
    return x.to(**{k: v for k, v in given.items() if v is not None}, copy=copy, **_kept(memory_format))


def _kept(memory_format: Any) -> dict:
    return {} if memory_format is None else {"memory_format": format_of(memory_format)}


def _to_device_or_same(
    x: Tensor, device: Any = None, dtype: Any = None, non_blocking: bool = False, copy: bool = False
) -> Tensor:
    return _to_layout(x, dtype, None, device, None, non_blocking, copy)


def _to_dtype_or_same(x: Tensor, dtype: Any = None, non_blocking: bool = False, copy: bool = False) -> Tensor:
    return _to_layout(x, dtype, copy=copy)


_CONVOLUTIONS = {
    1: ("conv1d", "conv_transpose1d"),
    2: ("conv2d", "conv_transpose2d"),
    3: ("conv3d", "conv_transpose3d"),
}


def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    *flags: bool,
) -> Tensor:
    names = _CONVOLUTIONS[len(stride)]
    if transposed:
        return getattr(torch, names[1])(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return getattr(torch, names[0])(input, weight, bias, stride, padding, dilation, groups)


def _upsample(mode: str) -> Callable:
    """`aten::upsample_bilinear2d(input, output_size, align_corners, scales...)` and its kin."""
    cornered = mode in ("linear", "bilinear", "bicubic", "trilinear")

    def run(input: Tensor, size: Any, *rest: Any) -> Tensor:
        align = rest[0] if cornered else None
        scales: Any = rest[1:] if cornered else rest
        if len(scales) == 1 and isinstance(scales[0], list):
            scales = scales[0]
        scales = [s for s in scales if s is not None]
        if size is None:
            return torch.nn.functional.interpolate(input, None, list(scales), mode, align)
        return torch.nn.functional.interpolate(input, list(size), None, mode, align)

    return run


def _contiguous(x: Tensor, memory_format: int = 0) -> Tensor:
    return x.contiguous(memory_format=format_of(memory_format))


def _feature_dropout(x: Tensor, p: float, train: bool) -> Tensor:
    return getattr(torch.nn.functional, {3: "dropout1d", 4: "dropout2d"}.get(x.dim(), "dropout3d"))(x, p, train)


def _feature_dropout_(x: Tensor, p: float, train: bool) -> Tensor:
    return x.copy_(_feature_dropout(x, p, train))


def _grad_of(x: Tensor) -> Any:
    return x.grad


def _reduction_word(number: int) -> str:
    return ("none", "mean", "sum")[number]


def _loss(name: str, reduction: int) -> Callable:
    """A loss whose argument at a place is the number of a reduction."""

    def run(*values: Any) -> Tensor:
        values_ = list(values)
        options: dict[str, Any] = {}
        if len(values_) > reduction:
            options["reduction"] = _reduction_word(values_.pop(reduction))
        schema = schemas_of(f"aten::{name}")[0]
        for argument, value in list(zip(schema.arguments[reduction + 1 :], values_[reduction:])):
            options[_LOSS_NAMES.get(argument.name, argument.name)] = value
        first = values_[:reduction]
        names = [a.name for a in schema.arguments[:reduction]]
        for label, value in list(zip(names, first))[2:]:
            options[label] = value
        return getattr(torch.nn.functional, name)(*first[:2], **options)

    return run


_LOSS_NAMES: dict[str, str] = {}


def _cross_entropy(x: Tensor, target: Tensor, weight: Any, reduction: int, ignore: int, smoothing: float) -> Tensor:
    return torch.nn.functional.cross_entropy(
        x, target, weight, ignore_index=ignore, reduction=_reduction_word(reduction), label_smoothing=smoothing
    )


def _nll(x: Tensor, target: Tensor, weight: Any, reduction: int, ignore: int) -> Tensor:
    return torch.nn.functional.nll_loss(x, target, weight, ignore_index=ignore, reduction=_reduction_word(reduction))


def _ctc(
    log_probs: Tensor, targets: Tensor, inputs: Any, lengths: Any, blank: int, reduction: int, zero: bool
) -> Tensor:
    return torch.nn.functional.ctc_loss(log_probs, targets, inputs, lengths, blank, _reduction_word(reduction), zero)


def _random_like(name: str) -> Callable:
    def run(x: Tensor, *values: Any) -> Tensor:
        *before, d, lay, device, pin, fmt = values
        given = {"dtype": dtype_of(d), "device": device}
        return getattr(torch, name)(x, *before, **{k: v for k, v in given.items() if v is not None}, **_kept(fmt))

    return run


def _batch_norm(
    x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float, *_: Any
) -> Tensor:
    return torch.nn.functional.batch_norm(x, mean, var, weight, bias, training, momentum, eps)


def _instance_norm(
    x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, use_input: bool, momentum: float, eps: float, *_: Any
) -> Tensor:
    return torch.nn.functional.instance_norm(x, mean, var, weight, bias, use_input, momentum, eps)


def _layer_norm(x: Tensor, shape: list, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> Tensor:
    return torch.nn.functional.layer_norm(x, shape, weight, bias, eps)


def _group_norm(x: Tensor, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> Tensor:
    return torch.nn.functional.group_norm(x, groups, weight, bias, eps)


def _embedding(weight: Tensor, indices: Tensor, padding: int = -1, scale: bool = False, sparse: bool = False) -> Tensor:
    return torch.nn.functional.embedding(indices, weight, None if padding < 0 else padding, None, 2.0, scale, sparse)


def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample: Any = None,
    include_last: bool = False,
    padding: Any = None,
) -> tuple:
    return torch.embedding_bag(weight, indices, offsets, scale, mode, sparse, per_sample, include_last, padding)


def _requires_grad_(x: Tensor, requires_grad: bool = True) -> Tensor:
    return x.requires_grad_(requires_grad)


def _gelu(x: Tensor, approximate: str = "none") -> Tensor:
    return torch.nn.functional.gelu(x, approximate=approximate)


def _pad(x: Tensor, pad: list, mode: str = "constant", value: Any = None) -> Tensor:
    return torch.nn.functional.pad(x, pad, mode, value)


def _pad_with(mode: str) -> Callable:
    return lambda x, pad: torch.nn.functional.pad(x, pad, mode)


def _einsum(equation: str, operands: list, path: Any = None) -> Tensor:
    return torch.einsum(equation, *operands)


def _infer_size(a: list, b: list) -> list:
    return list(torch.broadcast_shapes(tuple(a), tuple(b)))


def _pool_with_indices(name: str) -> Callable:
    def run(x: Tensor, *values: Any) -> tuple:
        window = list(values)
        if len(window) > 1 and window[1] == []:
            window[1] = None
        return getattr(torch.nn.functional, name)(x, *window, return_indices=True)

    return run


def _pool(name: str) -> Callable:
    def run(x: Tensor, *values: Any) -> Tensor:
        window = list(values)
        if len(window) > 1 and window[1] == []:
            window[1] = None
        return getattr(torch.nn.functional, name)(x, *window)

    return run


def _assert_async(condition: Any, message: str) -> None:
    """The graph's own check of a value: an error with its message unless the tensor is true."""
    if not bool(condition):
        raise RuntimeError(message)


def _std_like(name: str) -> Callable:
    return lambda x, unbiased=True: getattr(x, name)(unbiased=unbiased)


def _detach_data(x: Tensor) -> Tensor:
    return x.data


TABLE: dict[str, Callable] = {
    "aten::sub": operator.sub, "aten::mul": operator.mul, "aten::div": _true_divide,
    "aten::add": operator.add, "aten::add_.t": _extended, "aten::mul_.t": operator.imul,
    "aten::floordiv": operator.floordiv, "aten::remainder": _remainder, "aten::mod": _remainder, "aten::neg": operator.neg,
    "aten::pow": _integer_power, "aten::pow.int_to_int": operator.pow, "aten::fmod": _c_fmod, "aten::mathremainder": math.remainder,
    "aten::divmod": _divided_twice, "aten::eq": _equal, "aten::ne": lambda a, b: not _equal(a, b), "aten::lt": operator.lt,
    "aten::le": operator.le, "aten::gt": operator.gt, "aten::ge": operator.ge, "aten::__and__": operator.and_,
    "aten::__or__": operator.or_, "aten::__xor__": operator.xor, "aten::__lshift__": operator.lshift,
    "aten::__rshift__": operator.rshift, "aten::__not__": operator.not_, "aten::__is__": _is,
    "aten::__isnot__": lambda a, b: not _is(a, b), "prim::id": id, "aten::__round_to_zero_floordiv": _to_zero, "aten::__range_length": _range_length,
    "aten::__derive_index": lambda index, start, step: start + index * step,
    "aten::Bool": bool, "aten::Int": _to_int, "aten::Float": float, "aten::Complex": complex,
    "aten::FloatImplicit": _implicit(float, "Float"), "aten::IntImplicit": _implicit(int, "Float"),
    "aten::ComplexImplicit": _implicit(complex, "Complex"), "aten::ScalarImplicit": _implicit(object, "Scalar"),
    "aten::log": _logarithm, "aten::round": lambda a: float(round(a)), "aten::floor": math.floor, "aten::ceil": math.ceil,
    "aten::fabs": math.fabs, "aten::angle": cmath.phase, "aten::polar": cmath.rect, "aten::modf": math.modf, "aten::frexp": math.frexp,
    "aten::ldexp": math.ldexp, "aten::copysign": math.copysign, "aten::factorial": math.factorial, "aten::gcd": math.gcd,
    "aten::isnan": cmath.isnan, "aten::isinf": cmath.isinf, "aten::isfinite": cmath.isfinite, "aten::degrees": math.degrees,
    "aten::radians": math.radians,
    **{f"aten::{name}": _math(name) for name in ["sqrt", "exp", "expm1", "log1p", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "gamma", "lgamma", "atan2"]},
    "prim::abs": abs, "prim::max": max, "prim::min": min,
    "aten::len": len, "aten::append": lambda items, item: (items.append(item), items)[1], "aten::extend": _extend,
    "aten::insert": lambda items, place, item: items.insert(place, item), "aten::reverse": lambda items: items.reverse(),
    "aten::remove": _list_remove, "aten::clear": lambda c: c.clear(), "aten::copy": lambda c: c.copy(),
    "aten::count": lambda items, item, *span: items.count(item) if not span else items.count(item, span[0], len(items) if span[1] == -1 else span[1]),
    "aten::index": _index, "aten::pop": _pop, "aten::sort": _sort, "aten::sorted": lambda items: sorted(items, key=sort_key),
    "aten::__getitem__": _item, "aten::_set_item": _set_item, "aten::Delete": _delete, "aten::slice": _slice,
    "aten::__contains__": _contains, "aten::list": _to_list, "aten::sum": sum, "aten::any": any, "aten::all": all,
    "prim::rangelist": lambda n: list(range(n)), "aten::keys": list, "aten::values": lambda d: list(d.values()), "aten::items": _items,
    "aten::get": lambda d, key, *default: d.get(key, *default), "aten::setdefault": lambda d, key, value: d.setdefault(key, value),
    "aten::update": lambda d, more: d.update(more), "aten::popitem": lambda d: d.popitem(),
    "aten::dict": lambda *items: dict(*items), "aten::hash": _hash, "aten::str": str, "aten::format": _format,
    "aten::percentFormat": _percent, "aten::find": _find, "aten::rfind": _rfind, "aten::rindex": _rindex,
    "aten::split.str": lambda text, separator=None, count=-1: text.split(separator, count),
    "aten::rsplit": lambda text, separator=" ", count=-1: text.rsplit(separator, count),
    "aten::splitlines": lambda text, keep=False: text.splitlines(keep), "aten::join": lambda text, items: text.join(items),
    "aten::ord": ord, "aten::chr": chr, "aten::bin": bin, "aten::oct": oct, "aten::hex": hex,
    "aten::startswith": lambda s, part, start=0, end=-1: s.startswith(part, start, len(s) if end == -1 else end),
    "aten::endswith": lambda s, part, start=0, end=-1: s.endswith(part, start, len(s) if end == -1 else end),
    "aten::partition": lambda s, part: s.partition(part), "aten::rpartition": lambda s, part: s.rpartition(part),
    "aten::replace": lambda s, old, new, count=-1: s.replace(old, new, count),
    "aten::strip": lambda s, chars=" \n\t\f\v": s.strip(chars), "aten::lstrip": lambda s, chars=" \n\t\f\v": s.lstrip(chars),
    "aten::rstrip": lambda s, chars=" \n\t\f\v": s.rstrip(chars), "aten::expandtabs": lambda s, n=8: s.expandtabs(n),
    "aten::center": lambda s, n, fill=" ": s.center(n, fill), "aten::ljust": lambda s, n, fill=" ": s.ljust(n, fill),
    "aten::rjust": lambda s, n, fill=" ": s.rjust(n, fill), "aten::zfill": lambda s, n: s.zfill(n),
    **{f"aten::{name}": getattr(str, name) for name in ["lower", "upper", "capitalize", "title", "swapcase", "isalnum", "isalpha", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper"]},
    "prim::StringIndex": _item, "aten::warn": _warn, "aten::device": torch.device, "prim::type": lambda device: device.type,
    "prim::index": lambda device: device.index, "prim::EnumName": lambda e: e.name, "prim::EnumValue": lambda e: e.value,
    "aten::save": torch.save, "aten::Size": list, "aten::is_scripting": lambda: True, "aten::has_torch_function": lambda *_: False,
    "aten::_get_tracing_state": lambda: False, "aten::is_grad_enabled": torch.is_grad_enabled, "aten::initial_seed": torch.initial_seed,
    "aten::set_grad_enabled": lambda on: torch._set_grad(on) if hasattr(torch, "_set_grad") else torch.set_grad_enabled(on),
    "aten::manual_seed": _manual_seed, "aten::seed": lambda g: g.seed(), "aten::Generator": lambda *a: torch.Generator(),
    "aten::is_autocast_enabled": torch.is_autocast_enabled, "aten::is_autocast_cpu_enabled": lambda: torch.is_autocast_enabled("cpu"),
    "aten::get_autocast_dtype": lambda kind: number_of(torch.get_autocast_dtype(kind)),
    "aten::grad": lambda outputs, inputs, *more: list(torch.autograd.grad(outputs, inputs, *more[:3], allow_unused=more[3])),
    "aten::backward": lambda x, *more: torch.autograd.backward(x, *more), "aten::_infer_size": _infer_size, "aten::broadcast_shapes": lambda shapes: list(torch.broadcast_shapes(*shapes)),
    "aten::cpu": lambda x: x.cpu(), "aten::size": _size, "aten::stride": lambda x, dim=None: list(x.stride()) if dim is None else x.stride(dim), "aten::stride.int": lambda x, dim: x.stride(dim),
    "aten::item": lambda x: x.item(), "aten::dim": lambda x: x.dim(), "prim::dtype": lambda x: number_of(x.dtype), "prim::device": lambda x: x.device,
    "prim::layout": lambda x: number_of(x.layout), "prim::requires_grad": lambda x: x.requires_grad, "prim::grad": _grad_of,
    "prim::data": _detach_data, "prim::is_cuda": lambda x: x.is_cuda, "prim::is_quantized": lambda x: x.is_quantized, "aten::qscheme": lambda x: number_of(x.qscheme()), "prim::is_sparse": lambda x: x.is_sparse,
    "prim::is_meta": lambda x: x.is_meta, "prim::is_mkldnn": lambda x: False, "prim::is_nested": lambda x: False, "prim::is_mps": lambda x: False,
    "prim::is_sparse_csr": lambda x: number_of(x.layout) == 2, "prim::is_xpu": lambda x: False, "prim::is_vulkan": lambda x: False, "prim::is_ipu": lambda x: False, "prim::is_maia": lambda x: False, "prim::is_mtia": lambda x: False,
    "prim::itemsize": lambda x: x.itemsize, "prim::nbytes": lambda x: x.nbytes, "prim::name": lambda x: x.name,
    "prim::NumToTensor": lambda a: torch.tensor(a), "aten::result_type": lambda a, b: number_of(torch.result_type(a, b)),
    "aten::promote_types": lambda a, b: number_of(torch.promote_types(dtype_of(a), dtype_of(b))), "aten::can_cast": lambda a, b: torch.can_cast(dtype_of(a), dtype_of(b)),
    "aten::index.Tensor": _tensor_index, "aten::index.Tensor_hacked_twin": _tensor_index, "aten::index_put_": _index_put, "aten::_index_put_impl_": _index_put, "aten::index_put": _index_put_copy,
    "aten::slice.Tensor": _tensor_slice, "aten::to.dtype": _to_dtype, "aten::to.device": _to_device, "aten::to.other": _to_other,
    "aten::to.dtype_layout": _to_layout, "aten::to.prim_Device": _to_device_or_same, "aten::to.prim_dtype": _to_dtype_or_same, "aten::to.prim_other": lambda x, *_: x,
    "aten::convolution": _convolution, "aten::_convolution": _convolution, "aten::contiguous": _contiguous,
    **{f"aten::upsample_{n}": _upsample(m) for n, m in (("nearest1d", "nearest"), ("nearest2d", "nearest"), ("nearest3d", "nearest"), ("linear1d", "linear"), ("bilinear2d", "bilinear"), ("bicubic2d", "bicubic"), ("trilinear3d", "trilinear"))},
    "aten::feature_dropout": _feature_dropout, "aten::feature_dropout_": _feature_dropout_, "aten::cross_entropy_loss": _cross_entropy, "aten::nll_loss": _nll, "aten::nll_loss_nd": _nll, "aten::nll_loss2d": _nll,
    "aten::ctc_loss": _ctc, "aten::batch_norm": _batch_norm, "aten::instance_norm": _instance_norm, "aten::layer_norm": _layer_norm, "aten::group_norm": _group_norm,
    "aten::embedding": _embedding, "aten::embedding_bag": _embedding_bag, "aten::requires_grad_": _requires_grad_, "aten::gelu": _gelu, "aten::pad": _pad,
    **{f"aten::{m}_pad{d}d": _pad_with(w) for m, w in (("reflection", "reflect"), ("replication", "replicate")) for d in (1, 2, 3)},
    "aten::einsum": _einsum, **{f"aten::{n}": _random_like(n) for n in ("rand_like", "randn_like")},
    **{f"aten::max_pool{d}d_with_indices": _pool_with_indices(f"max_pool{d}d") for d in (1, 2, 3)}, **{f"aten::{k}_pool{d}d": _pool(f"{k}_pool{d}d") for d in (1, 2, 3) for k in ("max", "avg")},
    "aten::std": _std_like("std"), "aten::var": _std_like("var"), "aten::_assert_async.msg": _assert_async,
    **{f"aten::{name}": _loss(name, place) for name, place in (("mse_loss", 2), ("l1_loss", 2), ("smooth_l1_loss", 2), ("huber_loss", 2), ("binary_cross_entropy", 3), ("binary_cross_entropy_with_logits", 4), ("kl_div", 2), ("soft_margin_loss", 2), ("multilabel_margin_loss", 2), ("hinge_embedding_loss", 3), ("poisson_nll_loss", 5), ("cosine_embedding_loss", 4), ("margin_ranking_loss", 4), ("triplet_margin_loss", 7), ("multi_margin_loss", 5))},
}  # fmt: skip


def _inplace_by_copy(name: str) -> Callable:
    def run(x: Tensor, *values: Any) -> Tensor:
        return x.copy_(getattr(torch.nn.functional, name)(x, *values))

    return run


def _pack_padded(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple:
    packed = torch.nn.utils.rnn.pack_padded_sequence(input, lengths, batch_first)
    return packed.data, packed.batch_sizes


def _pad_packed(data: Tensor, sizes: Tensor, batch_first: bool, value: float, length: int) -> tuple:
    packed = torch.nn.utils.rnn.PackedSequence(data, sizes)
    return torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first, value, length if length > 0 else None)


def _unique(x: Tensor, sort: bool = True, inverse: bool = False, counts: bool = False) -> tuple:
    values, places, numbers = torch.unique(x, sort, True, True)
    empty = torch.empty(0, dtype=torch.int64)
    return values, places if inverse else empty, numbers if counts else empty


def _unique_dim(x: Tensor, dim: int, sort: bool = True, inverse: bool = False, counts: bool = False) -> tuple:
    values, places, numbers = torch.unique(x, sort, True, True, dim)
    empty = torch.empty(0, dtype=torch.int64)
    return values, places if inverse else empty, numbers if counts else empty


def _convolution_mode(
    input: Tensor, weight: Tensor, bias: Any, stride: list, padding: str, dilation: list, groups: int
) -> Tensor:
    return getattr(torch, _CONVOLUTIONS[len(stride)][0])(input, weight, bias, stride, padding, dilation, groups)


def _native_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Any = None,
    need_weights: bool = True,
    average: bool = True,
    mask_type: Any = None,
) -> tuple:
    """PyTorch's fast path: batch first; the mask is one of attention (0), of padded keys (1) or both in one (2)."""
    inputs = [t.transpose(0, 1) for t in (query, key, value)]
    masks: dict[str, Any] = {"key_padding_mask": mask} if mask_type == 1 else {"attn_mask": mask}
    if mask_type == 2 and mask is not None:
        masks["attn_mask"] = mask.reshape(-1, *mask.shape[-2:])
    out, weights = torch.nn.functional.multi_head_attention_forward(
        *inputs, embed_dim, num_head, qkv_weight, qkv_bias, None, None, False, 0.0, proj_weight, proj_bias,
        training=False, need_weights=need_weights, average_attn_weights=average, **masks,
    )  # fmt: skip
    return out.transpose(0, 1), torch.empty(0) if weights is None else weights


def _encoder_layer(
    src: Tensor, embed_dim: int, heads: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor,
    use_gelu: bool, norm_first: bool, eps: float, norm1: Tensor, bias1: Tensor, norm2: Tensor, bias2: Tensor, ffn1: Tensor,
    ffn_bias1: Tensor, ffn2: Tensor, ffn_bias2: Tensor, mask: Any = None, mask_type: Any = None,
) -> Tensor:  # fmt: skip
    """PyTorch's fast path of a Transformer's encoder layer, batch first."""
    functional = torch.nn.functional

    def attended(x: Tensor) -> Tensor:
        return _native_attention(
            x, x, x, embed_dim, heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True, mask_type
        )[0]

    def fed(x: Tensor) -> Tensor:
        hidden = functional.linear(x, ffn1, ffn_bias1)
        return functional.linear(functional.gelu(hidden) if use_gelu else functional.relu(hidden), ffn2, ffn_bias2)

    def first(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm1, bias1, eps)

    def second(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm2, bias2, eps)

    if norm_first:
        src = src + attended(first(src))
        return src + fed(second(src))
    src = first(src + attended(src))
    return second(src + fed(src))


def _same_tensors(a: list, b: list) -> bool:
    """Whether lists hold the same values; as PyTorch asks, tensors of one element each."""
    return len(a) == len(b) and all(bool(x.eq(y).item()) for x, y in zip(a, b))


def _count_tensors(items: list, item: Tensor) -> int:
    return sum(bool(other.eq(item).item()) for other in items)


def _index_tensor(items: list, item: Tensor) -> int:
    for place, other in enumerate(items):
        if bool(other.eq(item).item()):
            return place
    raise ValueError(f"'{item}' is not in list")


def _adaptive_max(dims: int) -> Callable:
    return lambda x, size: getattr(torch.nn.functional, f"adaptive_max_pool{dims}d")(x, size, return_indices=True)


TABLE.update(
    {
        "aten::_native_multi_head_attention": _native_attention, "aten::_transformer_encoder_layer_fwd": _encoder_layer,
        **{f"aten::adaptive_max_pool{d}d": _adaptive_max(d) for d in (1, 2, 3)},
        "aten::wait": lambda future: future.wait(), "aten::matrix_H": lambda x: x.H,
        "aten::sort.Tensor": _sort, "aten::reverse.t": lambda items: items.reverse(), "aten::count.Tensor": _count_tensors,
        "aten::index.list_Tensor": _index_tensor, "aten::eq.Tensor_list": _same_tensors, "aten::ne.Tensor_list": lambda a, b: not _same_tensors(a, b),
        **{f"aten::{n}_": _inplace_by_copy(n) for n in ("silu", "mish", "hardsigmoid", "hardswish", "relu6", "gelu")},
        "aten::_unsafe_view": lambda x, size: x.reshape(size), "aten::log_sigmoid": torch.nn.functional.logsigmoid,
        "aten::im2col": torch.nn.functional.unfold, "aten::col2im": torch.nn.functional.fold, "aten::_unique2": _unique,
        "aten::unique_dim": _unique_dim, "aten::mT": lambda x: x.mT, "aten::mH": lambda x: x.mH, "aten::numpy_T": lambda x: x.T,
        "aten::_pack_padded_sequence": _pack_padded, "aten::_pad_packed_sequence": _pad_packed, "aten::is_leaf": lambda x: x.is_leaf,
        "aten::data": _detach_data, "aten::_convolution_mode": _convolution_mode, "aten::_shape_as_tensor": lambda x: torch.tensor(list(x.shape)),
        "aten::alias": lambda x: x.view(x.shape), "aten::lift_fresh": lambda x: x, "aten::_safe_softmax": lambda x, dim, d=None: x.softmax(dim, dtype_of(d)),
        "aten::_tensor_to_list": lambda x: x.tolist(), "aten::_list_to_tensor": lambda x: torch.tensor(x),
    }
)  # fmt: skip

# Operators on tensors whose entry above holds for every overload.
_ALWAYS = {
    name
    for name in TABLE
    if "." not in name
    and name.partition("::")[2]
    in {"size", "stride", "item", "dim", "dtype", "device", "layout", "requires_grad", "grad", "data", "index_put_", "index_put", "_index_put_impl_", "convolution", "_convolution", "contiguous", "feature_dropout", "feature_dropout_", "cross_entropy_loss", "nll_loss", "nll_loss_nd", "nll_loss2d", "ctc_loss", "batch_norm", "instance_norm", "layer_norm", "group_norm", "embedding", "embedding_bag", "requires_grad_", "gelu", "pad", "einsum", "rand_like", "randn_like", "Int", "Float", "Bool", "Complex", "FloatImplicit", "IntImplicit", "ScalarImplicit", "ComplexImplicit", "NumToTensor", "cpu", "backward", "len", "__contains__", "keys", "values", "items", "get", "setdefault", "update", "popitem", "dict", "hash", "result_type", "format", "hinge_embedding_loss", "poisson_nll_loss", "cosine_embedding_loss", "margin_ranking_loss", "triplet_margin_loss", "multi_margin_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "soft_margin_loss", "multilabel_margin_loss", "__is__", "__isnot__", "append", "extend", "insert", "reverse", "clear", "_set_item", "Delete", "__getitem__", "name", "nbytes", "itemsize", "wait", "_unsafe_view", "log_sigmoid", "im2col", "col2im", "_unique2", "unique_dim", "mT", "mH", "matrix_H", "numpy_T", "_pack_padded_sequence", "_pad_packed_sequence", "is_leaf", "qscheme", "_convolution_mode", "_shape_as_tensor", "alias", "lift_fresh", "_safe_softmax", "_tensor_to_list", "_list_to_tensor", "silu_", "mish_", "hardsigmoid_", "hardswish_", "relu6_", "gelu_"}
    or name.startswith(("aten::upsample_", "aten::adaptive_max_pool", "aten::_native_multi", "aten::_transformer", "aten::max_pool", "aten::avg_pool", "aten::reflection_pad", "aten::replication_pad", "prim::is_"))
}  # fmt: skip
