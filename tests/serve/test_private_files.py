"""What a server keeps on disk: never through links, never in folders of strangers, and gone when the server has gone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("httptools", reason="serving needs flambeau[serve]")

from flambeau.serve import processes, snapshots  # noqa: E402
from flambeau.serve.cli import _settings, torchserve, torchserve_parser  # noqa: E402
from flambeau.serve.logs import LogFile  # noqa: E402
from flambeau.serve.settings import ConfigurationError, Settings  # noqa: E402

from .serving import Client  # noqa: E402

STRANGER = 65534
ROOT = str(Path(__file__).parents[2])
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")


def test_logs_do_not_follow_links(tmp_path: Path, capsys: pytest.CaptureFixture):
    profile = tmp_path / "profile"
    profile.write_text("mine\n")
    (tmp_path / "access_log.log").symlink_to(profile)
    log = LogFile(tmp_path / "access_log.log")
    log.open()
    log.write("$(rm -rf /)")
    log.close()
    assert profile.read_text() == "mine\n"
    assert "cannot be written" in capsys.readouterr().err


def test_a_full_disk_stops_no_request(tmp_path: Path, capsys: pytest.CaptureFixture):
    log = LogFile(tmp_path / "access_log.log")
    log.open()
    with open("/dev/full", "wb", buffering=0) as full:
        log._file, file = full, log._file
        for _ in range(2):
            log.write("a")
            log.flush()
    assert capsys.readouterr().err.count("No space left") == 1
    log._file = file
    log.write("b")
    log.close()
    assert (tmp_path / "access_log.log").read_text() == "b\n"


@as_root
def test_logs_and_snapshots_are_not_in_a_strangers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "public").mkdir()
    (tmp_path / "public").chmod(0o1777)
    folder = tmp_path / "public" / "logs"
    (folder / "config").mkdir(parents=True)
    (folder / "config" / "20200101-snapshot.cfg").write_text("model_store=/of/the/stranger\n")
    for path in (folder, folder / "config"):
        os.chown(path, STRANGER, STRANGER)
    log = LogFile(folder / "ts_log.log")
    log.open()
    log.write("x")
    log.close()
    assert not (folder / "ts_log.log").exists()
    with pytest.raises(ConfigurationError, match="another user"):
        snapshots.read(folder / "config" / "20200101-snapshot.cfg")
    (tmp_path / "public" / "config.properties").write_text("model_store=/of/the/stranger\n")
    os.chown(tmp_path / "public" / "config.properties", STRANGER, STRANGER)
    monkeypatch.chdir(tmp_path / "public")
    for logs in (folder, tmp_path):
        monkeypatch.setenv("LOG_LOCATION", str(logs))
        with pytest.raises(ConfigurationError, match="another user"):
            _settings(torchserve_parser().parse_args(["--start", "--model-store", str(tmp_path)]))


def test_the_key_of_a_keystore_is_never_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("cryptography")
    pem, store = tmp_path / "pem", tmp_path / "ks.p12"
    made = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-newkey", "rsa:2048", "-subj", "/CN=x"]
    subprocess.run([*made, "-keyout", f"{pem}.key", "-out", f"{pem}.crt"], check=True, capture_output=True)
    packed = ["openssl", "pkcs12", "-export", "-inkey", f"{pem}.key", "-in", f"{pem}.crt", "-passout", "pass:changeit"]
    subprocess.run([*packed, "-out", str(store)], check=True, capture_output=True)
    run = tmp_path / "run"
    run.mkdir()
    for name in ("XDG_RUNTIME_DIR", "TMPDIR"):
        monkeypatch.setenv(name, str(run))
    settings = Settings({"keystore": str(store)})
    assert settings.certificates()[0].startswith(b"-----BEGIN PRIVATE KEY-----")
    assert settings.tls_context().get_ca_certs() == []
    assert list(run.iterdir()) == []
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        Settings({"keystore": str(store), "keystore_pass": "wrong"}).certificates()


def test_only_the_noted_process_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    """A number alone is not believed, whatever the command line of that process says."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "flambeau", "torchserve"])
    try:
        file = processes.pid_file()
        assert oct(file.parent.stat().st_mode)[-3:] == "700"
        processes.note(bystander.pid)
        words = file.read_text().split()
        assert processes.running() == bystander.pid
        for said in (str(bystander.pid), f"{bystander.pid} 1 {words[2]}", f"{bystander.pid} {words[1]} boot", "x", ""):
            file.write_text(said)
            assert processes.running() is None
            assert torchserve(["--stop"]) == 0
            assert "not currently running" in capsys.readouterr().out
        assert bystander.poll() is None
        (tmp_path / "forged").write_text(" ".join(words))
        file.unlink()
        file.symlink_to(tmp_path / "forged")
        assert processes.running() is None
        file.unlink()
        processes.note(bystander.pid)
        assert torchserve(["--stop", "--foreground"]) == 0
        assert bystander.wait(10) == -signal.SIGTERM
    finally:
        bystander.kill()
        bystander.wait()


def test_a_socket_takes_nobodys_place(start, tmp_path: Path):
    (tmp_path / "notes.txt").write_text("precious")
    with pytest.raises(ConfigurationError, match="not a socket"):
        start(inference_address=f"unix:{tmp_path}/notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "precious"
    start(inference_address=f"unix:{tmp_path}/a.sock")
    with pytest.raises(ConfigurationError, match="another server listens"):
        start(inference_address=f"unix:{tmp_path}/a.sock")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(f"{tmp_path}/b.sock")  # as a server leaves it that was killed
    start(inference_address=f"unix:{tmp_path}/b.sock")


def serve_until_killed(tmp_path: Path, source: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "flambeau.cli", "serve", str(source), "--port", "0"], cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": ROOT, "TMPDIR": str(tmp_path / "tmp"), "LOG_LOCATION": str(tmp_path / "logs")},
    )  # fmt: skip
    timer = threading.Timer(60, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        assert any("look at" in line for line in iter(process.stdout.readline, ""))
    finally:
        timer.cancel()
        process.kill()
        process.wait()


def test_what_a_killed_server_unpacked_is_removed_by_the_next(tmp_path: Path):
    (tmp_path / "tmp").mkdir()
    (tmp_path / "h.py").write_text("def handle(data, context):\n    return data and ['ok' for row in data]\n")
    serve_until_killed(tmp_path, tmp_path / "h.py")
    left = {p.name for p in (tmp_path / "tmp").iterdir()}
    assert {n[:15] for n in left} == {"flambeau-serve-", "flambeau-store-"}
    time.sleep(0.2)
    serve_until_killed(tmp_path, tmp_path / "h.py")
    assert not left & {p.name for p in (tmp_path / "tmp").iterdir()}


# -- snapshots --


def test_a_start_that_fails_leaves_the_snapshot(start, store: Path, tmp_path: Path):
    client: Client = start(snapshots="true")
    assert client.register("echo.mar").status == 200
    last = snapshots.last(tmp_path / "logs" / "config")
    assert last is not None
    values = snapshots.read(last)
    kept = json.loads(values["model_snapshot"])
    kept["models"]["gone"] = {"1.0": {**kept["models"]["echo"]["1.0"], "marName": "gone.mar"}}
    kept["modelCount"] = 2
    before = sorted(p.name for p in last.parent.iterdir())
    with pytest.raises(Exception, match="gone"):
        start(snapshots="true", model_snapshot=json.dumps(kept))
    assert sorted(p.name for p in last.parent.iterdir()) == before
    port = client.server.addresses["management"].port
    with pytest.raises(OSError):  # this one fails while it listens
        start(snapshots="true", management_address=f"http://127.0.0.1:{port}")
    assert sorted(p.name for p in last.parent.iterdir()) == before
