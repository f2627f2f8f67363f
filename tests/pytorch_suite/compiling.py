"""PyTorch's tests of `torch.compile` (test/dynamo, test/inductor), judged by what compiled functions compute.

A compiled function is recorded in its second call and runs natively from the fourth on, but most tests call it once. So each
call comes after some calls with copies of its arguments (`SUITE_REPEAT`), whose gradients are computed, too. Random numbers and
the state of a compiled module are as before afterwards; a function that counts its calls will notice, which is why the same test with
functions that are not compiled (`SUITE_UNCOMPILED`) is the one to compare with.

How many graphs there are, and what is in them, is PyTorch's own affair: counts that tests ask for agree with everything."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import random
import sys
import threading
import unittest
from collections import Counter as Counter_
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from .stand_ins.permissive import Anything


class Inner(Exception):
    """The test asks for what only PyTorch has inside: captured graphs, guards, generated code."""


class Count(int):
    """A number of graphs, operators or the like: it agrees with every other."""

    def _agree(self, other: Any) -> bool:
        return True

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = _agree  # type: ignore[assignment]
    __hash__ = int.__hash__

    def __ne__(self, other: Any) -> bool:
        return False

    def _count(self, *others: Any) -> Count:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _count  # type: ignore[assignment]


class Graphs(list):
    """Graphs that nobody has captured."""

    def __getitem__(self, index: Any) -> Any:
        raise Inner("a captured graph")

    def __len__(self) -> Any:
        raise Inner("the number of captured graphs")

    __iter__ = __getitem__  # type: ignore[assignment]


class Counter:
    """PyTorch's backends that count and keep graphs."""

    def __init__(self, *args: Any, **kwargs: Any):
        self.clear()

    def clear(self) -> None:
        self.frame_count, self.op_count = Count(0), Count(0)
        self.graphs, self.fw_graphs, self.bw_graphs, self.inductor_graphs = Graphs(), Graphs(), Graphs(), Graphs()

    def __call__(self, *args: Any) -> Any:
        raise Inner("a backend of PyTorch's")


class Settings(ModuleType):
    """`torch._dynamo.config` and the like: every setting is there, and off."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = self.__dict__[name] = Settings(f"{self.__name__}.{name}")
        return value

    def __bool__(self) -> bool:
        return False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return Nothing()

    def __eq__(self, other: Any) -> bool:
        return other is self or other is None or other is False

    __hash__ = object.__hash__


class Metrics(ModuleType):
    """`torch._inductor.metrics`: counts, whatever is written there."""

    def __getattr__(self, name: str) -> Any:
        return Count(0)

    def __setattr__(self, name: str, value: Any) -> None:
        pass


class Nothing(contextlib.ContextDecorator):
    """A `with` block or decorator that changes nothing."""

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: Any) -> None:
        return None

    def __call__(self, decorated: Any) -> Any:
        return decorated


class _Repeated(threading.local):
    busy = False


_inside = _Repeated()


class Copies:
    """Copies of arguments: tensors that share memory do so as copies, too."""

    def __init__(self, torch: Any):
        self.torch, self.storages, self.tensors = torch, {}, []  # type: ignore[var-annotated]

    def of(self, value: Any) -> Any:
        if type(value) in (list, tuple):
            return type(value)(map(self.of, value))
        if type(value) is dict:
            return {k: self.of(v) for k, v in value.items()}
        if type(value) is not self.torch.Tensor or value.layout is not self.torch.strided or value.is_quantized:
            return value
        key = value.untyped_storage().data_ptr(), value.dtype
        if key not in self.storages:
            self.storages[key] = value.untyped_storage().clone()
        copied = self.torch.empty(0, dtype=value.dtype, device=value.device)
        copied.set_(self.storages[key], value.storage_offset(), value.shape, value.stride())
        if value.requires_grad:
            copied.requires_grad_(True)
            self.tensors.append(copied)
            copied = copied if value.is_leaf else copied.view_as(copied)
        return copied


def repeated(torch: Any, face: Any, function: Any, times: int) -> Any:
    """A compiled function that is called some times before each call, with copies."""
    module = getattr(function, "__self__", function)
    module = module if isinstance(module, torch.nn.Module) else None

    @functools.wraps(face)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not _inside.busy and not torch.compiler.is_compiling():
            _inside.busy = True
            seeds = random.getstate(), np.random.get_state(), torch.get_rng_state()
            state = (
                []
                if module is None
                else [(t, t.detach().clone()) for t in module.state_dict().values() if type(t) is torch.Tensor]
            )
            try:
                for _ in range(times):
                    _call_once(torch, face, module, args, kwargs)
            except Exception as problem:  # the call itself will tell
                if "compile:" in str(problem):
                    raise
            finally:
                _inside.busy = False
                with torch.no_grad():
                    for t, before in state:
                        t.copy_(before)
                random.setstate(seeds[0])
                np.random.set_state(seeds[1])
                torch.set_rng_state(seeds[2])
            states[id(face)] = _state(face._compiled), face
            failures = [why for why in face._compiled.reasons if why.startswith("compiling it failed")]
            if failures:
                raise AssertionError(failures[0])
        return face(*args, **kwargs)

    return call


states: dict[int, tuple[str, Any]] = {}  # what became of each compiled function


def _state(behind: Any) -> str:
    if behind.split is not None:
        return "in parts"
    if any(r.calls for r in behind.recordings()):
        return "native"
    return f"as it is: {behind.reasons[-1].partition(' (')[0]}" if behind.reasons else "not native yet"


def summary() -> list[str]:
    """How many compiled functions came to run natively, and why others did not."""
    counts = Counter_(state for state, _ in states.values())
    return [f"{count} {state}" for state, count in counts.most_common(12)]


def _call_once(torch: Any, face: Any, module: Any, args: tuple, kwargs: dict) -> None:
    copies = Copies(torch)
    result = face(*copies.of(args), **copies.of(kwargs))
    if not torch.is_grad_enabled():
        return
    found = [
        t
        for t in torch.utils._pytree.tree_leaves(result)
        if isinstance(t, torch.Tensor) and t.requires_grad and t.grad_fn is not None
    ]
    leaves = [*copies.tensors, *(() if module is None else (p for p in module.parameters() if p.requires_grad))]
    if found and leaves:
        torch.autograd.grad(sum(t.abs().sum().to(torch.float64) for t in found), leaves, allow_unused=True)


def applies(path: Path) -> bool:
    return path.parent.name in ("dynamo", "inductor")


def install(torch: Any) -> None:
    """Before a test file is loaded."""
    compiler, options = (
        importlib.import_module("flambeau.compiler"),
        importlib.import_module("flambeau.core.compile_options"),
    )
    times, plain = int(os.environ.get("SUITE_REPEAT", 0)), bool(os.environ.get("SUITE_UNCOMPILED"))
    make, check = compiler._compiled_function, options.check_compile_options

    def relaxed(**given: Any) -> None:
        backend = given.get("backend")
        check(
            **{
                **given,
                "backend": None if callable(backend) or type(backend) is str and backend in _BACKENDS else backend,
            }
        )

    def compiled_function(function: Callable, given: dict[str, Any]) -> Any:
        given = {**given, "backend": None, "fullgraph": False, "run_as_it_is": plain}
        face = make(function, given)
        again = repeated(torch, face, function, times) if times else face
        again.__dict__.update(face.__dict__)
        return again

    compiler._compiled_function, compiler.check_compile_options = compiled_function, relaxed  # type: ignore[attr-defined]
    dynamo = importlib.import_module("torch._dynamo")
    testing = _module("torch._dynamo.testing", _testing(torch))
    settings = {name: Settings(name) for name in ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config",
                                                  "torch.fx.experimental._config", "torch._dynamo.guards")}  # fmt: skip
    for name, value in settings.items():
        value.patch = lambda *args, **kwargs: Nothing()  # type: ignore[attr-defined]
        _put(name, value)
    metrics = Metrics("torch._inductor.metrics")
    metrics.__dict__["reset"] = lambda: None
    _put("torch._inductor.metrics", metrics)
    cases = {"TestCase": _case(torch), "run_tests": lambda *args, **kwargs: None, "CPythonTestCase": _case(torch)}
    for name in ("torch._dynamo.test_case", "torch._inductor.test_case"):
        _module(name, cases)
    utils = importlib.import_module("torch._dynamo.utils")
    counters: Any = defaultdict(lambda: defaultdict(Count))
    utils.counters, utils.same = counters, testing.same  # type: ignore[attr-defined]
    utils.ifdynstaticdefault = lambda static, dynamic: static  # type: ignore[attr-defined]
    given = "error_on_graph_break nonstrict_trace dont_skip_tracing skip_frame forbid_in_graph disallow_in_graph mark_unbacked"
    for name in given.split():
        setattr(dynamo, name, Anything(name))
    dynamo.reset_code_caches = dynamo.reset  # type: ignore[attr-defined]
    torch.utils._pytree._cxx_pytree_dynamo_traceable = False
    _module("torch._dynamo.device_interface", {"get_interface_for_device": lambda device: _Interface})
    _module("torch._inductor.utils", {
        "run_and_get_code": lambda f, *args, **kwargs: (f(*args, **kwargs), [""]), "fresh_cache": Nothing, "fresh_inductor_cache": Nothing,
        "run_and_get_cpp_code": lambda f, *args, **kwargs: (f(*args, **kwargs), ""), "run_fw_bw_and_get_code": _inner("generated code"),
        "run_and_get_kernels": lambda f, *args, **kwargs: (f(*args, **kwargs), Graphs()), "has_torchvision_roi_align": lambda: False,
        "run_and_get_triton_code": _inner("generated code"), "get_code": _inner("generated code"), "timed": _inner("a clock"),
        "is_big_gpu": lambda *args: False,
    })  # fmt: skip
    for owner in (torch._C, torch.testing):
        owner.FileCheck = _FileCheck
    torch.cpu._is_avx512_bf16_supported = lambda: torch.cpu.get_capabilities()["avx512_bf16"]
    _module("torch.testing._internal.inductor_utils", {
        "HAS_CPU": True, "RUN_CPU": True, "HAS_GPU": False, "RUN_GPU": False, "GPU_TYPE": "cuda", "HAS_MULTIGPU": False, "HAS_MPS": False,
        "RUN_TPU": False, "HAS_TPU": False, "IS_BIG_GPU": False, "HAS_CUDA_AND_TRITON": False, "HAS_XPU_AND_TRITON": False, "HAS_TRITON": False,
        "HAS_GPU_AND_TRITON": False, "HAS_PALLAS": False, "HAS_HELION": False,
        "requires_gpu": lambda *args: unittest.skip("needs a GPU"), "requires_triton": lambda *args: unittest.skip("needs a GPU"),
        "skipCPUIf": lambda condition, why: unittest.skipIf(condition, why), "skipCUDAIf": lambda condition, why: (lambda f: f),
        "skipDeviceIf": lambda condition, why, *, device: unittest.skipIf(condition and device == "cpu", why),
        "maybe_skip_size_asserts": lambda op: contextlib.nullcontext(), "clone_preserve_strides_offset": functools.partial(_clone, torch),
        "requires_gpu_with_enough_memory": lambda size: unittest.skip("needs a GPU"),
    })  # fmt: skip
    skip = unittest.skip("needs Triton and a GPU")
    names = "requires_cuda_and_triton requires_gpu_and_triton requires_gpu requires_cuda requires_xpu_and_triton"
    _module("torch.testing._internal.triton_utils", dict.fromkeys(names.split(), skip))


_BACKENDS = frozenset(("eager", "aot_eager", "aot_eager_decomp_partition", "inductor", "aot_eager_default_partitioner", "aot_ts", "invoke_subgraph",
                       "eager_noexcept", "aot_eager_decomp_partition_with_mode", "ts", "pre_dispatch_eager", "cudagraphs"))  # fmt: skip


class _Interface:
    """What a test asks of a device."""

    is_bf16_supported = staticmethod(lambda *args: True)
    is_available = staticmethod(lambda: True)
    is_dtype_supported = staticmethod(lambda *args, **kwargs: True)


class _FileCheck:
    """Expectations of generated code: not judged."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self


def adapt(module: ModuleType) -> None:
    """After a test file is loaded: nobody calls the backend of `check_model`, which counts that."""
    for space in [module, *(m for name, m in list(sys.modules.items()) if name == "test_torchinductor")]:
        check = getattr(space, "check_model", None)
        if check is not None and "check_has_compiled" in (check.__kwdefaults__ or {}):
            check.__kwdefaults__["check_has_compiled"] = False


def _put(name: str, module: ModuleType) -> None:
    sys.modules[name] = module
    owner, _, last = name.rpartition(".")
    with contextlib.suppress(ImportError):
        setattr(importlib.import_module(owner), last, module)


class _Open(ModuleType):
    """A module of ours with the names that tests ask for; others are decorators that change nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name)


def _module(name: str, content: dict[str, Any]) -> Any:
    made = _Open(name)
    made.__dict__.update(content)
    _put(name, made)
    return made


def _clone(torch: Any, x: Any, device: Any = None) -> Any:
    if not isinstance(x, torch.Tensor):
        return x
    size = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride())) if x.numel() else 0
    flat = torch.as_strided(x.detach(), (size,), (1,), 0 if not size else x.storage_offset()).clone()
    return torch.as_strided(flat, x.shape, x.stride(), 0).requires_grad_(x.requires_grad)


def _same(torch: Any, a: Any, b: Any, *args: Any, tol: float = 1e-4, **options: Any) -> bool:
    """Whether two results are the same, within a tolerance."""
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(_same(torch, x, y, tol=tol) for x, y in zip(a, b))
    if isinstance(a, dict):
        return set(a) == set(b) and all(_same(torch, a[k], b[k], tol=tol) for k in a)
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        if a.is_floating_point() or a.is_complex():
            return bool(torch.allclose(a, b, rtol=tol, atol=tol, equal_nan=True))
        return bool(torch.equal(a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= tol * max(1, abs(b)) or (a != a and b != b)
    if isinstance(a, np.ndarray):
        return bool(np.allclose(a, b, rtol=tol, atol=tol, equal_nan=True))
    if (
        type(a).__module__ not in ("builtins", "enum")
        and type(a) is type(b)
        and hasattr(a, "__dict__")
        and type(a).__eq__ is object.__eq__
    ):
        return _same(torch, vars(a), vars(b), tol=tol)
    return bool(a == b)


def _testing(torch: Any) -> dict[str, Any]:
    same = functools.partial(_same, torch)

    def standard_test(self: Any, fn: Any, nargs: int, **expected: Any) -> None:
        given = [[torch.randn(10, 10) for _ in range(nargs)] for _ in range(2)]
        correct = [fn(*args) for args in given]
        compiled = torch.compile(fn)
        for _ in range(3):
            for args, right in zip(given, correct):
                self.assertTrue(same(compiled(*args), right))

    def rand_strided(
        size: Any, stride: Any, dtype: Any = torch.float32, device: Any = "cpu", extra_size: int = 0
    ) -> Any:
        needed = 1 + extra_size + sum((n - 1) * s for n, s in zip(size, stride)) if 0 not in size else extra_size
        real = dtype.is_floating_point or dtype.is_complex
        flat = torch.randn(needed, dtype=dtype) if real else torch.randint(0, 2, (needed,)).to(dtype)
        return torch.as_strided(flat, size, stride)

    def loss(out: Any) -> Any:
        if isinstance(out, torch.Tensor):
            return out.sum() / out.numel()
        if isinstance(out, (list, tuple)):
            return sum(map(loss, out)) / len(out)
        return sum(map(loss, out.values())) / len(out)

    def with_patches(cls: type, prefix: str, suffix: str, *patches: Any, **options: Any) -> type:
        return type(f"{prefix}{cls.__name__}", (), {})  # the same tests with other settings

    later = sys.version_info >= (3, 12)
    same_test = lambda f: f  # noqa: E731
    kinds = (
        "CompileCounter CompileCounterWithBackend EagerAndRecordGraphs AotEagerAndRecordGraphs InductorAndRecordGraphs"
    )
    return {
        **dict.fromkeys(kinds.split(), Counter), "same": same, "standard_test": standard_test, "rand_strided": rand_strided,
        "reduce_to_scalar_loss": loss, "make_test_cls_with_patches": with_patches, "reset_rng_state": lambda *args: torch.manual_seed(1337),
        "unsupported": lambda *args: args[-1] if args else None, "skipIfNotPy311": same_test, "skipIfPy312": unittest.skipIf(later, "Python"),
        "skipIfNotPy312": unittest.skipIf(not later, "Python"), "skipIfOnlyNotPy312": unittest.skipIf(not later, "Python"),
        "xfailIfPy312": unittest.expectedFailure if later else same_test, "expectedFailureDynamic": same_test,
        "expectedFailureCodegenDynamic": same_test, "expectedFailureDynamicWrapper": same_test,
        "check_dynamic_shape_capture": lambda: False, "normalize_gm": _inner("the text of a graph"), "extract_graph": _inner("a captured graph"),
        "extract_graph_and_tracker": _inner("a captured graph"), "expectedFailure": unittest.expectedFailure,
        "remove_optimized_module_prefix": lambda name: name.removeprefix("_orig_mod."),
    }  # fmt: skip


def _inner(what: str) -> Callable:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Inner(what)

    return refuse


def _case(torch: Any) -> type:
    base = importlib.import_module("torch.testing._internal.common_utils").TestCase

    class TestCase(base):  # type: ignore[misc, valid-type]
        """Each test begins with nothing compiled; counts and graphs are not judged."""

        def setUp(self) -> None:
            super().setUp()
            torch._dynamo.reset()

        def assertEqual(self, x: Any, y: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N802
            if not isinstance(x, (Count, Settings)) and not isinstance(y, (Count, Settings)):
                super().assertEqual(x, y, *args, **kwargs)

        def assertNotEqual(self, x: Any, y: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N802
            if not isinstance(x, Count) and not isinstance(y, Count):
                super().assertNotEqual(x, y, *args, **kwargs)

        def assertExpectedInline(self, *args: Any, **kwargs: Any) -> None:  # noqa: N802
            """The text of graphs, guards and messages."""

    return TestCase
