"""Names in checkpoints: PyTorch's names, and the corresponding objects here."""

from __future__ import annotations

import _compat_pickle
import collections
import importlib
import sys
from typing import Any

from ..compat.legacy import STORAGE_TYPES as LEGACY_STORAGES
from ..compat.legacy import TENSOR_TYPES
from ..core.device import device
from ..core.dtype import BY_NAME, RECORDS, dtype
from ..core.generator import Generator
from ..core.jagged import NestedTensor
from ..core.layout import layout, memory_format
from ..core.naming import PACKAGE, load, own_name, torch_name
from ..core.numeric_limits import finfo, iinfo
from ..core.quantized import SCHEMES
from ..core.size import Size
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor
from ..core.typed_storage import TypedStorage
from ..nn import Buffer, Parameter, UninitializedBuffer, UninitializedParameter
from . import rebuild

STORAGE_NAMES: dict[str, dtype] = {d.storage_name: d for d in RECORDS if d.storage_name}
STORAGE_OF: dict[dtype, str] = {d: n for n, d in STORAGE_NAMES.items()}


class StorageType:
    """Stand-in for torch.FloatStorage and similar classes inside a checkpoint."""

    def __init__(self, name: str, kind: dtype | None):
        self.name, self.dtype = name, kind


def normalize_storage_type(storage_type: type) -> type:
    """Return the typed storage class with the name of the given one, which may be a GPU's."""
    return LEGACY_STORAGES[storage_type.__name__]


STORAGE_TYPES = {n: StorageType(n, d) for n, d in STORAGE_NAMES.items()}
UNTYPED = StorageType("UntypedStorage", None)
_JAGGED = "torch.nested._internal.nested_tensor"

# Everything a file may name when only weights are loaded: data types and the functions that put tensors together.
SAFE: dict[tuple[str, str], Any] = {
    ("torch._utils", "_rebuild_tensor_v2"): rebuild.tensor_v2,
    ("torch._utils", "_rebuild_tensor_v3"): rebuild.tensor_v3,
    ("torch._utils", "_rebuild_tensor"): rebuild.tensor,
    ("torch._utils", "_rebuild_sparse_tensor"): rebuild.sparse_tensor,
    ("torch._utils", "_rebuild_qtensor"): rebuild.quantized_tensor,
    ("torch._utils", "_rebuild_nested_tensor"): rebuild.nested_tensor,
    (_JAGGED, "_rebuild_njt"): rebuild.jagged_tensor,
    (_JAGGED, "NestedTensor"): NestedTensor,
    ("torch._dynamo.decorators", "_DimRange"): rebuild.DimRange,
    ("torch._utils", "_rebuild_parameter"): rebuild.parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): rebuild.parameter_with_state,
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): rebuild.meta_tensor,
    ("torch._tensor", "_rebuild_from_type_v2"): rebuild.from_type,
    ("torch.storage", "UntypedStorage"): UNTYPED,
    ("torch", "UntypedStorage"): UNTYPED,
    ("torch", "Tensor"): Tensor,
    ("torch._tensor", "Tensor"): Tensor,
    ("torch.nn.parameter", "Parameter"): Parameter,
    ("torch.nn.parameter", "Buffer"): Buffer,
    ("torch.nn.parameter", "UninitializedParameter"): UninitializedParameter,
    ("torch.nn.parameter", "UninitializedBuffer"): UninitializedBuffer,
    ("torch", "Size"): Size,
    ("torch", "device"): device,
    ("torch.serialization", "_get_layout"): rebuild.layout,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "Counter"): collections.Counter,
    ("collections", "defaultdict"): collections.defaultdict,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "bytearray"): bytearray,
    ("builtins", "complex"): complex,
    ("_codecs", "encode"): rebuild.encode,
    **{("torch", n): t for n, t in STORAGE_TYPES.items()},
    **{("torch.storage", n): t for n, t in STORAGE_TYPES.items()},
    **{("torch", n): d for n, d in BY_NAME.items()},
    **{("torch", n): scheme for n, scheme in SCHEMES.items()},
    **{("torch", n): kind for n, kind in TENSOR_TYPES.items()},
}

# How objects of this package are named in the files it writes.
_WRITTEN: dict[Any, tuple[str, str]] = {
    rebuild.tensor_v2: ("torch._utils", "_rebuild_tensor_v2"),
    rebuild.tensor_v3: ("torch._utils", "_rebuild_tensor_v3"),
    rebuild.parameter: ("torch._utils", "_rebuild_parameter"),
    rebuild.sparse_tensor: ("torch._utils", "_rebuild_sparse_tensor"),
    rebuild.quantized_tensor: ("torch._utils", "_rebuild_qtensor"),
    rebuild.nested_tensor: ("torch._utils", "_rebuild_nested_tensor"),
    rebuild.jagged_tensor: (_JAGGED, "_rebuild_njt"),
    NestedTensor: (_JAGGED, "NestedTensor"),
    rebuild.layout: ("torch.serialization", "_get_layout"),
    rebuild.parameter_with_state: ("torch._utils", "_rebuild_parameter_with_state"),
    rebuild.from_type: ("torch._tensor", "_rebuild_from_type_v2"),
    rebuild.wrapper_subclass: ("torch._utils", "_rebuild_wrapper_subclass"),
    rebuild.meta_tensor: ("torch._utils", "_rebuild_meta_tensor_no_storage"),
    **{kind: ("torch", kind.__name__) for kind in (Tensor, Size, device, dtype, layout, memory_format, finfo, iinfo)},
    Parameter: ("torch.nn.parameter", "Parameter"),
    Buffer: ("torch.nn.parameter", "Buffer"),
    UntypedStorage: ("torch.storage", "UntypedStorage"),
    TypedStorage: ("torch.storage", "TypedStorage"),
    Generator: ("torch._C", "Generator"),
}

# Where classes that live elsewhere here than in PyTorch are at home there.
_TRANSFORMS, _SCHEDULERS = "torchvision.transforms.transforms", "torch.optim.lr_scheduler"
_MOVED_MODULES = {
    "flambeau.ao.nn.quantized.dynamic.modules.rnn_weights": "torch.ao.nn.quantized.dynamic.modules.rnn",
    "flambeau.core.hook_tables": "torch.utils.hooks",
    "flambeau.core.pytree": "torch.utils._pytree",
    "flambeau.distributed.data_parallel": "torch.nn.parallel.distributed",
    "flambeau.profiler.events": "torch.autograd.profiler_util",
    "flambeau.profiler.marks": "torch.autograd.profiler",
    "flambeau.profiler.session": "torch.autograd.profiler",
    "flambeau.nn.modules.attention": "torch.nn.modules.activation",
    **{f"flambeau.vision.transforms.{part}": _TRANSFORMS for part in ("basic", "geometric", "photometric")},
    **{
        f"flambeau.optim.lr_scheduler.{part}": _SCHEDULERS
        for part in ("base", "chainable", "composite", "cyclic", "plateau")
    },
}


def written_name(obj: Any) -> tuple[str, str] | None:
    """Return (module, name) of `obj` in PyTorch, or None if its own name is used."""
    if isinstance(obj, StorageType):
        return ("torch.storage" if obj is UNTYPED else "torch", obj.name)
    try:
        found = _WRITTEN.get(obj)
    except TypeError:
        return None
    if found is not None:
        return found
    module = getattr(obj, "__module__", None) or ""
    if module.partition(".")[0] == PACKAGE:
        name = getattr(obj, "__qualname__", getattr(obj, "__name__", ""))
        return _MOVED_MODULES.get(module) or torch_name(module), name
    return None


def present_name(module: str, name: str) -> tuple[str, str]:
    """Return the Python 3 name of an object that pickle's protocols 0 to 2 store under its Python 2 name."""
    module, name = _compat_pickle.NAME_MAPPING.get((module, name), (module, name))
    return _compat_pickle.IMPORT_MAPPING.get(module, module), name


def resolve(module: str, name: str) -> Any:
    """Return the object that a file calls module.name: torch's names mean this package."""
    known = SAFE.get((module, name))
    if known is not None:
        return known
    if module.partition(".")[0] in ("torch", "torchvision"):
        return _local(module, name)
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


# Where PyTorch keeps its compiled functions.
_COMPILED = {
    "torch._C": "flambeau",
    "torch._C._nn": "flambeau.nn.functional",
    "torch._C._VariableFunctions": "flambeau",
}


def _local(module: str, name: str) -> Any:
    if (module, name) == ("torch._C", "_VariableFunctionsClass"):  # the functions of `torch` are its attributes
        return sys.modules["flambeau"]
    local = _COMPILED.get(module) or own_name(module)
    parents = local.split(".")
    # Packages have what their parts have.
    candidates = [".".join(parents[:n]) for n in range(len(parents), 1, -1)] or [local]
    for candidate in candidates:
        try:
            found: Any = load(candidate)
            for part in name.split("."):
                found = getattr(found, part)
            return found
        except (ImportError, AttributeError):
            continue
    raise AttributeError(f"the file names {module}.{name}, which Flambeau does not have")
