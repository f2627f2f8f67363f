"""Unpickling with PyTorch's names; restricted, a file can build data and nothing else."""

from __future__ import annotations

import collections
import inspect
import pickle
import types
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

from ..core.dtype import uint8
from ..core.tensor import Tensor
from ..core.typed_storage import TypedStorage
from ..nn.parameter import Parameter
from .names import SAFE, StorageType, present_name, resolve, written_name

user_safe: dict[tuple[str, str], Any] = {}

# Nothing of these modules is data: naming it is refused even where it was declared safe.
_BLOCKED = frozenset({"sys", "os", "posix", "nt"})


class SourceChangeWarning(Warning):
    """The class of a module in an old checkpoint looks different now."""


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
    """The classes and functions that `load` may use besides its own."""
    return list(user_safe.values())


def clear_safe_globals() -> None:
    """Forget what `add_safe_globals` was told."""
    user_safe.clear()


class safe_globals:
    """add_safe_globals for the length of a `with` block."""

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
    """What every unpickler of checkpoints adds to its base: names, and storages for persistent ids."""

    load_storage: LoadStorage

    def find_class(self, module: str, name: str) -> Any:
        module, name = present_name(module, name)
        known = SAFE.get((module, name))
        if known is None:
            known = user_safe.get((module, name))
        return resolve(module, name) if known is None else known

    def persistent_load(self, identity: Any) -> Any:
        kind = identity[0] if isinstance(identity, tuple) and identity else identity
        if kind in ("module", b"module") and len(identity) >= 4:
            return _module_class(*identity[1:4])
        if kind not in ("storage", b"storage"):
            raise pickle.UnpicklingError(f"Only persistent_load of storage is allowed, but got {_described(kind)}")
        return self._storage(identity)

    def _storage(self, identity: tuple) -> TypedStorage:
        if len(identity) < 5:
            raise pickle.UnpicklingError(f"corrupt checkpoint: bad storage record {identity!r}"[:200])
        _, kind, key, location, numel = identity[:5]
        key = key.decode() if isinstance(key, bytes) else key
        location = location.decode() if isinstance(location, bytes) else location
        if not isinstance(kind, StorageType) or type(numel) is not int or numel < 0 or not isinstance(key, str):
            raise pickle.UnpicklingError(f"corrupt checkpoint: bad storage record {identity!r}"[:200])
        d = kind.dtype or uint8
        storage = self.load_storage(key, numel * d.itemsize, str(location), d)
        view = identity[5] if len(identity) > 5 else None
        if view is not None:
            storage = _part(storage, view, d.itemsize)
        return TypedStorage(storage, d)


def _described(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(type(kind))


def _part(storage: Any, view: Any, itemsize: int) -> Any:
    """The part of a storage that old files keep as (key of the view, start, length)."""
    numbers = view[1:3] if isinstance(view, tuple) and len(view) == 3 else ()
    if len(numbers) != 2 or not all(type(n) is int and n >= 0 for n in numbers):
        raise pickle.UnpicklingError(f"corrupt checkpoint: bad view of a storage {view!r}"[:200])
    start, stop = numbers[0] * itemsize, sum(numbers) * itemsize
    if stop > storage.size_bytes:
        raise pickle.UnpicklingError(f"corrupt checkpoint: view {view!r} ends after its storage"[:200])
    return storage[start:stop]


def _module_class(kind: Any, file: Any, source: Any) -> Any:
    """The class of a module in the older format, which keeps the source it had then."""
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


class Unpickler(_TorchNames, pickle._Unpickler):  # type: ignore[name-defined]
    """The pure-Python unpickler: a damaged file can make the C one allocate gigabytes for its memo."""

    def __init__(self, file: Any, load_storage: LoadStorage, **options: Any):
        super().__init__(file, **options)
        self.load_storage = load_storage


def unpickler_class(module: Any) -> Any:
    """An unpickler of another module with pickle's interface, taught PyTorch's names."""

    class Taught(_TorchNames, module.Unpickler):
        def __init__(self, file: Any, load_storage: LoadStorage, **options: Any):
            super().__init__(file, **options)
            self.load_storage = load_storage

    return Taught


# -- restricted -----------------------------------------------------------------------------------------------------------

_LISTS = (list,)
_DICTIONARIES = (dict, collections.OrderedDict, collections.Counter, collections.defaultdict)


_SAFE_IDENTITIES = frozenset(id(known) for known in SAFE.values())


def _is_allowed(obj: Any) -> bool:
    if isinstance(obj, (types.MethodType, types.BuiltinMethodType)):  # made anew each time it is asked for
        return any(type(known) is type(obj) and known == obj for known in user_safe.values())
    return id(obj) in _SAFE_IDENTITIES or any(obj is known for known in user_safe.values())


class RestrictedUnpickler(Unpickler):
    """The file can name nothing but data types, tensor builders and what `add_safe_globals` was told, call nothing else, and change
    no object but lists and dictionaries: reading it runs no code of the file's choosing."""

    dispatch: ClassVar[Any] = dict(pickle._Unpickler.dispatch)  # type: ignore[attr-defined]

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
        if isinstance(identity, tuple) and identity and identity[0] in ("module", b"module"):
            raise pickle.UnpicklingError(
                "Only persistent_load of storage is allowed, but got module: the file holds whole modules"
            )
        return super().persistent_load(identity)

    def _callable(self, function: Any) -> None:
        if not _is_allowed(function):
            owner = getattr(function, "__self__", None)
            of = "" if owner is None else f" which belongs to {owner}"
            raise pickle.UnpicklingError(f"Trying to call reduce for unrecognized function {function}{of}")

    def load_reduce(self) -> None:
        self._callable(self.stack[-2])  # type: ignore[attr-defined]
        super().load_reduce()  # type: ignore[misc]

    def load_newobj(self) -> None:
        self._callable(self.stack[-2])  # type: ignore[attr-defined]
        super().load_newobj()  # type: ignore[misc]

    def load_newobj_ex(self) -> None:
        self._callable(self.stack[-3])  # type: ignore[attr-defined]
        super().load_newobj_ex()  # type: ignore[misc]

    def load_build(self) -> None:
        kind = type(self.stack[-2])  # type: ignore[attr-defined]
        if kind not in (Tensor, Parameter, collections.OrderedDict) and not _is_allowed(kind):
            raise pickle.UnpicklingError(
                "Can only build Tensor, Parameter, OrderedDict or types allowlisted via `add_safe_globals`, but got"
                f" {kind}"
            )
        super().load_build()  # type: ignore[misc]

    def _target(self, what: str, depth: int, kinds: tuple, names: str) -> None:
        stack = self.metastack[-1] if depth == 0 else self.stack[:-depth]  # type: ignore[attr-defined]
        if not stack or type(stack[-1]) not in kinds:
            got = type(stack[-1]) if stack else None
            raise pickle.UnpicklingError(f"Can only {what} for {names}, but got {got}")

    def load_setitem(self) -> None:
        self._target("SETITEM", 2, _DICTIONARIES, "dict, collections.OrderedDict, collections.Counter")
        super().load_setitem()  # type: ignore[misc]

    def load_setitems(self) -> None:
        self._target("SETITEMS", 0, _DICTIONARIES, "dict, collections.OrderedDict, collections.Counter")
        super().load_setitems()  # type: ignore[misc]

    def load_append(self) -> None:
        self._target("APPEND", 1, _LISTS, "list")
        super().load_append()  # type: ignore[misc]

    def load_appends(self) -> None:
        self._target("APPENDS", 0, _LISTS, "list")
        super().load_appends()  # type: ignore[misc]

    def _unsupported(self) -> None:
        raise pickle.UnpicklingError("Unsupported operand: the file uses an instruction that data never needs")

    for _code, _step in (
        (pickle.REDUCE, load_reduce), (pickle.NEWOBJ, load_newobj), (pickle.NEWOBJ_EX, load_newobj_ex),
        (pickle.BUILD, load_build), (pickle.SETITEM, load_setitem), (pickle.SETITEMS, load_setitems),
        (pickle.APPEND, load_append), (pickle.APPENDS, load_appends), (pickle.INST, _unsupported), (pickle.OBJ, _unsupported),
        (pickle.EXT1, _unsupported), (pickle.EXT2, _unsupported), (pickle.EXT4, _unsupported),
    ):  # fmt: skip
        dispatch[_code[0]] = _step
    del _code, _step
