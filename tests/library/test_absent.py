"""Libraries that are linked against PyTorch's own: left out with a warning, and their operators say why."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau as torch

ROOT = Path(torch.__file__).parents[1]
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

SOURCE = """
extern int of_pytorch(void);
const char *const names[] = {"absent_shop", "price(Tensor x, int n) -> Tensor", "weigh"};
int ask(void) { return of_pytorch(); }
"""


def cc(folder: Path, *arguments: str) -> None:
    subprocess.run(["cc", "-shared", "-fPIC", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library that needs libc10.so, which is not there."""
    (tmp_path / "c10.c").write_text("int of_pytorch(void) { return 1; }")
    (tmp_path / "shop.c").write_text(SOURCE)
    cc(tmp_path, "c10.c", "-o", "libc10.so", "-Wl,-soname,libc10.so")
    cc(tmp_path, "shop.c", "-o", "libshop.so", "-L.", "-lc10")
    (tmp_path / "libc10.so").unlink()
    return tmp_path / "libshop.so"


@needs_compiler
def test_operators_are_absent_and_say_why(library: Path) -> None:
    with pytest.raises(AttributeError):
        torch.ops.absent_shop  # noqa: B018
    with pytest.warns(UserWarning, match=r"linked against PyTorch's libc10\.so"):
        torch.ops.load_library(library)
    torch.ops.load_library(library)  # a second time it says nothing
    for operator in (torch.ops.absent_shop.price, torch.ops.absent_shop.price.default, torch.ops.absent_shop.weigh):
        with pytest.raises(RuntimeError, match=r"libshop\.so was not loaded.*libc10\.so"):
            operator(torch.ones(2), 3)
    with pytest.raises(AttributeError):
        torch.ops.absent_shop.pric  # noqa: B018
    with pytest.raises(AttributeError):
        torch.ops.another_shop  # noqa: B018


@needs_compiler
def test_other_missing_libraries_are_errors(tmp_path: Path) -> None:
    (tmp_path / "part.c").write_text("int part(void) { return 1; }")
    (tmp_path / "whole.c").write_text("extern int part(void); int whole(void) { return part(); }")
    cc(tmp_path, "part.c", "-o", "libpart.so", "-Wl,-soname,libpart.so")
    cc(tmp_path, "whole.c", "-o", "libwhole.so", "-L.", "-lpart")
    (tmp_path / "libpart.so").unlink()
    with pytest.raises(OSError, match="libpart"):
        torch.ops.load_library(tmp_path / "libwhole.so")


TORCHAUDIO = """
import sys, warnings
import flambeau as torch
warnings.simplefilter("ignore")
torch.ops.load_library(sys.argv[1])
assert torch.ops._torchaudio.cuda_version() is None and torch.ops._torchaudio.is_align_available() is True
x, a = torch.randn(2, 3, 40), 0.1 * torch.randn(3, 4)
out = torch.zeros(2, 3, 43)
torch.ops.torchaudio._lfilter_core_loop(x, a, out)
padded = torch.zeros(2, 3, 43)
for t in range(40):
    padded[:, :, t + 3] = x[:, :, t] - (padded[:, :, t : t + 4] * a).sum(-1)
torch.testing.assert_close(out, padded)
assert out.abs().sum() > 0
"""


def test_what_torchaudio_asks_for(tmp_path: Path) -> None:
    path = tmp_path / "_torchaudio.so"
    path.write_bytes(b"\x7fELF\0libc10.so\0_torchaudio\0")
    subprocess.run([sys.executable, "-c", TORCHAUDIO, str(path)], cwd=ROOT, check=True, timeout=120)
