"""Tests written for any device, made for the CPU."""

from __future__ import annotations

import functools
import inspect
import unittest
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

from flambeau.testing._internal.parametrization import (
    Variant,
    add_variants,
    made_for,
    put,
    tests_of,
    text_of,
    variants_of,
)

from .permissive import Anything, guess, harmless

TEST_WITH_ROCM = PYTORCH_CUDA_MEMCHECK = False
e4m3_type, e5m2_type = torch.float8_e4m3fn, torch.float8_e5m2
E4M3_MAX_POS, E5M2_MAX_POS = torch.finfo(e4m3_type).max, torch.finfo(e5m2_type).max
NATIVE_DEVICES = ("cpu", "cuda", "xpu", "meta", "mps", "mtia")
PYTORCH_TESTING_DEVICE_ONLY_FOR_KEY = "PYTORCH_TESTING_DEVICE_ONLY_FOR"
PYTORCH_TESTING_DEVICE_EXCEPT_FOR_KEY = "PYTORCH_TESTING_DEVICE_EXCEPT_FOR"

# Decorators about other devices than the CPU change nothing here.
globals().update(
    harmless("""dtypesIfCUDA dtypesIfMPS dtypesIfXPU dtypesIfHPU dtypesIfPRIVATEUSE1 expectedFailureCUDA expectedFailureMeta
    expectedFailureMPS expectedFailureMPSPre14 expectedFailureMPSPre15 expectedFailureMPSComplex expectedFailureXLA expectedFailureXPU
    expectedFailureHPU onlyNativeDeviceTypes onlyNativeDeviceTypesAnd skipCUDAIf skipCUDAIfCudnnVersionLessThan skipCUDAIfMiopen
    skipCUDAIfNoCudnn skipCUDAIfNoCusolver skipCUDAIfNoMagma skipCUDAIfNoMagmaAndNoCusolver skipCUDAIfNoMagmaAndNoLinalgsolver
    skipCUDAIfNoMiopen skipCUDAIfNoSparseGeneric skipCUDAIfNoCusparseGeneric skipCUDAIfNotMiopenSuggestNHWC skipCUDAIfNotRocm
    skipCUDAIfRocm skipCUDAIfRocmHipBlasltVersionLessThan skipCUDAIfRocmVersionLessThan skipCUDAVersionIn skipCPUIfNoFFT
    skipCPUIfNoLapack skipCPUIfNoMkldnn skipCPUIfNoMkl skipCPUIfNoMklSparse skipGPUIf skipHPU skipLazy skipMeta skipMPS skipMPSIf
    skipMPSVersionIfLessThan skipPRIVATEUSE1 skipXLA skipXPU skipXPUIf disablecuDNN skipCUDAIfNoFFT""")
)

_elsewhere = unittest.skip("the database of operators, modules or optimizers is checked elsewhere")


def _only_elsewhere(device: str) -> Callable:
    return unittest.skip(f"only for {device}")


onlyCPU = onlyNativeDeviceTypesAnd = Anything("onlyCPU")
onlyCUDA = onlyCUDAAndPRIVATEUSE1 = onlyAccelerator = onlyGPU = _only_elsewhere("accelerators")
onlyXPU, onlyMPS, onlyHPU, onlyPRIVATEUSE1 = map(_only_elsewhere, ("xpu", "mps", "hpu", "privateuse1"))


def onlyOn(device_types: Any) -> Callable:  # noqa: N802
    allowed = [device_types] if isinstance(device_types, str) else list(device_types)
    return Anything("onlyOn") if "cpu" in allowed else _only_elsewhere(", ".join(map(str, allowed)))


def skipCPUIf(condition: Any, reason: str) -> Callable:  # noqa: N802
    return unittest.skipIf(bool(condition), reason)


def skipIf(condition: Any, reason: str = "", device_type: Any = None) -> Callable:  # noqa: N802
    here = device_type is None or "cpu" in device_type
    return unittest.skipIf(bool(condition) and here, reason)


def expectedFailure(device_type: str) -> Callable:  # noqa: N802
    return unittest.expectedFailure if device_type == "cpu" else Anything("expectedFailure")


def largeTensorTest(size: Any, device: Any = None, inductor: Any = None) -> Callable:  # noqa: N802
    return unittest.skip(f"needs {size} of memory")


def deviceCountAtLeast(num_required_devices: int) -> Callable:  # noqa: N802
    return unittest.skipIf(num_required_devices > 1, f"needs {num_required_devices} devices")


def get_all_device_types() -> list[str]:
    return ["cpu"]


def has_cusolver() -> bool:
    return False


has_hipsolver = has_cusolver


# -- dtypes and tolerances ----------------------------------------------------------------------------------------------------


class dtypes:  # noqa: N801
    """The dtypes that a test is made for; a tuple is passed as one."""

    def __init__(self, *args: Any, device_type: str = "all"):
        self.chosen = args[0] if args and isinstance(args[0], list) else args
        self.device_type = device_type

    def __call__(self, test: Callable) -> Callable:
        test._dtypes = {**getattr(test, "_dtypes", {}), self.device_type: self.chosen}  # type: ignore[attr-defined]
        return test


class dtypesIfCPU(dtypes):  # noqa: N801
    def __init__(self, *args: Any):
        super().__init__(*args, device_type="cpu")


class tol(NamedTuple):  # noqa: N801
    atol: float
    rtol: float


def _with_tolerance(test: Callable, dtype: Any) -> Callable:
    """The test with the tolerances that its decorators set for this dtype."""
    precision = getattr(test, "_precisions", {}).get(dtype)
    tolerance = getattr(test, "_tolerances", {}).get(dtype)
    if precision is None and tolerance is None:
        return test
    atol, rtol = tolerance or (precision, 0.0)

    @functools.wraps(test)
    def tolerant(self: Any, **arguments: Any) -> Any:
        before = self.precision, self.rel_tol
        self.precision, self.rel_tol = max(before[0], atol), max(before[1], rtol)
        try:
            return test(self, **arguments)
        finally:
            self.precision, self.rel_tol = before

    return tolerant


def precisionOverride(d: dict) -> Callable:  # noqa: N802
    def decorate(test: Callable) -> Callable:
        test._precisions = d  # type: ignore[attr-defined]
        return test

    return decorate


def toleranceOverride(d: dict) -> Callable:  # noqa: N802
    def decorate(test: Callable) -> Callable:
        test._tolerances = d  # type: ignore[attr-defined]
        return test

    return decorate


# -- the operator database ----------------------------------------------------------------------------------------------------


class OpDTypes:
    supported = unsupported = supported_backward = unsupported_backward = any_one = any_common_cpu_cuda_one = none = (
        "any"
    )


class ops:  # noqa: N801
    def __init__(self, op_list: Any, *, dtypes: Any = None, allowed_dtypes: Any = None, skip_if_dynamo: bool = True):
        pass

    def __call__(self, test: Callable) -> Callable:
        return _elsewhere(test)


def skipOps(*args: Any, **kwargs: Any) -> Callable:  # noqa: N802
    return lambda test: test


def skip(*args: Any, **kwargs: Any) -> None:
    return None


xfail = skip


# -- making the tests ---------------------------------------------------------------------------------------------------------


def _dtype_variants(test: Callable) -> Callable:
    chosen = getattr(test, "_dtypes", {})
    dtype_list = chosen.get("cpu", chosen.get("all"))
    if dtype_list is None:
        return test
    argument = "dtypes" if "dtypes" in inspect.signature(test).parameters else "dtype"

    def variants() -> Iterator[Variant]:
        for dtype in dtype_list:
            parts = dtype if isinstance(dtype, (tuple, list)) else (dtype,)
            absent = [unittest.skip(f"no {part.__name__}") for part in parts if not isinstance(part, torch.dtype)]
            yield "_".join(text_of(part) for part in parts), {argument: dtype}, absent

    return add_variants(test, variants)


def _make_tests(cls: type, name: str, test: Callable) -> None:
    parameters = inspect.signature(test).parameters
    known = {"device": "cpu", "devices": ["cpu"]}
    devices = {name: value for name, value in known.items() if name in parameters}
    skipped = getattr(test, "__unittest_skip__", False)
    if skipped:  # it has no dtype that conditions of decorators could ask for
        vars(test).pop("_conditional", None)
    variants = [("", {}, [])] if skipped else variants_of(_dtype_variants(test))
    for title, arguments, decorators in variants:
        full = "_".join(filter(None, [name, "cpu", title]))
        tolerant = _with_tolerance(test, arguments.get("dtype"))
        put(cls, full, made_for(tolerant, full, {**devices, **arguments}, decorators))


def instantiate_device_type_tests(
    generic_test_class: type,
    scope: dict[str, Any],
    except_for: str | Iterable[str] | None = None,
    only_for: str | Iterable[str] | None = None,
    **others: bool,
) -> None:
    """Replaces the generic class in `scope` by one for the CPU."""
    generic = tests_of(generic_test_class)
    scope.pop(generic_test_class.__name__, None)
    if _mentions_cpu(except_for) or (only_for is not None and not _mentions_cpu(only_for)):
        return
    attributes = {"device_type": "cpu", "__module__": generic_test_class.__module__, **dict.fromkeys(generic)}
    cls = type(generic_test_class.__name__ + "CPU", (generic_test_class,), attributes)
    cls.get_primary_device = classmethod(lambda cls: "cpu")  # type: ignore[attr-defined]
    cls.get_all_devices = classmethod(lambda cls: ["cpu"])  # type: ignore[attr-defined]
    for name, test in generic.items():
        _make_tests(cls, name, test)
    scope[cls.__name__] = cls


def _mentions_cpu(devices: str | Iterable[str] | None) -> bool:
    return devices is not None and "cpu" in ([devices] if isinstance(devices, str) else list(devices))


def get_device_type_test_bases() -> list:
    return []


def __getattr__(name: str) -> Any:
    return guess(__name__, name)
