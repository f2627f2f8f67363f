"""Training under torchrun while ranks are killed and stopped at random: `python -m tests.distributed.chaos --rounds 200`.

The loss of every step must be that of a run that nobody disturbed, no process may be left, and no shared memory."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
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
folder, steps = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=4))
rank, size = dist.get_rank(), dist.get_world_size()
with open(f"{folder}/pid.{rank}", "w") as file:
    file.write(str(os.getpid()))
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
first, path = 0, f"{folder}/checkpoint.pt"
if os.path.exists(path):
    saved = torch.load(path)
    model.load_state_dict(saved["model"]); optimizer.load_state_dict(saved["optimizer"]); first = saved["step"]
for step in range(first, steps):
    torch.manual_seed(step)
    x = torch.randn(12, 4)
    part = x[rank * 12 // size : (rank + 1) * 12 // size]
    loss = (model(part) - part.square().sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    total = loss.detach().clone(); dist.all_reduce(total, dist.ReduceOp.AVG)
    if rank == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, path + ".new")
        os.replace(path + ".new", path)
        with open(f"{folder}/losses", "a") as file:
            file.write(json.dumps([step, round(total.item(), 5)]) + "\\n")
    time.sleep(0.02)
dist.barrier()
"""


def start(folder: str, workers: int, steps: int) -> subprocess.Popen:
    script = Path(folder) / "program.py"
    script.write_text(PROGRAM)
    command = [sys.executable, "-m", "flambeau.distributed.run", "--standalone", "--nproc-per-node", str(workers)]
    command += ["--max-restarts", "100000", "--shutdown-timeout", "3", str(script), folder, str(steps)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def losses(folder: str) -> dict[int, set[float]]:
    """Every loss that was seen at each step."""
    seen: dict[int, set[float]] = {}
    for line in (Path(folder) / "losses").read_text().splitlines():
        step, loss = json.loads(line)
        seen.setdefault(step, set()).add(loss)
    return seen


def pids(folder: str, workers: int) -> list[int]:
    found = []
    for rank in range(workers):
        path = Path(folder) / f"pid.{rank}"
        if path.exists() and path.read_text():
            found.append(int(path.read_text()))
    return found


def disturbed(rounds: int, workers: int, seed: int, limit: float = 3600) -> int:
    """One training with `rounds` attacks; returns how many hit a living process."""
    chance, hits = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as calm, tempfile.TemporaryDirectory() as wild:
        steps = 40 + 15 * rounds
        assert start(calm, workers, steps).wait(limit) == 0
        process = start(wild, workers, steps)
        deadline, seen = time.monotonic() + limit, set()
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(chance.uniform(0.3, 1.5))
            alive = pids(wild, workers)
            if hits < rounds and len(alive) == workers and (Path(wild) / "losses").exists():
                seen.update(alive)
                try:
                    os.kill(chance.choice(alive), chance.choice([signal.SIGKILL, signal.SIGSTOP]))
                    hits += 1
                except ProcessLookupError:
                    continue
                for rank in range(workers):
                    (Path(wild) / f"pid.{rank}").unlink(missing_ok=True)
        assert process.wait(60) == 0, "training did not end"
        expected, got = losses(calm), losses(wild)
        assert got == expected, {s: (got.get(s), expected[s]) for s in expected if got.get(s) != expected[s]}
        left = [pid for pid in seen if os.path.exists(f"/proc/{pid}")]
        assert not left, f"processes are left: {left}"
    return hits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    before = set(os.listdir("/dev/shm"))
    hits = disturbed(options.rounds, options.workers, options.seed)
    left = {name for name in set(os.listdir("/dev/shm")) - before if "flambeau" in name}
    assert not left, f"shared memory is left: {left}"
    print(f"{hits} attacks on {options.workers} workers: every step has the loss of the calm run, nothing is left")


if __name__ == "__main__":
    main()
