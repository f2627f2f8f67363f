"""Archives: made as torch-model-archiver makes them, unpacked without trust."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("yaml", reason="serving needs flambeau[serve]")

from flambeau.serve import archiver  # noqa: E402
from flambeau.serve.archive_reader import Limits, check_allowed, open_model, open_workflow, unpack  # noqa: E402
from flambeau.serve.errors import InvalidModelException, InvalidWorkflowException, ModelNotFoundException  # noqa: E402

ALL = ["file://.*|http(s)?://.*"]


@pytest.fixture()
def parts(tmp_path: Path) -> Path:
    (tmp_path / "h.py").write_text("def handle(data, context):\n    return data\n")
    (tmp_path / "net.py").write_text("class Net: pass\n")
    (tmp_path / "w.pt").write_bytes(b"weights")
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "a.txt").write_text("a")
    (tmp_path / "extra" / "deep").mkdir()
    (tmp_path / "extra" / "deep" / "b.txt").write_text("b")
    (tmp_path / "config.yaml").write_text("minWorkers: 2\nmaxWorkers: 3\nhandler: {key: value}\n")
    (tmp_path / "req.txt").write_text("numpy\n")
    return tmp_path


def made(parts: Path, **options) -> Path:
    settings = {"version": "2.1", "handler": str(parts / "h.py"), "model_file": str(parts / "net.py"), "export_path": str(parts),
                    "serialized_file": str(parts / "w.pt"), "extra_files": f"{parts / 'extra'},{parts / 'w.pt'}",
                    "config_file": str(parts / "config.yaml"), "requirements_file": str(parts / "req.txt")}  # fmt: skip
    return archiver.package_model("m", **{**settings, **options})


def test_manifest(parts: Path):
    with zipfile.ZipFile(made(parts)) as file:
        manifest = json.loads(file.read("MAR-INF/MANIFEST.json"))
        names = set(file.namelist())
    assert names == {"h.py", "net.py", "w.pt", "a.txt", "deep/b.txt", "config.yaml", "req.txt", "MAR-INF/MANIFEST.json"}
    assert manifest["runtime"] == "python"
    assert manifest["archiverVersion"] == archiver.ARCHIVER_VERSION
    assert manifest["model"] == {"modelName": "m", "handler": "h.py", "modelFile": "net.py", "serializedFile": "w.pt",
                                 "configFile": "config.yaml", "requirementsFile": "req.txt", "modelVersion": "2.1"}  # fmt: skip


@pytest.mark.parametrize(
    "form, name", [("default", "m.mar"), ("zip-store", "m.mar"), ("tgz", "m.tar.gz"), ("no-archive", "m")]
)
def test_every_form_opens(parts: Path, form: str, name: str):
    assert made(parts, archive_format=form).name == name
    archive = open_model(name, str(parts), ALL)
    assert (archive.name, archive.version, archive.handler) == ("m", "2.1", "h.py")
    assert (archive.folder / "deep" / "b.txt").read_text() == "b"
    assert archive.config()["minWorkers"] == 2
    archive.clean()
    assert archive.temporary is not None and not archive.temporary.exists()
    assert (parts / name).exists()


def test_what_the_request_says_goes_before_the_manifest(parts: Path):
    made(parts)
    archive = open_model("m.mar", str(parts), ALL, name="other", handler="x.py:go", runtime="python3")
    assert (archive.name, archive.handler, archive.runtime) == ("other", "x.py:go", "python3")


def test_refusals_of_the_archiver(parts: Path):
    made(parts)
    with pytest.raises(archiver.ArchiverError, match="already exists"):
        made(parts)
    made(parts, force=True)
    with pytest.raises(archiver.ArchiverError, match="does not exist"):
        made(parts, serialized_file="nothing.pt", force=True)
    with pytest.raises(archiver.ArchiverError, match="characters"):
        archiver.package_model("../m", version="1", handler="base_handler")
    with pytest.raises(archiver.ArchiverError, match="not a directory"):
        made(parts, export_path=str(parts / "none"))
    with pytest.raises(archiver.ArchiverError, match="handler or a serialized file"):
        archiver.package_model("m", version="1", export_path=str(parts), force=True)


def test_commands(parts: Path):
    code = "import sys; from flambeau.serve import archiver; sys.exit(archiver.model_archiver(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "--model-name", "c", "--version", "1.0", "--handler", "image_classifier",
               "--serialized-file", str(parts / "w.pt"), "--export-path", str(parts)]  # fmt: skip
    assert subprocess.run(command, capture_output=True).returncode == 0
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 1
    assert "already exists" in again.stderr


def test_workflow_archives(parts: Path):
    (parts / "spec.yaml").write_text("models: {}\ndag: {a: []}\n")
    archiver.package_workflow(
        "wf", spec_file=str(parts / "spec.yaml"), handler=str(parts / "h.py"), export_path=str(parts)
    )
    archive = open_workflow("wf.war", str(parts), ALL)
    assert archive.name == "wf"
    assert archive.specification == {"models": {}, "dag": {"a": []}}
    assert archive.handler is not None and archive.handler.name == "h.py"
    archive.clean()
    with zipfile.ZipFile(parts / "bad.war", "w") as file:
        file.writestr("WAR-INF/MANIFEST.json", "{}")
    with pytest.raises(InvalidWorkflowException):
        open_workflow("bad.war", str(parts), ALL)


# -- hostile archives --


def zipped(path: Path, *entries: tuple[str, bytes, int]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content, mode in entries:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(info, content)
    return path


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/etc/evil", "..\\evil", "a/b/../../../evil"])
def test_no_path_leaves_the_folder(tmp_path: Path, name: str):
    file = zipped(tmp_path / "x.mar", (name, b"x", 0o100644))
    with pytest.raises(InvalidModelException, match="Zip Slip"):
        unpack(file, tmp_path / "out" / "deep")
    assert not (tmp_path / "out" / "deep").exists()
    assert not list(tmp_path.rglob("evil"))


def test_no_links_in_zip_archives(tmp_path: Path):
    file = zipped(tmp_path / "x.mar", ("link", b"/etc/passwd", 0o120777))
    with pytest.raises(InvalidModelException, match="link or device"):
        unpack(file, tmp_path / "out")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_no_links_or_devices_in_tar_archives(tmp_path: Path, kind: bytes):
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as file:
        entry = tarfile.TarInfo("m/link")
        entry.type, entry.linkname = kind, "/etc/passwd"
        file.addfile(entry)
    with pytest.raises(InvalidModelException, match="link or device"):
        unpack(tmp_path / "x.tar.gz", tmp_path / "out")


def test_no_path_leaves_the_folder_of_a_tar_archive(tmp_path: Path):
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as file:
        entry = tarfile.TarInfo("m/../../evil")
        entry.size = 1
        file.addfile(entry, io.BytesIO(b"x"))
    with pytest.raises(InvalidModelException, match="Zip Slip"):
        unpack(tmp_path / "x.tar.gz", tmp_path / "out")


@pytest.mark.parametrize("kind", [b"x", b"L"])
@pytest.mark.parametrize("size", [-512, 8 << 20, 1 << 60])
def test_headers_of_tar_archives_are_bounded(tmp_path: Path, kind: bytes, size: int):
    """`tarfile` reads long names and attributes as a whole: some kilobytes could unpack to all memory."""
    entry = tarfile.TarInfo("m")
    entry.type, entry.size = kind, size
    with gzip.open(tmp_path / "x.tar.gz", "wb") as file:
        file.write(
            entry.tobuf(tarfile.GNU_FORMAT)
            + bytes(min(max(size, 0), 8 << 20))
            + tarfile.TarInfo("a").tobuf()
            + bytes(1024)
        )
    with pytest.raises(InvalidModelException, match="too large"):
        unpack(tmp_path / "x.tar.gz", tmp_path / "out")


def test_zip_bombs_stop_early(tmp_path: Path):
    file = zipped(tmp_path / "x.mar", *((f"{i}", bytes(1 << 20), 0o100644) for i in range(8)))
    with pytest.raises(InvalidModelException, match="more than"):
        unpack(file, tmp_path / "a", Limits(total_bytes=4 << 20))
    with pytest.raises(InvalidModelException, match="zip bomb"):
        unpack(file, tmp_path / "b", Limits(ratio=100, ratio_from=1 << 20))
    with pytest.raises(InvalidModelException, match="files"):
        unpack(file, tmp_path / "c", Limits(files=5))
    assert not any((tmp_path / n).exists() for n in "abc")


def test_twice_the_same_name_is_refused(tmp_path: Path):
    with pytest.warns(UserWarning):
        file = zipped(tmp_path / "x.mar", ("a", b"1", 0o100644), ("a", b"2", 0o100644))
    with pytest.raises(InvalidModelException):
        unpack(file, tmp_path / "out")


def test_a_manifest_cannot_name_files_outside(tmp_path: Path):
    manifest = {"model": {"modelName": "m", "handler": "h", "configFile": "../../etc/passwd"}}
    zipped(tmp_path / "m.mar", ("MAR-INF/MANIFEST.json", json.dumps(manifest).encode(), 0o100644))
    with pytest.raises(InvalidModelException, match="outside"):
        open_model("m.mar", str(tmp_path), ALL)


def odd_manifest(dice: random.Random) -> bytes:
    """JSON of a manifest's form with values that do not belong there."""
    odd = (None, 3, -1.5, [], {}, "", "../x", "/etc/passwd", "a\0b", "x" * 300, ["h"], {"a": 1}, True, "h", "h.py:f:g")
    model = {key: dice.choice(odd) for key in ("modelName", "handler", "modelVersion", "serializedFile", "configFile")}
    return json.dumps(
        dice.choice([{"model": model, "runtime": dice.choice(odd)}, {"model": dice.choice(odd)}, odd])
    ).encode()


def test_damaged_archives_give_clean_errors(tmp_path: Path):
    manifest = b'{"model": {"modelName": "m", "handler": "h"}}'
    files = ("MAR-INF/MANIFEST.json", manifest, 0o100644), ("h.py", b"x" * 500, 0o100644)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content, _ in files:
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
    sources = zipped(tmp_path / "m.mar", *files).read_bytes(), packed.getvalue()
    rounds = int(os.environ.get("FUZZ_ROUNDS", "400"))
    dice = random.Random(int(os.environ.get("FUZZ_SEED", "0")))
    opened = 0
    for i in range(rounds):
        data = bytearray(sources[i % 2])
        for _ in range(dice.randint(1, 8)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        if dice.random() < 0.3:
            del data[dice.randrange(len(data)) :]
        if i % 2 and dice.random() < 0.8:  # most damage inside of the compression, where its checksum would hide it
            data = bytearray(gzip.compress(data, 1))
        (tmp_path / "bad.mar").write_bytes(data)
        if i % 5 == 0:
            zipped(tmp_path / "bad.mar", ("MAR-INF/MANIFEST.json", odd_manifest(dice), 0o100644))
        try:
            open_model("bad.mar", str(tmp_path), ALL, default_name="bad").clean()
            opened += 1
        except InvalidModelException:
            pass
    assert opened < rounds


def test_urls_must_be_allowed(tmp_path: Path):
    assert check_allowed("http://a/b.mar", ["http://a/.*"])
    assert not check_allowed("b.mar", ["http://a/.*"])
    for url in ("http://b/b.mar", "file:///etc/passwd", "HTTP://B/x"):
        with pytest.raises(ModelNotFoundException, match="does not match any allowed URL"):
            check_allowed(url, ["http://a/.*"])
    for url in ("../m.mar", "a/../m.mar", "file:///a/../b", ""):
        with pytest.raises(ModelNotFoundException):
            open_model(url, str(tmp_path), ALL)
