"""`flambeau horovodrun`: start the ranks of a program, here or on other machines through ssh.

flambeau horovodrun -np 4 python train.py
flambeau horovodrun -np 8 -H host1:4,host2:4 python train.py
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from ...core import naming
from ...distributed.elastic.multiprocessing.workers import _die_with_parent
from ...distributed.launcher import LaunchConfig, elastic_launch
from ...distributed.secret import VARIABLE


def parse_hosts(text: str) -> list[tuple[str, int]]:
    """Parse `host1:2,host2:4` into pairs of a host and its slots."""
    hosts = []
    for part in text.split(","):
        host, _, slots = part.strip().partition(":")
        if not host or (slots and not slots.isdigit()):
            raise ValueError(f"hosts are given as <host>:<slots>,..., not {text!r}")
        hosts.append((host, int(slots or 1)))
    return hosts


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="horovodrun", description="Start the ranks of a Horovod program.")
    parser.add_argument("-np", "--num-proc", type=int, required=True, help="how many processes")
    parser.add_argument("-H", "--hosts", default=None, help="where: <host>:<slots>,...")
    parser.add_argument(
        "-hostfile", "--hostfile", default=None, help="a file with a line `<host> slots=<n>` for each host"
    )
    parser.add_argument("-p", "--ssh-port", type=int, default=None)
    parser.add_argument("--gloo", action="store_true", help="accepted: this is how ranks are always started")
    parser.add_argument("--mpi", action="store_true", help="start under mpiexec yourself instead")
    parser.add_argument("--timeline-filename", default=None, help="rank 0 writes a record of its operations there")
    parser.add_argument("--output-filename", default=None, help="a directory for the output of each rank")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--disable-cache", action="store_true", help="accepted, and has no effect")
    parser.add_argument("--start-timeout", type=int, default=30)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the program")
    return parser


def _hosts(options: argparse.Namespace) -> list[tuple[str, int]]:
    if options.hosts:
        return parse_hosts(options.hosts)
    if options.hostfile:
        hosts = []
        with open(options.hostfile) as file:
            for line in filter(None, (text.split("#")[0].strip() for text in file)):
                name, _, slots = line.partition(" slots=")
                hosts.append((name.strip(), int(slots or 1)))
        return hosts
    return [("localhost", options.num_proc)]


def _posing_command(command: list[str]) -> list[str]:
    """Return the command that runs a Python program with Flambeau in the place of PyTorch."""
    if not os.path.basename(command[0]).startswith("python"):
        return command
    flags = 1
    while flags < len(command) and command[flags] in ("-u", "-O", "-B", "-E", "-s", "-I"):
        flags += 1
    if command[flags : flags + 2] == ["-m", naming.PACKAGE]:
        return command
    return [*command[:flags], "-m", naming.PACKAGE, *command[flags:]]


def _is_local(host: str) -> bool:
    return host in ("localhost", "127.0.0.1", socket.gethostname())


def _copy(stream: Any, target: TextIO, prefix: str) -> None:
    for line in stream:
        target.write(prefix + line)
        target.flush()


def _environment(
    rank: int, size: int, local: int, locals_: int, cross: int, crosses: int, address: str, port: int
) -> dict:
    names = {
        "HOROVOD_RANK": rank, "HOROVOD_SIZE": size, "HOROVOD_LOCAL_RANK": local, "HOROVOD_LOCAL_SIZE": locals_,
        "HOROVOD_CROSS_RANK": cross, "HOROVOD_CROSS_SIZE": crosses, "HOROVOD_CONTROLLER": "gloo",
        "MASTER_ADDR": address, "MASTER_PORT": port,
    }  # fmt: skip
    return {name: str(value) for name, value in names.items()}


def _free_port() -> int:
    with socket.create_server(("", 0)) as probe:
        return probe.getsockname()[1]


def _place_ranks(hosts: list[tuple[str, int]], count: int) -> list[tuple[str, int]]:
    """Return host and local rank for every rank."""
    places = [(host, slot) for host, slots in hosts for slot in range(slots)][:count]
    if len(places) < count:
        raise ValueError(f"{count} processes were asked for, and there are only {len(places)} slots")
    return places


def launch(command: Sequence[str], count: int, hosts: list[tuple[str, int]], options: argparse.Namespace) -> int:
    """Start the ranks and wait; the first that fails ends all. Returns the exit code."""
    places = _place_ranks(hosts, count)
    names = list(dict.fromkeys(host for host, _ in places))
    address = "127.0.0.1" if names == [names[0]] and _is_local(names[0]) else names[0]
    port = _free_port()
    root = os.path.dirname(sys.modules[naming.PACKAGE].__path__[0])
    processes, threads = [], []
    parent = os.getpid()
    for rank, (host, local) in enumerate(places):
        here = sum(h == host for h, _ in places)
        told = _environment(rank, count, local, here, names.index(host), len(names), address, port)
        if options.timeline_filename and rank == 0:
            told["HOROVOD_TIMELINE"] = options.timeline_filename
        if VARIABLE in os.environ:
            told[VARIABLE] = os.environ[VARIABLE]
        full = _posing_command(list(command))
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), root]))
        if not _is_local(host):
            settings = " ".join(f"{k}={shlex.quote(v)}" for k, v in told.items())
            remote = f"cd {shlex.quote(os.getcwd())} && {settings} {shlex.join(full)}"
            full = ["ssh", *(["-p", str(options.ssh_port)] if options.ssh_port else []), host, remote]
        process = subprocess.Popen(
            full, env={**os.environ, "PYTHONPATH": path, **told}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True, preexec_fn=lambda: _die_with_parent(parent),
        )  # fmt: skip
        processes.append(process)
        for stream, target, label in ((process.stdout, sys.stdout, "stdout"), (process.stderr, sys.stderr, "stderr")):
            thread = threading.Thread(target=_copy, args=(stream, target, f"[{0},{rank}]<{label}>:"), daemon=True)
            thread.start()
            threads.append(thread)
    code = _wait(processes)
    for thread in threads:
        thread.join(5)
    return code


def _wait(processes: list[subprocess.Popen]) -> int:
    try:
        while True:
            codes = [process.poll() for process in processes]
            bad = [code for code in codes if code]
            if bad:
                return 1
            if None not in codes:
                return 0
            time.sleep(0.05)
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command `flambeau horovodrun`."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.command:
        parser.error("there is no program to run")
    sys.exit(launch(options.command, options.num_proc, _hosts(options), options))


def _call(function: Callable, args: tuple, kwargs: dict) -> Any:
    return function(*args, **kwargs)


def run(function: Callable, args: tuple = (), kwargs: dict | None = None, np: int = 1, **options: Any) -> list:
    """Run `function(*args, **kwargs)` in `np` new processes of this machine; return their results by rank."""
    config = LaunchConfig(1, 1, np, rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0, run_id="horovod")
    results = elastic_launch(config, _call)(function, args, kwargs or {})
    return [results[rank] for rank in range(np)]


if __name__ == "__main__":
    main()
