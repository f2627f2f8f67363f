"""Steps of sharded training beside PyTorch's gloo, in the same processes and in turns; and what memory a rank needs.

    python benchmarks/sharding.py                      # 2 and 4 ranks; needs torch==2.13.0 beside flambeau
    python benchmarks/sharding.py --ranks 2 --only FSDP2 --seconds 10
    python benchmarks/sharding.py --memory             # peak memory of each rank beside the arithmetic
    python benchmarks/sharding.py --write              # the tables into docs/internals/sharding.md

The ratio is PyTorch's time over Flambeau's: larger is better for Flambeau.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import re
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "examples" / "distributed")]
from distributed import agreed, fixed_turns  # noqa: E402
from llama import llama  # noqa: E402
from simulate_sharding import memory_of  # noqa: E402

WORDS, WIDTH, LAYERS, BATCH, LENGTH = 2048, 256, 4, 4, 64


def training_step(lib: Any, name: str, size: int) -> Callable[[], Any]:
    """A step of the Llama; every rank has a batch of its own."""
    fsdp = importlib.import_module(f"{lib.__name__}.distributed.fsdp")
    mesh = importlib.import_module(f"{lib.__name__}.distributed.device_mesh").init_device_mesh("cpu", (size,))
    lib.manual_seed(0)
    model = llama(lib, WORDS, WIDTH, LAYERS, heads=8)
    if name.startswith("FSDP2"):
        policy = fsdp.MixedPrecisionPolicy()
        if "bfloat16" in name:
            policy = fsdp.MixedPrecisionPolicy(
                param_dtype=lib.bfloat16, reduce_dtype=lib.float32, output_dtype=lib.float32
            )
        keep = "kept" in name
        for layer in model.layers:
            fsdp.fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=not keep)
        fsdp.fully_shard(model, mesh=mesh, mp_policy=policy)
    elif name == "FSDP1":
        wrap = importlib.import_module(f"{lib.__name__}.distributed.fsdp.wrap")
        policy = wrap.ModuleWrapPolicy({type(model.layers[0])})
        model = fsdp.FullyShardedDataParallel(
            model, auto_wrap_policy=policy, use_orig_params=True, device_id=lib.device("cpu")
        )
    else:
        model = lib.nn.parallel.DistributedDataParallel(model)
    optimizer = lib.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = lib.randint(0, WORDS, (BATCH, LENGTH + 1))

    def step() -> None:
        logits = model(tokens[:, :-1])
        loss = lib.nn.functional.cross_entropy(logits.reshape(-1, WORDS), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


CASES = ("FSDP2", "FSDP2, parameters kept", "FSDP1", "DDP")


def rank_main(rank: int, size: int, folder: str, options: argparse.Namespace, results: Any) -> None:
    import flambeau

    libs = [flambeau]
    if not options.memory:
        import torch
        import torch.distributed

        libs = [torch, flambeau]
    for lib in libs:
        lib.set_num_threads(1)
        path = f"file://{folder}/{lib.__name__}"
        lib.distributed.init_process_group("gloo", init_method=path, rank=rank, world_size=size)
    if options.memory:
        results.put((rank, peak_memory(flambeau, size)))
    else:
        for name in CASES:
            if options.only in name:
                times = fixed_turns(libs, [training_step(lib, name, size) for lib in libs], options.seconds)
                slowest = [agreed(libs[-1], t) for t in times]
                if rank == 0:
                    results.put((name, slowest))
    flambeau.distributed.barrier()
    if rank == 0:
        results.put(None)
    for lib in libs:
        lib.distributed.destroy_process_group()


def peak_memory(lib: Any, size: int) -> tuple[int, float, float]:
    """The most bytes in tensors during three steps; what the arithmetic says; and how much of that is cut over the ranks."""
    from flambeau.profiler.memory import MemoryProfile

    with lib.profiler.profile(profile_memory=True) as profile:
        step = training_step(lib, "FSDP2", size)
        for _ in range(3):
            step()
    _, sizes = MemoryProfile(profile.profiler.kineto_results).sizes("cpu")
    begun = sum(1 for row in sizes if not row)  # the model is whole before it is cut: that moment does not count
    most = max(sum(row) for row in sizes[len(sizes) // 2 + begun :])
    model = llama(lib, WORDS, WIDTH, LAYERS, heads=8)
    layers = [float(sum(p.numel() for p in layer.parameters())) for layer in model.layers]
    rest = sum(p.numel() for p in model.parameters()) - sum(layers)
    expected = memory_of(layers, rest, size, activation_bytes(lib, model), logits=4.0 * BATCH * LENGTH * WORDS)
    return most, expected["total"], expected["states"]


def activation_bytes(lib: Any, model: Any) -> float:
    """What the forward pass of one process saves for its backward pass, besides parameters."""
    known = {p.untyped_storage().data_ptr() for p in model.parameters()}
    found: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    tokens = lib.randint(0, WORDS, (BATCH, LENGTH + 1))
    with lib.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logits = model(tokens[:, :-1])
        loss = lib.nn.functional.cross_entropy(logits.reshape(-1, WORDS), tokens[:, 1:].reshape(-1))
    total = float(sum(found.values()))
    del loss
    return total


def measured(size: int, options: argparse.Namespace) -> list[Any]:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=rank_main, args=(r, size, folder, options, results)) for r in range(size)]
        for process in ranks:
            process.start()
        found, waiting = [], size if options.memory else 0
        while True:
            item = results.get(timeout=600)
            if item is None:
                break
            found.append(item)
        while options.memory and len(found) < waiting:
            found.append(results.get(timeout=60))
        for process in ranks:
            process.join()
    return found


def table_of_times(options: argparse.Namespace) -> str:
    lines = ["| step of the Llama | ranks | Flambeau | PyTorch | ratio |", "| --- | --: | --: | --: | --: |"]
    for size in options.ranks:
        for name, (theirs, ours) in measured(size, options):
            line = f"| {name} | {size} | {ours * 1e3:.1f} ms | {theirs * 1e3:.1f} ms | {theirs / ours:.2f} |"
            print(line, flush=True)
            lines.append(line)
    return "\n".join(lines)


def table_of_memory(options: argparse.Namespace) -> str:
    lines = [
        "| ranks | most in use on a rank | arithmetic | of that parameters, gradients and state |",
        "| --: | --: | --: | --: |",
    ]
    for size in options.ranks:
        rows = [row for item in measured(size, options) for row in [item[1]]]
        most, expected, states = (statistics.median(column) / 1e6 for column in zip(*rows))
        lines.append(f"| {size} | {most:.1f} MB | {expected:.1f} MB ({most / expected:.2f}) | {states:.1f} MB |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def write(name: str, text: str) -> None:
    """Put a table between its marks in docs/internals/sharding.md."""
    path = ROOT / "docs" / "internals" / "sharding.md"
    page = path.read_text()
    pattern = re.compile(rf"(<!-- {name} -->\n)(?:(?!<!-- ).*\n)*(<!-- end -->)")
    if not pattern.search(page):
        sys.exit(f"docs/internals/sharding.md has no place for {name}")
    path.write_text(pattern.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=lambda text: [int(n) for n in text.split(",")], default=[2, 4])
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    name, text = ("memory", table_of_memory(options)) if options.memory else ("times", table_of_times(options))
    if options.write:
        write(name, text)


if __name__ == "__main__":
    main()
