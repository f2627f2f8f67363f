"""docs/compatibility.md: PyTorch's public names, namespace by namespace: there, differing, absent, and why.

    python docs/_tools/compatibility.py            # writes the page again
    python docs/_tools/compatibility.py --check    # fails if it is not up to date

The names are those of pytorch-names.txt; what is there is found out by asking, and what an operator takes stands in its record.
"""

from __future__ import annotations

import argparse
import enum
import importlib
import inspect
import re
import sys
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flambeau

HERE = Path(__file__).parent
PAGE = HERE.parent / "compatibility.md"
# Why names are absent: the first pattern that fits the whole name.
REASONS = [
    (r".*privateuse1.*", "PyTorch's one place for a device of one's own; here a device is registered under its own name ([a new device](architecture.md))"),
    (r"torch\.utils\.data\..*", "data pipes, which PyTorch no longer develops: use datasets and loaders"),
    (r"torch\.utils\.benchmark\..*|.*ThroughputBenchmark|torch\.utils\.debug_log.*|.*get_cpp_backtrace", "Callgrind, the generators of random inputs and views into C++; `Timer` and `Compare` are there"),
    (r"torch\.masked\..*", "masked tensors, a prototype of PyTorch's; the masked reductions are there"),
    (r"torch\.onnx\..*", "parts of PyTorch's own exporter; `onnx.export` writes files that ONNX Runtime checks ([ONNX](onnx.md))"),
    (r"torch\.(quantization|ao)\b.*|torch\.(empty_)?quantized.*", "quantization of TorchScript graphs, sparse quantized layers and single quantized cells; eager and FX quantization are there ([quantization](quantization.md))"),
    (r"torch\.fx\..*|torch\.export\..*|torch\.func\.debug_unwrap|.*region_activation_memory_budget|torch\.nn\.attention\.flex_attention\..*", "parts of PyTorch's own compiler; programs are recorded here ([compile](compile.md), [graphs](graphs.md))"),
    (r"torch\.func\.rearrange", "needs PyTorch's first-class dimensions; the package `einops` does the same"),
    (r"torch\.autograd\.profiler.*|torch\.profiler\..*", "readers of nvprof's files and PyTorch's execution traces ([profiling](profiling.md) writes Chrome traces)"),
    (r"torch\.autograd\.(gradcheck\.get_.*)", "deprecated in PyTorch; `gradcheck` and `autograd.functional.jacobian` are there"),
    (r".*(enforce_grad_layout_policy|grad_dtype|set_override_stale_capture_stream|set_warn_on_accumulate_grad_stream_mismatch)", "switches of PyTorch's engine for layouts, dtypes and streams of gradients, which are always those of the parameter here"),
    (r"torch\.distributed\..*", "tools around PyTorch's own servers and formats ([several processes](distributed.md))"),
    (r"torch\.(monitor|jit\.mobile|utils\.show_pickle)\b.*|torch\.serialization\..*", "tools around PyTorch's own files and servers"),
    (r"torch\.utils\.(backcompat|hooks|checkpoint|cpp_extension)\..*", "inner parts, of which nothing here is made"),
    (r"torch\.(accelerator\.|cuda\.|backends\.cuda\.).*", "graphs of any accelerator, kernels from C++ texts and the plans of cuFFT; `cuda.CUDAGraph` and [your own operators](tutorials/operators.md) are there"),
    (r"torch\.(Tensor\.)?(resize_as_sparse_|slice_inverse|index)|torch\.Tensor\.to_padded_tensor|torch\.sparse\.as_sparse_gradcheck|torch\.optim\.adamw\.adamw|torch\.nn\.functional\.assert_int_or_pair|torch\.jit\.annotations\.parse_type_line", "inner steps of other functions, which are there (`nested.to_padded_tensor`, `optim.AdamW`, slices)"),
]  # fmt: skip

# Why parameters are not taken.
PARAMETERS = {
    "out_dtype": "a GPU's product with results of another dtype",
    "cudnn_enable": "which library computes is not the caller's to say",
    "half_to_float": "a GPU's product of two steps",
    "test_element": "a number is taken as `test_elements`",
    "cross_target_platform": "extensions are built for this machine",
    "health_check_server": "workers are watched by the launcher",
    "numa_options": "workers are not bound to parts of the machine",
    "compute_dq_write_order": "an order of writes on a GPU",
    "dq_write_order": "an order of writes on a GPU",
}


@dataclass
class Space:
    """One namespace: how many names it has, which are absent, and which lack parameters."""

    name: str
    total: int
    absent: list[str]
    differ: list[tuple[str, list[str]]]

    @property
    def there(self) -> int:
        return self.total - len(self.absent)


def _home(space: str) -> Any:
    if space == "torch.Tensor":
        return flambeau.Tensor
    try:
        return importlib.import_module("flambeau" + space.removeprefix("torch"))
    except ImportError:
        return None


def _value(home: Any, name: str) -> Any:
    try:
        return getattr(home, name)
    except (AttributeError, ImportError, NotImplementedError):
        return None


def _has(home: Any, name: str) -> bool:
    try:
        return home is not None and hasattr(home, name)
    except ImportError:  # it needs an optional package, and says so
        return True


def _taken(value: Any) -> set[str] | None:
    """The names of parameters that a function or class takes; None if it takes any, or Python does not know (of enumerations and
    generic types every version knows something else)."""
    code = getattr(inspect.unwrap(value), "__code__", None)
    if code is not None and code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        return None  # it may show fewer
    if isinstance(value, (enum.EnumMeta, types.GenericAlias)):
        return None
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters):
        return None
    record = getattr(value, "op", None)
    former = getattr(getattr(record, "quirks", None), "former", ())
    return {p.name for p in parameters} | set(former) | ({"out"} if getattr(record, "has_out", False) else set())


def _lacking(value: Any, described: str) -> list[str]:
    """Parameters that PyTorch's takes and ours does not."""
    if "(" not in described:
        return []
    theirs = described.partition("(")[2].rstrip(")").split(",")
    ours = _taken(value)
    return [] if ours is None else [name for name in theirs if name and not name.startswith("_") and name not in ours]


def spaces() -> Iterator[Space]:
    for line in (HERE / "pytorch-names.txt").read_text().splitlines()[1:]:
        space, _, names = line.partition(": ")
        home = _home(space)
        absent, differ = [], []
        for described in names.split(" "):
            name = described.partition("(")[0]
            if not _has(home, name):
                absent.append(name)
            elif lacking := _lacking(_value(home, name), described):
                differ.append((name, lacking))
        yield Space(space, len(names.split(" ")), absent, differ)


def reason(name: str) -> str:
    for pattern, why in REASONS:
        if re.fullmatch(pattern, name):
            return why
    return "not there yet"


# What a function that is there does otherwise, by its whole name.
BEHAVIOUR = {
    "torch.is_conj": "it is always False: `conj` computes its result at once, where PyTorch only marks a view",
    "torch.is_neg": "it is always False: the imaginary part of a conjugate is computed at once, where PyTorch only marks a view",
    "torch.set_flush_denormal": "it returns False, as PyTorch does on a processor without the mode: tiny numbers are computed exactly",
    "torch.detach_copy": "the copy is detached; PyTorch's requires a gradient, and its backward pass raises an error",
}


def _details(space: Space) -> Iterator[str]:
    yield f"### {space.name} {{ #{space.name} }}\n"
    yield f"{space.there} of {space.total} names are there.\n"
    by_reason: dict[str, list[str]] = {}
    for name in space.absent:
        by_reason.setdefault(reason(f"{space.name}.{name}"), []).append(name)
    for why, names in by_reason.items():
        yield f"- Absent, {why}: {', '.join(f'`{n}`' for n in names)}"
    for name, lacking in space.differ:
        why = next((PARAMETERS[word] for word in lacking if word in PARAMETERS), "")
        yield f"- `{name}` differs: it does not take {', '.join(f'`{word}`' for word in lacking)}{why and f' ({why})'}"
    for whole, told in BEHAVIOUR.items():
        if whole.rpartition(".")[0] == space.name:
            yield f"- `{whole.rpartition('.')[2]}` differs: {told}"
    yield ""


def page() -> str:
    """The text of the page."""
    warnings.simplefilter("ignore")
    found = list(spaces())
    total, there = sum(s.total for s in found), sum(s.there for s in found)
    differ = sum(len(s.differ) for s in found)
    whole = [s for s in found if not s.absent and not s.differ]
    version = (HERE / "pytorch-names.txt").read_text().split(",")[0].rpartition(" ")[2]
    text = [
        "# What differs from PyTorch\n",
        "<!-- Written by docs/_tools/compatibility.py from PyTorch's names and the operators' records. Do not change it by hand. -->\n",
        f"Of the {total:,} public names of PyTorch {version}, {there:,} are there; {differ} of those take fewer parameters. A name that is",
        "absent says so when a program asks for it. This page lists names. How things that are there behave differently stands at the",
        "end of each guide: [mixed precision](amp.md), [functions of functions](func.md), [files](files.md), [graphs](graphs.md),",
        "[TorchScript](torchscript.md), [ONNX](onnx.md), [serving](serving.md), [several processes](distributed.md),",
        "[CUDA](cuda.md), [compile](compile.md), [programs written for PyTorch](pytorch-programs.md).\n",
        "## Namespaces\n",
        "| namespace | names | there | differ | absent |",
        "| --- | --: | --: | --: | --: |",
    ]
    text += [
        f"| [{s.name}](#{s.name}) | {s.total} | {s.there} | {len(s.differ)} | {len(s.absent)} |"
        for s in found
        if s not in whole
    ]
    text += [
        f"| {len(whole)} others, see below | {sum(s.total for s in whole)} | all | | |\n",
        "## What is absent or differs\n",
    ]
    for space in found:
        if space not in whole:
            text += _details(space)
    text += ["## Complete namespaces\n", ", ".join(f"`{s.name}` ({s.total})" for s in whole) + "."]
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    if parser.parse_args().check:
        sys.exit(
            None
            if PAGE.read_text() == page()
            else "compatibility.md is out of date: python docs/_tools/compatibility.py"
        )
    PAGE.write_text(page())
