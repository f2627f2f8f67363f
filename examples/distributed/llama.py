"""A small Llama (RMSNorm, rotary positions, SwiGLU, causal attention) trained on 4 processes, its parameters cut over them.

    python examples/distributed/llama.py                          # FSDP on 4 processes
    python examples/distributed/llama.py --parallel 2d            # FSDP over 2, tensor parallel over 2
    python examples/distributed/llama.py --parallel fsdp --check  # and the same training in one process, to compare losses
    python examples/distributed/llama.py --memory memory.svg      # a picture of each process's memory

Every process has a part of the batch; the average of the losses is that of the whole batch.
"""

# pyright: reportUnknownMemberType=false
# (the classes below have a base that is an argument)
from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import tempfile
from typing import Any

import flambeau


def llama(torch: Any, words: int = 512, width: int = 64, layers: int = 4, heads: int = 4, hidden: int = 0) -> Any:
    """The model, of the layers of a library with PyTorch's names; type checkers know no base class that is an argument."""
    nn, functional = torch.nn, torch.nn.functional
    hidden = hidden or (8 * width // 3 + 15) // 16 * 16

    class RMSNorm(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, size: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(size))

        def forward(self, x: Any) -> Any:
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight

        def reset_parameters(self) -> None:
            nn.init.ones_(self.weight)

    def rotated(x: Any) -> Any:
        """Each pair of numbers turned by an angle that grows with the position."""
        length, size = x.shape[-2], x.shape[-1]
        speed = 10000.0 ** (-torch.arange(0, size, 2).float() / size)
        angle = torch.arange(length).float()[:, None] * speed
        cosine, sine = angle.cos(), angle.sin()
        even, odd = x[..., : size // 2], x[..., size // 2 :]
        return torch.cat([even * cosine - odd * sine, even * sine + odd * cosine], -1)

    class Attention(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.wq, self.wk, self.wv, self.wo = (nn.Linear(width, width, bias=False) for _ in range(4))

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            size = width // heads
            q, k, v = (w(x).view(batch, length, -1, size).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
            found = functional.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
            return self.wo(found.transpose(1, 2).reshape(batch, length, -1))

    class FeedForward(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.w1, self.w3 = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
            self.w2 = nn.Linear(hidden, width, bias=False)

        def forward(self, x: Any) -> Any:
            return self.w2(functional.silu(self.w1(x)) * self.w3(x))

    class Block(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.attention_norm, self.ffn_norm = RMSNorm(width), RMSNorm(width)
            self.attention, self.feed_forward = Attention(), FeedForward()

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.attention_norm(x))
            return x + self.feed_forward(self.ffn_norm(x))

    class Llama(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.tok_embeddings = nn.Embedding(words, width)
            self.layers = nn.ModuleList(Block() for _ in range(layers))
            self.norm, self.output = RMSNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.tok_embeddings(tokens)
            for layer in self.layers:
                x = layer(x)
            return self.output(self.norm(x))

    return Llama()


def batches(torch: Any, steps: int, batch: int, length: int, words: int) -> list[Any]:
    """Sequences in which each word follows from the one before, mostly."""
    generator = torch.Generator().manual_seed(7)
    found: list[Any] = []
    for _ in range(steps):
        x = torch.randint(0, words, (batch, 1), generator=generator)
        rows = [x]
        for _ in range(length):
            noise = torch.randint(0, 3, (batch, 1), generator=generator)
            rows.append((rows[-1] * 5 + 7 + noise) % words)
        found.append(torch.cat(rows, 1))
    return found


def shard(torch: Any, model: Any, parallel: str, size: int) -> Any:
    """The model, cut over the processes; returns the mesh along which the batch is cut, too."""
    from flambeau.distributed.device_mesh import init_device_mesh
    from flambeau.distributed.fsdp import fully_shard
    from flambeau.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    if parallel == "2d":
        mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("data", "tensor"))
        plan = {
            "attention.wq": ColwiseParallel(), "attention.wk": ColwiseParallel(), "attention.wv": ColwiseParallel(),
            "attention.wo": RowwiseParallel(), "feed_forward.w1": ColwiseParallel(), "feed_forward.w3": ColwiseParallel(),
            "feed_forward.w2": RowwiseParallel(),
        }  # fmt: skip
        for layer in model.layers:
            parallelize_module(layer, mesh["tensor"], plan)
        data = mesh["data"]
    else:
        data = init_device_mesh("cpu", (size,))
    for layer in model.layers:
        fully_shard(layer, mesh=data)
    fully_shard(model, mesh=data)
    return data


def train(
    torch: Any, model: Any, data: list[Any], part: int, parts: int, words: int, report: Any = None
) -> list[float]:
    """The losses of this part of every batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses: list[float] = []
    for tokens in data:
        own = tokens.chunk(parts)[part]
        logits = model(own[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, words), own[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def rank_main(rank: int, path: str, options: argparse.Namespace, results: Any) -> None:
    flambeau.set_num_threads(1)
    size = options.ranks
    flambeau.distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)
    flambeau.manual_seed(0)
    model = llama(flambeau, options.words, options.width, options.layers)
    mesh = shard(flambeau, model, options.parallel, size)
    data = batches(flambeau, options.steps, options.batch, options.length, options.words)
    part, parts = mesh.get_local_rank(), mesh.size()
    if options.memory:
        from flambeau.distributed.memory_of_ranks import save_memory_of_ranks

        with flambeau.profiler.profile(profile_memory=True, record_shapes=True) as profile:
            losses = train(flambeau, model, data, part, parts, options.words)
        save_memory_of_ranks(profile, options.memory)
    else:
        losses = train(flambeau, model, data, part, parts, options.words)
    results.put((rank, part, losses))
    flambeau.distributed.barrier()
    flambeau.distributed.destroy_process_group()


def run(options: argparse.Namespace) -> list[float]:
    """The losses of whole batches: the average over the processes that have different parts."""
    context = multiprocessing.get_context("spawn")
    results, path = context.Queue(), os.path.join(tempfile.mkdtemp(), "meeting")
    processes = [context.Process(target=rank_main, args=(r, path, options, results)) for r in range(options.ranks)]
    for process in processes:
        process.start()
    found = {part: losses for _, part, losses in (results.get(timeout=600) for _ in processes)}
    for process in processes:
        process.join()
    return [math.fsum(one) / len(one) for one in zip(*found.values())]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parallel", choices=("fsdp", "2d"), default="fsdp")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--words", type=int, default=512)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--memory", metavar="FILE.svg", help="a picture of each process's memory")
    parser.add_argument("--check", action="store_true", help="compare with training in one process")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    losses = run(options)
    print(
        f"{options.parallel}, {options.ranks} processes: loss {losses[0]:.6f} -> {losses[-1]:.6f} after {len(losses)} steps"
    )
    if options.check:
        flambeau.manual_seed(0)
        model = llama(flambeau, options.words, options.width, options.layers)
        data = batches(flambeau, options.steps, options.batch, options.length, options.words)
        alone = train(flambeau, model, data, 0, 1, options.words)
        worst = max(abs(a - b) for a, b in zip(losses, alone))
        print(f"one process: {alone[0]:.6f} -> {alone[-1]:.6f}; largest difference of a loss {worst:.2e}")


if __name__ == "__main__":
    main()
