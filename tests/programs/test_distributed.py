"""The distributed programs of pytorch/examples with two processes: every loss on every rank is PyTorch's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import flambeau
from tests.programs.harness import HERE, ROOT, largest_difference, needs, sources

GPT = """data_config.path=data/input.txt data_config.truncate=0.0006 data_config.block_size=32 gpt_config.n_layer=2
gpt_config.n_head=2 gpt_config.n_embd=32 trainer_config.max_epochs=1 trainer_config.batch_size=16 trainer_config.use_amp=False
trainer_config.data_loader_workers=0 trainer_config.save_every=1 trainer_config.snapshot_path=snapshot.pt"""


def images(folder: Path) -> None:
    """A data set of three classes, as ImageFolder wants it."""
    from PIL import Image

    random = numpy.random.default_rng(0)
    for part in ("train", "val"):
        for kind in range(3):
            place = folder / "data" / part / f"kind{kind}"
            place.mkdir(parents=True)
            for number in range(8):
                pixels = random.integers(60 * kind, 256, (48, 64, 3), dtype=numpy.uint8)
                Image.fromarray(pixels).save(place / f"{number}.png")


def losses(library: str, source: Path, copy: Path, launch: str, arguments: list[str]) -> dict[str, list[float]]:
    """Every rank's losses in a copy of the program's directory."""
    shutil.copytree(source, copy)
    if source.name == "imagenet":
        images(copy)
    path = [str(HERE / "without_gpu"), os.path.join(os.environ.get("FLAMBEAU_PROGRAMS", ""), "site")]
    environment = {**os.environ, "LOSSES": str(copy), "LIBRARY": library, "OMP_NUM_THREADS": "1", "THIS_IS": launch}
    environment["PYTHONPATH"] = os.pathsep.join([*path, *([] if library == "torch" else [ROOT])])
    environment["GLOO_SOCKET_IFNAME"] = "lo"
    if launch == "torchrun":
        command = ["-m", f"{library}.distributed.run", "--standalone", "--nproc-per-node", "2"]
    else:
        command = [] if library == "torch" else ["-m", "flambeau"]
    command = [sys.executable, "-W", "ignore", *command, *arguments]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, f"{library}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return {file.name: [float(line) for line in file.read_text().split()] for file in sorted(copy.glob("losses.*"))}


@pytest.mark.parametrize(
    ("folder", "launch", "arguments", "steps", "saved"),
    [
        ("distributed/ddp", "torchrun", "example.py", 1, None),
        ("distributed/ddp-tutorial-series", "torchrun", "multigpu_torchrun.py 2 1", 64, "snapshot.pt"),
        ("distributed/ddp-tutorial-series", "torchrun", "multinode.py 2 1", 64, "snapshot.pt"),
        ("distributed/ddp-tutorial-series", "spawn", "multigpu.py 2 1", 64, "checkpoint.pt"),
        ("distributed/minGPT-ddp/mingpt", "torchrun", f"main.py {GPT}", 18, "snapshot.pt"),
        (
            "imagenet",
            "spawn",
            "main.py data -a resnet18 -b 8 -j 0 --epochs 1 --lr 0.001 --dist-url tcp://127.0.0.1:{port} --world-size 1 --rank 0"
            " --multiprocessing-distributed",
            3,
            "checkpoint.pth.tar",
        ),
    ],
    ids=["ddp", "multigpu_torchrun", "multinode", "multigpu", "minGPT-ddp", "imagenet"],
)
def test_losses(folder, launch, arguments, steps, saved, tmp_path):
    pytest.importorskip("torch")
    source = sources("examples") / folder
    needs("torchvision") if folder == "imagenet" else needs("hydra", "boto3") if "mingpt" in folder else None
    found, models = {}, {}
    for library in ("torch", "flambeau"):
        command = arguments.format(port=free_port()).split()
        found[library] = losses(library, source, tmp_path / library, launch, command)
        models[library] = flambeau.load(tmp_path / library / saved, weights_only=False) if saved else {}
    for name in ("losses.0", "losses.1"):
        theirs, ours = found["torch"][name], found["flambeau"][name]
        assert len(ours) == len(theirs) == steps, (len(ours), len(theirs))
        worst = largest_difference(ours, theirs)
        print(f"{name}: {steps} losses from {ours[0]:.6f} to {ours[-1]:.6f}, largest relative difference {worst:.1e}")
        assert worst < 1e-4
    theirs, ours = weights(models["torch"]), weights(models["flambeau"])
    assert list(theirs) == list(ours)
    for name, weight in theirs.items():
        assert flambeau.allclose(ours[name].float(), weight.float(), rtol=1e-3, atol=1e-4), name


def weights(saved: dict) -> dict:
    for name in ("MODEL_STATE", "model_state", "state_dict"):
        saved = saved.get(name, saved)
    return saved


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]
