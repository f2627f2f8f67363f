"""Models as native libraries: a C++ program without Python computes the same numbers."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
import weakref
from pathlib import Path

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.backends.cpu import jit
from flambeau.cpp.aot import NotExportable
from flambeau.cpp.native_model import load_library
from flambeau.export.__main__ import main as export_main
from flambeau.nn import functional as F
from flambeau.serve.ts.torch_handler.base_handler import BaseHandler
from flambeau.vision.models import resnet18
from tests.cpp.common import cmake, needs_cmake, needs_compiler, run

pytestmark = [
    needs_compiler,
    pytest.mark.skipif(not jit.available(), reason="libraries are made of compiled kernels: llvmlite is not installed"),
]

PROGRAM = """
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>
#include "HEADER.hpp"
int main(int count, char **arguments) {
  try {
    HEADER::Model model(count > 3 ? arguments[3] : "");
    std::ifstream file(arguments[1], std::ios::binary);
    std::vector<char> in((std::istreambuf_iterator<char>(file)), {});
    std::vector<char> out(BYTES);
    for (int i = 0; i < 2; i++) model(reinterpret_cast<const INPUT *>(in.data()), reinterpret_cast<float *>(out.data()));
    std::ofstream(arguments[2], std::ios::binary).write(out.data(), out.size());
  } catch (const std::exception &error) {
    std::cerr << error.what();
    return 1;
  }
}
"""


def compiled(folder: Path, name: str, kind: str = "float") -> Path:
    """A program that runs the model in `folder` on the numbers of one file, into another."""
    upper = name.upper()
    text = PROGRAM.replace("HEADER", name).replace("BYTES", f"{upper}_OUTPUT_0_BYTES").replace("INPUT *", f"{kind} *")
    (folder / "main.cpp").write_text(text)
    path = folder / "main"
    run("c++", "-O0", folder / "main.cpp", "-o", path, f"-L{folder}", f"-l{name}", f"-Wl,-rpath,{folder}")
    return path


def results(program: Path, x: torch.Tensor, *more: object) -> np.ndarray:
    folder = program.parent
    (folder / "in").write_bytes(x.numpy().tobytes())
    run(program, folder / "in", folder / "out", *more)
    return np.fromfile(folder / "out", np.float32)


def run_in_this_process(path: Path, name: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> int:
    library = ctypes.CDLL(str(path))
    create, call, destroy = (getattr(library, f"{name}_{f}") for f in ("create", "run", "destroy"))
    create.restype, destroy.argtypes, call.argtypes = ctypes.c_void_p, [ctypes.c_void_p], [ctypes.c_void_p] * 3
    model = create(None, 1)
    pointers = [(ctypes.c_void_p * len(ts))(*(t.data_ptr() for t in ts)) for ts in (inputs, outputs)]
    status = call(model, *pointers)
    destroy(model)
    return status


def same(model: nn.Module, folder: Path, name: str, x: torch.Tensor, kind: str = "float") -> Path:
    torch.export_library(model, (x,), folder, name=name)
    program = compiled(folder, name, kind)
    with torch.no_grad():
        expected = model(x).numpy().ravel()
    np.testing.assert_allclose(results(program, x), expected, rtol=1e-5, atol=1e-6)
    return program


def test_resnet(tmp_path: Path) -> None:
    program = same(resnet18(num_classes=10).eval(), tmp_path, "resnet", torch.randn(2, 3, 64, 64))
    header = (tmp_path / "resnet.h").read_text()
    assert "#define RESNET_INPUT_0_SHAPE {2, 3, 64, 64}" in header and "#define RESNET_OUTPUT_0_BYTES 80\n" in header
    assert "#define RESNET_WORKSPACE_BYTES" in header and "#define RESNET_THREADS" in header
    assert "python" not in run("ldd", program).lower()


class GPT(nn.Module):
    def __init__(self, words: int = 50, width: int = 32, steps: int = 16) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(steps, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, i: torch.Tensor) -> torch.Tensor:
        x = self.words(i) + self.places(torch.arange(i.shape[1]))
        n, t, d = x.shape
        q, k, v = self.qkv(self.first(x)).view(n, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, d)
        x = x + self.dropout(self.mix(y))
        return (x + self.down(F.gelu(self.up(self.second(x))))) @ self.words.weight.T


def test_gpt_and_its_errors(tmp_path: Path) -> None:
    x = torch.randint(0, 50, (2, 16))
    program = same(GPT().eval(), tmp_path, "gpt", x, "int64_t")
    x[1, 3] = 99
    (tmp_path / "bad").write_bytes(x.numpy().tobytes())
    done = subprocess.run([program, tmp_path / "bad", tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 1 and "an index is out of range" in done.stderr
    done = subprocess.run([program, tmp_path / "in", tmp_path / "out", "nowhere"], capture_output=True, text=True)
    assert done.returncode == 1 and "the weights (nowhere" in done.stderr


@needs_cmake
def test_static_with_weights_inside_by_cmake(tmp_path: Path) -> None:
    folder = tmp_path / "mlp"
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).eval()
    x = torch.randn(4, 6)
    path = torch.export_library(model, x, folder, name="mlp", static=True, embed_weights=True)
    assert path.name == "libmlp.a" and not (folder / "mlp.weights").exists()
    (tmp_path / "main.cpp").write_text(
        PROGRAM.replace("HEADER", "mlp").replace("BYTES", "MLP_OUTPUT_0_BYTES").replace("INPUT *", "float *")
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.10)\nproject(p CXX)\nfind_package(mlp REQUIRED)\nadd_executable(main main.cpp)\n"
        "target_link_libraries(main mlp::mlp)\n"
    )
    cmake(tmp_path, tmp_path / "build", f"-DCMAKE_PREFIX_PATH={folder}")
    shutil.rmtree(folder)  # all is in the program
    with torch.no_grad():
        np.testing.assert_allclose(
            results(tmp_path / "build" / "main", x), model(x).numpy().ravel(), rtol=1e-5, atol=1e-6
        )


def test_a_recurrent_layer_with_packed_weights(tmp_path: Path) -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(40, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.rnn(x)[0][-1]

    model, x = Last().eval(), torch.randn(5, 3, 40)
    path = torch.export_library(model, (x,), tmp_path, name="lstm")
    found = torch.zeros(3, 64)
    assert run_in_this_process(path, "lstm", [x], [found]) == 0
    with torch.no_grad():
        torch.testing.assert_close(found, model(x))


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
            both = a + b
            return {"sum": both, "rows": both[1:], "same": a, "some": a.masked_fill(a < 0, -torch.inf).softmax(1)}

    a, b = torch.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]]), torch.ones(3)
    path = torch.export_library(Two().eval(), (a, b), tmp_path, name="two")
    outputs = [torch.zeros(2, 3), torch.zeros(1, 3), torch.zeros(2, 3), torch.zeros(2, 3)]
    assert run_in_this_process(path, "two", [a, b], outputs) == 0
    assert torch.equal(outputs[0], a + b) and torch.equal(outputs[1], a[1:] + b) and torch.equal(outputs[2], a)
    assert torch.equal(outputs[3], a.masked_fill(a < 0, -torch.inf).softmax(1))
    header = (tmp_path / "two.h").read_text()
    assert "#define TWO_INPUTS 2" in header and "#define TWO_OUTPUTS 4" in header
    assert "#define TWO_OUTPUT_1_SHAPE {1, 3}" in header


def test_a_library_is_called_from_python_and_served(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)).eval()
    x = torch.randn(5, 6)
    path = torch.export_library(model, (x,), tmp_path, name="net", embed_weights=True)
    native = load_library(path)
    with torch.no_grad():
        wanted = model(x)
    assert torch.equal(native(x), wanted)
    few = native(x[:2])  # as a batch of requests that is not full
    assert few.shape == (2, 3)
    torch.testing.assert_close(few, wanted[:2])
    for wrong, error in (
        (x[:, :5], ValueError),
        (x.double(), TypeError),
        (torch.randn(6, 6), ValueError),
        ("x", TypeError),
    ):
        with pytest.raises(error, match="libnet.so"):
            native(wrong)
    with pytest.raises(TypeError, match="takes 1 tensors, but got 2"):
        native(x, x)

    handler = BaseHandler()
    handler.device = torch.device("cpu")
    assert torch.equal(handler._load_serialized(str(path))(x), wanted)
    (tmp_path / "other.so").write_bytes(b"no library")
    with pytest.raises(NotImplementedError, match="other.so cannot be used"):
        handler._load_serialized(str(tmp_path / "other.so"))


def test_what_cannot_be_a_library(tmp_path: Path) -> None:
    class Chooses(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(NotExportable, match="looks at the values of a tensor|depends on values"):
        torch.export_library(Chooses().eval(), torch.ones(2), tmp_path)
    with pytest.raises(RuntimeError, match="the model is in training mode"):
        torch.export_library(nn.Dropout(), torch.ones(2), tmp_path)
    with pytest.raises(NotExportable, match="random numbers"):
        torch.export_library(nn.Dropout().eval().__class__(0.5).train().forward, torch.ones(2), tmp_path)


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    model = nn.Linear(3, 2).eval()
    torch.save(model, tmp_path / "whole.pt")
    scripted, folder = tmp_path / "linear.pt", tmp_path / "lib"
    assert export_main([str(tmp_path / "whole.pt"), "--torchscript", str(scripted), "--input", "1x3"]) == 0
    assert "8 parameters" in capfd.readouterr().err
    x = torch.randn(1, 3)
    assert torch.equal(torch.jit.load(str(scripted))(x), model(x))
    assert export_main([str(scripted), "--library", str(folder), "--input", "1x3", "--quiet"]) == 0
    assert (folder / "liblinear.so").exists() and capfd.readouterr().err == ""
    with pytest.raises(SystemExit):
        export_main([str(scripted)])
    assert "say what to write" in capfd.readouterr().err


STORM = """
#include <csignal>
#include <cstdio>
#include <sys/time.h>
#include <ucontext.h>
#include <vector>
#include "storm.hpp"
static volatile long seen, strays;
static char *low, *high, other[1 << 16];
static void handle(int, siginfo_t *, void *context) {
  char *stack = reinterpret_cast<char *>(static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RSP]);
  seen = seen + 1;
  if (stack < low || stack > high) strays = strays + 1;
}
int main() {
  char here;
  low = &here - (4 << 20), high = &here + (1 << 16);
  stack_t stack = {};
  stack.ss_sp = other, stack.ss_size = sizeof other;
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = handle, action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  storm::Model model("");
  std::vector<float> in(STORM_INPUT_0_BYTES / 4), out(STORM_OUTPUT_0_BYTES / 4);
  struct itimerval every = {{0, 60}, {0, 60}};
  setitimer(ITIMER_REAL, &every, nullptr);
  for (int i = 0; i < 150; i++) model(in.data(), out.data());
  every = {};
  setitimer(ITIMER_REAL, &every, nullptr);
  std::printf("%ld %ld", seen, strays);
}
"""


class WeightOnTheRight(nn.Module):
    """The layout for which oneDNN's general product is called."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(512, 512))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.weight).relu() @ self.weight


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads registers of x86-64")
def test_signals_wait_while_a_library_multiplies(tmp_path: Path) -> None:
    torch.export_library(WeightOnTheRight().eval(), (torch.randn(64, 512),), tmp_path, name="storm")
    (tmp_path / "storm.cpp").write_text(STORM)
    program = tmp_path / "main"
    run("c++", "-O0", tmp_path / "storm.cpp", "-o", program, f"-L{tmp_path}", "-lstorm", f"-Wl,-rpath,{tmp_path}")
    seen, strays = map(int, run(program).split())
    assert seen > 100
    assert strays == 0


def test_tensors_of_others_are_not_asked_while_a_model_is_recorded(tmp_path: Path) -> None:
    class Strict(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise AssertionError(f"asked about {func}")

    bystander, gone = torch.ones(2).as_subclass(Strict), weakref.proxy(nn.Linear(1, 1))
    torch.export_library(nn.Linear(2, 2).eval(), (torch.ones(1, 2),), tmp_path, name="linear")
    del bystander, gone
