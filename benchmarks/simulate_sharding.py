"""What a step of sharded training takes and needs on more GPUs than there are: communication and memory, to 1,024 of them.

    python benchmarks/simulate_sharding.py              # the tables of docs/internals/sharding.md
    python benchmarks/simulate_sharding.py --write      # into docs/internals/sharding.md
    python benchmarks/simulate_sharding.py --measure 2,4      # the same model beside real steps on this machine

A GPU gathers each layer's parameters before the forward and before the backward pass of the layer, and reduces the layer's gradients
behind it; gathers run one layer ahead, and everything that travels does so one after the other, beside the computation. A gather of n
bytes over N GPUs in rings takes (N - 1) latencies and n (N - 1) / N times the time of a byte on the slowest link of the ring: that of
the node as long as all are in one, else that between nodes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))


@dataclass(frozen=True)
class Cluster:
    """What GPUs and the links between them can do; seconds and bytes."""

    flops: float = 400e12  # of a GPU in bfloat16, of what it could
    node: int = 8
    inside: float = 1 / 350e9  # of a byte, within a node
    between: float = 1 / 45e9  # of a byte between nodes, for each GPU
    latency_inside: float = 3e-6
    latency_between: float = 8e-6

    def ring(self, count: int, nbytes: float) -> float:
        """all_gather or reduce_scatter, of which everybody ends or begins with n bytes."""
        if count == 1:
            return 0.0
        within = count <= self.node
        latency, byte = (self.latency_inside, self.inside) if within else (self.latency_between, self.between)
        steps = count - 1 if within else count // self.node - 1 + self.node - 1
        return steps * latency + nbytes * (count - 1) / count * byte

    def across(self, count: int, nbytes: float) -> float:
        """all_reduce over `count` groups, of what one GPU of each has."""
        return (
            0.0
            if count == 1
            else 2 * ((count - 1) * self.latency_between + nbytes * (count - 1) / count * self.between)
        )


@dataclass(frozen=True)
class Model:
    """A transformer, and how much of the batch a GPU has."""

    name: str
    layers: int
    layer: float  # parameters
    rest: float  # of embedding and output
    tokens: int  # for each GPU and step
    width: int
    checkpoints: bool = True  # layers keep their inputs only, and run again for the backward pass

    @property
    def parameters(self) -> float:
        return self.layers * self.layer + self.rest


MODELS = [
    Model("8 G parameters", 32, 218e6, 1.05e9, 8192, 4096),
    Model("70 G parameters", 80, 856e6, 2.1e9, 4096, 8192),
]


def step_seconds(
    model: Model, cluster: Cluster, count: int, shard: int, gather_bytes: int = 2, reduce_bytes: int = 4
) -> tuple[float, float]:
    """(a step, its computation): two clocks, of what computes and of what travels."""
    copies = count // shard
    forward = 2 * model.layer * model.tokens / cluster.flops
    backward = (3 if model.checkpoints else 2) * forward
    head = 6 * model.rest / 2 * model.tokens / cluster.flops
    gather = cluster.ring(shard, gather_bytes * model.layer)
    reduction = cluster.ring(shard, reduce_bytes * model.layer) + cluster.across(
        copies, reduce_bytes * model.layer / shard
    )
    travels = computes = cluster.ring(shard, gather_bytes * model.rest)
    arrived = travels = travels + gather
    for i in range(model.layers):  # forward: the next layer's parameters travel while this one computes
        begin = max(computes, arrived)
        if i + 1 < model.layers:
            travels = max(travels, begin) + gather
            arrived = travels
        computes = begin + forward
    computes += head
    arrived = travels = max(travels, computes - head) + gather
    for i in range(model.layers):
        begin = max(computes, arrived)
        if i + 1 < model.layers:
            travels = max(travels, begin) + gather
            arrived = travels
        computes = begin + backward
        travels = max(travels, computes) + reduction
    end = (
        max(computes, travels)
        + cluster.ring(shard, reduce_bytes * model.rest)
        + cluster.across(copies, reduce_bytes * model.rest / shard)
    )
    return end, model.layers * (forward + backward) + head


def memory_of(
    layers: list[float], rest: float, ranks: int, activations: float = 0.0, whole_bytes: int = 4, logits: float = 0.0
) -> dict[str, float]:
    """Bytes on a rank: parameters, gradients and Adam's two moments in float32, cut over the ranks; whole, for a while: the outermost
    module's parameters, those of two layers, gradients of two layers and of the outermost module. Either the end of the forward pass
    is the fullest moment, with last step's gradients and all activations, or the backward pass, in which gradients come and
    activations go."""
    parameters = sum(layers) + rest
    states, most = 16.0 * parameters / ranks, max(layers)
    forward_end = states + whole_bytes * rest + activations + logits
    # gradients of activations take the place of the activations that they are computed from
    backward_begin = (
        12.0 * parameters / ranks + whole_bytes * (rest + 2 * most) + activations + 2 * logits + 4 * rest / 2
    )
    backward_end = states + whole_bytes * (rest + 2 * most) + 4 * (rest + 2 * most)
    return {"total": max(forward_end, backward_begin, backward_end), "states": states}


def gigabytes(model: Model, shard: int) -> float:
    """Of a GPU: parameters gathered in bfloat16, layers checkpointed."""
    kept = model.layers * model.tokens * model.width * 2 + 34 * model.tokens * model.width * 2
    return memory_of([model.layer] * model.layers, model.rest, shard, kept, 2)["total"] / 1e9


def tables() -> str:
    cluster, lines = Cluster(), []
    counts = (8, 32, 128, 512, 1024)
    for model in MODELS:
        lines += ["", f"| {model.name} | " + " | ".join(f"{n} GPUs" for n in counts) + " |"]
        lines.append("| --- |" + " --: |" * len(counts))
        for title, group in (("cut over all", 0), ("cut over 8, repeated", 8), ("cut over 64, repeated", 64)):
            cells, needs = [], []
            for n in counts:
                shard = min(group or n, n)
                step, computing = step_seconds(model, cluster, n, shard)
                cells.append(f"{computing / step:.0%}")
                needs.append(f"{gigabytes(model, shard):.0f} GB")
            lines.append(f"| {title}: time spent computing | " + " | ".join(cells) + " |")
            lines.append(f"| {title}: memory of a GPU | " + " | ".join(needs) + " |")
    return "\n".join(lines).strip()


def median(lib: Any, call: Any, times: int = 9) -> float:
    """Seconds of a call that all ranks make together: the slowest rank's, in the middle of several."""
    found = []
    for _ in range(times + 1):
        lib.distributed.barrier()
        begin = time.perf_counter()
        call()
        took = lib.tensor([time.perf_counter() - begin], dtype=lib.float64)
        lib.distributed.all_reduce(took, lib.distributed.ReduceOp.MAX)
        found.append(took.item())
    return statistics.median(found[1:])


def rank_main(rank: int, size: int, path: str, results: Any) -> None:
    """What the model needs to know, and what it should predict."""
    import sharding

    import flambeau as lib

    lib.set_num_threads(1)
    lib.distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)
    plain = sharding.llama(lib, sharding.WORDS, sharding.WIDTH, sharding.LAYERS, heads=8)
    tokens = lib.randint(0, sharding.WORDS, (sharding.BATCH, sharding.LENGTH + 1))

    def passes() -> None:
        logits = plain(tokens[:, :-1])
        loss = lib.nn.functional.cross_entropy(logits.reshape(-1, sharding.WORDS), tokens[:, 1:].reshape(-1))
        plain.zero_grad()
        loss.backward()

    group = lib.distributed.distributed_c10d._get_default_group()
    layer = sum(p.numel() for p in plain.layers[0].parameters())
    small, large = lib.zeros(2), lib.zeros(layer // size)
    into_small, into_large = lib.zeros(2 * size), lib.zeros(layer // size * size)
    found = {
        "layer": layer,
        "rest": sum(p.numel() for p in plain.parameters()) - layer * sharding.LAYERS,
        "compute": median(lib, passes),
        "latency": median(lib, lambda: group.all_gather_parts([into_small], [small], _wait=True)) / (size - 1),
    }
    whole = median(lib, lambda: group.all_gather_parts([into_large], [large], _wait=True))
    found["byte"] = max(0.0, whole - found["latency"] * (size - 1)) / (4 * layer * (size - 1) / size)
    optimizer = lib.optim.AdamW(plain.parameters(), lr=1e-3)
    passes()
    found["optimizer"] = median(lib, optimizer.step)
    found["step"] = median(lib, sharding.training_step(lib, "FSDP2", size))
    if rank == 0:
        results.put(found)
    lib.distributed.barrier()
    lib.distributed.destroy_process_group()


def measure(counts: list[int]) -> str:
    """The model beside real steps on this machine: its numbers come from passes without communication and from single gathers."""
    import sharding

    lines = ["| ranks | measured step | predicted | of that computing |", "| --: | --: | --: | --: |"]
    for count in counts:
        context = multiprocessing.get_context("spawn")
        results, path = context.Queue(), tempfile.mktemp()
        ranks = [context.Process(target=rank_main, args=(r, count, path, results)) for r in range(count)]
        for process in ranks:
            process.start()
        found = results.get(timeout=600)
        for process in ranks:
            process.join()
        model = Model("", sharding.LAYERS, found["layer"], found["rest"], 1, sharding.WIDTH, checkpoints=False)
        flops = 6 * (sharding.LAYERS * found["layer"] + found["rest"] / 2) / found["compute"]
        cluster = Cluster(flops, 1 << 20, found["byte"], found["byte"], found["latency"], found["latency"])
        step, computing = step_seconds(model, cluster, count, count, 4, 4)
        step += found["optimizer"] / count
        lines.append(f"| {count} | {found['step'] * 1e3:.0f} ms | {step * 1e3:.0f} ms | {computing * 1e3:.0f} ms |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", metavar="2,4", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    text = measure(options.measure) if options.measure else tables()
    if not options.measure:
        print(text)
    if options.write:
        from sharding import write

        write("measured" if options.measure else "scaling", text)


if __name__ == "__main__":
    main()
