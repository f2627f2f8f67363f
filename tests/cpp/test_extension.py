"""Operators in C++ that Python imports: setup.py, load, load_inline, gradients, ONNX."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

import flambeau as torch
from flambeau.cpp import bridge, headers
from flambeau.utils import cpp_extension
from tests.cpp.common import PROGRAMS, made_once, needs_compiler, pybind11_headers, run

SETUP = """
from setuptools import setup
from flambeau.utils import cpp_extension

setup(name='my_add',
      ext_modules=[cpp_extension.CppExtension('my_lib', ['more.cpp'], extra_compile_args=['-O0'])],
      cmdclass={'build_ext': cpp_extension.BuildExtension})
"""


def imported(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(folder: Path) -> None:
    found = pybind11_headers(folder)
    if found is None:
        return
    (folder / "setup.py").write_text(SETUP)
    for name in ("my_add.cpp", "more.cpp"):
        shutil.copy(PROGRAMS / name, folder)
    run(sys.executable, "setup.py", "-q", "build_ext", "--inplace", cwd=folder, CPATH=str(found))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = list(made_once(tmp_path_factory, "extension", build).glob("my_lib*.so"))
    if not found:
        pytest.skip("pybind11 is not installed")
    return found[0]


@pytest.fixture(scope="module")
def my_lib(built: Path) -> ModuleType:
    return imported("my_lib", built)


@needs_compiler
def test_my_add(my_lib: ModuleType) -> None:
    a, b = torch.ones(2, requires_grad=True), torch.full((2,), 3.0)
    out = my_lib.my_add(a, b)
    assert type(out) is torch.Tensor and out.tolist() == [5, 5]
    out.sum().backward()
    assert a.grad.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match=r"The size of tensor a \(2\) must match the size of tensor b \(3\)"):
        my_lib.my_add(a, torch.ones(3))
    with pytest.raises(TypeError, match=r"my_add\(\): incompatible function arguments"):
        my_lib.my_add(a, 3)


@needs_compiler
def test_my_add_in_onnx(my_lib: ModuleType, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")

    class MyAddFunction(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):  # type: ignore[no-untyped-def]
            return my_lib.my_add(a, b)

        @staticmethod
        def symbolic(g, a, b):  # type: ignore[no-untyped-def]
            two = g.op("Constant", value_t=torch.tensor([2]))
            a = g.op("Mul", a, two)
            return g.op("Add", a, b)

    class MyAdd(torch.nn.Module):
        def forward(self, a, b):  # type: ignore[no-untyped-def]
            return MyAddFunction.apply(a, b)

    path = tmp_path / "my_add.onnx"
    torch.onnx.export(MyAdd(), (torch.ones(2), torch.ones(2)), str(path), dynamo=False)
    assert [n.op_type for n in onnx.load(path).graph.node] == ["Constant", "Mul", "Add"]


@needs_compiler
def test_all_kinds_of_arguments(built: Path) -> None:
    more = imported("more_lib", built)
    x = torch.ones(2, 3)
    assert [t.tolist() for t in more.halves([torch.ones(1), torch.zeros(1)])] == [[0.5], [0.0]]
    assert more.halves(xs=[torch.ones(1)], bias=torch.ones(1))[0].item() == 1.5
    made, text = more.made((2, 1), 3, torch.int64, torch.device("cpu"))
    assert made.tolist() == [[3], [3]] and made.dtype is torch.int64 and text == "Long [2, 1] cpu"
    more.count_up(x.t())
    assert x.tolist() == [[1, 11, 21], [2, 12, 22]]
    assert more.without_lock(torch.ones(4)).item() == 16
    assert more.applied(torch.ones(2), lambda t: t * 5).tolist() == [6, 6]
    with pytest.raises(RuntimeError, match="expected scalar type Float but found Double"):
        more.count_up(x.double())


@needs_compiler
def test_errors_keep_their_kind(built: Path) -> None:
    more = imported("more_lib", built)
    for number, kind, text in (
        (0, RuntimeError, "zero is bad: 0"),
        (1, IndexError, "one is"),
        (2, ValueError, "two is"),
    ):
        with pytest.raises(kind, match=text):
            more.check(number)
    with pytest.raises(IndexError, match="out of range"):
        more.pick(torch.ones(2), 5)
    with pytest.raises(ZeroDivisionError):
        more.applied(torch.ones(1), lambda t: t / (1 // 0))


INLINE = """
#include <c10/core/Scalar.h>
extern "C" __attribute__((visibility("default"))) double thrice(double x) { return c10::Scalar(3 * x).toDouble(); }
"""


@needs_compiler
@pytest.mark.parametrize("ninja", [True, False])
def test_load_inline_builds_once(
    tmp_path: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, ninja: bool
) -> None:
    if not ninja:
        monkeypatch.setattr(cpp_extension, "_ninja", lambda: None)
    elif not cpp_extension.is_ninja_available():
        pytest.skip("ninja is not installed")
    options = {
        "build_directory": str(tmp_path),
        "is_python_module": False,
        "no_implicit_headers": True,
        "verbose": True,
    }
    path = cpp_extension.load_inline("inlined", INLINE, **options)
    function = ctypes.CDLL(path).thrice
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double]
    assert function(2.0) == 6.0 and path in torch.ops.loaded_libraries
    assert "main.cpp" in capfd.readouterr().out
    assert cpp_extension.load_inline("inlined", INLINE, **options) == path
    assert capfd.readouterr().out == ""
    with pytest.raises(RuntimeError, match="(?s)Error building extension 'inlined'.*this is no C"):
        cpp_extension.load_inline("inlined", "#error this is no C++", **options)


def test_the_functions_of_load_inline() -> None:
    text = cpp_extension._module_text({"f": "does f"})
    assert text == 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n  m.def("f", f, "does f");\n}'


def test_cuda_needs_its_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    with pytest.raises(RuntimeError, match="nvcc was not found"):
        cpp_extension.load_inline("x", "", "__global__ void f() {}", build_directory=str(tmp_path))


def test_what_nvcc_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One list of options for both compilers; where there is no nvcc, a file of its name."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").write_text("")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(tmp_path))
    options = cpp_extension.Options(["-O1", "-march=native"], ["-O3"], "shop", for_python=True)
    host, device = options.compiling("a.cpp", "a.o"), options.compiling("b.cu", "b.o")
    assert "-march=native" in host and "-march=native" not in device and "-O3" in device and "-arch=native" in device
    assert "-fPIC" in host and "-Xcompiler=-fPIC" in device and device[0] == str(tmp_path / "bin" / "nvcc")
    for flag in ("-std=c++17", "-DTORCH_EXTENSION_NAME=shop", "-DTORCH_API_INCLUDE_EXTENSION_H"):
        assert flag in host and flag in device
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;9.0+PTX")
    found = [f for f in options.compiling("b.cu", "b.o") if f.startswith("-gencode")]
    assert [f.rpartition("code=")[2] for f in found] == ["sm_80", "sm_90", "compute_90"]
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "many")
    with pytest.raises(ValueError, match=r"Unknown CUDA arch \(many\)"):
        options.compiling("b.cu", "b.o")


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(RuntimeError, match="there is no C\\+\\+ compiler: 'no-such-compiler'"):
        cpp_extension.load_inline("x", "", build_directory=str(tmp_path))


def test_paths() -> None:
    assert (Path(cpp_extension.include_paths()[0]) / "torch" / "extension.h").exists()
    assert (Path(torch.utils.cmake_prefix_path) / "Torch" / "TorchConfig.cmake").exists()
    assert cpp_extension.library_paths() == []


def test_python_has_what_the_headers_ask_for() -> None:
    asked = r'(?:helper(?:<[^(]*>)?|attribute|is_instance)\((?:p, )?"(\w+)"'
    names = {n for path in cpp_extension._INCLUDE.rglob("*.h") for n in re.findall(asked, path.read_text())}
    assert len(names) > 30 and not [n for n in names if not hasattr(bridge, n)]


def test_the_headers_are_up_to_date() -> None:
    for name, text in headers.written().items():
        assert (headers.FOLDER / name).read_text() == text, "run python -m flambeau.cpp.headers"
