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
    (r"torch\.(xpu|mtia|mps)\b|torch\.backends\.mps|.*_(ipu|xla|vulkan|privateuse1)_?.*|torch\.backends\.python_native", "other makers' devices: the devices are `cpu`, `cuda`, `meta` and your own ([a new device](architecture.md))"),
    (r"torch\.(cudnn|miopen|mkldnn|fbgemm)_.*|torch\.batch_norm_(stats|elemt|gather|backward|update).*|torch\.native_norm", "entry points of one library's kernels; the operator itself is there"),
    (r"torch\.(u?int[1-7]|bits?\w*|chalf|complex32|float4_\w+|quint[24]x\d|QUInt[24]x\dStorage)|torch\.Tensor\.chalf", "dtypes narrower than eight bits, and complex numbers of two halves"),
    (r"torch\.(package)\b.*", "`torch.package` runs code out of a file; weights and graphs are saved without code ([Files](files.md))"),
    (r"torch\.(Script\w+|\w*Type|AliasDb|Argument\w*|Block|CallStack|Capsule|Code|CompilationUnit|CompleteArgumentSpec|ConcreteModule\w*|Deserialization\w*|Serialization\w*|ErrorReport|ExecutionPlan|FileCheck|FunctionSchema|Gradient|Graph\w*|IODescriptor|JITException|LiteScriptModule|LockingLogger|LoggerBase|Node|NoopLogger|OperatorInfo|StaticModule|TracingState|Use|Value|BufferDict|ParameterDict|ModuleDict|DeepCopyMemoTable|import_ir\w*|parse_\w+|merge_type\w*|unify_type_list|PyTorchFileWriter|BenchmarkConfig|BenchmarkExecutionStats|AggregationType|AVG|SUM)", "C++ classes behind TorchScript; here it is Python ([TorchScript](torchscript.md))"),
    (r"torch\.(DispatchKey\w*|ExcludeDispatchKeyGuard|StorageBase|DisableTorchFunction|Tag|USE_\w+|PRIVATE_OPS|TYPE_CHECKING|classproperty|prepare_multiprocessing_environment|profiler_\w+|init_num_threads|sym_\w+|has_mkl)", "parts of how PyTorch is built"),
    (r"torch\.utils\.data\..*(DataPipe|datapipe|DataChunk).*|torch\.utils\.data\.(argument_validation|guaranteed_datapipes_determinism|runtime_validation\w*|non_deterministic|functional_datapipe)", "data pipes, which PyTorch no longer develops: use datasets and loaders"),
    (r"torch\.utils\.benchmark\..*", "Callgrind and the generators of random inputs; `Timer` and `Compare` are there"),
    (r"torch\.(sparse_bs[rc]_tensor|Tensor\.to_sparse_bs[rc])|torch\.sparse\..*SemiStructured.*|torch\.sparse\.to_sparse_semi.*", "sparse tensors in blocks"),
    (r"torch\.cuda\..*Storage|torch\.Q\w+Storage", "typed storages, which PyTorch has deprecated"),
    (r"torch\.cuda\.(gds|green_contexts|tunable)\b.*|torch\.cuda\.\w*(Pluggable|MemPool|change_current_allocator)\w*", "NVIDIA's own extensions of the driver"),
    (r"torch\.distributed\.(rpc|autograd)\b.*|torch\.distributed\.nn\.RemoteModule|torch\.distributed\.optim\.DistributedOptimizer", "remote procedure calls"),
    (r"torch\.fx\.experimental\..*|torch\.compiler\..*|torch\.export\..*", "parts of PyTorch's own compiler; programs are recorded here ([compile](compile.md), [graphs](graphs.md))"),
    (r"torch\.(quantization|ao|nn\.quantized|nn\.qat|nn\.intrinsic|nn\.quantizable|backends\.quantized)\b.*|.*quant.*|torch\.(Tensor\.)?(q_\w+|int_repr|qscheme|per_(tensor|channel)_\w+|qint\w+)", "a part of quantization that is not there yet"),
    (r"torch\.(monitor|mobile|jit\.mobile|utils\.mobile_optimizer|utils\.bundled_inputs|utils\.show_pickle|numa)\b.*", "tools around PyTorch's own files and servers"),
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
