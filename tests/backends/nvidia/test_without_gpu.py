"""What CUDA says on a machine without a GPU, and what it is made of that needs none."""

from __future__ import annotations

import subprocess
import sys

import pytest

import flambeau
from flambeau.backends.nvidia import compiler, driver, kernel_errors, libraries
from flambeau.core.backend import why_absent

absent = pytest.mark.skipif(flambeau.cuda.is_available(), reason="there is a GPU")


@absent
def test_asking_for_the_device_says_what_is_missing():
    for make in (
        lambda: flambeau.ones(2, device="cuda"),
        lambda: flambeau.ones(2).cuda(),
        lambda: flambeau.ones(2).to("cuda:1"),
    ):
        with pytest.raises(
            AssertionError, match=r"Torch not compiled with CUDA enabled: .*pip install flambeau\[cuda\]"
        ):
            make()
    with flambeau.device("cuda"), pytest.raises(RuntimeError, match="no device of type 'cuda'"):
        flambeau.ones(2)
    assert "pip install" in why_absent("cuda")


@absent
def test_questions_have_answers_without_a_device():
    c = flambeau.cuda
    assert (c.device_count(), c.memory_allocated(), c.get_arch_list(), c.is_initialized()) == (0, 0, [], False)
    assert not c.is_bf16_supported()
    c.manual_seed_all(3)
    c.empty_cache()
    for name in ("current_device", "synchronize", "current_stream", "get_device_name", "mem_get_info", "get_rng_state"):
        with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
            getattr(c, name)()
    for kind in (c.Stream, c.Event, c.CUDAGraph):
        with pytest.raises(RuntimeError):
            kind()
    with pytest.raises(RuntimeError, match="accelerator"):
        flambeau.ones(2).pin_memory()


def test_importing_loads_nothing_of_cuda():
    code = "import sys, flambeau; print([m for m in sys.modules if 'nvidia' in m or 'cuda' in m and 'flambeau' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_library_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(libraries, "candidates", lambda name: ["libnothing_of_that_name.so"])
    libraries.library.cache_clear()
    with pytest.raises(
        libraries.MissingLibrary, match=r"`pip install flambeau\[cuda\]` brings it \(in the package nvidia-cudnn"
    ):
        libraries.library("cudnn")
    libraries.library.cache_clear()


def test_wheels_come_before_the_system():
    names = libraries.candidates("cublasLt")
    assert names[-1] == "libcublasLt.so"


def test_errors_of_the_driver_are_sentences():
    assert "status 700" in str(driver.CudaError(700)) or "illegal" in str(driver.CudaError(700))
    assert isinstance(driver.CudaError("x"), RuntimeError)


def test_a_note_of_a_kernel_becomes_an_error_that_names_the_line(monkeypatch, fake):
    import ctypes

    monkeypatch.setattr(kernel_errors, "_pages", [])
    kernel_errors._on_device.cache_clear()
    kernel_errors.look()
    code = kernel_errors.error_code("gather", "index {1} is out of bounds for dimension with size {2}")
    places = [kernel_errors.error_flag(flambeau.device("cuda", 0)) for _ in range(3)]  # this line
    assert len(set(places)) == 3
    (ctypes.c_int64 * 3).from_address(places[1])[:] = [code, 12, 10]
    with pytest.raises(
        IndexError,
        match=r"gather: index 12 is out of bounds for dimension with size 10, in .*test_without_gpu.py:\d+ .*# this line",
    ):
        kernel_errors.look()
    kernel_errors.look()  # told once
    kernel_errors._on_device.cache_clear()


def _has_nvrtc() -> bool:
    try:
        libraries.library("nvrtc")
    except libraries.MissingLibrary:
        return False
    return True


@pytest.mark.skipif(not _has_nvrtc(), reason="NVRTC is not installed (pip install nvidia-cuda-nvrtc)")
def test_sources_are_compiled_without_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "kernels"))
    source = 'extern "C" __global__ void f(float* x) { x[threadIdx.x] *= 2; }'
    first = compiler.cubin(source, "sm_90")
    found = compiler.stats.loaded
    assert compiler.cubin(source, "sm_90") == first
    assert compiler.stats.loaded == found + 1
    with pytest.raises(driver.CudaError, match="does not compile"):
        compiler.cubin("nonsense", "sm_90")
