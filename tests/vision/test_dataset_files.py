"""Downloads, checksums and archives of data sets."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import pathlib
import sys
import tarfile
import types
import zipfile

import pytest

from flambeau.vision.datasets import utils


@pytest.fixture
def served(tmp_path):
    """A file, its address and its checksum."""
    path = tmp_path / "served" / "data.bin"
    path.parent.mkdir()
    path.write_bytes(b"some data" * 1000)
    return path, path.as_uri(), hashlib.md5(path.read_bytes()).hexdigest()


def test_checksums(served, tmp_path):
    path, _, md5 = served
    assert utils.calculate_md5(path) == utils.calculate_md5(path, chunk_size=7) == md5
    assert utils.check_integrity(path) and utils.check_integrity(path, md5)
    assert not utils.check_integrity(path, "0" * 32) and not utils.check_integrity(tmp_path / "absent")


def test_downloads(served, tmp_path):
    path, address, md5 = served
    root = tmp_path / "root"
    utils.download_url(address, root, md5=md5)
    assert (root / "data.bin").read_bytes() == path.read_bytes()
    path.write_bytes(b"changed")
    utils.download_url(address, root, md5=md5)  # it is there already
    with pytest.raises(RuntimeError, match="File not found or corrupted"):
        utils.download_url(address, root, "other.bin", md5)
    assert sorted(os.listdir(root)) == ["data.bin"]
    with pytest.raises(OSError, match="No such file"):
        utils.download_url((tmp_path / "absent").as_uri(), root)
    assert sorted(os.listdir(root)) == ["data.bin"]


def test_google_drive_needs_gdown(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gdown", None)
    with pytest.raises(RuntimeError, match="pip install gdown"):
        utils.download_url("https://drive.google.com/file/d/abc/view", tmp_path, "x.zip")


def test_what_gdown_is_asked_for(tmp_path, monkeypatch):
    def download(**given):
        asked.append({name: given[name] for name in given if name != "output"})
        pathlib.Path(given["output"]).write_bytes(b"data")

    asked: list[dict] = []
    monkeypatch.setitem(sys.modules, "gdown", types.SimpleNamespace(download=download))
    utils.download_url("https://drive.google.com/file/d/abc/view", tmp_path, "x.zip")
    assert asked == [{"id": "abc", "quiet": False, "user_agent": utils.USER_AGENT}]
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("x.zip", b"data")]


def archive(path, members):
    """An archive of (name, contents), or of tarfile.TarInfo."""
    if ".zip" in path.name:
        with zipfile.ZipFile(path, "w") as file:
            for name, data in members:
                file.writestr(name, data)
        return
    mode = {".gz": "w:gz", ".tgz": "w:gz", ".bz2": "w:bz2", ".tbz": "w:bz2", ".xz": "w:xz"}.get(path.suffix, "w")
    with tarfile.open(path, mode) as file:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                file.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            file.addfile(info, io.BytesIO(member[1]))


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz", "x.tgz", "x.tar.bz2", "x.tbz", "x.tar.xz", "x.zip"])
def test_archives(name, tmp_path):
    archive(tmp_path / name, [("a/b.txt", b"one"), ("c.txt", b"two")])
    found = utils.extract_archive(str(tmp_path / name), str(tmp_path / "out"), remove_finished=True)
    assert found == str(tmp_path / "out") and not (tmp_path / name).exists()
    assert (tmp_path / "out" / "a" / "b.txt").read_bytes() == b"one"
    assert (tmp_path / "out" / "c.txt").read_bytes() == b"two"


@pytest.mark.parametrize("name, module", [("x.txt.gz", gzip), ("x.txt.bz2", bz2), ("x.txt.xz", lzma)])
def test_compressed_files(name, module, tmp_path):
    (tmp_path / name).write_bytes(module.compress(b"contents"))
    assert utils.extract_archive(tmp_path / name) == tmp_path / "x.txt"
    assert (tmp_path / "x.txt").read_bytes() == b"contents"


def link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def special(kind):
    info = tarfile.TarInfo("device")
    info.type = kind
    return info


@pytest.mark.parametrize(
    "name, members",
    [
        ("x.tar", [("../evil.txt", b"x")]),
        ("x.tar", [("a/../../evil.txt", b"x")]),
        ("x.tar.gz", [("/tmp/flambeau_evil.txt", b"x")]),
        ("x.tar", [link("a", "..")]),
        ("x.tar", [link("a", "/etc/passwd")]),
        ("x.tar", [link("a", "../evil", tarfile.LNKTYPE)]),
        ("x.tar", [link("a", "b"), link("b", ".."), ("a/evil.txt", b"x")]),
        ("x.tar", [special(tarfile.FIFOTYPE)]),
        ("x.tar", [special(tarfile.CHRTYPE)]),
        ("x.zip", [("../evil.txt", b"x")]),
        ("x.zip", [("/tmp/flambeau_evil.txt", b"x")]),
        ("x.zip", [("..\\evil.txt", b"x")]),
    ],
)
def test_archives_stay_in_their_folder(name, members, tmp_path):
    archive(tmp_path / name, members)
    with pytest.raises(RuntimeError, match="outside the folder"):
        utils.extract_archive(tmp_path / name, tmp_path / "out")
    assert not (tmp_path / "evil.txt").exists() and not pathlib.Path("/tmp/flambeau_evil.txt").exists()


def test_links_inside_are_kept(tmp_path):
    archive(tmp_path / "x.tar", [("a/b.txt", b"one"), link("c.txt", "a/b.txt")])
    utils.extract_archive(tmp_path / "x.tar", tmp_path / "out")
    assert (tmp_path / "out" / "c.txt").read_bytes() == b"one"


def test_unknown_kinds(tmp_path):
    for name, message in (("x", "no suffixes"), ("x.rar", "Unknown compression or archive type: '.rar'")):
        with pytest.raises(RuntimeError, match=message):
            utils.extract_archive(str(tmp_path / name))


def test_download_and_extract(tmp_path):
    archive(tmp_path / "x.tar.gz", [("a.txt", b"one")])
    md5 = utils.calculate_md5(tmp_path / "x.tar.gz")
    utils.download_and_extract_archive(
        (tmp_path / "x.tar.gz").as_uri(), tmp_path / "root", md5=md5, remove_finished=True
    )
    assert os.listdir(tmp_path / "root") == ["a.txt"]


def test_listing_and_arguments(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.png").write_bytes(b"")
    assert utils.list_dir(tmp_path) == ["folder"] and utils.list_dir(tmp_path, True) == [str(tmp_path / "folder")]
    assert utils.list_files(tmp_path, (".png", ".jpg")) == ["file.png"]
    with pytest.raises(ValueError, match="Expected type str for argument split, but got type <class 'int'>."):
        utils.verify_str_arg(3, "split", ["a"])
    with pytest.raises(ValueError, match="Unknown value 'b' for argument split. Valid values are {'a'}."):
        utils.verify_str_arg("b", "split", ["a"])
    assert utils.verify_str_arg("a", "split", ["a"]) == "a"
