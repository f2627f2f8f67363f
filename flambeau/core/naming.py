"""The package's name for itself, and lazy submodules: the one place that words "there is no such name".

Normally the package is `flambeau`. After `flambeau.install_as_torch()` programs know the same modules as `torch`, and messages say so.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

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
    """`flambeau.nn` -> `torch.nn`, `flambeau.vision.ops` -> `torchvision.ops`."""
    for ours, theirs in ((_VISION, "torchvision"), (_HOROVOD, "horovod"), (_PRIVATE, "torch"), (PACKAGE, "torch")):
        if name == ours or name.startswith(f"{ours}."):
            return theirs + name[len(ours) :]
    return name


def own_name(name: str) -> str:
    """`torch.nn` -> `flambeau.nn`, `torchvision.ops` -> `flambeau.vision.ops`."""
    head, dot, rest = name.partition(".")
    return (
        {"torch": PACKAGE, "torchvision": _VISION, "horovod": _HOROVOD, "functorch": f"{PACKAGE}.func"}.get(head, head)
        + dot
        + rest
    )


def not_there(name: str) -> str:
    """The message about `name`, a name of PyTorch's that this package does not have."""
    return f"{name} is not in Flambeau yet (this program runs with Flambeau in the place of PyTorch)"


def no_attribute(module: str, name: str) -> AttributeError:
    """The error for a missing attribute of one of this package's modules."""
    if _State.posing:
        return AttributeError(not_there(f"{torch_name(module)}.{name}"))
    return AttributeError(f"module '{module}' has no attribute '{name}'")


def load(name: str) -> ModuleType:
    """The module of this name, imported, with the packages around it first.

    Python's own `import a.b.c` takes the lock of `a.b.c` and only then that of `a.b`. If another thread is just importing `a.b`,
    which imports its parts, each waits for the other. So what lies in a package that is imported when first used is reached
    through that package, here and in import statements.
    """
    parts = name.split(".")
    for i in range(1, len(parts) if name not in sys.modules else 0):
        importlib.import_module(".".join(parts[:i]))
    return importlib.import_module(name)


# Modules that others take something from when a program first asks for it: of a room above theirs, or of their own where the one is
# made of the other. Nothing else in the library is imported against the order of its rooms.
LATE = frozenset(
    [
        "accelerator",
        "ao.quantization",
        "ao.quantization.fake_quantize",
        "ao.quantization.fx._decomposed",
        "ao.quantization.qconfig_mapping",
        "ao.quantization.quantize_fx",
        "ao.quantization.stubs",
        "compat.private._C",
        "compiler",
        "core.quantized",
        "core.wrapped",
        "cpu",
        "cuda",
        "demo",
        "distributed",
        "distributed._functional_ops",
        "distributed.checkpoint.planner_helpers",
        "distributed.nn.functional",
        "distributed.nccl_engine",
        "export.decompositions",
        "export.proxy_tensor",
        "fx",
        "jit.trace_graph",
        "library.aten",
        "library.higher_order",
        "library.native",
        "library.torchaudio",
        "mps",
        "mtia",
        "nn.functional",
        "nn.scaling",
        "ops.kinds",
        "ops.kinds.mkldnn",
        "ops.kinds.nested",
        "ops.kinds.strided_nested",
        "ops.late",
        "ops.quantizing.operators",
        "overrides",
        "profiler.itt",
        "profiler.range_operators",
        "utils._python_dispatch",
        "vision.models.quantization",
        "vision.transforms._presets",
        "xpu",
    ]
)


def above(name: str) -> ModuleType:
    """The module `name` of the table `LATE`, imported now."""
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
    """`package.name`, imported now; for `__getattr__` of packages whose parts are imported when first used."""
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
