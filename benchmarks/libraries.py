"""Training steps and generated tokens of other people's models beside PyTorch: `python benchmarks/libraries.py [--only REGEX]
[--rounds N] [--tiny | --real]`. Needs transformers (and timm, diffusers) and PyTorch.

Two processes, one with PyTorch and one with Flambeau in its place, take turns, so that what else the machine does hits both. A figure
is PyTorch's time over Flambeau's; times are CPU seconds of the process, the least of the rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CASES = HERE.parent / "tests" / "libraries"
SHIM = HERE.parent / "tests" / "programs" / "shim"

TINY = ["bert", "distilbert", "deberta_v2", "gpt2", "llama", "mixtral", "mamba", "t5", "bart", "vit", "swin", "convnext", "whisper",
        "wav2vec2", "clip", "opt", "bloom", "falcon", "gemma2"]  # fmt: skip

# Real widths, few layers, so that a step takes less than a second: settings that replace those of the tiny ones, batch, length.
_WIDE = {
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "num_hidden_layers": 2,
    "vocab_size": 8000,
}
_LLAMA = {**_WIDE, "num_key_value_heads": 4, "intermediate_size": 2048, "max_position_embeddings": 512}
_SEQ = {"d_model": 512, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 8, "decoder_attention_heads": 8,
        "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "vocab_size": 8000, "max_position_embeddings": 512}  # fmt: skip
_IMAGE = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "num_hidden_layers": 2, "image_size": 224,
          "patch_size": 16}  # fmt: skip
REAL: dict[str, tuple[dict[str, Any], int, int]] = {
    "bert": (_WIDE, 2, 128),
    "distilbert": ({"dim": 768, "n_layers": 2, "n_heads": 12, "hidden_dim": 3072, "vocab_size": 8000}, 2, 128),
    "gpt2": ({"n_embd": 768, "n_layer": 2, "n_head": 12, "n_positions": 512, "vocab_size": 8000}, 2, 128),
    "llama": (_LLAMA, 2, 128),
    "mixtral": ({**_LLAMA, "intermediate_size": 1024, "num_local_experts": 8}, 2, 64),
    "mamba": ({"hidden_size": 512, "num_hidden_layers": 2, "state_size": 16, "vocab_size": 8000}, 2, 64),
    "t5": ({"d_model": 512, "d_ff": 2048, "d_kv": 64, "num_layers": 2, "num_heads": 8, "vocab_size": 8000}, 2, 64),
    "bart": (_SEQ, 2, 64),
    "vit": (_IMAGE, 2, 0),
    "swin": ({"image_size": 224, "patch_size": 4, "embed_dim": 96, "depths": [2, 2], "num_heads": [3, 6], "window_size": 7}, 2, 0),
    "convnext": ({"hidden_sizes": [96, 192, 384, 768], "depths": [1, 1, 2, 1], "num_stages": 4}, 2, 0),
    "resnet": ({"embedding_size": 64, "hidden_sizes": [256, 512, 1024], "depths": [1, 1, 1], "layer_type": "bottleneck"}, 2, 0),
    "whisper": ({**_SEQ, "num_mel_bins": 80, "max_source_positions": 300, "max_target_positions": 128}, 2, 64),
}  # fmt: skip


# -- in the child processes ----------------------------------------------------------------------------------------------------


def _inputs(kind: str, rows: int, length: int, vocabulary: int) -> dict[str, Any]:
    import numpy as np
    import torch

    r = np.random.default_rng(0)
    if kind == "image":
        pixels = torch.tensor(r.standard_normal((rows, 3, 224, 224)).astype("float32"))
        return {"pixel_values": pixels, "labels": torch.tensor(r.integers(0, 2, rows))}
    ids = torch.tensor(r.integers(3, vocabulary, (rows, length)))
    if kind == "speech":
        return {"input_features": torch.tensor(r.standard_normal((rows, 80, 600)).astype("float32")), "labels": ids}
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


def _step(models: Any, model: Any, inputs: dict[str, Any]) -> Callable[[], None]:
    import torch

    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-4)

    def step() -> None:
        loss = models.loss_of(model(**inputs))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _made(case: str) -> Callable[[], Any]:
    """What is timed: `tiny step bert`, `tiny generate gpt2`, `real step vit`, ..."""
    import transformers_models as models

    size, what, family = case.split()
    config_name, settings, model_name, kind = models.FAMILIES[family]
    if size == "real":
        changes, rows, length = REAL[family]
        models.FAMILIES[family] = (config_name, {**settings, **changes}, model_name, kind)
    model = models.made(family)
    models.FAMILIES[family] = (config_name, settings, model_name, kind)
    inputs = models.batch(kind) if size == "tiny" else _inputs(kind, rows, length, 8000)
    if what == "step":
        return _step(models, model, inputs)
    prompt = models.prompt_of(inputs, kind)
    model.eval()
    return lambda: model.generate(**prompt, max_new_tokens=8, do_sample=False)


def _serve() -> None:
    """Answers each line `case runs` with the CPU seconds and the seconds of one run."""
    sys.path.insert(0, str(CASES))
    made: dict[str, Callable[[], Any]] = {}
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:
        case, runs = json.loads(line)
        if case not in made:
            made.clear()
            made[case] = _made(case)
            for _ in range(3):
                made[case]()
        cpu, start = time.process_time(), time.perf_counter()
        for _ in range(runs):
            made[case]()
        result = [(time.process_time() - cpu) / runs, (time.perf_counter() - start) / runs]
        print(json.dumps(result), file=answers, flush=True)


# -- in the parent ---------------------------------------------------------------------------------------------------------------


class Side:
    """A process that runs cases."""

    def __init__(self, flambeau: bool, threads: int):
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent if flambeau else SHIM), "OMP_NUM_THREADS": str(threads),
                       "HF_HUB_OFFLINE": "1"}  # fmt: skip
        command = [sys.executable, *(("-m", "flambeau") if flambeau else ()), __file__, "--serve"]
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, case: str, runs: int) -> list[float]:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps([case, runs]), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{case}: the process has ended with {self.process.wait()}")
        return json.loads(answer)


def _ratio(sides: list[Side], case: str, rounds: int) -> tuple[float, float]:
    """PyTorch's least CPU time, and its ratio to Flambeau's."""
    first = [side.ask(case, 1)[0] for side in sides]
    runs = max(1, int(0.3 / max(*first, 1e-4)))
    least = [math.inf, math.inf]
    for _ in range(rounds):
        for i, side in enumerate(sides):
            least[i] = min(least[i], side.ask(case, runs)[0])
    return least[0], least[0] / least[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name matches this regular expression")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--real", action="store_true")
    options = parser.parse_args()
    cases: list[str] = []
    if not options.real:
        cases += [f"tiny step {family}" for family in TINY]
        cases += [f"tiny generate {family}" for family in ("gpt2", "llama", "mixtral", "t5")]
    if not options.tiny:
        cases += [f"real step {family}" for family in REAL]
        cases += [f"real generate {family}" for family in ("gpt2", "llama")]
    sides = [Side(False, options.threads), Side(True, options.threads)]
    found: dict[str, list[float]] = {}
    print("| case | PyTorch, CPU ms | PyTorch's time over Flambeau's |\n| --- | ---: | ---: |")
    for case in cases:
        if re.search(options.only, case):
            seconds, ratio = _ratio(sides, case, options.rounds)
            found.setdefault(case.split()[0], []).append(ratio)
            print(f"| {case} | {1000 * seconds:.2f} | {ratio:.2f} |", flush=True)
    for size, ratios in found.items():
        print(
            f"| **{size}: geometric mean of {len(ratios)}** | | **{math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}** |"
        )
    for side in sides:
        side.process.stdin.close()  # type: ignore[union-attr]
        side.process.wait()


if __name__ == "__main__":
    _serve() if "--serve" in sys.argv else main()
