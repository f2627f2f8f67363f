"""Files and folders of strangers are not believed, links are not followed, and what a killed process left is removed."""

from __future__ import annotations

import os
import pickle
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from flambeau.core.ownership import distrust, open_own, planted, refuse_planted, write_own
from flambeau.core.private_folders import Scratch, make_private, state_folder

STRANGER = 65534
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")


@pytest.fixture()
def public(tmp_path: Path) -> Path:
    """A folder like /tmp."""
    folder = tmp_path / "public"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def test_own_files_are_trusted(tmp_path: Path, public: Path):
    (public / "mine").write_text("x")
    assert planted(public / "mine") is None
    assert planted(tmp_path / "not" / "there") is None
    assert distrust(os.stat(tmp_path)) is None


def test_what_others_can_write_to_is_distrusted(tmp_path: Path):
    tmp_path.chmod(0o777)
    assert "others can write" in (distrust(os.stat(tmp_path)) or "")


@as_root
def test_what_a_stranger_put_into_a_public_folder(public: Path, tmp_path: Path):
    theirs = public / "theirs"
    theirs.mkdir()
    os.chown(theirs, STRANGER, STRANGER)
    (theirs / "file").write_text("x")  # below it, everything is the stranger's to change
    for path in (theirs, theirs / "file", theirs / "not there"):
        assert f"number {STRANGER}" in (planted(path) or "")
    link = public / "link"
    link.symlink_to(tmp_path)
    os.lchown(link, STRANGER, STRANGER)
    assert planted(link / "x") is not None
    with pytest.raises(PermissionError, match="not used as a log"):
        refuse_planted(link / "x", "a log")
    chosen = tmp_path / "volume"  # a folder of somebody else's where strangers cannot put anything is the user's choice
    chosen.mkdir()
    os.chown(chosen, STRANGER, STRANGER)
    assert planted(chosen / "file") is None


def test_links_are_not_followed(tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("precious")
    (tmp_path / "soft").symlink_to(secret)
    os.link(secret, tmp_path / "hard")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError):
        open_own(tmp_path / "soft", APPEND)
    with pytest.raises(PermissionError, match="other names"):
        open_own(tmp_path / "hard", APPEND)
    with pytest.raises(OSError):
        open_own(tmp_path / "pipe", APPEND)
    assert secret.read_text() == "precious"
    os.close(open_own(tmp_path / "new", APPEND))
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600


@as_root
def test_a_strangers_file_is_not_opened(public: Path):
    (public / "log").write_text("")
    os.chown(public / "log", STRANGER, STRANGER)
    with pytest.raises(PermissionError):
        open_own(public / "log", APPEND)


def test_private_files_are_written_whole(tmp_path: Path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "f").symlink_to(tmp_path / "target")
    write_own(tmp_path / "f", b"new")
    assert (tmp_path / "f").read_bytes() == b"new"
    assert not (tmp_path / "f").is_symlink()
    assert (tmp_path / "target").read_text() == "old"
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f", "target"]


def test_private_folders(tmp_path: Path):
    assert stat.S_IMODE(make_private(tmp_path / "a" / "b").stat().st_mode) == 0o700
    assert make_private(tmp_path / "a" / "b").is_dir()
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    with pytest.raises(PermissionError, match="not a directory"):
        make_private(tmp_path / "link")
    for mode, words in ((0o755, "look into"), (0o777, "write to")):
        (tmp_path / "a" / "b").chmod(mode)
        with pytest.raises(PermissionError, match=words):
            make_private(tmp_path / "a" / "b")


@as_root
def test_a_strangers_folder_is_no_private_one(tmp_path: Path):
    (tmp_path / "theirs").mkdir(mode=0o700)
    os.chown(tmp_path / "theirs", STRANGER, STRANGER)
    with pytest.raises(PermissionError, match="another user"):
        make_private(tmp_path / "theirs")


def test_where_state_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("run", "state", "home"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    assert state_folder("x") == tmp_path / "state" / "flambeau" / "x"
    assert state_folder("x", runtime=True) == tmp_path / "run" / "flambeau" / "x"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert state_folder("x") == tmp_path / "home" / ".local" / "state" / "flambeau" / "x"
    (tmp_path / "run" / "flambeau").chmod(0o777)  # not believed any more: the next place is taken
    assert state_folder("x", runtime=True) == tmp_path / "home" / ".local" / "state" / "flambeau" / "x"


def test_scratch_folders_of_the_dead_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        "import time\nfrom flambeau.core.private_folders import Scratch\ns = Scratch('test')\n"
        "(s.path / 'unpacked').mkdir()\nprint(s.path, flush=True)\ntime.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    try:
        assert process.stdout is not None
        theirs = Path(process.stdout.readline().strip())
        assert theirs.parent == tmp_path
        assert stat.S_IMODE(theirs.stat().st_mode) == 0o700
        with Scratch("test") as mine:
            assert theirs.exists()  # its process lives
        assert not mine.exists()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    bystander = tmp_path / "flambeau-test-notes"  # of that name, but without a lock
    bystander.mkdir()
    link = tmp_path / "flambeau-test-link"
    link.symlink_to(bystander)
    with Scratch("test"):
        assert not theirs.exists()
    assert bystander.exists() and link.is_symlink()


@as_root
def test_a_strangers_scratch_folder_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    theirs = tmp_path / "flambeau-test-1"
    theirs.mkdir(mode=0o700)
    (theirs / "lock").write_text("")
    os.chown(theirs, STRANGER, STRANGER)
    with Scratch("test"):
        assert theirs.exists()


# -- those who ask --


@pytest.fixture()
def trap(public: Path) -> Path:
    """A folder that a stranger has made where everybody may."""
    folder = public / "trap"
    folder.mkdir(mode=0o777)
    os.chown(folder, STRANGER, STRANGER)
    return folder


@as_root
def test_a_store_of_ranks_is_not_a_strangers(trap: Path, public: Path):
    from flambeau.distributed import FileStore

    (public / "store").write_bytes(b"")
    os.chown(public / "store", STRANGER, STRANGER)
    for path in (trap / "store", public / "store"):
        with pytest.raises(PermissionError, match="a store of ranks"):
            FileStore(str(path), 1)
    assert FileStore(str(public / "mine"), 1).num_keys() == 0


class Trojan:
    """Ends the process that unpickles it."""

    def __reduce__(self):
        return os._exit, (1,)


@as_root
def test_code_and_weights_of_a_stranger_are_not_loaded(trap: Path, monkeypatch: pytest.MonkeyPatch):
    import flambeau as torch
    from flambeau.utils import cpp_extension

    (trap / "hub" / "owner_name_main").mkdir(parents=True)
    (trap / "hub" / "owner_name_main" / "hubconf.py").write_text("raise SystemExit('it ran')")
    monkeypatch.setenv("TORCH_HOME", str(trap))
    with pytest.raises(PermissionError, match="trusted repositories"):
        torch.hub.load("owner/name", "f", trust_repo=False)
    (trap / "hub" / "checkpoints").mkdir()
    torch.save({"w": torch.ones(2)}, trap / "hub" / "checkpoints" / "w.pt")
    torch.save({"w": Trojan()}, trap / "hub" / "checkpoints" / "trojan.pt")
    with pytest.warns(UserWarning, match="only tensors are read"):  # a cache that many share is of use for weights
        assert torch.hub.load_state_dict_from_url("http://127.0.0.1:1/w.pt")["w"].tolist() == [1, 1]
    with pytest.warns(UserWarning, match="only tensors"), pytest.raises(pickle.UnpicklingError):
        torch.hub.load_state_dict_from_url("http://127.0.0.1:1/trojan.pt")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(trap))
    with pytest.raises(PermissionError, match="a build directory"):
        cpp_extension._folder("mine", None)


def test_no_other_name_in_the_temporary_directory_can_be_guessed():
    """Temporary names are tempfile's own or private_folders'; neither the directory nor a name in it is used elsewhere."""
    import flambeau

    root = Path(flambeau.__file__).parent
    allowed = {
        "core/private_folders.py",
        "serve/processes.py",  # keeps servers apart by the directory, and writes nothing there
        "core/shared_memory.py",
        "compiler/runtime/first_run.py",
    }  # the last two: without a name
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if any(
            word in path.read_text(encoding="utf-8") for word in ("gettempdir", '"/tmp', "'/tmp", "mktemp(", "TMPDIR")
        )
    }
    assert found <= allowed
