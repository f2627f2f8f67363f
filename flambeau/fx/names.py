"""Names of a graph's variables, and PyTorch's names of functions and types."""

from __future__ import annotations

import builtins
import functools
import inspect
import keyword
import re
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import flambeau

from ..core import naming
from ..core.device import device
from ..core.tensor import Tensor
from ..ops import late_names
from ..ops import namespace as operators
from ..serialization import names as file_names

# Functions that PyTorch compiles, where it keeps them; what else `nn.functional` has is written in Python there.
COMPILED_NN = [
    "avg_pool2d", "avg_pool3d", "elu_", "gelu", "hardtanh_", "leaky_relu_", "linear", "logsigmoid", "one_hot",
    "scaled_dot_product_attention", "softplus", "softshrink",
]  # fmt: skip
PYTHON_FUNCTIONS = [
    "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "broadcast_tensors",
    "cartesian_prod", "cdist", "chain_matmul", "einsum", "lu", "meshgrid", "norm", "split", "stft", "tensordot",
    "unique", "unique_consecutive", "unravel_index",
]  # fmt: skip
_ALIASES = {"logsigmoid": "log_sigmoid"}
_SHARED = ("layer_norm", "rms_norm")
_OPERATOR_MODULES = ("linalg", "fft", "special")


class Home(NamedTuple):
    """The module and the name of a function in PyTorch."""

    module: str
    name: str


def _public_names_in(space: str) -> Iterator[tuple[str, Any, Home]]:
    for name, function in operators(space).items():
        if space == "torch":
            home = Home("torch.functional" if name in PYTHON_FUNCTIONS else "torch", name)
        elif space in _OPERATOR_MODULES:
            home = Home(f"torch._C._{space}", f"{space}_{name}")
        elif name in COMPILED_NN:
            home = Home("torch._C._nn", _ALIASES.get(name, name))
        else:
            home = Home("torch.nn.functional", name)
        yield name, function, home


@functools.cache
def _public_names() -> dict[int, Home]:
    """Return the public names of functions by id; where a function has several, the one equal to its `__name__`."""
    found: dict[int, Home] = {}
    for space in ("torch", "nn.functional", *_OPERATOR_MODULES):
        chosen: dict[int, Home] = {}
        for name, function, home in _public_names_in(space):
            if id(function) not in chosen or getattr(function, "__name__", None) == name:
                chosen[id(function)] = home
        for key, home in chosen.items():
            # One function here where PyTorch has two: programs call the one in nn.functional.
            if key not in found or home.name in _SHARED:
                found[key] = home
    return found


def home_of(function: Any) -> Home | None:
    """Return the module of this operator in PyTorch; None for foreign functions."""
    return _public_names().get(id(function))


def function_name(function: Any) -> str:
    """Return the `__name__` that PyTorch's counterpart of the function has."""
    home = home_of(function)
    return home.name if home else function.__name__


def module_name(value: Any) -> str | None:
    """Return the `__module__` that PyTorch's counterpart of the object has."""
    home = home_of(value)
    if home:
        return home.module
    written = file_names.written_name(value)
    if isinstance(value, type) and written:
        return written[0]
    name = getattr(value, "__name__", None)
    known = isinstance(name, str) and (
        name in vars(flambeau) or name in vars(flambeau)["_HOMES"] or name in late_names()[0]
    )
    if known and getattr(flambeau, name, None) is value:  # type: ignore[arg-type]
        return "torch"
    module = written[0] if written else getattr(value, "__module__", None)
    return None if module is None else naming.torch_name(module).replace("torch._ops", "torch.ops")


def is_from_torch(value: Any) -> bool:
    """Return whether programs reach the object as an attribute of `torch`."""
    module = module_name(value)
    return module is not None and (module == "torch" or module.startswith("torch."))


def type_repr(value: Any) -> str:
    """Return a type as an annotation shows it."""
    if isinstance(value, type) and not isinstance(value, types.GenericAlias):
        if value.__module__ == "builtins":
            return value.__qualname__
        module, name = file_names.written_name(value) or (naming.torch_name(value.__module__), value.__qualname__)
        return f"{module}.{name}"
    if value is ...:
        return "..."
    if isinstance(value, types.FunctionType):
        return value.__name__
    return repr(value)


def _name_of_lambda(function: Callable) -> str:
    try:
        return inspect.getsource(function).split("=")[0].strip()
    except Exception as problem:
        raise RuntimeError("Unable to represent lambda") from problem


def qualified_name(function: Any) -> str:
    """Return the dotted name by which generated code calls a function."""
    home = home_of(function)
    if home:
        return f"{home.module}.{home.name}"
    name = function.__name__
    if getattr(builtins, name, None) is function:
        return name
    if inspect.getattr_static(Tensor, name, None) is function:
        return f"torch.Tensor.{name}"
    if name == "<lambda>":
        name = _name_of_lambda(function)
    module = module_name(function)
    if module is None:
        raise RuntimeError(f"cannot find module for {function}")
    if isinstance(function, type):
        written = file_names.written_name(function)
        name = written[1] if written else name
    return f"{module}.{name}"


def is_magic(name: str) -> bool:
    """Return whether a name has the form `__add__`."""
    return name.startswith("__") and name.endswith("__")


def snake_case(name: str) -> str:
    """Convert `ConvBlock` to `conv_block`."""
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


# -- variables ------------------------------------------------------------------------------------------------------------

_NUMBERED = re.compile(r"([a-zA-Z_]\w*?)(?:_(\d+))?", re.ASCII)
_FORBIDDEN: dict[str, Any] = {**{word: object() for word in keyword.kwlist}, **vars(builtins)}


def forbid_name(name: str, value: Any) -> None:
    """Reserve a name that no variable may have, because every graph's code sees `value` under it."""
    _FORBIDDEN[name] = value


def _as_identifier(candidate: str) -> str:
    cleaned = re.sub(r"[^0-9a-zA-Z_]+", "_", candidate) or "_unnamed"
    return f"_{cleaned}" if cleaned[0].isdigit() else cleaned


class Namespace:
    """Names of variables: each is used once, and none hides a builtin."""

    def __init__(self) -> None:
        self._obj_to_name: dict[Any, str] = {}
        self._used_names: set[str] = set()
        self._base_count: dict[str, int] = {}

    def create_name(self, candidate: str, obj: Any | None) -> str:
        """Return a new name derived from `candidate`, or the name that the object has already."""
        if obj is not None and obj in self._obj_to_name:
            return self._obj_to_name[obj]
        found = _NUMBERED.fullmatch(candidate)
        if found is None:
            candidate = _as_identifier(candidate)
            found = _NUMBERED.fullmatch(candidate)
            assert found is not None
        base, digits = found.groups()
        if digits is not None and candidate not in self._used_names:
            number = int(digits)
        else:
            number = self._base_count.get(base, 0)
            if _FORBIDDEN.get(candidate, obj) is not obj:
                number += 1
                candidate = f"{base}_{number}"
        while candidate in self._used_names:
            number += 1
            candidate = f"{base}_{number}"
        self._used_names.add(candidate)
        self._base_count[base] = number
        if obj is not None:
            self._obj_to_name[obj] = candidate
        return candidate

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """Reserve a name for an object."""
        if self._obj_to_name.setdefault(obj, name) is not name:
            raise AssertionError("obj is already associated")

    def _rename_object(self, obj: Any, name: str) -> None:
        if obj not in self._obj_to_name:
            raise AssertionError(f"Object {obj} is not in _obj_to_name")
        self._obj_to_name[obj] = name
        self._used_names.add(name)


def is_device_class(value: Any) -> bool:
    """Return whether a value is the class `device`, under whose name devices print."""
    return value is device
