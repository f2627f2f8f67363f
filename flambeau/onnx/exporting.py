"""`torch.onnx.export`: writes a model as an ONNX file."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import flambeau

from ..core.tensor import Tensor
from ..export import Dim, ExportedProgram
from ..export._trace import input_names
from ..export.dynamic_shapes import combined, gather
from ..jit import ScriptFunction, ScriptModule, inlining
from ..library.aten.translation import DataDependent
from ..nn import Module
from ..nn.unchanged import in_mode
from ..utils import _pytree as pytree
from . import functions, torchlib
from .builder import Builder
from .converter import Slot
from .enums import OperatorExportTypes, TrainingMode
from .errors import OnnxExporterError
from .from_export import ProgramReader
from .from_script import Pair, ScriptReader, has_control_flow
from .from_trace import TraceReader, depends_on_values, mark_sizes, sizes_of_words
from .optimize import optimized
from .program import ONNXProgram
from .recorded import Recorded, RecordedValues
from .registry import NEWEST, OLDEST
from .serialize import as_output, model_proto, number_values, onnx_package

DEFAULT_OPSET = 20


@contextlib.contextmanager
def select_model_mode_for_export(model: Any, mode: TrainingMode) -> Iterator[None]:
    """Context manager: set the mode in which a model is exported, and restore that of every submodule on exit."""
    with in_mode(model, None if mode is TrainingMode.PRESERVE else mode is TrainingMode.TRAINING):
        yield


def export(
    model: Any, args: Any = (), f: Any = None, *, kwargs: dict[str, Any] | None = None, verbose: bool | None = None,
    input_names: Sequence[str] | None = None, output_names: Sequence[str] | None = None,
    opset_version: int | None = None, dynamo: bool = True, external_data: bool = True, dynamic_shapes: Any = None,
    custom_translation_table: dict[Callable[..., Any], Callable[..., Any]] | None = None, report: bool = False,
    optimize: bool = True, verify: bool = False, profile: bool = False, dump_exported_program: bool = False,
    artifacts_dir: Any = ".", export_params: bool = True, keep_initializers_as_inputs: bool = False,
    dynamic_axes: Mapping[str, Any] | None = None, training: TrainingMode = TrainingMode.EVAL,
    operator_export_type: OperatorExportTypes = OperatorExportTypes.ONNX, do_constant_folding: bool = True,
    custom_opsets: Mapping[str, int] | None = None,
    export_modules_as_functions: bool | Collection[type[Module]] = False, autograd_inlining: bool = True,
) -> ONNXProgram | None:  # fmt: skip
    """Write a model as an ONNX file, for onnxruntime and other engines.

    With `dynamo=True` (the default) an ONNXProgram is returned, which can be called, optimized and saved; `f` saves it at once. With
    `dynamo=False` nodes are named after the modules they come from, and sizes that change are named by `dynamic_axes`.

    >>> flambeau.onnx.export(model, (x,), "model.onnx", input_names=["image"], dynamic_axes={"image": {0: "batch"}}, dynamo=False)
    """
    onnx_package()
    torchlib.names()  # it says what is missing where onnxscript is
    opset = DEFAULT_OPSET if opset_version is None else int(opset_version)
    if not OLDEST <= opset <= NEWEST:
        raise ValueError(f"Unsupported ONNX opset version: {opset}. Supported versions: {OLDEST} to {NEWEST}")
    if not isinstance(operator_export_type, OperatorExportTypes):
        raise TypeError(
            f"operator_export_type must be an OperatorExportTypes, not {type(operator_export_type).__name__}"
        )
    if operator_export_type is not OperatorExportTypes.ONNX:
        raise NotImplementedError(
            f"operator_export_type={operator_export_type}: only ONNX's own operators can be written"
        )
    if report or profile or dump_exported_program:
        raise NotImplementedError("report, profile and dump_exported_program: reports of an export are not written")
    if export_modules_as_functions:
        raise OnnxExporterError(
            "export_modules_as_functions was removed from PyTorch's exporter, and is not here either"
        )
    if isinstance(args, (Tensor, int, float, bool)):
        args = (args,)
    args, kwargs = tuple(args), dict(kwargs or {})
    if args and isinstance(args[-1], dict) and not kwargs and not dynamo:
        args, kwargs = args[:-1], dict(args[-1])
    job = _Export(model, args, kwargs, opset, dynamo, custom_translation_table, training, _progress(dynamo, verbose))
    job.names(input_names, output_names, dynamic_axes, dynamic_shapes)
    g = job.run()
    norms = training is TrainingMode.EVAL and export_params  # folded into what is before them
    if not dynamo:
        optimized(g, constants=do_constant_folding and opset >= 9, twins=False, norms=norms)
    elif do_constant_folding and optimize:
        job.say("Optimize the ONNX graph", lambda: optimized(g, norms=norms))
    proto = model_proto(
        g,
        dynamo=dynamo,
        custom_opsets=dict(custom_opsets or {}),
        export_params=export_params,
        inputs_too=keep_initializers_as_inputs,
    )
    program = ONNXProgram(proto, job.program)
    if verify:
        program.verify(args, kwargs)
    if f is not None:
        program.save(f, external_data=external_data and dynamo)
    if verbose and not dynamo:
        print(onnx_package().printer.to_text(proto.graph))
    return program if dynamo else None


def _progress(dynamo: bool, verbose: bool | None) -> bool:
    return dynamo and verbose is not False


class _Export:
    """Export of one model: its options, and its steps from recording to the file."""

    def __init__(
        self, model: Any, args: tuple, kwargs: dict, opset: int, dynamo: bool, table: Any, training: TrainingMode,
        loud: bool,
    ) -> None:  # fmt: skip
        self.model, self.args, self.kwargs = model, args, kwargs
        self.dynamo, self.table, self.training = dynamo, table, training
        self.loud = loud
        self.g = Builder(opset)
        self.g.older = not dynamo
        self.g.training = training is TrainingMode.TRAINING or (
            training is TrainingMode.PRESERVE and getattr(model, "training", False)
        )
        self.program: Any = None
        self.words: dict[str, str] = {}  # names of sizes that change, by their symbols

    def names(self, inputs: Any, outputs: Any, axes: Any, shapes: Any) -> None:
        self.input_names, self.output_names = list(inputs or ()), list(outputs or ())
        self.axes = {k: dict(enumerate_axes(k, v)) for k, v in (axes or {}).items()}
        self.shapes = shapes

    def say(self, what: str, run: Callable[[], Any]) -> Any:
        """Run a step of the export; if verbose, print its progress."""
        if not self.loud:
            return run()
        print(f"[torch.onnx] {what}...", file=sys.stdout)
        try:
            found = run()
        except BaseException:
            print(f"[torch.onnx] {what}... ❌")
            raise
        print(f"[torch.onnx] {what}... ✅")
        return found

    def run(self) -> Builder:
        model = self.model
        compiled = isinstance(model, (ScriptModule, ScriptFunction))
        with select_model_mode_for_export(model, self.training), functions.exporting(self.g.opset, self.table or ()):
            if compiled and (not self.dynamo or has_control_flow(inlining.inlined(model.graph))):
                self._read_script()
            else:
                self._read()
        if not self.dynamo:
            number_values(self.g.graph)
        self._rename()
        return self.g

    # -- the program -----------------------------------------------------------------------------------------------------------------
    def _module(self) -> Module:
        plain = isinstance(self.model, Module) and not isinstance(self.model, ScriptModule)
        return self.model if plain else _CallableModule(self.model)

    def _read(self) -> None:
        """Run the model and build its graph."""
        if isinstance(self.model, ExportedProgram):
            recorded = self.program = self.model
        else:
            module = self._module()
            text = repr(self.model) if len(repr(self.model)) < 100 else type(self.model).__name__ + "(...)"
            with flambeau.no_grad() if not self.g.training else contextlib.nullcontext():
                recorded = self.say(
                    f"Obtain model graph for `{text}` with `torch.export.export(..., strict=False)`",
                    lambda: self._record_module(module),
                )
        reader = (ProgramReader if self.dynamo else TraceReader)(recorded, self.g, self.table, self.words)
        reader.apart = recorded is self.model
        self.say("Translate the graph into ONNX", reader.run)

    def _record_module(self, module: Module) -> Any:
        """Return the model as a recorded graph. With sizes that change or depend on values, and for dynamo=False, it includes the computations
        on sizes."""
        if not self.dynamo:
            return self._sized(module, Recorded)
        named = combined(module, self.args, self.kwargs)
        if self.shapes is None and self.axes:
            dims = [{i: Dim(re.sub(r"\W", "_", word)) for i, word in axes.items()} for axes in self._axes_of(module)]
            self.shapes = pytree.tree_unflatten([d or None for d in dims], pytree.tree_structure(named))
        if self.shapes is not None:
            self.words = {symbol.name: word for word, symbol in gather(named, self.shapes).named.items()}
        self.program = flambeau.export.export(module, self.args, self.kwargs, dynamic_shapes=self.shapes)
        if self.shapes is None and depends_on_values(self.program):
            with contextlib.suppress(DataDependent):
                return self._sized(module, RecordedValues)
        return self.program

    def _sized(self, module: Module, kind: type[Recorded]) -> Recorded:
        """Return the model recorded with its computations on sizes."""
        recorded = kind(module, self.args, self.kwargs)
        leaves = pytree.tree_leaves((self.args, self.kwargs))
        mark_sizes(recorded, sizes_of_words(leaves, self._axes_of(module)))
        return recorded

    def _axes_of(self, module: Module) -> list[dict[int, str]]:
        """Return the dynamic dimensions and their names for each leaf of the arguments."""
        names = input_names(module, self.args, self.kwargs)
        tensors = 0
        found: list[dict[int, str]] = []
        for leaf, name in zip(pytree.tree_leaves((self.args, self.kwargs)), names):
            if not isinstance(leaf, Tensor):
                found.append({})
                continue
            given = self.input_names[tensors] if tensors < len(self.input_names) else name
            tensors += 1
            axes = self.axes.get(given, {})
            found.append({i % max(leaf.dim(), 1): word for i, word in axes.items() if i < leaf.dim()})
        return found

    def _read_script(self) -> None:
        model = self.model
        function = model.forward if isinstance(model, ScriptModule) else model
        schema = getattr(function, "schema", None)
        arguments = [a for a in schema.arguments if a.name != "self"] if schema is not None else []
        rest = arguments[len(self.args) :]
        given = [*self.args, *(self.kwargs[a.name] for a in rest if a.name in self.kwargs)]
        defaults = [a.default_value for a in arguments[len(given) :]]
        names = [a.name for a in arguments] or [f"input_{i}" for i in range(len(given))]
        axes = self._script_axes(dict(zip(names, given)))
        reader = ScriptReader(self.g)
        module = model if isinstance(model, ScriptModule) else None
        self._outputs(reader, reader.run(model.graph, module, given, defaults, axes))

    def _script_axes(self, named: dict[str, Any]) -> list[dict[int, str]]:
        """Return the names of dynamic sizes for each leaf of a compiled program's arguments."""
        leaves = pytree.tree_leaves(list(named.values()))
        sizes = gather(named, self.shapes)
        found = [{d: str(size) for d, size in sizes.of_leaf.get(i, {}).items()} for i in range(len(leaves))]
        names = [*self.input_names, *list(named)[len(self.input_names) :]]
        for leaf, axes, name in zip(leaves, found, names):
            if isinstance(leaf, Tensor):
                axes.update({i % max(leaf.dim(), 1): word for i, word in self.axes.get(name, {}).items()})
        return found

    def _outputs(self, reader: ScriptReader, results: list[Pair]) -> None:
        for pair in results:
            for leaf in pytree.tree_leaves(pair.thing):
                value = reader.converter.current(leaf) if isinstance(leaf, Slot) else self.g.value(leaf)
                as_output(self.g, value, pair.name)

    # -- names -----------------------------------------------------------------------------------------------------------------------
    def _rename(self) -> None:
        graph = self.g.graph
        if len(self.input_names) > len(graph.inputs) + len(graph.parameters):
            raise RuntimeError(
                f"number of input names provided ({len(self.input_names)}) exceeded number of inputs ({len(graph.inputs)})"
            )
        if len(self.output_names) > len(graph.outputs):
            raise RuntimeError(
                f"number of output names provided ({len(self.output_names)}) exceeded number of outputs ({len(graph.outputs)})"
            )
        for value, name in zip(graph.inputs, self.input_names):
            value.name = name
        for value, name in zip(graph.outputs, self.output_names):
            value.name = name
        known = {v.name for v in (*graph.inputs, *graph.outputs)}
        for name in self.axes:
            if name not in known and name not in self.input_names:
                warnings.warn(f"Provided key {name} for dynamic axes is not a valid input/output name", stacklevel=4)
        for value in (*graph.inputs, *graph.outputs):
            wanted = self.axes.get(value.name)
            if wanted and value.shape is not None:
                value.shape = tuple(wanted.get(i, s) for i, s in enumerate(value.shape))


def enumerate_axes(key: str, axes: Any) -> Iterator[tuple[int, str]]:
    """Yield the dynamic dimensions, with their names."""
    if isinstance(axes, Mapping):
        yield from axes.items()
        return
    for axis in axes:
        yield axis, f"{key}_dynamic_axes_{axis + 1}"


class _CallableModule(Module):
    """Wraps a function, or a compiled module, as a module that export can run."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        if isinstance(function, Module):
            self.inner = function
        else:
            self.__dict__["inner"] = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs)
