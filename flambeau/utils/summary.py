"""A table of a network's layers: shapes, parameters, multiply-adds and memory.

>>> statistics = summary(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), input_size=(2, 4), verbose=0)
>>> statistics.total_params
40
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..autograd import no_grad
from ..core.dtype import float32
from ..core.tensor import Tensor
from ..nn import Module, ModuleDict, ModuleList
from ..nn.parameter import is_lazy
from ..nn.unchanged import unchanged
from ..ops.random.fills import rand
from .work import multiply_adds

__all__ = ["LayerInfo", "ModelStatistics", "summary"]

COLUMNS = {
    "input_size": "Input Shape",
    "output_size": "Output Shape",
    "num_params": "Param #",
    "kernel_size": "Kernel Shape",
    "mult_adds": "Mult-Adds",
    "trainable": "Trainable",
}
DEFAULT_COLUMNS = ("output_size", "num_params", "mult_adds")


# -- values of any structure ------------------------------------------------------------------------------------------
def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield all tensors in nested tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)


def _bytes(value: Any) -> int:
    return sum(t.numel() * t.element_size() for t in _tensors(value))


def _shape(value: Any) -> str:
    first = next(_tensors(value), None)
    return "--" if first is None else str(list(first.shape))


# -- one layer --------------------------------------------------------------------------------------------------------
class LayerInfo:
    """A call of a layer (or a layer that the forward does not call)."""

    def __init__(self, module: Module, name: str, depth: int):
        self.module, self.name, self.depth = module, name, depth
        self.children: list[LayerInfo] = []
        self.called = False
        self.repeated = False  # its parameters were counted at an earlier call
        self.index = 0
        self.input_size = self.output_size = "--"
        self.output_bytes = 0
        self.mult_adds = 0

    def record(self, inputs: Any, output: Any) -> None:
        self.called = True
        self.input_size, self.output_size = _shape(inputs), _shape(output)
        self.output_bytes = _bytes(output)
        self.mult_adds = multiply_adds(self.module, next(_tensors(inputs), None), next(_tensors(output), None))

    def total_mult_adds(self) -> int:
        return self.mult_adds + sum(child.total_mult_adds() for child in self.children)

    def all(self) -> Iterator[LayerInfo]:
        yield self
        for child in self.children:
            yield from child.all()

    @property
    def is_leaf(self) -> bool:
        return not any(True for _ in self.module.children())

    @property
    def class_name(self) -> str:
        return type(self.module).__name__


def _count(parameters: Any) -> int:
    return sum(p.numel() for p in parameters if not is_lazy(p))


# -- running the network ----------------------------------------------------------------------------------------------
class _CallRecorder:
    """Hooks on all modules, which record every call."""

    def __init__(self, model: Module):
        self.names = {id(m): name.rpartition(".")[2] for name, m in model.named_modules()}
        self.root = LayerInfo(model, "", 0)
        self.stack: list[LayerInfo] = []
        self.handles: list[Any] = []
        for module in model.modules():
            self.handles.append(module.register_forward_pre_hook(self._begin_call, with_kwargs=True, prepend=True))
            self.handles.append(module.register_forward_hook(self._end_call, with_kwargs=True))

    def _begin_call(self, module: Module, args: Any, kwargs: Any) -> None:
        if not self.stack:
            self.stack.append(self.root)
            return
        parent = self.stack[-1]
        info = LayerInfo(module, self.names[id(module)], parent.depth + 1)
        parent.children.append(info)
        self.stack.append(info)

    def _end_call(self, module: Module, args: Any, kwargs: Any, output: Any) -> None:
        self.stack.pop().record((args, kwargs), output)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


def _add_uncalled(info: LayerInfo, seen: set[int]) -> None:
    """Add layers that forward did not call, whose parameters count too."""
    for child in list(info.children):
        _add_uncalled(child, seen)
    for name, module in info.module.named_children():
        if any(id(part) not in seen for part in module.modules() if not isinstance(part, (ModuleDict, ModuleList))):
            if id(module) in seen:
                continue
            seen.add(id(module))
            child = LayerInfo(module, name, info.depth + 1)
            info.children.append(child)
            _add_uncalled(child, seen)


def _mark_repeated(root: LayerInfo) -> None:
    seen: set[int] = set()
    numbers: dict[int, int] = {}
    for info in root.all():
        info.repeated = id(info.module) in seen
        seen.add(id(info.module))
        numbers[info.depth] = info.index = numbers.get(info.depth, 0) + 1


def _is_size(value: Any) -> bool:
    return isinstance(value, Sequence) and all(isinstance(n, int) for n in value)


def _random_input(size: Any, dtype: Any, batch_dim: int | None, device: Any) -> Tensor:
    if not _is_size(size) or any(n < 0 for n in size):
        raise ValueError(f"input_size: expected a shape (non-negative integers), got {size!r}")
    shape = list(size)
    if batch_dim is not None:
        shape.insert(batch_dim, 1)
    return rand(shape).to(device=device, dtype=dtype or float32)


def _make_inputs(
    input_size: Any, input_data: Any, dtypes: Any, batch_dim: int | None, device: Any
) -> tuple[tuple, dict[str, Any]]:
    """Return the positional and named arguments of the forward."""
    if input_data is not None:
        if isinstance(input_data, Mapping):
            return (), dict(input_data)
        return (tuple(input_data) if isinstance(input_data, (tuple, list)) else (input_data,)), {}
    if isinstance(input_size, Mapping):
        sizes = list(input_size.values())
    else:
        sizes = [input_size] if _is_size(input_size) else list(input_size)
    kinds = list(dtypes) if isinstance(dtypes, (tuple, list)) else [dtypes] * len(sizes)
    if len(kinds) != len(sizes):
        raise ValueError(f"dtypes: expected one for each of {len(sizes)} inputs, got {len(kinds)}")
    inputs = tuple(_random_input(size, kind, batch_dim, device) for size, kind in zip(sizes, kinds))
    return ((), dict(zip(input_size, inputs))) if isinstance(input_size, Mapping) else (inputs, {})


def _run(model: Module, args: tuple, kwargs: dict[str, Any]) -> LayerInfo:
    watcher = _CallRecorder(model)
    try:
        with no_grad():
            model(*args, **kwargs)
    except Exception as problem:
        done = [info.class_name for info in watcher.root.all() if info.called]
        raise RuntimeError(f"Failed to run the model. Layers that ran before the failure: {done}") from problem
    finally:
        watcher.remove()
    return watcher.root


# -- the result -------------------------------------------------------------------------------------------------------
class ModelStatistics:
    """The figures of a network; prints as a table."""

    def __init__(self, root: LayerInfo, input_bytes: int, depth: int, col_names: Sequence[str], by_parameter: bool):
        self.root, self.depth, self.col_names, self.by_parameter = root, depth, tuple(col_names), by_parameter
        self.summary_list = list(root.all())
        parameters = list(root.module.parameters())
        self.total_params = _count(parameters)
        self.trainable_params = _count(p for p in parameters if p.requires_grad)
        self.total_mult_adds = root.total_mult_adds()
        self.total_input = input_bytes
        self.total_output_bytes = 2 * sum(info.output_bytes for info in self.summary_list if info.is_leaf)
        self.total_param_bytes = sum(p.numel() * p.element_size() for p in parameters if not is_lazy(p))

    def _parameters_shown(self, info: LayerInfo) -> str:
        if info.repeated:
            return "(recursive)"
        whole = info.is_leaf or info.depth >= self.depth
        # A layer whose parts follow shows only what none of them has, so that the column adds up.
        number = _count(info.module.parameters(recurse=whole))
        return f"{number:,}" if number else "--"

    def _cell(self, info: LayerInfo, column: str) -> str:
        if column == "input_size" or column == "output_size":
            return getattr(info, column)
        if column == "num_params":
            return self._parameters_shown(info)
        if column == "kernel_size":
            kernel = getattr(info.module, "kernel_size", None)
            return "--" if kernel is None else str(list(kernel) if isinstance(kernel, tuple) else kernel)
        if column == "mult_adds":
            work = info.total_mult_adds() if info.depth >= self.depth else info.mult_adds
            return f"{work:,}" if work else "--"
        flags = {p.requires_grad for p in info.module.parameters()}
        return "--" if not flags else "Partial" if len(flags) == 2 else str(flags.pop())

    def _rows(self, info: LayerInfo, lead: str = "", branch: str = "") -> Iterator[list[str]]:
        title = (
            info.class_name
            + (f" ({info.name})" if info.name else "")
            + (f": {info.depth}-{info.index}" if info.depth else "")
        )
        yield [lead + branch + title, *[self._cell(info, column) for column in self.col_names]]
        lead += {"": "", "├─": "│    ", "└─": "     "}[branch]
        if self.by_parameter and not info.repeated:
            for name, p in info.module.named_parameters(recurse=False):
                shape = "--" if is_lazy(p) else str(list(p.shape))
                cells = {"num_params": "--" if is_lazy(p) else f"{p.numel():,}", "kernel_size": shape}
                yield [f"{lead}  · {name} {shape}", *[cells.get(c, "") for c in self.col_names]]
        if info.depth < self.depth:
            for i, child in enumerate(info.children):
                yield from self._rows(child, lead, "└─" if i == len(info.children) - 1 else "├─")

    def __str__(self) -> str:
        rows = [["Layer (name): depth-index", *[COLUMNS[c] for c in self.col_names]], *self._rows(self.root)]
        widths = [max(len(row[i]) for row in rows) + 3 for i in range(len(rows[0]))]
        lines = ["".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        rule = "=" * max(60, sum(widths))
        total = self.total_input + self.total_output_bytes + self.total_param_bytes
        counts = [
            f"Total params: {self.total_params:,}",
            f"Trainable params: {self.trainable_params:,}",
            f"Non-trainable params: {self.total_params - self.trainable_params:,}",
            f"Total mult-adds: {self.total_mult_adds:,}",
        ]
        sizes = [
            f"Input size (MB): {self.total_input / 1e6:.2f}",
            f"Forward/backward pass size (MB): {self.total_output_bytes / 1e6:.2f}",
            f"Params size (MB): {self.total_param_bytes / 1e6:.2f}",
            f"Estimated Total Size (MB): {total / 1e6:.2f}",
        ]
        return "\n".join([rule, lines[0], rule, *lines[1:], rule, *counts, rule, *sizes, rule])

    __repr__ = __str__


def summary(
    model: Module, input_size: Any = None, input_data: Any = None, batch_dim: int | None = None, depth: int = 3,
    col_names: Sequence[str] = DEFAULT_COLUMNS, dtypes: Any = None, device: Any = None, mode: str = "eval",
    verbose: int = 1,
) -> ModelStatistics:  # fmt: skip
    """Run a network once and tabulate its layers, as in `summary(model, input_size=(1, 3, 224, 224))`; the network is left unchanged.

    The input is either `input_data` (a tensor, a tuple or list of arguments, a dictionary of named ones) or random numbers of `input_size`
    (a shape, several shapes, or a dictionary of them) and `dtypes`, with a batch of 1 inserted at `batch_dim`. Without either, only the
    parameters are counted. `depth` is the deepest level shown, `col_names` the columns, `device` where the network runs, `mode` "eval" or "train".
    `verbose`: 0 prints nothing, 1 the table, 2 every parameter too."""
    unknown = [name for name in col_names if name not in COLUMNS]
    if unknown:
        raise ValueError(f"col_names: unknown {unknown}, expected some of {list(COLUMNS)}")
    if mode not in ("train", "eval"):
        raise ValueError(f"mode: expected 'train' or 'eval', got {mode!r}")
    if verbose not in (0, 1, 2):
        raise ValueError(f"verbose: expected 0, 1 or 2, got {verbose!r}")
    if isinstance(input_size, Tensor) or next(_tensors(input_size), None) is not None:
        input_size, input_data = input_data, input_size  # `summary(model, x)`
    if input_size is not None and input_data is not None:
        raise ValueError("expected one of input_size and input_data, got both")
    root, input_bytes = LayerInfo(model, "", 0), 0
    if input_size is not None or input_data is not None:
        with unchanged(model, training=mode == "train"):
            args, kwargs = _make_inputs(input_size, input_data, dtypes, batch_dim, device)
            input_bytes = _bytes((args, kwargs))
            root = _run(model, args, kwargs)
    _add_uncalled(root, {id(info.module) for info in root.all()})
    _mark_repeated(root)
    result = ModelStatistics(root, input_bytes, depth, col_names, by_parameter=verbose == 2)
    if verbose:
        print(result)
    return result
