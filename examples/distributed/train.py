"""Training that survives failures and nodes that come and go: it goes on from its last checkpoint.

flambeau torchrun --standalone --nproc-per-node 2 --max-restarts 3 examples/distributed/train.py checkpoint.pt
flambeau torchrun --nnodes 1:4 --rdzv-backend c10d --rdzv-endpoint HOST:29400 examples/distributed/train.py checkpoint.pt
torchx run -s local_cwd dist.ddp -j 1x2 --script examples/distributed/train.py -- checkpoint.pt
sbatch examples/distributed/slurm.sbatch
python examples/distributed/ray_workers.py
"""

import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main(path: str, epochs: int = 5) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(512, 8)
    data = TensorDataset(x, (x @ torch.randn(8, 1)).tanh())
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first = 0
    if os.path.exists(path):
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"]
    sampler: DistributedSampler[Any] = DistributedSampler(data)
    for epoch in range(first, epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for inputs, targets in DataLoader(data, 32, sampler=sampler):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(inputs)
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
            torch.save(state, path + ".new")
            os.replace(path + ".new", path)  # whoever reads it finds the old one or the new one, never half of one
            print(f"epoch {epoch} on {dist.get_world_size()} ranks: loss {total.item() / len(data):.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "checkpoint.pt")
