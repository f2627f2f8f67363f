"""Kills processes in the middle of a save: what is left must be a whole checkpoint, the last that was finished or a newer one.

python -m tests.distributed.checkpoint_kills --rounds 200
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import flambeau
import flambeau.distributed.checkpoint as dcp

TENSORS, SIZE = 6, 40_000


def state_of(version: int) -> dict[str, Any]:
    return {"version": version, "tensors": {str(i): flambeau.full((SIZE,), float(version)) for i in range(TENSORS)}}


def _save_forever(folder: str, version: int, pipe: Any) -> None:
    warnings.simplefilter("ignore")
    while True:
        version += 1
        state = state_of(version)
        pipe.send("begins")
        dcp.save(state, checkpoint_id=folder, no_dist=True)
        pipe.send(version)


def whole_version(folder: str) -> int:
    """The version of the checkpoint in a folder; an error unless all of it is of that version."""
    state = state_of(-1)
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    for tensor in state["tensors"].values():
        if not (tensor == float(state["version"])).all():
            raise AssertionError(
                f"a tensor of version {tensor[0].item()} in the checkpoint of version {state['version']}"
            )
    return state["version"]


def run(rounds: int, seed: int = 0) -> dict[str, int]:
    """How many of the kills came while a save was under way, and how many versions were saved in all."""
    chance = random.Random(seed)
    context = multiprocessing.get_context("fork")
    during = version = 0
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state_of(0), checkpoint_id=folder, no_dist=True)
        for _ in range(rounds):
            pipe, other = context.Pipe()
            child = context.Process(target=_save_forever, args=(folder, version, other), daemon=True)
            child.start()
            other.close()
            pipe.recv()  # the first save begins
            time.sleep(chance.random() * 0.25)
            child.kill()
            child.join()
            told: list[Any] = ["begins"]
            try:
                while True:
                    told.append(pipe.recv())
            except EOFError:
                pass
            finished = max((t for t in told if isinstance(t, int)), default=version)
            during += told[-1] == "begins"
            found = whole_version(folder)
            if not finished <= found <= finished + 1:
                raise AssertionError(f"version {found} was found after {finished} was finished")
            version = found
        stray = [file.name for file in Path(folder).iterdir()]
    return {"rounds": rounds, "killed while saving": during, "versions": version, "files at the end": len(stray)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(run(given.rounds, given.seed))
