"""Rules for what a file may create and change when only weights are loaded: each name it can call, with a constructor that takes data.

Classes are never called with arguments of the file's choosing: they take more than data (`bytearray(10**12)`, `set(a tensor that repeats
one number for ever)`, `Parameter(an object that pretends to be a tensor)`)."""

from __future__ import annotations

import collections
import inspect
import pickle
from collections.abc import Callable, Iterable
from typing import Any

from ..compat.legacy import TENSOR_TYPES
from ..core.device import device
from ..core.dtype import dtype
from ..core.held import HeldTensor
from ..core.layout import layout, memory_format
from ..core.object_state import slots_of_users, split_state
from ..core.size import Size
from ..core.sparse import SparseTensor
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor, empty
from ..core.typed_storage import TypedStorage
from ..nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter, UninitializedTensorMixin
from . import rebuild
from .rebuild import shown

# Shared singletons, or objects that hold addresses: a file changes none of them, whatever the user allows.
NEVER_BUILT = (device, dtype, layout, memory_format, Size, UntypedStorage, TypedStorage, SparseTensor, HeldTensor)


def _refuse(what: str) -> Any:
    raise RuntimeError(f"corrupt checkpoint: {what}")


# -- keys -----------------------------------------------------------------------------------------------------------------


class Keys:
    """Checks keys of dictionaries and items of sets. Tuples and frozensets are hashed recursively each time, and a few bytes of a file can
    nest them without end (or make them as wide as 2 ** 60): only small ones pass."""

    LARGEST, DEEPEST, NESTED = 256, 32, 1000
    _SIMPLE = frozenset((str, int, float, bool, bytes, complex, type(None)))

    def __init__(self) -> None:
        self.seen: dict[int, Any] = {}  # by id; the object is kept, so that its id stays taken
        self.nested = 0

    def check(self, key: Any) -> None:
        if type(key) in self._SIMPLE or id(key) in self.seen:
            return
        waiting, count = [(key, 0)], 0
        while waiting:
            item, depth = waiting.pop()
            count += 1
            if count > self.LARGEST or depth > self.DEEPEST:
                _refuse("a key of a dictionary or an item of a set is nested too deeply or too large")
            if isinstance(item, (tuple, frozenset)):
                if len(item) > self.LARGEST:
                    _refuse(f"a key of a dictionary or an item of a set has {len(item)} parts")
                waiting.extend((part, depth + 1) for part in item)
        self.seen[id(key)] = key

    def check_values(self, target: Any, values: Iterable[Any]) -> None:
        """Limit the number of nested defaultdicts: Python frees them recursively, and some 100,000 of them exhaust the stack."""
        if type(target) is collections.defaultdict:
            self.nested += sum(type(value) is collections.defaultdict for value in values)
            if self.nested > self.NESTED:
                _refuse(f"more than {self.NESTED} dictionaries of type defaultdict in others")

    def check_all(self, keys: Iterable[Any]) -> None:
        for key in keys:
            self.check(key)


def _items(keys: Keys, name: str, args: tuple) -> list:
    """Return the items of the one list (or tuple, or set) that a constructor is given, or of none."""
    if not args:
        return []
    if len(args) != 1 or type(args[0]) not in (list, tuple, set, frozenset):
        _refuse(f"{name} is made of a list, got {shown(args)}")
    items = list(args[0])
    keys.check_all(items)
    return items


# -- Python's types -------------------------------------------------------------------------------------------------------


def _set(keys: Keys, *args: Any) -> set:
    return set(_items(keys, "a set", args))


def _frozenset(keys: Keys, *args: Any) -> frozenset:
    return frozenset(_items(keys, "a frozenset", args))


def _bytearray(keys: Keys, *args: Any) -> bytearray:
    """Make a bytearray from (), (b"...",) or ("...", "latin-1"), the forms in which pickle's protocols write it."""
    if len(args) == 2:
        return bytearray(rebuild.encode(*args))
    if len(args) > 1 or (args and type(args[0]) is not bytes):
        _refuse(f"a bytearray is made of bytes, got {shown(args)}")
    return bytearray(*args)


def _complex(keys: Keys, *args: Any) -> complex:
    if len(args) > 2 or not all(type(part) in (int, float) for part in args):
        _refuse(f"a complex number is made of two numbers, got {shown(args)}")
    return complex(*args)


def _ordered_dict(keys: Keys, *args: Any) -> collections.OrderedDict:
    if not args:
        return collections.OrderedDict()
    if len(args) == 1 and type(args[0]) in (dict, collections.OrderedDict):  # whose keys were checked
        return collections.OrderedDict(args[0])
    if len(args) != 1 or type(args[0]) is not list:
        _refuse(f"an OrderedDict is made of a list of pairs, got {shown(args)}")
    if not all(type(pair) in (tuple, list) and len(pair) == 2 for pair in args[0]):
        _refuse("an OrderedDict is made of a list of pairs, got something else in the list")
    keys.check_all(pair[0] for pair in args[0])
    return collections.OrderedDict(args[0])


def _counter(keys: Keys, *args: Any) -> collections.Counter:
    if len(args) > 1 or (args and type(args[0]) not in (dict, collections.Counter)):
        _refuse(f"a Counter is made of a dictionary, got {shown(args)}")
    return collections.Counter(*args)


def _default_dict(keys: Keys, *args: Any) -> collections.defaultdict:
    if len(args) > 1:
        _refuse(f"a defaultdict is made of what makes its values, got {shown(args)}")
    return collections.defaultdict(*args)


# -- PyTorch's types ------------------------------------------------------------------------------------------------------


def _size(keys: Keys, *args: Any) -> Size:
    if len(args) > 1 or not all(type(a) in (tuple, list, Size) and all(type(n) is int for n in a) for a in args):
        _refuse(f"a Size is made of integers, got {shown(args)}")
    return Size(*args)


def _device(keys: Keys, *args: Any) -> device:
    kind, index = (*args, None, None)[:2]
    if not 1 <= len(args) <= 2 or type(kind) is not str or not (index is None or type(index) is int):
        _refuse(f"a device is made of a type and an index, got {shown(args)}")
    if index is not None and not 0 <= index < 128:  # more than PyTorch's devices have
        _refuse(f"a device's index lies between 0 and 127, got {shown(index)}")
    return device(*args)


def _empty_maker(make: Callable[[], Any], name: str) -> Callable[..., Any]:
    """Return a function that begins an object whose contents come later (BUILD), as PyTorch 0.x does tensors."""

    def construct(keys: Keys, *args: Any) -> Any:
        return make() if not args else _refuse(f"{name} of a file takes no arguments, got {shown(args)}")

    return construct


def _legacy(kind: Any) -> Callable[..., Tensor]:
    return _empty_maker(lambda: empty((0,), kind.dtype), kind.__name__)


def _parameter(keys: Keys, *args: Any) -> Parameter:
    if not args:
        return Parameter()
    if len(args) > 2:
        _refuse(f"a Parameter is made of a tensor, got {shown(args)}")
    return rebuild.parameter(args[0], args[1] if len(args) == 2 else True, None)


def _buffer(keys: Keys, *args: Any) -> Tensor:
    if len(args) > 1 or not all(isinstance(a, Tensor) and not isinstance(a, UninitializedTensorMixin) for a in args):
        _refuse(f"a Buffer is made of a tensor, got {shown(args)}")
    return Buffer(*args)


def _uninitialized(kind: Any) -> Callable[..., Any]:
    def construct(keys: Keys, *args: Any) -> Any:
        """Construct from (requires_grad, device, dtype, and for a buffer whether it is persistent)."""
        allowed = ((bool,), (device, type(None)), (dtype, type(None)), (bool,))[
            : 4 if kind is UninitializedBuffer else 3
        ]
        if len(args) > len(allowed) or not all(type(a) in types for a, types in zip(args, allowed)):
            _refuse(f"{kind.__name__} is made of requires_grad, device and dtype, got {shown(args)}")
        return kind(*args)

    return construct


# -- attributes -----------------------------------------------------------------------------------------------------------

# Kept among a tensor's attributes by this package itself, and believed by it.
_OWN = frozenset({"_tangent", "_backward_hooks", "_post_accumulate_grad_hooks"})


def attributes(kind: type, given: Any) -> None:
    """Raise unless these can be attributes that a user has set on an object of this class. They may hide a method, as they may in a
    program, but only by a value that cannot be called in its place."""
    if type(given) is not dict:
        _refuse(f"the attributes of a {kind.__name__} should be a dictionary, got {shown(given)}")
    for name, value in given.items():
        if type(name) is not str or name in _OWN or (name.startswith("__") and name.endswith("__")):
            _refuse(f"{shown(name)} cannot be an attribute of a {kind.__name__}")
        hidden = _private_attribute(kind, name)
        if hidden is not None and (name.startswith("_") or not inspect.isroutine(hidden) or callable(value)):
            raise pickle.UnpicklingError(f"attribute {name!r} of a {kind.__name__} would hide a part of the class")


def _private_attribute(kind: type, name: str) -> Any:
    """Return the attribute that this package (or Python) has under a name that a user's class may take."""
    users = [c for c in kind.__mro__ if not _is_known(c)]
    return next((vars(c)[name] for c in kind.__mro__ if c not in users and name in vars(c)), None)


def _is_known(kind: type) -> bool:
    return kind in (object, dict, collections.OrderedDict) or kind.__module__.partition(".")[0] == _PACKAGE


_PACKAGE = Tensor.__module__.partition(".")[0]


def state(kind: Any, given: Any) -> None:
    """Raise unless this is a valid state of tensors of this class in a file."""
    if kind.__setstate__ is not Tensor.__setstate__ or (type(given) is tuple and len(given) in (3, 4, 5)):
        return  # the user's own method reads it, or it is of PyTorch 0.x and checked where it is used
    own, slots = split_state(given)
    if own is not None:
        attributes(kind, own)
    if slots is None:
        return
    known = slots_of_users(kind)
    if type(slots) is not dict or not all(type(name) is str and name in known for name in slots):
        _refuse(f"a file can set the slots {list(known)} of a {kind.__name__}, not {shown(list(slots))}")


def _parameter_with_state(keys: Keys, data: Any, requires_grad: Any, backward_hooks: Any, given: Any) -> Parameter:
    state(Parameter, given)
    return rebuild.parameter_with_state(data, requires_grad, backward_hooks, given)


def _from_type(keys: Keys, function: Any, kind: Any, args: Any, given: Any) -> Any:
    if not isinstance(kind, type) or not issubclass(kind, Tensor) or issubclass(kind, UninitializedTensorMixin):
        _refuse(f"cannot rebuild a tensor as {shown(kind)}")
    state(kind, rebuild.own_attributes(kind, given))
    return rebuild.from_type(function, kind, args, given)


# -- all of it ------------------------------------------------------------------------------------------------------------


def _plain(function: Callable) -> Callable:
    return lambda keys, *args: function(*args)


_BY_OBJECT: list[tuple[Any, Callable]] = [
    *((f, _plain(f)) for f in (
        rebuild.tensor, rebuild.tensor_v2, rebuild.tensor_v3, rebuild.sparse_tensor, rebuild.quantized_tensor, rebuild.parameter, rebuild.meta_tensor,
        rebuild.layout, rebuild.encode, rebuild.nested_tensor, rebuild.jagged_tensor,
    )),
    (rebuild.DimRange, _empty_maker(rebuild.DimRange, "DimRange")),
    (rebuild.parameter_with_state, _parameter_with_state), (rebuild.from_type, _from_type),
    (set, _set), (frozenset, _frozenset), (bytearray, _bytearray), (complex, _complex),
    (collections.OrderedDict, _ordered_dict), (collections.Counter, _counter), (collections.defaultdict, _default_dict),
    (Size, _size), (device, _device), (Tensor, _empty_maker(Tensor, "Tensor")), (Parameter, _parameter), (Buffer, _buffer),
    (UninitializedParameter, _uninitialized(UninitializedParameter)),
    (UninitializedBuffer, _uninitialized(UninitializedBuffer)),
    *((kind, _legacy(kind)) for kind in TENSOR_TYPES.values()),
]  # fmt: skip
# By identity: what a file names need not be hashable.
constructors: dict[int, Callable] = {id(function): make for function, make in _BY_OBJECT}
