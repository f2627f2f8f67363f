"""PyTorch's public names, as a file: what compatibility.md is measured against.

    python docs/_tools/pytorch_names.py       # with torch==2.13.0 installed: writes pytorch-names.txt

One line a namespace: its name, then its public names; functions and classes written in Python with the names of their parameters.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "pytorch-names.txt"
# Tests, generated code, and other programs that only lie in the package.
_SKIPPED = ("torch.testing.", "torch.contrib.", "torch.nn.modules", "torch.utils.benchmark.examples", "torch.utils.benchmark.op_fuzzers",
            "torch.utils.hipify", "torch.utils.data.datapipes.gen_pyi", "torch.utils.model_dump", "torch.for_onnx",
            "torch.ao.quantization.experimental", "torch.distributed.benchmarks", "torch.distributed.examples")  # fmt: skip

# Two levels down, modules with `__all__` and packages are seen; further down, and besides, these.
_DEEP = ("torch.nn.functional", "torch.nn.init", "torch.nn.utils.rnn", "torch.nn.utils.parametrize", "torch.nn.utils.prune",
         "torch.nn.utils.parametrizations", "torch.nn.utils.fusion", "torch.nn.attention.bias", "torch.nn.attention.flex_attention",
         "torch.ao.nn.quantized", "torch.ao.nn.quantized.dynamic", "torch.ao.nn.intrinsic", "torch.ao.nn.qat",
         "torch.ao.nn.quantizable", "torch.ao.quantization.observer", "torch.ao.quantization.qconfig", "torch.ao.quantization.quantize_fx",
         "torch.distributed.tensor.parallel", "torch.distributed.checkpoint.state_dict", "torch.distributed.fsdp.wrap",
         "torch.fx.experimental.proxy_tensor")  # fmt: skip


def modules() -> Iterator[types.ModuleType]:
    """PyTorch's public modules, those that this build can import."""
    torch = importlib.import_module("torch")
    yield torch
    for found in pkgutil.walk_packages(torch.__path__, "torch.", onerror=lambda name: None):
        if any(part.startswith("_") for part in found.name.split(".")) or found.name.startswith(_SKIPPED):
            continue
        try:
            module = importlib.import_module(found.name)
        except BaseException:  # a package that is not installed, or a program
            continue
        depth = found.name.count(".")
        if (
            depth == 1
            or depth == 2
            and (hasattr(module, "__all__") or hasattr(module, "__path__"))
            or found.name in _DEEP
        ):
            yield module


def _is_here(module: types.ModuleType, name: str) -> bool:
    """Whether a name of a module without `__all__` is its own, not just imported by it."""
    value = getattr(module, name, None)
    if isinstance(value, types.ModuleType):
        return False
    home = getattr(value, "__module__", None)
    if type(value).__module__ in ("typing", "__future__") or isinstance(value, types.GenericAlias):
        return False
    if module.__name__ == "torch":
        return not isinstance(home, str) or home.startswith(("torch", "_", "builtins"))
    if isinstance(value, types.BuiltinFunctionType):
        return home is None or home.startswith("torch._C")
    if not isinstance(home, str):
        return False
    return home == module.__name__ or hasattr(module, "__path__") and home.startswith(f"{module.__name__}.")


def public(module: types.ModuleType) -> list[str]:
    declared = getattr(module, "__all__", None)
    if declared is not None and module.__name__ != "torch":
        return sorted({name for name in declared if hasattr(module, name)})
    return sorted(name for name in dir(module) if not name.startswith("_") and _is_here(module, name))


def described(name: str, value: Any) -> str:
    """A name, with the names of its parameters where Python knows them."""
    if not callable(value) or issubclass(type(value), type) and issubclass(value, tuple):
        return name
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return _told(name, value)
    kinds = inspect.Parameter
    if any(p.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD) for p in parameters):
        return name
    return f"{name}({','.join(p.name for p in parameters if p.name != 'self')})"


def _told(name: str, value: Any) -> str:
    """The same for an operator in C++, from its schemas: every parameter, but for results to write into, that one of its
    overloads takes."""
    schemas = importlib.import_module("torch")._C._jit_get_schemas_for_operator(
        f"aten::{getattr(value, '__name__', name)}"
    )
    tensors = [
        s for s in schemas if s.arguments and "Tensor" in str(s.arguments[0].type) and len(s.arguments[0].name) > 1
    ]
    words = dict.fromkeys(a.name for schema in tensors for a in schema.arguments if not a.is_out)
    return f"{name}({','.join(word for word in words if word not in ('self', 'input'))})" if words else name


def lines() -> Iterator[str]:
    torch = importlib.import_module("torch")
    methods = [
        described(name, getattr(torch.Tensor, name)) for name in sorted(dir(torch.Tensor)) if not name.startswith("_")
    ]
    spaces: dict[str, list[str]] = {"torch.Tensor": methods}
    for module in modules():
        names = [described(name, getattr(module, name)) for name in public(module)]
        if names:
            spaces[module.__name__] = names
    for space in sorted(spaces, key=lambda s: (s not in ("torch", "torch.Tensor"), s)):
        yield f"{space}: {' '.join(spaces[space])}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    version = importlib.import_module("torch").__version__.partition("+")[0]
    head = f"# Public names of PyTorch {version}, written by docs/_tools/pytorch_names.py\n"
    FILE.write_text(head + "\n".join(lines()) + "\n")
