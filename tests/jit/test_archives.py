"""Archives written here run in PyTorch, and PyTorch's run here, with the same results."""

from __future__ import annotations

import io
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answers import told

import flambeau

from .oracle import arrays, assert_same, copy_weights, load_programs, quiet, real_torch

NAMES = list(load_programs(flambeau, "modules.py").TABLE)


def _inputs(library: Any, shapes: list) -> list:
    random_numbers = np.random.RandomState(0)
    return [library.from_numpy(random_numbers.randn(*shape).astype(np.float32)) for shape in shapes]


def _made(library: Any, name: str) -> tuple[Any, list]:
    make, shapes = load_programs(library, "modules.py").TABLE[name]
    return quiet(make).eval(), shapes


def test_there_are_sixty() -> None:
    assert len(NAMES) >= 60


def _expected(mine: Any, name: str, shapes: list) -> list:
    """What PyTorch's module of the same weights gives."""
    torch = real_torch()
    theirs, _ = _made(torch, name)
    copy_weights(mine, theirs)
    return arrays(theirs(*_inputs(torch, shapes)))


@pytest.mark.parametrize("name", NAMES)
def test_scripts_traces_and_their_files_give_what_pytorchs_modules_give(name: str, tmp_path: Path) -> None:
    flambeau.manual_seed(0)
    mine, shapes = _made(flambeau, name)
    expected = told(f"results of {name}", lambda: _expected(mine, name, shapes))
    for kind in ("script", "trace"):
        if kind == "script":
            made = flambeau.jit.script(mine)
        else:
            made = quiet(flambeau.jit.trace, mine, tuple(_inputs(flambeau, shapes)))
        assert_same(made(*_inputs(flambeau, shapes)), expected)
        made.save(tmp_path / "mine.pt")
        loaded = flambeau.jit.load(tmp_path / "mine.pt")
        assert_same(loaded(*_inputs(flambeau, shapes)), expected)
        assert set(loaded.state_dict()) == set(mine.state_dict())


@pytest.mark.parametrize("name", NAMES)
def test_round_trip(name: str, tmp_path: Path) -> None:
    torch = real_torch()
    mine, shapes = _made(flambeau, name)
    theirs, _ = _made(torch, name)
    copy_weights(mine, theirs)
    expected = theirs(*_inputs(torch, shapes))
    script = flambeau.jit.script(mine)
    assert_same(script(*_inputs(flambeau, shapes)), expected)
    script.save(tmp_path / "mine.pt")
    assert_same(quiet(torch.jit.load, str(tmp_path / "mine.pt"))(*_inputs(torch, shapes)), expected)
    quiet(quiet(torch.jit.script, theirs).save, str(tmp_path / "theirs.pt"))
    loaded = flambeau.jit.load(tmp_path / "theirs.pt")
    assert_same(loaded(*_inputs(flambeau, shapes)), expected)
    if "forward" not in loaded.script_type.methods:
        return  # PyTorch calls overloads (LSTM's forward__0) of a loaded module from compiled code only
    loaded.save(tmp_path / "again.pt")  # and once more across
    assert_same(quiet(torch.jit.load, str(tmp_path / "again.pt"))(*_inputs(torch, shapes)), expected)


@pytest.mark.parametrize(
    "name",
    [
        "Conv2d",
        "BatchNorm2d",
        "MaxPool2d",
        "LSTM",
        "MultiheadAttention",
        "Sequential",
        "Residual",
        "Upsample",
        "Dropout",
    ],
)
def test_traces_cross_too(name: str, tmp_path: Path) -> None:
    torch = real_torch()
    mine, shapes = _made(flambeau, name)
    theirs, _ = _made(torch, name)
    copy_weights(mine, theirs)
    expected = theirs(*_inputs(torch, shapes))
    traced = quiet(flambeau.jit.trace, mine, tuple(_inputs(flambeau, shapes)))
    assert_same(traced(*_inputs(flambeau, shapes)), expected)
    traced.save(tmp_path / "mine.pt")
    assert_same(quiet(torch.jit.load, str(tmp_path / "mine.pt"))(*_inputs(torch, shapes)), expected)
    quiet(quiet(torch.jit.trace, theirs, tuple(_inputs(torch, shapes))).save, str(tmp_path / "theirs.pt"))
    assert_same(flambeau.jit.load(tmp_path / "theirs.pt")(*_inputs(flambeau, shapes)), expected)


def test_extra_files_map_location_and_buffers(tmp_path: Path) -> None:
    script = flambeau.jit.script(flambeau.nn.Linear(2, 3))
    buffer = io.BytesIO()
    flambeau.jit.save(script, buffer, _extra_files={"note.txt": b"hello"})
    buffer.seek(0)
    files = {"note.txt": "", "missing": "as it was"}
    loaded = flambeau.jit.load(buffer, map_location="cpu", _extra_files=files)
    assert files == {"note.txt": b"hello", "missing": "as it was"}
    assert flambeau.equal(loaded.weight, script.weight) and isinstance(loaded.weight, flambeau.nn.Parameter)
    buffer.seek(0)
    assert flambeau.jit.load(buffer, map_location="meta").weight.device.type == "meta"


def test_a_function_is_saved_as_forward(tmp_path: Path) -> None:
    @flambeau.jit.script
    def twice(x, n: int = 2):  # type: ignore[no-untyped-def]
        return x * n

    twice.save(tmp_path / "f.pt")
    assert flambeau.jit.load(tmp_path / "f.pt")(flambeau.ones(2)).tolist() == [2.0, 2.0]
    torch = real_torch()
    assert quiet(torch.jit.load, str(tmp_path / "f.pt"))(torch.ones(2), 3).tolist() == [3.0, 3.0]


def test_frozen_modules_hold_constants() -> None:
    module = flambeau.nn.Sequential(
        flambeau.nn.Conv2d(2, 3, 1), flambeau.nn.BatchNorm2d(3), flambeau.nn.Dropout()
    ).eval()
    frozen = flambeau.jit.freeze(flambeau.jit.script(module))
    x = flambeau.randn(1, 2, 4, 4)
    assert flambeau.allclose(frozen(x), module(x), atol=1e-6)  # the normalisation is folded into the convolution
    assert not list(frozen.parameters()) and "prim::GetAttr" not in str(frozen.graph)
    assert flambeau.allclose(flambeau.jit.optimize_for_inference(flambeau.jit.script(module))(x), module(x), atol=1e-6)
    with pytest.raises(RuntimeError, match="eval mode"):
        flambeau.jit.freeze(flambeau.jit.script(module.train()))


# -- hostile files ----------------------------------------------------------------------------------------------------------


def _archive(code: str, data: bytes = b"\x80\x02c__torch__\nM\n)\x81}(X\x08\x00\x00\x00training\x89ub.") -> io.BytesIO:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, contents in (
            ("data.pkl", data),
            ("code/__torch__.py", code),
            ("constants.pkl", b"\x80\x02)."),
            ("version", "3\n"),
        ):
            archive.writestr(f"archive/{name}", contents)
    buffer.seek(0)
    return buffer


HEAD = "class M(Module):\n  __parameters__ = []\n  __buffers__ = []\n  training : bool\n"


@pytest.mark.parametrize(
    "body",
    [
        "  def forward(self: __torch__.M) -> int:\n    return __import__('os').system('true')\n",
        "  def forward(self: __torch__.M) -> int:\n    return (lambda: 1)()\n",
        "  x = __import__('os').system('true')\n",
        "  def forward(self: __torch__.M, x: int=open('/etc/passwd')) -> int:\n    return x\n",
        "  @print\n  def forward(self: __torch__.M) -> int:\n    return 1\n",
        "  def forward(self: __torch__.M) -> eval('int'):\n    return 1\n",
        "  def forward(self: __torch__.M) -> int:\n    import os\n    return 1\n",
        "  def forward(self: __torch__.M) -> int:\n    return self.__class__.__mro__\n",
        "  def forward(self: __torch__.M) -> int:\n    return torch.__builtins__(1)\n",
    ],
)
def test_code_outside_the_language_is_refused(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.system", lambda *_: pytest.fail("code of the file was run"))
    with pytest.raises(RuntimeError):
        flambeau.jit.load(_archive(HEAD + body))


def test_pickles_name_nothing_but_data() -> None:
    evil = b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00truetR."
    with pytest.raises(RuntimeError, match="os.system|blocked|Unsupported"):
        flambeau.jit.load(_archive(HEAD, evil))


def mutated(data: bytes, seed: int) -> bytes:
    """Bytes changed, cut or doubled; or a record of the archive replaced by a changed one."""
    chance = random.Random(seed)
    if chance.random() < 0.5:
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w") as target:
            victim = chance.choice(
                [n for n in source.namelist() if not n.split("/")[1].startswith("data") or n.endswith("pkl")]
            )
            for name in source.namelist():
                contents = source.read(name)
                target.writestr(name, _changed(contents, chance) if name == victim else contents)
        return out.getvalue()
    return _changed(data, chance)


def _changed(data: bytes, chance: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        if not made:
            break
        place = chance.randrange(len(made))
        kind = chance.randrange(4)
        if kind == 0:
            made[place] = chance.randrange(256)
        elif kind == 1:
            del made[place : place + chance.randrange(1, 20)]
        elif kind == 2:
            made[place:place] = made[place : place + chance.randrange(1, 20)]
        else:
            made[place] ^= 1 << chance.randrange(8)
    return bytes(made)


def sample() -> bytes:
    module, _ = _made(flambeau, "Looped")
    buffer = io.BytesIO()
    flambeau.jit.script(module).save(buffer)
    return buffer.getvalue()


def outcome(data: bytes) -> str:
    """What loading (and running) does: "loads", or the kind of a clean error."""
    try:
        flambeau.jit.load(io.BytesIO(data))
    except (RuntimeError, ValueError) as problem:
        return type(problem).__name__
    return "loads"


def test_mutated_archives_end_in_clean_errors() -> None:
    data = sample()
    outcomes = [outcome(mutated(data, seed)) for seed in range(150)]
    assert outcomes.count("RuntimeError") > 50
