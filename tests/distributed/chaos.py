"""Training under torchrun while ranks and agents are killed and stopped at random: `python -m tests.distributed.chaos --rounds 200`.

The loss of every step must be that of a run that nobody disturbed, no process may be left, and no shared memory. With `--nodes 2`
the second agent is attacked as well (the first serves the rendezvous, and is the one that must live), and started again when it
was killed, as a scheduler does."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, os, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
folder, pause = sys.argv[1], float(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=6))
rank, size = dist.get_rank(), dist.get_world_size()
for name, how in ((f"pid.{rank}", "w"), ("pids", "a")):
    with open(f"{folder}/{name}", how) as file:
        file.write(f"{os.getpid()}\\n")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
step, path = 0, f"{folder}/checkpoint.pt"
if os.path.exists(path):
    saved = torch.load(path)
    model.load_state_dict(saved["model"]); optimizer.load_state_dict(saved["optimizer"]); step = saved["step"]
over = False
while not over:
    torch.manual_seed(step)
    x = torch.randn(12, 4)
    part = x[rank * 12 // size : (rank + 1) * 12 // size]
    loss = (model(part) - part.square().sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    last = int(open(f"{folder}/last").read()) if rank == 0 and os.path.exists(f"{folder}/last") else step + 1
    total = torch.stack([loss.detach(), torch.tensor(float(last <= step))])
    dist.all_reduce(total)
    over = total[1].item() > 0
    if rank == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, path + ".new")
        os.replace(path + ".new", path)
        with open(f"{folder}/losses", "a") as file:
            file.write(json.dumps([step, total[0].item() / size]) + "\\n")
    step += 1
    time.sleep(pause)
dist.barrier()
"""


class Training:
    """A job of one or more agents, with everything it writes in one folder."""

    def __init__(self, folder: str, nodes: int, workers: int, pause: float):
        self.folder, self.workers, self.nodes = Path(folder), workers, nodes
        (self.folder / "program.py").write_text(PROGRAM)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.pause = pause
        self.agents = [self.agent() for _ in range(nodes)]

    def agent(self) -> subprocess.Popen:
        command = [sys.executable, "-m", "flambeau.distributed.run", "--nnodes", f"1:{self.nodes}"]
        command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{self.port}", "--rdzv-id", "chaos"]
        command += ["--rdzv-conf", "last_call_timeout=2,keep_alive_interval=1", "--nproc-per-node", str(self.workers)]
        command += ["--max-restarts", "100000", "--shutdown-timeout", "3", str(self.folder / "program.py")]
        command += [str(self.folder), str(self.pause)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        with open(self.folder / "log", "a") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def losses(self) -> dict[int, list[float]]:
        """Every loss that was seen at each step."""
        seen: dict[int, list[float]] = {}
        path = self.folder / "losses"
        for line in path.read_text().splitlines() if path.exists() else []:
            step, loss = json.loads(line)
            seen.setdefault(step, []).append(loss)
        return seen

    def end_after(self, step: int) -> None:
        (self.folder / "last.new").write_text(str(step))
        os.replace(self.folder / "last.new", self.folder / "last")

    def wait(self, limit: float) -> list[int]:
        deadline = time.monotonic() + limit
        return [agent.wait(max(1.0, deadline - time.monotonic())) for agent in self.agents]

    def running(self) -> list[int]:
        """The workers that have begun since the last attack."""
        found = []
        for path in self.folder.glob("pid.*"):
            text = path.read_text().strip()
            if text and os.path.exists(f"/proc/{text}"):
                found.append(int(text))
        return found

    def attack(self, chance: random.Random) -> str | None:
        """Hits somebody; returns what was done."""
        workers = self.running()
        if not workers or len(workers) % self.workers:
            return None
        agents = [agent.pid for agent in self.agents[1:] if agent.poll() is None]
        victim, how = chance.choice(workers + agents), chance.choice([signal.SIGKILL, signal.SIGSTOP])
        try:
            os.kill(victim, how)
        except ProcessLookupError:
            return None
        if victim in agents and how is signal.SIGSTOP:
            time.sleep(chance.choice([1.0, 6.0]))  # the others wait 3 seconds for a sign of life
            os.kill(victim, signal.SIGCONT)
            return "SIGSTOP of an agent"
        if victim in agents:
            which = [agent.pid for agent in self.agents].index(victim)
            self.agents[which].wait()
            self.agents[which] = self.agent()
        for path in self.folder.glob("pid.*"):
            path.unlink(missing_ok=True)
        return f"{how.name} of {'an agent' if victim in agents else 'a rank'}"


def check(calm: Training, wild: Training) -> None:
    expected, got = calm.losses(), wild.losses()
    assert set(got) == set(expected), "steps are missing"
    for step, (loss,) in expected.items():
        for other in got[step]:
            assert abs(other - loss) <= 1e-4 * max(1.0, abs(loss)), f"step {step}: {other} instead of {loss}"
    pids = [pid for pid in (wild.folder / "pids").read_text().split() if os.path.exists(f"/proc/{pid}")]
    left = [pid for pid in pids if str(wild.folder) in Path(f"/proc/{pid}/cmdline").read_text()]
    assert not left, f"processes are left: {left}"


def disturbed(rounds: int, nodes: int, workers: int, seed: int, limit: float) -> dict[str, int]:
    """One training with `rounds` attacks; returns how many of each kind."""
    chance, hits = random.Random(seed), dict[str, int]()
    with tempfile.TemporaryDirectory() as wild_folder, tempfile.TemporaryDirectory() as calm_folder:
        wild = Training(wild_folder, nodes, workers, 0.02)
        deadline = time.monotonic() + limit
        try:
            while sum(hits.values()) < rounds:
                time.sleep(chance.uniform(0.3, 1.5))
                assert wild.agents[0].poll() is None, "the job has ended"
                assert time.monotonic() < deadline, f"the time is over after {hits}"
                done = wild.attack(chance)
                if done is not None:
                    hits[done] = hits.get(done, 0) + 1
                    print(f"{sum(hits.values())} {done}, {len(wild.losses())} steps", file=sys.stderr, flush=True)
            last = max(wild.losses(), default=0) + 20
            wild.end_after(last)
            codes = wild.wait(120)
            assert codes == [0] * nodes, f"exit codes {codes}"
            calm = Training(calm_folder, 1, workers, 0.0)
            calm.end_after(max(wild.losses()))
            assert calm.wait(limit) == [0]
            check(calm, wild)
        except BaseException:
            sys.stderr.write((wild.folder / "log").read_text()[-6000:])
            raise
        finally:
            for agent in wild.agents:
                agent.kill()
    return hits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2, help="of each node")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=7200, help="seconds")
    options = parser.parse_args()
    before = set(os.listdir("/dev/shm"))
    hits = disturbed(options.rounds, options.nodes, options.workers, options.seed, options.limit)
    left = {name for name in set(os.listdir("/dev/shm")) - before if "flambeau" in name or "mpich" in name}
    assert not left, f"shared memory is left: {left}"
    print(f"{options.nodes} nodes with {options.workers} workers, {sum(hits.values())} attacks {hits}:")
    print("every step has the loss of the calm run, nothing is left")


if __name__ == "__main__":
    main()
