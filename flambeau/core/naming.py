"""The package's name for itself, lazy submodules, and the message for names that do not exist.

Normally the package is `flambeau`. After `flambeau.install_as_torch()` programs know the same modules as `torch`, and messages say so.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from . import locks

PACKAGE = "flambeau"
_VISION, _HOROVOD, _PRIVATE = f"{PACKAGE}.vision", f"{PACKAGE}.horovod", f"{PACKAGE}.compat.private"


_importing = locks.new_lock(locks.IMPORTS)


class _State:
    posing = False


def start_posing() -> None:
    _State.posing = True


def is_posing() -> bool:
    return _State.posing


def torch_name(name: str) -> str:
    """Return PyTorch's name of a module: `flambeau.nn` -> `torch.nn`, `flambeau.vision.ops` -> `torchvision.ops`."""
    for ours, theirs in ((_VISION, "torchvision"), (_HOROVOD, "horovod"), (_PRIVATE, "torch"), (PACKAGE, "torch")):
        if name == ours or name.startswith(f"{ours}."):
            return theirs + name[len(ours) :]
    return name


def own_name(name: str) -> str:
    """Return this package's name of a module: `torch.nn` -> `flambeau.nn`, `torchvision.ops` -> `flambeau.vision.ops`."""
    head, dot, rest = name.partition(".")
    return (
        {"torch": PACKAGE, "torchvision": _VISION, "horovod": _HOROVOD, "functorch": f"{PACKAGE}.func"}.get(head, head)
        + dot
        + rest
    )


def not_there(name: str) -> str:
    """Return the message about `name`, a name of PyTorch that this package does not have."""
    return f"{name} is not in Flambeau yet (this program runs with Flambeau in the place of PyTorch)"


def no_attribute(module: str, name: str) -> AttributeError:
    """Return the error for a missing attribute of one of this package's modules."""
    if _State.posing:
        return AttributeError(not_there(f"{torch_name(module)}.{name}"))
    return AttributeError(f"module '{module}' has no attribute '{name}'")


def load(name: str) -> ModuleType:
    """Import the module of this name, with the packages around it first.

    Python's own `import a.b.c` takes the lock of `a.b.c` and only then that of `a.b`. If another thread is importing `a.b`, which imports its
    parts, each waits for the other. So modules in a package that is imported lazily are reached through that package, here and in import
    statements.
    """
    parts = name.split(".") if name not in sys.modules else []
    for i in range(1, len(parts)):
        importlib.import_module(".".join(parts[:i]))
    return importlib.import_module(name)


# Modules that others take something from when a program first asks for it: of a room above theirs, of their own where the one is
# made of the other, or one that few programs need. Nothing else in the library is imported against the order of its rooms, or late.
_DATA = Path(__file__).parents[1] / "data"
LATE = frozenset((_DATA / "late_modules.txt").read_text().split())


def table(name: str) -> dict[str, str]:
    """Return a table of names from a file: lines of the form `name = what it stands for`."""
    rows = (_DATA / f"{name}.txt").read_text().splitlines()
    return {key: value.strip() for key, _, value in (row.partition(" =") for row in rows)}


class _Late:
    """Placeholder of a module, which is imported on the first use of one of its names."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(above(self._name), name)


def late(name: str) -> Any:
    """Return a placeholder for the module `name` of the table `LATE`, imported when one of its names is first used."""
    return _Late(name)


def attribute(package: str, home: str, name: str) -> Any:
    """Return `name` of the module `package.home`, imported now; for tables of lazily imported names."""
    return getattr(load(f"{package}.{home}"), name)


def above(name: str) -> ModuleType:
    """Import the module `name` of the table `LATE`."""
    if name not in LATE:
        raise ModuleNotFoundError(f"'{name}' is not among the modules that may be imported late", name=name)
    full = f"{PACKAGE}.{name}"
    found = sys.modules.get(full)
    if found is not None and not getattr(found.__spec__, "_initializing", False):
        return found
    # A fork waits for this lock: Python's own locks of modules would stay held in the child. Not for ever: a thread that has one of
    # those and wants this one is let through.
    held = _importing.acquire(timeout=1.0)
    try:
        return load(full)
    finally:
        if held:
            _importing.release()


def submodule(package: str, name: str) -> ModuleType:
    """Import `package.name`; for `__getattr__` of packages with lazily imported parts."""
    if name.startswith("__") and "." in package:  # tools ask for them; only `torch.__config__` and its kin are modules
        raise no_attribute(package, name)
    full = f"{package}.{name}"
    asked = torch_name(full) if _State.posing else full  # so that programs find it under that name in sys.modules, too
    try:
        return importlib.import_module(asked)
    except ModuleNotFoundError as problem:
        if problem.name not in (full, asked):
            raise
    raise no_attribute(package, name)
