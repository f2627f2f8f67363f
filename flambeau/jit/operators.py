"""Functions that run for each operator of a graph.

A tensor operator is found by its name: `aten::linalg_norm` is `linalg.norm`, `aten::add_` is `Tensor.add_`, `aten::relu` is
`relu`; the exceptions are those of `torch.ops.aten` (`library.aten`), and the few below that only graphs have. Its arguments are handed
over as the schema says; those equal to their default are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flambeau as torch

from ..core.dtype import BY_NUMBER, dtype
from ..core.layout import LAYOUTS, MEMORY_FORMATS, layout, memory_format
from ..core.quantized import qscheme
from ..core.tensor import Tensor
from ..library import aten
from .plain_operators import NUMBERS, PLAIN
from .schema import REQUIRED, Schema, schemas_of
from .types import LAYOUT, MEMORY_FORMAT, SCALAR_TYPE, TENSOR, ListType, OptionalType, Type


def dtype_of(number: Any) -> Any:
    return BY_NUMBER[number] if isinstance(number, int) and not isinstance(number, bool) else number


def layout_of(number: Any) -> Any:
    return LAYOUTS[number] if isinstance(number, int) else number


def format_of(number: Any) -> Any:
    return MEMORY_FORMATS[number] if isinstance(number, int) else number


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


def _calling(function: Callable, schema: Schema) -> Callable:
    """Wrap a function so that it can be called with the values of all of a schema's arguments in order."""
    arguments = schema.arguments
    positional = [a for a in arguments if not a.kwarg_only]
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


def find(key: str) -> Callable | None:
    """Return the function that runs for an operator, from `aten::add.Tensor`; users may register theirs anew."""
    return (_cached_operator if key.startswith(("aten::", "prim::")) else _find_operator)(key)


def _find_operator(key: str) -> Callable | None:
    name = key.partition(".")[0]
    schema = next((s for s in schemas_of(name) if s.key == key), None)
    return None if schema is None else implementation(schema)


_cached_operator = functools.cache(_find_operator)


def implementation(schema: Schema) -> Callable | None:
    space, _, name = schema.name.partition("::")
    for table in (TENSORS, PLAIN, NUMBERS):
        if schema.overload_name and schema.key in table:
            return table[schema.key]
        if schema.name in table and (table is not NUMBERS or not takes_tensor(schema)):
            return table[schema.name]
    if space not in ("aten", "prim"):
        return _user_operator(space, name, schema)
    if name.startswith("__") and name.endswith("__") and not hasattr(Tensor, name):
        return None
    function = aten.resolver_module().find(name, schema.overload_name or "default")
    return None if function is None else _calling(function, schema)


def _user_operator(space: str, name: str, schema: Schema) -> Callable | None:
    """Return an operator that was registered with `torch.library`, or one of torchvision's; None if there is none."""
    if space == "torchvision":
        return _vision_operator(name)
    owner = getattr(torch.ops, space, None)
    function = getattr(owner, name, None)
    return None if function is None else _calling(function, schema)


def _vision_operator(name: str) -> Callable | None:
    """Return one of torchvision's operators: sizes are two numbers there, and a pair in the Python functions."""
    function = getattr(torch.vision.ops, name, None)
    if function is None:
        return None
    if name in ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool"):
        return lambda x, boxes, scale, height, width, *more: function(x, boxes, (height, width), scale, *more)
    return function


# -- what only graphs have -----------------------------------------------------------------------------------------------------


def _manual_seed(*args: Any) -> Any:
    return torch.manual_seed(*args) if len(args) == 1 and isinstance(args[0], int) else args[0].manual_seed(args[1])


def _size(x: Tensor, dim: int | None = None) -> Any:
    return list(x.shape) if dim is None else x.size(dim)


def _convert_to(
    x: Tensor, device: Any = None, dtype: Any = None, non_blocking: bool = False, copy: bool = False
) -> Tensor:
    """`x.to(device, dtype)` where each may be None."""
    return x.to(device or x.device, dtype_of(dtype) or x.dtype, copy=copy)


TENSORS: dict[str, Callable] = {
    "aten::device": torch.device, "prim::type": lambda device: device.type,
    "prim::index": lambda device: device.index, "prim::EnumName": lambda e: e.name, "prim::EnumValue": lambda e: e.value,
    "aten::Size": list, "aten::is_scripting": lambda: True, "aten::has_torch_function": lambda *_: False,
    "aten::_get_tracing_state": lambda: False,
    "aten::set_grad_enabled": lambda on: torch._set_grad(on) if hasattr(torch, "_set_grad") else torch.set_grad_enabled(on),
    "aten::manual_seed": _manual_seed, "aten::Generator": lambda *a: torch.Generator(),
    "aten::is_autocast_cpu_enabled": lambda: torch.is_autocast_enabled("cpu"),
    "aten::get_autocast_dtype": lambda kind: torch.get_autocast_dtype(kind).number,
    "aten::grad": lambda outputs, inputs, *more: list(torch.autograd.grad(outputs, inputs, more[0], more[1], more[2], allow_unused=more[3])),
    "aten::backward": lambda x, *more: torch.autograd.backward(x, *more), "aten::_infer_size": lambda a, b: list(torch.broadcast_shapes(tuple(a), tuple(b))), "aten::broadcast_shapes": lambda shapes: list(torch.broadcast_shapes(*shapes)),
    "aten::size": _size, "aten::stride": lambda x, dim=None: list(x.stride()) if dim is None else x.stride(dim), "aten::stride.int": lambda x, dim: x.stride(dim),
    "prim::dtype": lambda x: x.dtype.number, "prim::device": lambda x: x.device,
    "prim::layout": lambda x: x.layout.number, "prim::requires_grad": lambda x: x.requires_grad, "prim::grad": lambda x: x.grad,
    "prim::data": lambda x: x.data, "prim::is_cuda": lambda x: x.is_cuda, "prim::is_quantized": lambda x: x.is_quantized, "aten::qscheme": lambda x: x.qscheme().number, "prim::is_sparse": lambda x: x.is_sparse,
    "prim::is_meta": lambda x: x.is_meta,
    "prim::is_sparse_csr": lambda x: x.layout is torch.sparse_csr,
    "prim::itemsize": lambda x: x.itemsize, "prim::nbytes": lambda x: x.nbytes, "prim::name": lambda x: x.name,
    "prim::NumToTensor": lambda a: torch.tensor(a), "aten::result_type": lambda a, b: torch.result_type(a, b).number,
    "aten::promote_types": lambda a, b: torch.promote_types(dtype_of(a), dtype_of(b)).number,
    **{f"prim::is_{kind}": lambda x: False for kind in ("mkldnn", "nested", "mps", "xpu", "vulkan", "ipu", "maia", "mtia")},
    "aten::to.prim_Device": _convert_to, "aten::to.prim_dtype": lambda x, dtype=None, *flags: _convert_to(x, None, dtype, *flags),
    "aten::to.prim_other": lambda x, *_: x, "aten::wait": lambda future: future.wait(), "aten::sort.Tensor": NUMBERS["aten::sort"],
    "aten::reverse.t": lambda items: items.reverse(), "aten::count.Tensor": NUMBERS["aten::count"], "aten::index.list_Tensor": NUMBERS["aten::index"],
    "aten::eq.Tensor_list": NUMBERS["aten::eq"], "aten::ne.Tensor_list": NUMBERS["aten::ne"],
    "aten::is_leaf": lambda x: x.is_leaf, "aten::data": lambda x: x.data,
    "aten::_tensor_to_list": lambda x: x.tolist(),
    "aten::_list_to_tensor": lambda x: torch.tensor(x),
}  # fmt: skip
