"""torchrun: environment, restarts, logs, membership, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flambeau.distributed import run as torchrun
from flambeau.distributed.elastic.multiprocessing import Std
from flambeau.distributed.elastic.multiprocessing.errors import ChildFailedError
from flambeau.distributed.launcher import LaunchConfig, elastic_launch

ROOT = Path(__file__).parents[2]


def start(arguments, script, tmp_path, **environment):
    path = tmp_path / "program.py"
    path.write_text(script)
    command = [sys.executable, "-m", "flambeau.distributed.run", *arguments, str(path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process, limit=90):
    out, err = process.communicate(timeout=limit)
    return process.returncode, out, err


RESTARTED = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
count, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), dist.get_rank()
names = "LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK ROLE_NAME TORCHELASTIC_MAX_RESTARTS".split()
print("start", rank, count, *[os.environ[n] for n in names], dist.is_torchelastic_launched(), torch.__version__, flush=True)
dist.barrier()
if count == 0 and rank == 1:
    sys.exit(3)
x = torch.ones(1); dist.all_reduce(x); print("sum", x.item(), flush=True)
"""


def test_a_failed_rank_restarts_the_group(tmp_path):
    code, out, err = finish(
        start(["--standalone", "--nproc-per-node", "2", "--max-restarts", "2"], RESTARTED, tmp_path)
    )
    assert code == 0, err
    lines = out.splitlines()
    assert sum(line.startswith("start 0 0 0 2 2 0 default 2 True 2.13") for line in lines) == 1
    assert sum(line.startswith("start 1 1 1 2 2 0 default 2 True") for line in lines) == 1
    assert lines.count("sum 2.0") == 2


FAILING = """
import os
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    if os.environ["RANK"] == "1":
        raise ValueError("what a pity")
    import time; time.sleep(60)
main()
"""


def test_failures_are_reported(tmp_path):
    begin = time.monotonic()
    code, _, err = finish(start(["--standalone", "--nproc-per-node", "2"], FAILING, tmp_path))
    assert code == 1 and time.monotonic() - begin < 50
    assert "program.py FAILED" in err and "rank      : 1 (local_rank: 1)" in err
    assert "ValueError: what a pity" in err.partition("Root Cause")[2]


TALKING = """
import os, sys
print("out", os.environ["RANK"]); print("apple" if os.environ["RANK"] == "0" else "pear", file=sys.stderr)
"""


def test_logs(tmp_path):
    logs = tmp_path / "logs"
    arguments = ["--standalone", "--nproc-per-node", "2", "--log-dir", str(logs), "-r", "2", "-t", "1"]
    code, out, err = finish(start(arguments, TALKING, tmp_path))
    assert code == 0, err
    assert sorted(out.splitlines()) == ["[default0]:out 0", "[default1]:out 1"]
    (folder,) = logs.glob("*/attempt_0")
    assert (folder / "0" / "stdout.log").read_text() == "out 0\n"
    assert (folder / "1" / "stderr.log").read_text() == "pear\n"
    filtered = [*arguments[:3], "--local-ranks-filter", "1", "-t", "1"]
    code, out, _ = finish(start(filtered, TALKING, tmp_path, TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE="<rank ${rank}> "))
    assert out == "<rank 1> out 1\n"


GROWING = """
import os, sys, time, torch.distributed as dist
dist.init_process_group("gloo")
print("rank", dist.get_rank(), "of", dist.get_world_size(), flush=True)
dist.barrier()
end = time.time() + 60
while dist.get_world_size() == 1 and time.time() < end:
    time.sleep(0.1)
"""


def test_a_node_joins_while_another_trains(tmp_path):
    port = torchrun_port()
    settings = [
        "--nnodes",
        "1:2",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        f"localhost:{port}",
        "--rdzv-id",
        "grow",
    ]
    settings += ["--rdzv-conf", "last_call_timeout=1", "--nproc-per-node", "1", "--max-restarts", "1"]
    first = start(settings, GROWING, tmp_path)
    assert first.stdout.readline() == "rank 0 of 1\n"
    (tmp_path / "other").mkdir()
    second = start(settings, GROWING, tmp_path / "other")
    results = [finish(first), finish(second)]
    assert [code for code, _, _ in results] == [0, 0], results
    assert sorted(out.splitlines()[-1] for _, out, _ in results) == ["rank 0 of 2", "rank 1 of 2"], results


def torchrun_port():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


SLEEPING = """
import os, time
print(os.getpid(), flush=True)
time.sleep(100)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_agent(number, tmp_path):
    process = start(["--standalone", "--nproc-per-node", "2"], SLEEPING, tmp_path)
    pids = [int(process.stdout.readline()) for _ in range(2)]
    process.send_signal(number)
    code, _, _ = finish(process)
    assert code == (128 + number if number == signal.SIGTERM else -number)
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_the_older_launcher_passes_the_local_rank(tmp_path):
    path = tmp_path / "p.py"
    path.write_text("import sys; print(sys.argv[1:])")
    command = [sys.executable, "-W", "ignore", "-m", "flambeau.distributed.launch", "--nproc_per_node=2"]
    command += [f"--master_port={torchrun_port()}", str(path), "--lr", "1"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60
    )
    assert sorted(done.stdout.splitlines()) == ["['--local-rank=0', '--lr', '1']", "['--local-rank=1', '--lr', '1']"]


def _double(x):
    return int(os.environ["RANK"]) * x


def _fails():
    raise RuntimeError("no")


def config(**more):
    return LaunchConfig(1, 1, 2, rdzv_backend="c10d", rdzv_endpoint="localhost:0", run_id="t", **more)


def test_functions_return_values():
    assert elastic_launch(config(), _double)(21) == {0: 0, 1: 21}


def test_a_function_that_fails():
    with pytest.raises(ChildFailedError, match="RuntimeError: no"):
        elastic_launch(config(max_restarts=0), _fails)()


def test_command_line(monkeypatch):
    monkeypatch.setenv("PET_NPROC_PER_NODE", "3")
    monkeypatch.setenv("PET_STANDALONE", "1")
    args = torchrun.parse_args(["--nnodes=1:4", "--max_restarts", "2", "train.py", "--lr", "1"])
    assert (args.nproc_per_node, args.standalone, args.max_restarts) == ("3", True, 2)
    assert args.training_script_args == ["--lr", "1"]
    settings, entry, arguments = torchrun.config_from_args(args)
    assert (settings.min_nodes, settings.max_nodes, settings.nproc_per_node) == (1, 4, 3)
    assert arguments[-3:] == ["train.py", "--lr", "1"]
    assert torchrun.parse_min_max_nnodes("2") == (2, 2)
    with pytest.raises(RuntimeError, match="MIN:MAX"):
        torchrun.parse_min_max_nnodes("1:2:3")
    with pytest.raises(ValueError, match="Unsupported nproc_per_node"):
        torchrun.determine_local_world_size("many")
    assert Std.from_str("0:1,1:2") == {0: Std.OUT, 1: Std.ERR}
    with pytest.raises(ValueError, match="does not match"):
        Std.from_str("5")


def test_every_option_of_pytorch():
    known = set(torchrun.get_args_parser()._option_string_actions)
    wanted = """--nnodes --nproc-per-node --rdzv-backend --rdzv-endpoint --rdzv-id --rdzv-conf --standalone --max-restarts
    --monitor-interval --start-method --event-log-handler --role -m --module --no-python --run-path --log-dir -r --redirects -t --tee
    --local-ranks-filter --duplicate-stdout-filters --duplicate-stderr-filters --node-rank --master-addr --master-port --local-addr
    --logs-specs --numa-binding --signals-to-handle --shutdown-timeout --virtual-local-rank"""
    assert set(wanted.split()) <= known


def test_error_files_are_whole(tmp_path, monkeypatch):
    from flambeau.distributed.elastic.multiprocessing.errors import record

    file = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))
    with pytest.raises(RuntimeError):
        record(_fails)()
    assert json.loads(file.read_text())["message"]["message"] == "RuntimeError: no"
    assert os.listdir(tmp_path) == ["error.json"]


TRAINING = """
import os, sys, time, torch.distributed as dist
dist.init_process_group("gloo")
place = os.environ["TORCHELASTIC_RESTART_COUNT"], dist.get_rank(), dist.get_world_size(), os.environ["GROUP_RANK"]
print(*place, flush=True)
dist.barrier()
if os.path.exists(os.environ["STOP"]):
    sys.exit()
if place[0] == "0" and place[1] == 1:
    sys.exit(7)
while not os.path.exists(os.environ["STOP"]):
    time.sleep(0.05)
    dist.barrier()
"""


def two_nodes(tmp_path, stop):
    port = torchrun_port()
    settings = ["--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", "x"]
    settings += [
        "--rdzv-conf",
        "last_call_timeout=2,keep_alive_interval=1",
        "--nproc-per-node",
        "1",
        "--max-restarts",
        "3",
    ]
    nodes = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        nodes.append(start(settings, TRAINING, tmp_path / name, STOP=str(stop)))
        if not nodes[1:]:
            while not _listens(port):
                assert nodes[0].poll() is None
                time.sleep(0.05)
    return nodes


def _listens(port):
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def until(node, count, size):
    """Reads what a node's worker says until it is in its `count`th restart with `size` others."""
    while True:
        words = node.stdout.readline().split()
        assert words, "it has ended"
        if (words[0], words[2]) == (count, size):
            return


def test_nodes_restart_together_and_one_goes_on_alone(tmp_path):
    """A failure on one node restarts the workers of both, under one number: they would not find each other otherwise. Then one
    of them leaves."""
    stop = tmp_path / "stop"
    first, second = two_nodes(tmp_path, stop)
    for node in (first, second):
        until(node, "1", "2")
    second.send_signal(signal.SIGTERM)
    assert finish(second)[0] == 128 + signal.SIGTERM
    until(first, "1", "1")
    stop.write_text("")
    code, _, err = finish(first)
    assert code == 0, err


EXAMPLE = ROOT / "examples" / "distributed" / "train.py"


def test_the_example_goes_on_from_its_checkpoint(tmp_path):
    """Ranks that torchrun starts, then ranks as Slurm starts them: the second ones find nothing left to do."""
    path, script = str(tmp_path / "checkpoint.pt"), EXAMPLE.read_text()
    code, out, err = finish(
        start(["--standalone", "--nproc-per-node", "2"], script.replace("checkpoint.pt", path), tmp_path)
    )
    assert code == 0, err
    losses = [float(line.rpartition(" ")[2]) for line in out.splitlines()]
    assert len(losses) == 5 and losses[-1] < 0.5 * losses[0]
    port, tasks = str(torchrun_port()), []
    for rank in range(2):
        place = {"SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **place}
        command = [sys.executable, "-m", "flambeau", str(EXAMPLE), path]
        tasks.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    assert [finish(task)[:2] for task in tasks] == [(0, "")] * 2
