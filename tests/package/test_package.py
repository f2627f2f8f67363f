"""Models with their code in one file: written and read, by both libraries; what runs code and what does not."""

from __future__ import annotations

import importlib
import io
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import flambeau
from flambeau import nn
from flambeau.package import (
    EmptyMatchError,
    GlobGroup,
    ObjNotFoundError,
    PackageExporter,
    PackageImporter,
    PackagingError,
    is_from_package,
    sys_importer,
)
from flambeau.package.analyze import find_first_use_of_broken_modules, trace_dependencies

NET = """
import torch
from torch import nn
from .sizes import WIDTH


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.layer(x).relu()
"""


def written(write, **options) -> bytes:
    file = io.BytesIO()
    with PackageExporter(file, **options) as exporter:
        write(exporter)
    return file.getvalue()


def importer(data: bytes, **options) -> PackageImporter:
    return PackageImporter(io.BytesIO(data), **options)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A package of modules on the path: shop.nets, which imports shop.sizes."""
    folder = tmp_path / "packaged_shop"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "sizes.py").write_text("WIDTH = 3\n")
    (folder / "nets.py").write_text(NET.replace("torch", "flambeau"))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("packaged_shop.nets")
    for name in [name for name in sys.modules if name.startswith("packaged_shop")]:
        del sys.modules[name]


def test_texts_and_bytes_come_back_and_nothing_runs():
    def write(exporter):
        exporter.save_text("notes", "read.txt", "hello")
        exporter.save_binary("notes.deep", "raw.bin", b"\0\1")
        exporter.save_source_string("trap", "raise SystemExit('ran')")

    opened = importer(written(write))
    assert opened.load_text("notes", "read.txt") == "hello" and opened.load_binary("notes.deep", "raw.bin") == b"\0\1"
    assert opened.file_structure(include="notes/**").has_file("notes/deep/raw.bin")
    assert not opened.file_structure(exclude="**/*.bin").has_file("notes/deep/raw.bin")
    assert "├── " in str(opened.file_structure()) and opened.python_version().startswith("3.")
    assert opened.get_source("trap") == "raise SystemExit('ran')"
    with pytest.raises(SystemExit, match="ran"):
        opened.import_module("trap")
    assert "trap" not in opened.modules


def test_model_comes_back_with_its_code(shop):
    net = shop.Net()

    def write(exporter):
        exporter.intern("packaged_shop.**")
        exporter.save_pickle("model", "net.pkl", net)
        assert exporter.interned_modules() == ["packaged_shop.nets", "packaged_shop.sizes"]
        assert "packaged_shop.nets" in exporter.get_rdeps("packaged_shop.sizes")

    opened = importer(written(write))
    shop.WIDTH = 7  # the package has its own
    again = opened.load_pickle("model", "net.pkl")
    x = flambeau.ones(2, 3)
    assert flambeau.equal(again(x), net(x))
    assert is_from_package(again) and not is_from_package(net) and type(again) is not shop.Net
    assert opened.import_module("packaged_shop.sizes").WIDTH == 3
    assert type(again) is opened.import_module("packaged_shop.nets").Net


def test_objects_of_a_package_are_packaged_again(shop):
    def write(exporter):
        exporter.intern("packaged_shop.**")
        exporter.save_pickle("model", "net.pkl", shop.Net())

    first = importer(written(write))
    net = first.load_pickle("model", "net.pkl")

    def again(exporter):
        exporter.intern("packaged_shop.**")
        exporter.save_pickle("model", "net.pkl", net)

    second = importer(written(again, importer=(first, sys_importer)))
    assert flambeau.equal(second.load_pickle("model", "net.pkl").layer.weight, net.layer.weight)
    with pytest.raises(ObjNotFoundError):
        written(again)


def test_tensors_over_one_storage_share_one_record():
    t = flambeau.arange(6.0)

    def write(exporter):
        exporter.save_pickle("a", "one.pkl", t)
        exporter.save_pickle("a", "two.pkl", [t[2:], t.view(2, 3)])

    data = written(write)
    assert data.count(b".storage") == 2  # once before the record, once in the directory
    part, whole = importer(data).load_pickle("a", "two.pkl")
    part[0] = 9
    assert whole[0, 2] == 9 and importer(data).load_pickle("a", "one.pkl")[2] == 2


def test_modules_without_a_pattern_are_named(shop):
    def write(exporter):
        exporter.save_pickle("model", "net.pkl", shop.Net())

    with pytest.raises(PackagingError, match="Extern, mock, or intern it.\n    packaged_shop.nets") as caught:
        written(write)
    assert find_first_use_of_broken_modules(caught.value) == {
        "packaged_shop.nets": ["<model.net.pkl>", "packaged_shop.nets"]
    }


def test_denied_mocked_and_empty_patterns(shop):
    def denied(exporter):
        exporter.deny("packaged_shop.sizes")
        exporter.intern("packaged_shop.**")
        exporter.save_module("packaged_shop.nets")

    with pytest.raises(PackagingError, match="denied by a pattern.\n    packaged_shop.sizes"):
        written(denied)

    def mocked(exporter):
        exporter.mock("packaged_shop.sizes")
        exporter.save_module("packaged_shop.nets")
        assert exporter.mocked_modules() == ["packaged_shop.sizes"]

    opened = importer(written(mocked))
    with pytest.raises(NotImplementedError, match="mocked out"):
        opened.import_module("packaged_shop.sizes").WIDTH()
    with pytest.raises(EmptyMatchError, match="did not match any modules"):
        written(lambda exporter: exporter.extern("nothing.**", allow_empty=False))


def test_modules_outside_are_asked_for():
    data = written(lambda exporter: exporter.save_source_string("m", "import json\nvalue = json.dumps([1])\n"))
    assert importer(data).import_module("m").value == "[1]"
    with pytest.raises(ImportError, match="needs the external module 'json' but that module has been disallowed"):
        importer(data, module_allowed=lambda name: name != "json")
    quiet = written(lambda exporter: exporter.save_source_string("m", "import json\n", dependencies=False))
    with pytest.raises(ModuleNotFoundError, match="No module named 'json' in self-contained archive"):
        importer(quiet).import_module("m")


def test_patterns():
    group = GlobGroup(["a.**", "b.*"], exclude="a.tests.**")
    assert [group.matches(n) for n in ("a", "a.b.c", "a.tests.x", "a.tests", "b", "b.c", "b.c.d")] == [
        True, True, False, False, False, True, False,
    ]  # fmt: skip
    with pytest.raises(ValueError, match="entire path segment"):
        GlobGroup("a**")
    assert "json.encoder" in trace_dependencies(__import__("json").dumps, [([1.5],)])


PROGRAM = """
import io, sys
import torch
from torch.package import PackageExporter, PackageImporter
if sys.argv[1] == "write":
    with PackageExporter(sys.argv[2]) as exporter:
        exporter.save_source_string("shop.sizes", "WIDTH = 3\\n")
        exporter.save_source_string("shop.nets", {net!r})
        exporter.save_text("shop", "note.txt", "from PyTorch")
        torch.manual_seed(0)
        exporter.save_pickle("model", "state.pkl", torch.nn.Linear(3, 1).state_dict())
        exporter.save_pickle("model", "layer.pkl", torch.nn.Linear(3, 1))
else:
    importer = PackageImporter(sys.argv[2])
    net = importer.import_module("shop.nets").Net()
    net.layer.load_state_dict(importer.load_pickle("model", "state.pkl"))
    print(importer.load_text("shop", "note.txt"), net(torch.ones(1, 3)).item(), type(importer.load_pickle("model", "layer.pkl")).__name__)
"""


def _run(python_code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", python_code, *arguments],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("writer", "reader"), [("torch", "flambeau"), ("flambeau", "torch"), ("flambeau", "flambeau")])
def test_packages_go_both_ways(tmp_path, writer, reader):
    if "torch" in (writer, reader):
        pytest.importorskip("torch")
    program = textwrap.dedent(PROGRAM).replace("{net!r}", repr(NET))
    own = program.replace("import torch\n", "import flambeau as torch\n", 1).replace(
        "from torch.package", "from flambeau.package", 1
    )
    codes = {"torch": program, "flambeau": own}
    path = str(tmp_path / "shop.pt")
    _run(codes[writer], "write", path)
    expected = _run(codes[writer], "read", path)
    assert expected.startswith("from PyTorch") and expected.rstrip().endswith("Linear")
    assert _run(codes[reader], "read", path)[:20] == expected[:20]


def test_layers_are_externs():
    data = written(lambda exporter: exporter.save_pickle("m", "l.pkl", nn.Linear(2, 2)))
    assert "torch.nn.modules.linear" in importer(data).extern_modules
