"""The API reference: a page for each namespace that lists its names, and a page for each name, made from the library."""

from __future__ import annotations

import importlib
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import entry
from markup import inline, prose, table
from shapes import function_names

import flambeau

Entry = tuple[str, str, Any]  # a namespace, a name in it, what that is

# The pages of namespaces.
PAGES: dict[str, tuple[str, ...]] = {
    "torch": ("torch",),
    "Tensor": ("torch.Tensor",),
    "nn": ("torch.nn", "torch.nn.init", "torch.nn.utils", "torch.nn.utils.rnn", "torch.nn.utils.prune", "torch.nn.utils.parametrize",
           "torch.nn.utils.parametrizations", "torch.nn.attention", "torch.nn.parallel"),
    "nn.functional": ("torch.nn.functional",),
    "optim": ("torch.optim", "torch.optim.lr_scheduler", "torch.optim.swa_utils"),
    "autograd and func": ("torch.autograd", "torch.autograd.functional", "torch.autograd.graph", "torch.autograd.forward_ad", "torch.func", "torch.amp"),
    "linalg, fft, special": ("torch.linalg", "torch.fft", "torch.special", "torch.signal.windows", "torch.sparse", "torch.masked", "torch.nested"),
    "distributions": ("torch.distributions", "torch.distributions.transforms", "torch.distributions.constraints"),
    "data and utils": ("torch.utils.data", "torch.utils", "torch.utils.checkpoint", "torch.utils.benchmark", "torch.utils.tensorboard",
                       "torch.utils.flop_counter", "torch.utils.recordio", "torch.utils.cpp_extension", "torch.hub", "torch.testing"),
    "graphs": ("torch.fx", "torch.export", "torch.jit", "torch.onnx", "torch.compiler", "torch.library"),
    "profiler": ("torch.profiler", "torch.autograd.profiler"),
    "distributed": ("torch.distributed", "torch.distributed.fsdp", "torch.distributed.tensor", "torch.distributed.tensor.parallel",
                    "torch.distributed.checkpoint", "torch.distributed.elastic.multiprocessing.errors", "torch.multiprocessing"),
    "devices": ("torch.cuda", "torch.cpu", "torch.accelerator", "torch.backends", "torch.backends.cuda", "torch.backends.cudnn"),
    "quantization": ("torch.ao.quantization", "torch.ao.nn.quantized", "torch.ao.nn.intrinsic"),
    "vision": ("torchvision.transforms", "torchvision.transforms.v2", "torchvision.models", "torchvision.datasets", "torchvision.ops",
               "torchvision.io", "torchvision.utils"),
}  # fmt: skip


# What a namespace only holds because its own text uses it.
_HELPERS = {
    "torch.multiprocessing": {"pack", "unpack"},
    "torch.accelerator": {"device", "Event", "Stream"},
    "torch.cuda": {
        "absent_classes",
        "backend_of",
        "CUDA_STORAGE_TYPES",
        "CUDA_TENSOR_TYPES",
        "Device",
        "has_backend",
        "is_capturing",
        "raising",
        "why_absent",
    },
    "torch.backends": {"matmul_switches"},
    "torch.nn.utils.prune": {
        "cat",
        "contiguous_format",
        "Module",
        "norm",
        "ones_like",
        "rand",
        "rand_like",
        "Tensor",
        "zeros_like",
    },
    "torch.backends.cuda": {"absent_classes", "attention_kernels", "matmul_switches", "raising", "returning"},
    "torch.backends.cudnn": {"ModuleType"},
}


def address(title: str) -> str:
    """Where the page of a group of namespaces is."""
    return "reference/" + re.sub(r"[^\w.]+", "-", title) + ".md"


def _home(space: str) -> Any:
    if space == "torch.Tensor":
        return flambeau.Tensor
    root, _, rest = space.partition(".")
    name = ".".join(filter(None, ["flambeau.vision" if root == "torchvision" else "flambeau", rest]))
    try:
        return importlib.import_module(name)
    except ImportError:  # not there, or it needs a package that is not installed
        return None


def _public(home: Any) -> list[str]:
    declared = None if home is flambeau else getattr(home, "__all__", None)
    return sorted({n for n in (declared or dir(home)) if not n.startswith("_") and n != "TYPE_CHECKING"}, key=str.lower)


def _entries(spaces: tuple[str, ...]) -> Iterator[Entry]:
    """The public names of namespaces, modules and type variables left out."""
    for space in spaces:
        home = _home(space)
        for name in _public(home) if home is not None else ():
            if name in _HELPERS.get(space, ()):
                continue
            try:
                value = getattr(home, name)
            except (AttributeError, ImportError, NotImplementedError):
                continue
            if (
                not isinstance(value, types.ModuleType)
                and not _is_pythons(name, value)
                and f"{space}.{name}" not in _UNUSABLE
            ):
                yield space, name, value


# Names that are there for old programs alone: nothing can be done with them, in PyTorch neither.
_UNUSABLE = ("torch.autograd.NestedIOFunction",)


def _is_pythons(name: str, value: Any) -> bool:
    """Whether a namespace only holds it because its text imports it from Python's own library."""
    if name == "TYPE_CHECKING":
        return True
    home = getattr(value, "__module__", None) or type(value).__module__
    return isinstance(home, str) and home != "builtins" and home.partition(".")[0] in sys.stdlib_module_names


def entries() -> Iterator[Entry]:
    """Every name of the reference."""
    for spaces in PAGES.values():
        yield from _entries(spaces)


def find(whole: str) -> Any:
    """What a whole name of the reference stands for."""
    space, _, name = whole.rpartition(".")
    return getattr(_home(space), name)


def _functions_of(value: Any) -> list[str]:
    """The functions that a method of tensors is another form of."""
    op = getattr(value, "op", None)
    return function_names(op) if op is not None else []


def _files(found: list[Entry]) -> dict[str, str]:
    """The file of each name. Names that differ only in case get different files, for systems that ignore it."""
    named = {f"{space}.{name}": value for space, name, value in found}
    for whole, value in list(named.items()):
        if whole.startswith("torch.Tensor.") and any(n in named for n in _functions_of(value)):
            del named[whole]  # its page is the function's
    taken: dict[str, int] = {}
    files = {}
    for whole in named:
        count = taken[whole.lower()] = taken.get(whole.lower(), 0) + 1
        files[whole] = f"{whole}{f'-{count}' if count > 1 else ''}.html"
    return files


def _file_of(whole: str, value: Any, files: dict[str, str]) -> str:
    return next(files[n] for n in (whole, *_functions_of(value)) if n in files)


def _overview(title: str, spaces: tuple[str, ...], files: dict[str, str]) -> Iterator[str]:
    differences = (Path(__file__).parents[1] / "compatibility.md").read_text()
    yield f"---\nsearch:\n  exclude: true\n---\n\n# {title}\n"
    for space in spaces:
        home = _home(space)
        if home is None:
            continue
        if space != title:
            yield f"## {space} {{ #{space} }}\n"
        if isinstance(home, types.ModuleType):
            yield prose(entry.told(home)) + "\n"
        if f"{{ #{space} }}" in differences:
            yield f"[What is absent or differs from PyTorch](../compatibility.md#{space})\n"
        yield table(("name", "what it is"), (_row(e, files) for e in _entries((space,)))) + "\n"


def _row(found: Entry, files: dict[str, str]) -> tuple[str, str]:
    """A line of a namespace's list."""
    space, name, value = found
    file = _file_of(f"{space}.{name}", value, files)
    return f'<span id="{space}.{name}"><a href="{file}"><code>{name}</code></a></span>', inline(entry.summary(value))


def overviews() -> Iterator[tuple[str, str]]:
    """(address, Markdown) of the pages of namespaces."""
    files = _files(list(entries()))
    for title, spaces in PAGES.items():
        yield address(title), "\n".join(_overview(title, spaces, files)) + "\n"


def pages() -> Iterator[tuple[str, str, str, str]]:
    """(address, name, summary, content) of the pages of single names, as HTML."""
    files = _files(list(entries()))
    for title, spaces in PAGES.items():
        back = address(title).removeprefix("reference/").removesuffix(".md") + ".html"
        for space, name, value in _entries(spaces):
            whole = f"{space}.{name}"
            if whole in files:
                yield f"reference/{files[whole]}", whole, entry.summary(value), entry.page(space, name, value, back)
