"""Unpickling with PyTorch's names; a restricted unpickler lets a file build data only."""

from __future__ import annotations

import collections
import inspect
import pickle
import struct
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

from ..core.dtype import uint8
from ..core.tensor import Tensor
from ..core.typed_storage import TypedStorage
from ..nn.parameter import Parameter
from . import checked
from .names import SAFE, StorageType, present_name, resolve, written_name
from .rebuild import DimRange, set_state, shown

user_safe: dict[tuple[str, str], Any] = {}

# Nothing of these modules is data: naming it is refused even where it was declared safe.
_BLOCKED = frozenset({"sys", "os", "posix", "nt"})


class SourceChangeWarning(Warning):
    """Warning that the source of a module's class in an old checkpoint differs from the current one."""


def _entry(item: Any) -> tuple[tuple[str, str], Any]:
    obj, name = item if isinstance(item, tuple) else (item, None)
    if name is not None:
        module, _, attribute = name.rpartition(".")
        return (module, attribute), obj
    return written_name(obj) or (obj.__module__, obj.__qualname__), obj


def add_safe_globals(safe_globals: list) -> None:
    """Allow these classes and functions in files loaded with weights_only=True."""
    user_safe.update(_entry(item) for item in safe_globals)


def get_safe_globals() -> list:
    """Return the classes and functions that `load` may use besides its own."""
    return list(user_safe.values())


def clear_safe_globals() -> None:
    """Remove everything that `add_safe_globals` added."""
    user_safe.clear()


class safe_globals:
    """Context manager: `add_safe_globals` inside of a `with` block."""

    def __init__(self, safe_globals: list):
        self.items = safe_globals

    def __enter__(self) -> None:
        self.before = dict(user_safe)
        add_safe_globals(self.items)

    def __exit__(self, *exc: Any) -> None:
        user_safe.clear()
        user_safe.update(self.before)


def full_name(module: str, name: str) -> str:
    return name if module == "builtins" else f"{module}.{name}"


LoadStorage = Callable[..., Any]  # (key, bytes, location, dtype) -> UntypedStorage


class _TorchNames:
    """Base of unpicklers of checkpoints: PyTorch's names, and storages for persistent ids."""

    load_storage: LoadStorage

    def find_class(self, module: str, name: str) -> Any:
        module, name = present_name(module, name)
        known = SAFE.get((module, name))
        if known is None:
            known = user_safe.get((module, name))
        return resolve(module, name) if known is None else known

    def persistent_load(self, identity: Any) -> Any:
        kind = identity[0] if isinstance(identity, tuple) and identity else identity
        kind = kind.decode(errors="replace") if isinstance(kind, bytes) else kind
        if isinstance(kind, str) and isinstance(identity, tuple):
            if kind == "module" and len(identity) >= 4:
                return _module_class(*identity[1:4])
            if kind == "storage":
                return self._storage(identity)
        raise pickle.UnpicklingError(f"Only persistent_load of storage is allowed, but got {_describe(kind)}")

    def _storage(self, identity: tuple) -> TypedStorage:
        if len(identity) < 5:
            raise pickle.UnpicklingError(f"corrupt checkpoint: bad storage record {shown(identity)}")
        _, kind, key, location, numel = identity[:5]
        key = key.decode() if isinstance(key, bytes) else key
        location = location.decode() if isinstance(location, bytes) else location
        number = type(numel) is int and numel >= 0
        if not isinstance(kind, StorageType) or not number or type(key) is not str or type(location) is not str:
            raise pickle.UnpicklingError(f"corrupt checkpoint: bad storage record {shown(identity)}")
        d = kind.dtype or uint8
        storage = self.load_storage(key, numel * d.itemsize, location, d)
        view = identity[5] if len(identity) > 5 else None
        if view is not None:
            storage = _storage_part(storage, view, d.itemsize)
        return TypedStorage(storage, d)


def _describe(kind: Any) -> str:
    if callable(kind):
        return f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', type(kind).__name__)}"
    return kind[:80] if isinstance(kind, str) else str(type(kind))


def _storage_part(storage: Any, view: Any, itemsize: int) -> Any:
    """Return the part of a storage that old files describe as (key of the view, start, length)."""
    numbers = view[1:3] if isinstance(view, tuple) and len(view) == 3 else ()
    if len(numbers) != 2 or not all(type(n) is int and n >= 0 for n in numbers):
        raise pickle.UnpicklingError(f"corrupt checkpoint: bad view of a storage {shown(view)}")
    start, stop = numbers[0] * itemsize, sum(numbers) * itemsize
    if stop > storage.size_bytes:
        raise pickle.UnpicklingError(f"corrupt checkpoint: view {shown(view)} ends after its storage")
    return storage[start:stop]


def _module_class(kind: Any, file: Any, source: Any) -> Any:
    """Return the class of a module in the older format, which stores its source; warns if that has changed."""
    try:
        now: str | None = inspect.getsource(kind)
    except (OSError, TypeError):
        now = None
    own = isinstance(kind, type) and kind.__module__.startswith("flambeau.")  # its source is not PyTorch's
    if now is not None and source and now != source and not own:
        warnings.warn(
            f"source code of class '{kind.__module__}.{kind.__qualname__}' in {file} has changed since the file was written. you"
            " can retrieve the original source code by accessing the object's source attribute.",
            SourceChangeWarning,
            stacklevel=2,
        )
    return kind


_Unpickler: Any = pickle._Unpickler  # whose stack and steps its stub leaves out


class Unpickler(_TorchNames, _Unpickler):
    """The pure-Python unpickler: a damaged file can make the C one allocate gigabytes for its memo."""

    dispatch: ClassVar[Any] = dict(_Unpickler.dispatch)

    def __init__(self, file: Any, load_storage: LoadStorage, **options: Any):
        super().__init__(file, **options)
        self.load_storage = load_storage

    def load_build(self) -> None:
        t = self.stack[-2]
        if isinstance(t, Tensor) and type(t).__setstate__ is Tensor.__setstate__:
            set_state(t, self.stack.pop())
        else:
            super().load_build()

    dispatch[pickle.BUILD[0]] = load_build


def unpickler_class(module: Any) -> Any:
    """Return an unpickler of another module with pickle's interface, extended by PyTorch's names."""

    class Taught(_TorchNames, module.Unpickler):
        def __init__(self, file: Any, load_storage: LoadStorage, **options: Any):
            super().__init__(file, **options)
            self.load_storage = load_storage

    return Taught


# -- restricted -----------------------------------------------------------------------------------------------------------

_LISTS = (list,)
_DICTIONARIES = (dict, collections.OrderedDict, collections.Counter, collections.defaultdict)
_BUILT = (Tensor, Parameter, collections.OrderedDict, DimRange)
_MODULE = ("module", b"module")
_SAFE_IDENTITIES = frozenset(id(known) for known in SAFE.values())


def _is_users(obj: Any) -> bool:
    """Return whether an object was registered by `add_safe_globals`."""
    if isinstance(obj, (types.MethodType, types.BuiltinMethodType)):  # made anew each time it is asked for
        return any(type(known) is type(obj) and known == obj for known in user_safe.values())
    return any(obj is known for known in user_safe.values())


class RestrictedUnpickler(Unpickler):
    """The file can name nothing but data types, tensor builders and registered objects (`add_safe_globals`), call nothing else, and change
    no object but lists, sets and dictionaries: reading it runs no code of the file's choosing. What it does name takes data only (see
    `checked`), so that nothing it builds reaches outside its own memory."""

    dispatch: ClassVar[Any] = dict(Unpickler.dispatch)

    def __init__(self, file: Any, load_storage: LoadStorage, **options: Any):
        super().__init__(file, load_storage, **options)
        self.keys = checked.Keys()

    def find_class(self, module: str, name: str) -> Any:
        module, name = present_name(module, name)
        full = full_name(module, name)
        if module in _BLOCKED:
            raise pickle.UnpicklingError(f"Trying to load unsupported GLOBAL {full} whose module {module} is blocked.")
        known = SAFE.get((module, name))
        if known is None:
            known = user_safe.get((module, name))
        if known is None:
            raise pickle.UnpicklingError(
                f"Unsupported global: GLOBAL {full} was not an allowed global by default. Please use"
                f" `torch.serialization.add_safe_globals([{full}])` or the `torch.serialization.safe_globals([{full}])` context"
                " manager to allowlist this global if you trust this class/function."
            )
        return known

    def persistent_load(self, identity: Any) -> Any:
        if type(identity) is tuple and identity and type(identity[0]) in (str, bytes) and identity[0] in _MODULE:
            raise pickle.UnpicklingError(
                "Only persistent_load of storage is allowed, but got module: the file holds whole modules"
            )
        return super().persistent_load(identity)

    def _constructor(self, function: Any, args: Any) -> Any:
        """Return the function to call in place of one that the file names; None if it is the user's."""
        if type(args) is not tuple:
            raise pickle.UnpicklingError(f"Trying to call reduce with {shown(args)}, which is no tuple of arguments")
        if _is_users(function):
            return None
        if id(function) not in _SAFE_IDENTITIES:
            owner = getattr(function, "__self__", None)
            of = "" if owner is None else f" which belongs to {shown(owner)}"
            raise pickle.UnpicklingError(f"Trying to call reduce for unrecognized function {_describe(function)}{of}")
        known = checked.constructors.get(id(function))
        if known is None:
            raise pickle.UnpicklingError(f"Trying to call {shown(function)}, which is no function")
        return known

    def load_reduce(self) -> None:
        stack: Any = self.stack
        make = self._constructor(stack[-2], stack[-1])
        if make is None:
            super().load_reduce()
            return
        args = stack.pop()
        stack[-1] = make(self.keys, *args)

    def load_newobj(self) -> None:
        stack: Any = self.stack
        if self._constructor(stack[-2], stack[-1]) is None:
            super().load_newobj()
        else:
            self.load_reduce()

    def load_newobj_ex(self) -> None:
        stack: Any = self.stack
        if type(stack[-1]) is not dict or self._constructor(stack[-3], stack[-2]) is not None:
            raise pickle.UnpicklingError(
                "Unsupported operand: nothing that a file makes by itself takes arguments by name"
            )
        super().load_newobj_ex()

    def load_build(self) -> None:
        t, state = self.stack[-2:]
        kind = type(t)
        if issubclass(kind, checked.NEVER_BUILT) or not (kind in _BUILT or _is_users(kind)):
            raise pickle.UnpicklingError(
                "Can only build Tensor, Parameter, OrderedDict or types allowlisted via `add_safe_globals`, but got"
                f" {kind}"
            )
        if kind is collections.OrderedDict:
            checked.attributes(kind, state)
            t.__dict__.update(state)
            self.stack.pop()
            return
        if isinstance(t, Tensor):
            checked.state(kind, state)
        super().load_build()

    def _target(self, what: str, stack: list, depth: int, kinds: tuple, names: str) -> None:
        if len(stack) <= depth or type(stack[-1 - depth]) not in kinds:
            got = type(stack[-1 - depth]) if len(stack) > depth else None
            raise pickle.UnpicklingError(f"Can only {what} for {names}, but got {got}")

    def _below(self) -> list:
        """Return the stack below the last mark."""
        return self.metastack[-1]

    def load_setitem(self) -> None:
        stack: Any = self.stack
        self._target("SETITEM", stack, 2, _DICTIONARIES, "dict, collections.OrderedDict, collections.Counter")
        self.keys.check(stack[-2])
        self.keys.check_values(stack[-3], stack[-1:])
        super().load_setitem()

    def load_setitems(self) -> None:
        names = "dict, collections.OrderedDict, collections.Counter"
        self._target("SETITEMS", self._below(), 0, _DICTIONARIES, names)
        self.keys.check_all(self.stack[::2])
        self.keys.check_values(self._below()[-1], self.stack[1::2])
        super().load_setitems()

    def load_dict(self) -> None:
        self.keys.check_all(self.stack[::2])
        super().load_dict()

    def load_append(self) -> None:
        self._target("APPEND", self.stack, 1, _LISTS, "list")
        super().load_append()

    def load_appends(self) -> None:
        self._target("APPENDS", self._below(), 0, _LISTS, "list")
        super().load_appends()

    def load_additems(self) -> None:
        self._target("ADDITEMS", self._below(), 0, (set,), "set")
        self.keys.check_all(self.stack)
        super().load_additems()

    def load_frozenset(self) -> None:
        self.keys.check_all(self.stack)
        super().load_frozenset()

    def load_bytearray8(self) -> None:
        """Load a bytearray as pickle does, but allocate no more than the file has."""
        (length,) = struct.unpack("<Q", self.read(8))
        data = self.read(min(length, sys.maxsize))
        self.append(bytearray(data))

    def _unsupported(self) -> None:
        raise pickle.UnpicklingError("Unsupported operand: the file uses an instruction that data never needs")

    for _code, _step in (
        (pickle.REDUCE, load_reduce), (pickle.NEWOBJ, load_newobj), (pickle.NEWOBJ_EX, load_newobj_ex),
        (pickle.BUILD, load_build), (pickle.SETITEM, load_setitem), (pickle.SETITEMS, load_setitems), (pickle.DICT, load_dict),
        (pickle.APPEND, load_append), (pickle.APPENDS, load_appends), (pickle.ADDITEMS, load_additems),
        (pickle.FROZENSET, load_frozenset), (pickle.BYTEARRAY8, load_bytearray8),
        (pickle.INST, _unsupported), (pickle.OBJ, _unsupported), (pickle.EXT1, _unsupported), (pickle.EXT2, _unsupported),
        (pickle.EXT4, _unsupported), (pickle.NEXT_BUFFER, _unsupported), (pickle.READONLY_BUFFER, _unsupported),
    ):  # fmt: skip
        dispatch[_code[0]] = _step
    del _code, _step
