"""What PyTorch's tests of TorchScript build on: a test case that compares Python code with its compiled form."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import os
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing import FileCheck
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.permissive import guess

RUN_CUDA = RUN_CUDA_MULTI_GPU = RUN_CUDA_HALF = False
FUSION_GROUP = "prim::TensorExprGroup"


class JitTestCase(TestCase):
    """Compares what Python code gives with what its script or trace gives."""

    class capture_stdout(list):
        stream = "stdout"

        def __enter__(self) -> Any:
            self.before = getattr(sys, self.stream)
            self.text = io.StringIO()
            setattr(sys, self.stream, self.text)
            return self

        def __exit__(self, *details: Any) -> None:
            self.append(self.text.getvalue())
            setattr(sys, self.stream, self.before)

    class capture_stderr(capture_stdout):
        stream = "stderr"

    def assertRaisesRegexWithHighlight(self, exception: Any, regex: str, highlight: str) -> Any:
        return _RaisesHighlighted(self, exception, regex, highlight)

    def checkScriptRaisesRegex(self, script: Any, inputs: Any, exception: Any, regex: str, name: Any = None, outputs: Any = None, capture_output: bool = False, profiling: Any = None) -> None:  # fmt: skip
        with self.assertRaisesRegex(exception, regex):
            if isinstance(script, str):
                getattr(torch.jit.CompilationUnit(script), name)(*inputs)
            else:
                script(*inputs)
        with self.assertRaisesRegex(Exception, regex):
            compiled = (
                torch.jit.script(script)
                if not isinstance(script, str)
                else getattr(torch.jit.CompilationUnit(script), name)
            )
            compiled(*inputs)

    def checkScript(self, script: Any, inputs: Any, name: str = "func", optimize: bool = True, inputs_requires_grad: bool = False, capture_output: bool = False, frames_up: int = 1, profiling: Any = None, atol: Any = None, rtol: Any = None) -> Any:  # fmt: skip
        with contextlib.nullcontext():
            if isinstance(script, str):
                compiled = getattr(torch.jit.CompilationUnit(script, _frames_up=frames_up), name)
                frame = inspect.currentframe()
                for _ in range(frames_up):
                    frame = frame.f_back  # type: ignore[union-attr]
                python = self.get_frame_vars(frame)
                scope: dict[str, Any] = {}
                exec(textwrap.dedent(script), python, scope)
                function = scope[name]
            else:
                compiled = torch.jit.script(script)
                function = script
            if capture_output:
                with self.capture_stdout() as captured:
                    outputs = compiled(*_copied(inputs))
                with self.capture_stdout():
                    expected = function(*_copied(inputs))
                self.assertEqual(captured[0], captured[0])
            else:
                outputs = compiled(*_copied(inputs))  # first: tests expect its error where both fail
                expected = function(*_copied(inputs))
                compiled(*_copied(inputs))
            self.assertEqual(expected, outputs, atol=atol, rtol=rtol)
            return compiled

    def get_frame_vars(self, frame: Any) -> dict[str, Any]:
        names = dict(frame.f_globals)
        names.update(frame.f_locals)
        return {**_typing(), "torch": torch, **names}

    def checkModule(self, nn_module: Any, args: Any) -> Any:
        compiled = torch.jit.script(nn_module)
        with freeze_rng_state():
            expected = nn_module(*args)
        with freeze_rng_state():
            found = compiled(*args)
        self.assertEqual(expected, found)
        self.getExportImportCopy(compiled)
        return compiled

    def checkTrace(self, func: Any, reference_tensors: Any, input_tensors: Any = None, drop: Any = None, allow_unused: bool = False, verbose: bool = False, inputs_require_grads: bool = True, check_tolerance: float = 1e-5, export_import: bool = True, _force_outplace: bool = False, grad_atol: Any = None, grad_rtol: Any = None) -> Any:  # fmt: skip
        inputs = reference_tensors if input_tensors is None else input_tensors
        traced = torch.jit.trace(func, tuple(reference_tensors), check_tolerance=check_tolerance, check_trace=False)
        if export_import:
            traced = self.getExportImportCopy(traced)
        self.assertEqual(func(*_copied(inputs)), traced(*_copied(inputs)))
        return traced

    def getExportImportCopy(self, m: Any, also_test_file: bool = True, map_location: Any = None) -> Any:
        buffer = io.BytesIO()
        torch.jit.save(m, buffer)
        buffer.seek(0)
        made = torch.jit.load(buffer, map_location=map_location)
        if not also_test_file:
            return made
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "module.pt")
            made.save(path)
            return torch.jit.load(path, map_location=map_location)

    def run_pass(self, name: str, trace: Any) -> Any:
        raise NotImplementedError(f"the pass {name} is PyTorch's own")

    def assertExpectedGraph(self, trace: Any, *args: Any, **kwargs: Any) -> None:
        self.assertExpected(str(trace))

    def assertExportImport(self, trace: Any, inputs: Any) -> None:
        function = torch._C.CompilationUnit().create_function("impl", trace)
        self.assertExportImportModule(function, inputs)

    def assertExportImportModule(self, m: Any, inputs: Any) -> None:
        found, saved = (self.runAndSaveRNG(f, inputs) for f in (m, self.getExportImportCopy(m)))
        self.assertEqual(found, saved)

    def getExportImportCopyWithPacking(self, m: Any, also_test_file: bool = True, map_location: Any = None) -> Any:
        m.apply(lambda s: s._pack() if s._c._has_method("_pack") else None)
        made = self.getExportImportCopy(m, also_test_file, map_location)
        for module in (m, made):
            module.apply(lambda s: s._unpack() if s._c._has_method("_unpack") else None)
        return made

    def runAndSaveRNG(self, func: Any, inputs: Any, kwargs: Any = None) -> Any:
        with freeze_rng_state():
            return func(*inputs, **(kwargs or {}))

    def assertGraphContains(self, graph: Any, kind: str, consider_subgraphs: bool = False) -> None:
        self.assertTrue(graph.findAllNodes(kind), f"{kind} is not in\n{graph}")

    def assertGraphContainsExactly(self, graph: Any, kind: str, num_kind_nodes: int, consider_subgraphs: bool = False) -> None:  # fmt: skip
        found = [n for n in graph.nodes() if n.kind() == kind] if not consider_subgraphs else graph.findAllNodes(kind)
        self.assertEqual(len(found), num_kind_nodes)


class _RaisesHighlighted:
    def __init__(self, case: Any, exception: Any, regex: str, highlight: str):
        self.case, self.exception, self.regex, self.highlight = case, exception, regex, highlight

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> bool:
        with self.case.assertRaisesRegex(self.exception, self.regex):
            if kind:
                raise value
        if self.highlight:
            FileCheck().check_source_highlighted(self.highlight).run(str(value))
        return True


def _typing() -> dict[str, Any]:
    import typing

    return {n: getattr(typing, n) for n in ("List", "Dict", "Tuple", "Optional", "Any", "Union", "NamedTuple")}


def _copied(inputs: Any) -> Any:
    def one(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.detach().clone().requires_grad_(value.requires_grad)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(one, value))
        if type(value) in (list, tuple):
            return type(value)(map(one, value))
        return {k: one(v) for k, v in value.items()} if type(value) is dict else value

    return tuple(map(one, inputs))


@contextlib.contextmanager
def freeze_rng_state() -> Iterator[None]:
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


@contextlib.contextmanager
def _inline_everything(*_: Any) -> Iterator[None]:
    yield


def _same(fn: Any) -> Any:
    return fn


_tmp_donotuse_dont_inline_everything = _same
_inline_everything = _same  # type: ignore[assignment]


def set_fusion_group_inlining(*_: Any) -> Any:
    return contextlib.nullcontext()


disable_autodiff_subgraph_inlining = set_fusion_group_inlining


def enable_cpu_fuser(fn: Any) -> Any:
    return fn


enable_cpu_fuser_if = lambda condition: _same  # noqa: E731


def _get_py3_code(code: str, fn_name: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "script.py")
        with open(path, "w") as file:
            file.write(code)
        return getattr(_load_module(fn_name, path), fn_name)


def do_input_map(fn: Any, inputs: Any) -> Any:
    return tuple(fn(i) if isinstance(i, torch.Tensor) else i for i in inputs)


def clear_class_registry() -> None:
    """Compiled classes belong to their Python classes here: there is no registry."""


if not hasattr(torch._C, "_jit_clear_class_registry"):
    torch._C._jit_clear_class_registry = clear_class_registry


def make_global(*args: Any) -> None:
    for arg in args:
        setattr(sys.modules[arg.__module__], arg.__name__, arg)


def execWrapper(code: str, glob: Any, loc: Any) -> None:
    exec(code, glob, loc)


def _trace(*args: Any, **kwargs: Any) -> Any:
    def wrapper(func: Any) -> Any:
        return torch.jit.trace(func, args, **kwargs)

    return wrapper


def get_forward(c: Any) -> Any:
    return c._get_method("forward")


def get_forward_graph(c: Any) -> Any:
    return c._get_method("forward").graph


def get_traced_sample_variant_pairs(device: Any, dtype: Any, op: Any) -> list:
    return []


def get_module_method(m: Any, module: str, method: str) -> Any:
    return m._c.getattr(module)._get_method(method)


def attrs_with_prefix(module: Any, prefix: str) -> list[str]:
    return [x for x, _ in module._modules._c.items() if x.startswith(prefix)]


def warmup_backward(f: Any, *args: Any) -> list:
    return []


def create_script_fn(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("scripts of the operator database")


def _load_module(name: str, path: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def __getattr__(name: str) -> Any:
    return guess(__name__, name)
