"""Where `save` writes: regular files change at once or not at all, devices and pipes are written to, links are followed."""

from __future__ import annotations

import io
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import flambeau as torch
from flambeau.serialization import save_sharded

ROOT = Path(__file__).parents[2]
KINDS = [True, False]  # the zip format, the older one
as_root = pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give files away")


def value() -> torch.Tensor:
    return torch.arange(100_000.0)


def same(data: bytes) -> bool:
    return torch.equal(torch.load(io.BytesIO(data)), value())


def python(program: str, **options) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", program], env=environment, timeout=120, check=False, **options)


@pytest.fixture
def null(tmp_path) -> Path:
    """A null device of the test's own: the machine's may be lost where `save` is wrong."""
    path = tmp_path / "null"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        path.open("wb").close()
    except PermissionError:
        pytest.skip("devices can be made by root only")
    return path


@pytest.mark.parametrize("zipped", KINDS)
def test_a_device_is_written_to_and_stays(zipped, null, tmp_path):
    torch.save(value(), null, _use_new_zipfile_serialization=zipped)
    link = tmp_path / "link"
    link.symlink_to("null")
    torch.save(value(), link, _use_new_zipfile_serialization=zipped)
    assert stat.S_ISCHR(null.stat().st_mode) and link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", "null"]


def drained(source) -> tuple[threading.Thread, list[bytes]]:
    """A thread that reads a pipe or a socket to its end."""
    got: list[bytes] = []

    def read() -> None:
        with source() as file:
            got.append(file.read())

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread, got


@pytest.mark.parametrize("zipped", KINDS)
@pytest.mark.parametrize("linked", [False, True])
def test_a_named_pipe_is_written_to(zipped, linked, tmp_path):
    pipe, path = tmp_path / "pipe", tmp_path / ("link" if linked else "pipe")
    os.mkfifo(pipe)
    if linked:
        path.symlink_to("pipe")
    thread, got = drained(lambda: pipe.open("rb"))
    torch.save(value(), path, _use_new_zipfile_serialization=zipped)
    thread.join(60)
    assert same(got[0]) and stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("zipped", KINDS)
def test_a_socket_without_a_buffer_gets_all_of_it(zipped):
    here, there = socket.socketpair()
    thread, got = drained(lambda: there.makefile("rb"))
    with here, here.makefile("wb", buffering=0) as file:
        torch.save(value(), file, _use_new_zipfile_serialization=zipped)
    here.close()
    thread.join(60)
    assert same(got[0])


def test_standard_output(tmp_path):
    program = "import flambeau as torch; torch.save(torch.arange(100_000.0), '/dev/stdout')"
    if not os.path.exists("/dev/stdout"):
        pytest.skip("there is no /dev/stdout here")
    assert same(python(program, stdout=subprocess.PIPE).stdout)
    with open(tmp_path / "out.pt", "wb") as file:
        inode = os.fstat(file.fileno()).st_ino
        assert python(program, stdout=file).returncode == 0
    assert same((tmp_path / "out.pt").read_bytes())
    assert (tmp_path / "out.pt").stat().st_ino == inode  # whoever opened it goes on writing to the same file


def test_links_are_followed(tmp_path):
    real, folder = tmp_path / "real.pt", tmp_path / "folder"
    folder.mkdir()
    (folder / "second").symlink_to("../real.pt")
    (tmp_path / "first").symlink_to("folder/second")
    torch.save(torch.ones(1), tmp_path / "first")  # the end does not exist yet
    assert torch.load(real).tolist() == [1]
    torch.save(value(), tmp_path / "first")
    assert torch.equal(torch.load(real), value())
    assert (tmp_path / "first").is_symlink() and (folder / "second").is_symlink() and not real.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["first", "folder", "real.pt"] and os.listdir(folder) == ["second"]


def test_a_link_in_a_circle_is_an_error(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        torch.save(value(), tmp_path / "a")


def test_safetensors_to_a_device_and_a_pipe(null, tmp_path):
    pytest.importorskip("safetensors", reason="an optional package")
    torch.safetensors.save_file({"a": torch.ones(2)}, null)
    assert stat.S_ISCHR(null.stat().st_mode)
    os.mkfifo(tmp_path / "pipe")
    thread, got = drained(lambda: (tmp_path / "pipe").open("rb"))
    torch.safetensors.save_file({"a": torch.ones(2)}, tmp_path / "pipe")
    thread.join(60)
    assert torch.safetensors.load(got[0])["a"].tolist() == [1, 1]
    assert sorted(os.listdir(tmp_path)) == ["null", "pipe"]


def test_safetensors_and_shards_go_through_links(tmp_path):
    pytest.importorskip("safetensors", reason="an optional package")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real").touch(0o640)
    torch.safetensors.save_file({"a": torch.ones(2)}, tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").stat().st_mode & 0o777 == 0o640
    assert torch.safetensors.load_file(tmp_path / "real")["a"].tolist() == [1, 1]
    folder = tmp_path / "shards"
    folder.mkdir()
    (folder / "model.safetensors").symlink_to("../kept")
    save_sharded({"a": torch.ones(3)}, folder)
    assert torch.safetensors.load_file(tmp_path / "kept")["a"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o777])
def test_the_mode_of_a_file_stays(mode, tmp_path):
    path = tmp_path / "x.pt"
    torch.save(torch.ones(1), path)
    path.chmod(mode)
    torch.save(value(), path)
    assert path.stat().st_mode & 0o7777 == mode


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_new_file_has_the_mode_of_new_files(mask, tmp_path):
    before = os.umask(mask)
    try:
        torch.save(value(), tmp_path / "x.pt")
    finally:
        os.umask(before)
    assert (tmp_path / "x.pt").stat().st_mode & 0o777 == 0o666 & ~mask


@as_root
def test_the_owner_of_a_file_stays(tmp_path):
    path = tmp_path / "x.pt"
    torch.save(torch.ones(1), path)
    os.chown(path, 12345, 54321)
    torch.save(value(), path)
    status = path.stat()
    assert (status.st_uid, status.st_gid) == (12345, 54321) and torch.equal(torch.load(path), value())


OTHER = 65534
AS_OTHER = """
import io, os
import flambeau as torch
torch.save([torch.ones(3), torch.zeros(3)], io.BytesIO())
os.chdir({folder!r})
os.setgid({other}), os.setuid({other})
{body}
"""


def as_other(folder: Path, body: str) -> str:
    """Run `body` in a folder as a user without rights; all that it needs is imported before, since that user may not see it."""
    program = AS_OTHER.format(folder=str(folder), other=OTHER, body=body)
    done = python(program, capture_output=True, text=True)
    return done.stderr.strip().rsplit("\n", 1)[-1]


@as_root
def test_a_file_in_a_folder_of_somebody_elses_is_written_in_place(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    path = folder / "x.pt"
    path.write_bytes(b"old")
    os.chown(path, OTHER, OTHER)
    inode = path.stat().st_ino
    assert as_other(folder, "torch.save(torch.ones(3), 'x.pt')") == ""
    assert torch.load(path).tolist() == [1, 1, 1] and path.stat().st_ino == inode


@as_root
def test_a_file_of_somebody_elses_keeps_its_owner(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o777)
    path = folder / "x.pt"
    path.write_bytes(b"old")
    path.chmod(0o666)
    assert as_other(folder, "torch.save(torch.ones(3), 'x.pt')") == ""
    assert torch.load(path).tolist() == [1, 1, 1] and path.stat().st_uid == 0
    path.chmod(0o644)
    assert "PermissionError" in as_other(folder, "torch.save(torch.zeros(3), 'x.pt')")
    assert torch.load(path).tolist() == [1, 1, 1] and os.listdir(folder) == ["x.pt"]


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(IsADirectoryError):
        torch.save(value(), tmp_path)
    assert os.listdir(tmp_path) == []


def test_long_names(tmp_path):
    path = tmp_path / ("n" * 250 + ".pt")
    torch.save(value(), path)
    assert torch.equal(torch.load(path), value()) and len(os.listdir(tmp_path)) == 1
