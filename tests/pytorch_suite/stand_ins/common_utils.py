"""What PyTorch's tests share: contexts, skips, matrices, small functions."""

from __future__ import annotations

import _ctypes
import contextlib
import enum
import functools
import gc
import importlib.util
import inspect
import io
import os
import platform
import sys
import tempfile
import unittest
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.testing import make_tensor  # noqa: F401 - the tests import it from here

from flambeau.testing._internal.parametrization import (  # noqa: F401
    _TestParametrizer,
    add_variants,
    decorateIf,
    instantiate_parametrized_tests,
    parametrize,
    reparametrize,
    subtest,
)

from .case import SEED, NestedTensorTestCase, TestCase, set_rng_seed  # noqa: F401
from .matrices import *  # noqa: F403
from .permissive import guess, harmless

IS_LINUX = sys.platform == "linux"
IS_WINDOWS = IS_MACOS = IS_FBCODE = IS_SANDCASTLE = IS_REMOTE_GPU = IS_JETSON = IS_CI = IS_S390X = IS_PPC = False
IS_X86, IS_ARM64 = platform.machine() == "x86_64", platform.machine() in ("arm64", "aarch64")
IS_FILESYSTEM_UTF8_ENCODING = sys.getfilesystemencoding() == "utf-8"
MACOS_VERSION = -1.0
TEST_NUMPY = TEST_MKL = True
TEST_SCIPY = importlib.util.find_spec("scipy") is not None
TEST_DILL = importlib.util.find_spec("dill") is not None
TEST_CUDA = TEST_MPS = TEST_XPU = TEST_ACCELERATOR = TEST_MULTIGPU = TEST_PRIVATEUSE1 = False
TEST_MULTIACCELERATOR = (
    int(os.environ.get("SUITE_RANKS", 0)) > 1
)  # with `--ranks N`, processes on the CPU stand for devices
TEST_WITH_ROCM = TEST_WITH_ASAN = TEST_WITH_TSAN = TEST_WITH_UBSAN = TEST_WITH_SLOW = TEST_WITH_CROSSREF = False
TEST_WITH_TORCHDYNAMO = TEST_WITH_TORCHINDUCTOR = TEST_WITH_SLOW_GRADCHECK = TEST_CUDA_GRAPH = TEST_WITH_MTIA = False
TEST_CUDA_PYTHON_BINDINGS = TEST_Z3 = TEST_LIBROSA = TEST_FAIRSEQ = TEST_SAVE_XML = TEST_CUDA_CUDSS = False
TEST_OPT_EINSUM = importlib.util.find_spec("opt_einsum") is not None
MI200_ARCH = MI300_ARCH = MI350_ARCH = NAVI_ARCH = ()
GRADCHECK_NONDET_TOL = 0.0
FILE_SCHEMA = "file://"
skip_but_pass_in_sandcastle, skip_but_pass_in_sandcastle_if = unittest.skip, unittest.skipIf
NoTest = object

# About builds, systems and modes that are never met here.
globals().update(
    harmless("""skipIfTorchDynamo skipIfRocm skipIfRocmArch skipIfRocmVersionLessThan skipIfXpu skipIfMPS skipIfWindows skipIfCrossRef
    skipIfTorchInductor skipIfSlowGradcheckEnv skipIfNoLapack skipIfNoMkldnn skipCUDAMemoryLeakCheckIf skipCUDANonDefaultStreamIf
    skipIfS390X skipIfASan skipIfLegacyJitExecutor skipIfFreeThreaded xfailIfTorchDynamo xfailIfS390X xfailIfWindows xfailIfPPC
    markDynamoStrictTest unMarkDynamoStrictTest dontWrapWithCudaMemoryLeak serialTest gcIfJetson requires_mkl runOnRocm runOnRocmArch
    isRocmArchAnyOf skipRocmIfTorchInductor skipIfNNModuleInlined expectedFailureIfTorchDynamo wrapSwapTensorsTest
    with_ieee_matmul_precision recover_orig_fp32_precision setBlasBackendsToDefaultFinally setLinalgBackendsToDefaultFinally
    setSdpaBackendsToDefaultFinally""")
)

slowTest = unittest.skip("slow: PyTorch skips it too unless asked")
skipIfNoSciPy = unittest.skipIf(not TEST_SCIPY, "needs SciPy")
skipIfNoDill = unittest.skipIf(not TEST_DILL, "needs dill")
scoped_load_inline = unittest.skip("needs a C++ compiler and PyTorch's headers")
skipIfNoXNNPACK = unittest.skip("needs XNNPACK")


def slowTestIf(condition: Any) -> Callable:  # noqa: N802
    return slowTest if condition else lambda test: test


def xfailIf(condition: Any) -> Callable:  # noqa: N802
    return unittest.expectedFailure if condition else lambda test: test


def run_tests(*args: Any, **kwargs: Any) -> None:
    raise RuntimeError("the harness runs the tests")


def load_tests(loader: Any, tests: Any, pattern: Any) -> Any:
    return tests


def parse_cmd_line_args() -> None:
    pass


# -- dtypes -------------------------------------------------------------------------------------------------------------------

_NUMPY_NAMES = "bool_ uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 complex64 complex128"
numpy_to_torch_dtype_dict: dict[Any, Any] = {
    getattr(np, name): getattr(torch, name.rstrip("_")) for name in _NUMPY_NAMES.split()
}
torch_to_numpy_dtype_dict = {value: key for key, value in numpy_to_torch_dtype_dict.items()}
torch_to_numpy_dtype_dict |= {torch.bfloat16: np.float32}
if hasattr(torch, "complex32"):
    torch_to_numpy_dtype_dict[torch.complex32] = np.complex64
dtype2prec_DONTUSE = {torch.float: 1e-5, torch.double: 1e-5, torch.half: 1e-2, torch.bfloat16: 1e-1}


def dtype_name(dtype: Any) -> str:
    return str(dtype).split(".")[1]


def numpy_to_torch_dtype(dtype: Any) -> Any:
    return numpy_to_torch_dtype_dict[np.dtype(dtype).type]


# -- contexts -----------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def check_leaked_tensors(limit: int = 1, matched_type: type = torch.Tensor) -> Iterator[list]:
    """Tensors that only the garbage collector found, because they were part of a cycle."""
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    found: list = []
    try:
        yield found
        gc.collect()
        found += [thing for thing in gc.garbage if isinstance(thing, matched_type)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@contextlib.contextmanager
def set_default_dtype(dtype: Any) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


set_default_dtype_if_supported = set_default_dtype


@contextlib.contextmanager
def set_default_tensor_type(tensor_type: Any) -> Iterator[None]:
    before = torch.tensor([]).type()
    torch.set_default_tensor_type(tensor_type)
    try:
        yield
    finally:
        torch.set_default_tensor_type(before)


@contextlib.contextmanager
def set_warn_always_context(new_val: bool) -> Iterator[None]:
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(new_val)
    try:
        yield
    finally:
        torch.set_warn_always(before)


@contextlib.contextmanager
def freeze_rng_state() -> Iterator[None]:
    before = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(before)


@contextlib.contextmanager
def disable_gc() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def set_cwd(path: str) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def DeterministicGuard(  # noqa: N802
    deterministic: bool, *, warn_only: bool = False, fill_uninitialized_memory: bool = True
) -> Iterator[None]:
    state = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    filled = state.fill_uninitialized_memory
    torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
    state.fill_uninitialized_memory = fill_uninitialized_memory
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        state.fill_uninitialized_memory = filled


@contextlib.contextmanager
def AlwaysWarnTypedStorageRemoval(always_warn: bool) -> Iterator[None]:  # noqa: N802
    storage = torch.storage
    before = storage._get_always_warn_typed_storage_removal()
    storage._set_always_warn_typed_storage_removal(always_warn)
    try:
        yield
    finally:
        storage._set_always_warn_typed_storage_removal(before)


@contextlib.contextmanager
def TemporaryFileName(*args: Any, **kwargs: Any) -> Iterator[str]:  # noqa: N802
    handle, name = tempfile.mkstemp(suffix=kwargs.get("suffix"))
    os.close(handle)
    try:
        yield name
    finally:
        os.unlink(name)


TemporaryDirectoryName = tempfile.TemporaryDirectory
CudaSyncGuard = contextlib.nullcontext


class BytesIOContext(io.BytesIO):
    """Stays open at the end of a `with`."""

    def __exit__(self, *details: Any) -> None:
        pass


# -- wrappers of tests --------------------------------------------------------------------------------------------------------


def suppress_warnings(test: Callable) -> Callable:
    @functools.wraps(test)
    def quiet(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return test(*args, **kwargs)

    return quiet


def swap(swap_values: list[bool]) -> Callable:
    """The test for both ways in which a module takes over other tensors: into its parameters, or in their place."""

    def decorator_for(value: bool) -> Callable:
        def decorate(test: Callable) -> Callable:
            @functools.wraps(test)
            def swapped(*args: Any, **kwargs: Any) -> Any:
                before = torch.__future__.get_swap_module_params_on_conversion()
                torch.__future__.set_swap_module_params_on_conversion(value)
                try:
                    return test(*args, **kwargs)
                finally:
                    torch.__future__.set_swap_module_params_on_conversion(before)

            return swapped

        return decorate

    variants = [(f"swap_{value}", {}, [decorator_for(value)]) for value in swap_values]
    return lambda test: add_variants(test, lambda: iter(variants))


def wrapDeterministicFlagAPITest(test: Callable) -> Callable:  # noqa: N802
    """The test may change the flag; afterwards it is as before."""

    @functools.wraps(test)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        with DeterministicGuard(torch.are_deterministic_algorithms_enabled()):
            return test(*args, **kwargs)

    return guarded


def coalescedonoff(test: Callable) -> Callable:
    @functools.wraps(test)
    def both(self: Any, *args: Any, **kwargs: Any) -> None:
        test(self, *args, **kwargs, coalesced=True)
        test(self, *args, **kwargs, coalesced=False)

    return both


def retry(ExceptionToCheck: Any, tries: int = 3, delay: int = 3, skip_after_retries: bool = False) -> Callable:  # noqa: N803
    return lambda test: test


def download_file(url: str, binary: bool = True) -> str:
    raise unittest.SkipTest("needs a network")


def find_library_location(lib_name: str) -> Path:
    """A library that can be loaded and registers nothing: PyTorch's wheels come without those that have operators and classes for its
    tests. A test that calls one of these fails by itself; the others of its file need not."""
    return Path(_ctypes.__file__)


def get_function_arglist(func: Callable) -> list[str]:
    return inspect.getfullargspec(func).args


def first_sample(self: Any, samples: Any) -> Any:
    return next(iter(samples))


# -- gradients ----------------------------------------------------------------------------------------------------------------


def gradcheck(fn: Callable, inputs: Any, **kwargs: Any) -> bool:
    options = {"check_batched_grad": False, "fast_mode": False, **kwargs}
    return torch.autograd.gradcheck(fn, inputs, **options)


def gradgradcheck(fn: Callable, inputs: Any, grad_outputs: Any = None, **kwargs: Any) -> bool:
    options = {"check_batched_grad": False, "fast_mode": False, **kwargs}
    return torch.autograd.gradgradcheck(fn, inputs, grad_outputs, **options)


def _assertGradAndGradgradChecks(case: Any, apply_fn: Callable, inputs: Any, **kwargs: Any) -> None:  # noqa: N802
    case.assertTrue(gradcheck(apply_fn, inputs, **kwargs))
    case.assertTrue(gradgradcheck(apply_fn, inputs, **kwargs))


# -- small functions ----------------------------------------------------------------------------------------------------------


def noncontiguous_like(t: Any) -> Any:
    """The same values, every second element of a larger tensor."""
    if not t.is_contiguous():
        return t
    wide = torch.empty((*t.shape, 2), dtype=t.dtype, device=t.device)
    result = wide.select(-1, 1)
    result.copy_(t.detach())
    return result.requires_grad_(t.requires_grad)


def clone_input_helper(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.clone(value)
    return tuple(map(clone_input_helper, value)) if isinstance(value, (list, tuple)) else value


def is_iterable_of_tensors(iterable: Any, include_empty: bool = False) -> bool:
    if isinstance(iterable, torch.Tensor):
        return False
    try:
        items = list(iterable)
    except TypeError:
        return False
    return all(isinstance(item, torch.Tensor) for item in items) and (include_empty or bool(items))


def iter_indices(tensor: Any) -> Any:
    if tensor.dim() == 0:
        return range(0)
    if tensor.dim() == 1:
        return range(tensor.size(0))
    return np.ndindex(*tensor.shape)


def bytes_to_scalar(byte_list: list[int], dtype: Any, device: Any) -> Any:
    """The number that these bytes spell in memory."""
    values = np.array(byte_list, dtype=np.uint8).view(torch_to_numpy_dtype_dict[dtype])
    return torch.tensor(values.item(), device=device, dtype=dtype)


def is_coalesced_indices(s: Any) -> bool:
    columns = [tuple(column) for column in s._indices().T.tolist()]
    return columns == sorted(set(columns))


class ProfilingMode(enum.Enum):
    """The executors of PyTorch's TorchScript; here there is one way to run a graph."""

    LEGACY = 1
    SIMPLE = 2
    PROFILING = 3


GRAPH_EXECUTOR = ProfilingMode.SIMPLE


@contextlib.contextmanager
def enable_profiling_mode_for_profiling_tests() -> Any:
    yield


def __getattr__(name: str) -> Any:
    return guess(__name__, name)
