"""The pages of the API reference: every public name of a namespace, with its signature, what it does, and what its operator's record says."""

from __future__ import annotations

import importlib
import inspect
import re
import types
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

import flambeau

# The pages, each with its namespaces.
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


def address(title: str) -> str:
    """Where the page of this title lies."""
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
    return sorted({n for n in (declared or dir(home)) if not n.startswith("_")}, key=str.lower)


def _text(value: Any) -> str:
    """A docstring as Markdown: code stays code, nothing else is markup."""
    told = inspect.cleandoc(value.__doc__) if isinstance(getattr(value, "__doc__", None), str) else ""
    told = re.sub(
        r"(?m)^((?:>>>|\.\.\.) .*\n?(?:^(?!>>>)\S.*\n?)*)+", lambda m: "\n" + indent(m[0], "    ") + "\n", told
    )
    lines = [
        line if line.startswith("    ") else re.sub(r"(?<!`)([<*_\[\]#])(?![^`]*`)", r"\\\1", line)
        for line in told.split("\n")
    ]
    return "\n".join(lines)


def _signature(value: Any) -> str:
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in found.parameters.values() if p.name != "self"]
    try:
        return re.sub(r" at 0x\w+", "", str(inspect.Signature(plain)))
    except ValueError:
        return "(...)"


def _record(op: Any) -> str:
    """What the record of an operator says, in a line."""
    said = [f"{op.kind} operator"]
    if op.method is not None:
        said.append("a method of tensors, too")
    if op.inplace is not None:
        said.append("has an in-place form")
    if op.has_out:
        said.append("takes `out=`")
    if not op.differentiable:
        said.append("not differentiable")
    if isinstance(op.autocast, str) and op.autocast in ("lower", "float32", "widest"):
        said.append(f"autocast: {op.autocast} precision")
    if op.draws:
        said.append("draws random numbers")
    if op.aliases:
        said.append("also called " + ", ".join(f"`{name}`" for name in op.aliases))
    return "*" + "; ".join(said) + "*"


def _entry(space: str, name: str, value: Any) -> Iterator[str]:
    whole = f"{space}.{name}"
    yield f"### {name} {{ #{whole} }}\n"
    kind = "class " if isinstance(value, type) else ""
    call = _signature(value) if callable(value) else ""
    yield f"```python\n{kind}{whole}{call}\n```\n"
    if callable(value) or isinstance(value, property):
        yield _text(value) + "\n"
        op = getattr(value, "op", None)
        if op is not None and hasattr(op, "kind") and hasattr(op, "has_out"):
            yield _record(op) + "\n"


def pages() -> Iterator[tuple[str, str, str]]:
    """(title, address, text) of every page."""
    differences = (Path(__file__).parents[1] / "compatibility.md").read_text()
    for title, spaces in PAGES.items():
        text = [f"---\nhide:\n  - toc\n---\n\n# {title}\n"]
        for space in spaces:
            home = _home(space)
            if home is None:
                continue
            if len(spaces) > 1:
                text.append(f"## {space} {{ #{space} }}\n")
            if isinstance(home, types.ModuleType):
                text.append(_text(home) + "\n")
            if f"{{ #{space} }}" in differences:
                text.append(f"[What is absent or differs from PyTorch](../compatibility.md#{space})\n")
            for name in _public(home):
                try:
                    value = getattr(home, name)
                except (AttributeError, ImportError, NotImplementedError):
                    continue
                if not isinstance(value, types.ModuleType):
                    text += _entry(space, name, value)
        yield title, address(title), "\n".join(text) + "\n"
