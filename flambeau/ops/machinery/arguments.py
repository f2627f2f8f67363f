"""Reading the arguments that many operators share: sizes, dtypes, devices and the options of new tensors."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np

from ...core import dtype as dt
from ...core.backend import has_backend, indexed, why_absent
from ...core.device import default_device, device
from ...core.dtype import dtype
from ...core.held import NoNumber
from ...core.layout import layout, memory_format, strided
from ...core.quantized import QuantizedRefusal
from ...core.size import Size, new_size
from ...core.sparse import SparseOperand
from ...core.tensor import Tensor
from ...core.typenames import type_name


def need_tensor(name: str, value: Any, argument: str = "input", position: int = 1) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}(): argument '{argument}' (position {position}) must be Tensor, not {type_name(value)}")


def need_tensors(name: str, **tensors: Any) -> None:
    """Check that the first arguments of an operator, given by name and in order, are tensors."""
    for position, (argument, value) in enumerate(tensors.items(), 1):
        need_tensor(name, value, argument, position)


def refuse_quantized(name: str, d: dtype) -> NoReturn:
    """Raise an error for a quantized dtype, which only tensors with a quantizer can have."""
    raise QuantizedRefusal(f"{name}(): a tensor of dtype {d} is made by quantize_per_tensor or quantize_per_channel")


def as_dtype(value: Any, name: str) -> dtype:
    """Return a dtype argument as a dtype; Python's own number types are accepted."""
    if isinstance(value, dtype):
        return value if value.kind != "q" else refuse_quantized(name, value)
    found = dt.OF_PYTHON.get(value) if isinstance(value, type) else None
    if found is None:
        raise TypeError(f"{name}(): argument 'dtype' must be torch.dtype, not {type_name(value)}")
    return found


def as_device(where: Any) -> device:
    """Return a device argument as a device; None is the default device."""
    if where is None:
        return default_device()
    if type(where) is device and where.memory is not None:
        return where
    found = device(where)
    if not has_backend(found):
        if found.type in ("cuda", "xpu"):
            reason = f": {why_absent(found.type)}" if found.type == "cuda" else ""
            raise AssertionError(f"Torch not compiled with {found.type.upper()} enabled{reason}")
        raise RuntimeError(f"{found.type} devices are not supported: only cpu, meta and those with a backend are")
    return indexed(found)


def is_int(value: Any) -> bool:
    """Return whether PyTorch accepts a value where it expects an int: not a bool, not a float."""
    if isinstance(value, int):
        return not isinstance(value, bool)
    if isinstance(value, Tensor):
        return value.shape == () and value.dtype.category == 1
    if isinstance(value, np.ndarray):
        return value.shape == () and value.dtype.kind in "iu"
    return isinstance(value, np.integer)


def as_int(value: Any, name: str, argument: str, position: int) -> int:
    if not is_int(value):
        raise TypeError(f"{name}(): argument '{argument}' (position {position}) must be int, not {type_name(value)}")
    return int(value)


def as_ints(values: Any, name: str, argument: str = "size", position: int = 1) -> tuple[int, ...]:
    """Return a tuple, list or Size of ints as a tuple."""
    if type(values) is Size:
        return values
    if not isinstance(values, (tuple, list)):
        raise TypeError(
            f"{name}(): argument '{argument}' (position {position}) must be tuple of ints, not {type_name(values)}"
        )
    for i, n in enumerate(values):
        if type(n) is not int and not is_int(n):
            if isinstance(n, NoNumber):
                n.__index__()  # raises: the operator has a form for nested tensors, or is refused
            raise TypeError(
                f"{name}(): argument '{argument}' (position {position}) must be tuple of ints, but found element of"
                f" type {type_name(n)} at pos {i}"
            )
    return tuple([n if type(n) is int else int(n) for n in values])


def varargs_ints(args: tuple[Any, ...], name: str, argument: str = "size", position: int = 1) -> tuple[int, ...]:
    """Return the ints of view(2, 3), view((2, 3)) or view([2, 3]) as one tuple."""
    for n in args:
        if type(n) is not int:
            break
    else:
        return args
    if len(args) == 1 and not is_int(args[0]):
        return as_ints(args[0], name, argument, position)
    return as_ints(args, name, argument, position)


def collected(args: tuple[Any, ...], named: dict[str, Any], key: str, name: str) -> tuple[Any, ...]:
    """Return the arguments of f(x, 2, 3), f(x, (2, 3)) or f(x, key=(2, 3)) as a tuple, for `varargs_ints`."""
    if not args and key in named:
        args = (named.pop(key),)
    if named:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(named))}'")
    if not args:
        raise TypeError(f'{name}() missing 1 required positional arguments: "{key}"')
    return args


def as_shape(size: tuple[Any, ...], name: str) -> Size:
    """Return the shape of a new tensor from the arguments of zeros(2, 3), zeros((2, 3)) or zeros([2, 3])."""
    if not size:
        raise TypeError(f'{name}() missing 1 required positional arguments: "size"')
    return new_size(varargs_ints(size, name))


def as_number(value: Any, name: str, argument: str, position: int) -> Any:
    """Return an argument as a Python number; NumPy scalars and 0-dim tensors are read."""
    if isinstance(value, (int, float, complex)):
        return value
    if isinstance(value, np.generic) or (isinstance(value, Tensor) and value.shape == () and not value.requires_grad):
        return value.item()
    raise TypeError(f"{name}(): argument '{argument}' (position {position}) must be Number, not {type_name(value)}")


class Options(NamedTuple):
    """Options of a creation function. `dtype` and `device` are None if they were not given."""

    dtype: dtype | None
    device: device | None
    requires_grad: bool
    format: memory_format | None


_KNOWN = frozenset({"dtype", "layout", "device", "requires_grad", "pin_memory"})
_PLAIN = Options(None, None, False, None)


def read_options(name: str, given: dict[str, Any], takes_format: bool = False) -> Options:
    """Check the keyword arguments dtype=, device=, layout=, requires_grad=, pin_memory= (and memory_format=) and return them as `Options`."""
    if not given:
        return _PLAIN
    d = given.get("dtype")
    if type(d) is dtype and d.kind != "q" and len(given) == 1:
        return Options(d, None, False, None)
    for key in given:
        if key not in _KNOWN and not (takes_format and key == "memory_format"):
            raise TypeError(f"{name}() got an unexpected keyword argument '{key}'")
    where, arrangement = given.get("device"), given.get("layout")
    if arrangement is not None and not isinstance(arrangement, layout):
        raise TypeError(f"{name}(): argument 'layout' must be torch.layout, not {type_name(arrangement)}")
    if arrangement is not None and arrangement is not strided:
        raise SparseOperand(f"{name}(): only the strided layout is supported here, got {arrangement!r}")
    if given.get("pin_memory"):
        raise RuntimeError("Cannot access accelerator device when none is available.")
    fmt = given.get("memory_format")
    if fmt is not None and not isinstance(fmt, memory_format):
        raise TypeError(f"{name}(): argument 'memory_format' must be torch.memory_format, not {type_name(fmt)}")
    recorded = given.get("requires_grad")
    if recorded is not None and not isinstance(recorded, bool):
        raise TypeError(f"{name}(): argument 'requires_grad' must be bool, not {type_name(recorded)}")
    d = None if d is None else as_dtype(d, name)
    return Options(d, None if where is None else as_device(where), bool(recorded), fmt)
