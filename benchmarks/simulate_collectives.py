"""How long an all_reduce takes on more nodes than there are: rings and trees, message by message, to 1,024 nodes.

    python benchmarks/simulate_collectives.py                      # the tables of docs/distributed.md
    python benchmarks/simulate_collectives.py --measure 2,4,8      # the model beside real rings and trees on this machine

A message of n bytes takes `latency + n * byte` seconds, and adding n bytes to others `n * add` seconds; a node sends and receives one
message at a time, in both directions at once. Latencies vary: each is multiplied by a lognormal number, so that a ring, which waits for
its slowest message in every round, pays for it. Every node has a clock of its own; what it waits for moves it on.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import statistics
import tempfile
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

SIZES = {"8 B": 8, "1 MB": 1 << 20, "100 MB": 100_000_000}
LEAST, CHUNK = 1 << 13, 1 << 19  # bytes of a piece in a pipelined tree: 16 pieces, if these allow


@dataclass
class Network:
    """What messages cost, in seconds."""

    name: str
    latency: float
    byte: float
    add: float
    spread: float = 0.3  # of the latencies: the standard deviation of their logarithm


NETWORKS = [
    Network("100 Gb/s, RDMA", 5e-6, 1 / 11e9, 1 / 10e9),
    Network("10 Gb/s, TCP", 30e-6, 1 / 1.1e9, 1 / 10e9),
]


class Nodes:
    """The clocks of all nodes."""

    def __init__(self, count: int, network: Network, seed: int = 0):
        self.network, self.count = network, count
        self.clock = np.zeros(count)
        self.random = np.random.default_rng(seed)

    def latencies(self, count: int) -> np.ndarray:
        spread = self.network.spread
        return self.network.latency * np.exp(self.random.normal(-spread * spread / 2, spread, count))

    def messages(self, sources: np.ndarray, targets: np.ndarray, nbytes: float, adds: bool) -> None:
        """All at once: each target has its message when its source was ready and it was ready itself."""
        ready = np.maximum(self.clock[sources], self.clock[targets])
        took = self.latencies(len(sources)) + nbytes * (self.network.byte + (self.network.add if adds else 0))
        self.clock[targets] = ready + took


def ring(nodes: Nodes, nbytes: int) -> float:
    """Everybody passes a share on, N-1 times to add and N-1 times to hand the sums around."""
    count = nodes.count
    everybody = np.arange(count)
    for round in range(2 * (count - 1)):
        nodes.messages((everybody - 1) % count, everybody, nbytes / count, round < count - 1)
    return float(nodes.clock.max())


def doubling(nodes: Nodes, nbytes: int) -> float:
    """Neighbours at distance 1, 2, 4, ... exchange all they have: the fewest rounds, the most bytes."""
    everybody = np.arange(nodes.count)
    for bit in range(int(math.log2(nodes.count))):
        nodes.messages(everybody ^ (1 << bit), everybody, nbytes, True)
    return float(nodes.clock.max())


def tree(nodes: Nodes, nbytes: int) -> float:
    """Two binary trees, each for half of the bytes, so that every node is inside one and a leaf of the other: pieces go up, are
    added on the way, and go down again. A node receives every byte twice, and a piece need not wait for the next one."""
    depth, network = int(math.log2(nodes.count)), nodes.network
    pieces = max(1, min(math.ceil(nbytes / LEAST), max(16, math.ceil(nbytes / CHUNK))))
    piece = nbytes / pieces
    up, down = np.zeros(depth), np.zeros(depth)  # when a level has passed its last piece on
    at = 0.0
    for which in range(pieces):
        at = 0.0
        for clocks, cost in ((up, piece * (2 * network.byte + network.add)), (down, piece * 2 * network.byte)):
            for level in range(depth):
                at = clocks[level] = max(at, clocks[level]) + cost
                if which == 0:
                    at += nodes.latencies(
                        2 << level
                    ).max()  # the slowest of a level; later pieces are under way meanwhile
    return float(at) + (2 * depth * network.latency if pieces > 1 else 0.0)


ALGORITHMS = {"ring": ring, "doubling": doubling, "tree": tree}


def predicted(name: str, count: int, nbytes: int, network: Network, tries: int = 3) -> float:
    if count == 1:
        return 0.0
    times = [ALGORITHMS[name](Nodes(count, network, seed), nbytes) for seed in range(tries)]
    return statistics.median(times)


def best(count: int, nbytes: int, network: Network) -> tuple[float, str]:
    return min((predicted(name, count, nbytes, network), name) for name in ALGORITHMS)


def training_step(count: int, network: Network, parameters: float, forward: float, backward: float) -> float:
    """A step whose gradients, in buckets of 25 MB, are reduced one after the other while the backward pass goes on."""
    total, bucket = 4 * parameters, 25 * (1 << 20)
    number = max(1, math.ceil(total / bucket))
    free = 0.0
    cost, _ = best(count, int(total / number), network)
    for which in range(number):
        free = max(free, forward + backward * (which + 1) / number) + cost
    return max(free, forward + backward)


def shown(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def tables() -> None:
    counts = [2, 8, 32, 128, 512, 1024]
    for network in NETWORKS:
        print(
            f"\n| {network.name} | " + " | ".join(f"{c} nodes" for c in counts) + " |\n| --- |" + " --: |" * len(counts)
        )
        for label, nbytes in SIZES.items():
            for name in ALGORITHMS:
                cells = [shown(predicted(name, c, nbytes, network)) for c in counts]
                print(f"| {name}, {label} | " + " | ".join(cells) + " |", flush=True)
        for title, model in {
            "25 M parameters, 120 ms": (25e6, 0.04, 0.08),
            "1 G parameters, 1.5 s": (1e9, 0.5, 1.0),
        }.items():
            steps = [sum(model[1:]) / training_step(c, network, *model) for c in counts]
            print(f"| DDP efficiency, {title} | " + " | ".join(f"{s:.0%}" for s in steps) + " |")


# -- the same for real ------------------------------------------------------------------------------------------------------


def real_ring(lib: Any, x: Any, spare: Any) -> None:
    dist, rank, size = lib.distributed, lib.distributed.get_rank(), lib.distributed.get_world_size()
    parts, spares = list(x.chunk(size)), list(spare.chunk(size))
    for round in range(2 * (size - 1)):
        out, into = (rank - round) % size, (rank - round - 1) % size
        sent = dist.isend(parts[out], (rank + 1) % size)
        if round < size - 1:
            dist.recv(spares[into], (rank - 1) % size)
            parts[into].add_(spares[into])
        else:
            dist.recv(parts[into], (rank - 1) % size)
        sent.wait()


def real_doubling(lib: Any, x: Any, spare: Any) -> None:
    dist, rank, size = lib.distributed, lib.distributed.get_rank(), lib.distributed.get_world_size()
    for bit in range(int(math.log2(size))):
        sent = dist.isend(x, rank ^ (1 << bit))
        dist.recv(spare, rank ^ (1 << bit))
        sent.wait()
        x.add_(spare)


def exchanges(lib: Any, x: Any, spare: Any, count: int) -> float:
    """Seconds of a message to the neighbour and one back at the same time, many in a row: what rounds are made of."""
    dist, rank = lib.distributed, lib.distributed.get_rank()
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(count):
        sent = dist.isend(x, rank ^ 1)
        dist.recv(spare, rank ^ 1)
        sent.wait()
    return (time.perf_counter() - begin) / count


def additions(lib: Any, x: Any, spare: Any, count: int) -> float:
    lib.distributed.barrier()
    begin = time.perf_counter()
    for _ in range(count):
        x.add_(spare)
    return (time.perf_counter() - begin) / count


def median(lib: Any, function: Any, x: Any, spare: Any, times: int) -> float:
    samples = []
    for _ in range(times + 1):
        x.fill_(1.0)
        lib.distributed.barrier()
        begin = time.perf_counter()
        function(lib, x, spare)
        took = lib.tensor([time.perf_counter() - begin], dtype=lib.float64)
        lib.distributed.all_reduce(took, lib.distributed.ReduceOp.MAX)
        samples.append(took.item())
    return statistics.median(samples[1:])


def measure(rank: int, size: int, path: str, results: Any) -> None:
    import flambeau as lib
    import flambeau.distributed

    lib.set_num_threads(1)
    lib.distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)
    found: dict[str, float] = {}
    for label, nbytes in SIZES.items():
        count = max(size, nbytes // 4 // size * size)
        x, spare = lib.ones(count), lib.zeros(count)
        times = 4 if nbytes > 1e7 else 30
        for name, function in {"ring": real_ring, "doubling": real_doubling}.items():
            found[f"{name}, {label}"] = median(lib, function, x, spare, times)
            part = nbytes / size if name == "ring" else nbytes  # bytes of one of its messages
            one, other = lib.ones(max(1, int(part // 4))), lib.zeros(max(1, int(part // 4)))
            repeat = max(2, min(60, int(1e8 / part)))
            found[f"{name} message, {label}"] = exchanges(lib, one, other, repeat)
            found[f"{name} addition, {label}"] = additions(lib, one, other, repeat)
    if rank == 0:
        results.put(found)
    lib.distributed.destroy_process_group()


def compare(counts: list[int]) -> None:
    """What one round costs is measured with messages of its size, between pairs of all ranks; whole rings and trees are predicted
    from that, and measured."""
    context = multiprocessing.get_context("spawn")
    print("| ranks | all_reduce | measured | predicted | predicted / measured |\n| --: | --- | --: | --: | --: |")
    for size in counts:
        results = context.Queue()
        with tempfile.TemporaryDirectory() as folder:
            ranks = [context.Process(target=measure, args=(r, size, f"{folder}/store", results)) for r in range(size)]
            for process in ranks:
                process.start()
            found = results.get(timeout=120)
            for process in ranks:
                process.join()
        for label, nbytes in SIZES.items():
            for name in ("ring", "doubling"):
                part = nbytes / size if name == "ring" else nbytes
                message, addition = found[f"{name} message, {label}"], found[f"{name} addition, {label}"]
                network = Network("this machine", message, 0.0, addition / part)
                real, model = found[f"{name}, {label}"], predicted(name, size, nbytes, network)
                print(f"| {size} | {name}, {label} | {shown(real)} | {shown(model)} | {model / real:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--measure", default="", help="numbers of ranks, powers of two, for the comparison with real ones"
    )
    options = parser.parse_args()
    if options.measure:
        compare([int(part) for part in options.measure.split(",")])
    else:
        tables()


if __name__ == "__main__":
    main()
