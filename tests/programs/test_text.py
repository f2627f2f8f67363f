"""Language models: word_language_model and language_translation of pytorch/examples, nanoGPT, minGPT."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from . import data
from .harness import both, needs, run, sources

pytest.importorskip("torch", reason="compares with the real PyTorch")


@pytest.mark.parametrize("model", ["RNN_TANH", "RNN_RELU", "LSTM", "GRU", "Transformer"])
def test_word_language_model(tmp_path, model):
    rate = "0.5" if model == "RNN_RELU" else "5"
    options = f"--data corpus --emsize 32 --nhid 32 --epochs 3 --bptt 12 --log-interval 1 --lr {rate}"
    tied = "--tied" if model == "LSTM" else ""
    done = both("examples/word_language_model", tmp_path, f"main.py --model {model} {options} {tied}", data.words)
    done.check(1e-5, steps=len(done.theirs.losses))
    assert len(done.ours.losses) >= 10
    # The checkpoint that PyTorch wrote is read by both, and both write the same text with it.
    trained = done.theirs.directory / "model.pt"
    shutil.copy(trained, done.ours.directory / "model.pt")
    texts = []
    for library, place in (("torch", done.theirs.directory), ("flambeau", done.ours.directory)):
        run(library, place, ["generate.py", "--data", "corpus", "--words", "60"])
        texts.append((place / "generated.txt").read_text())
    assert texts[0] == texts[1] and len(texts[0].split()) == 60


TRANSLATION = """
import torch
from src.model import Translator

def main(steps=6, length=7, batch=4, vocabulary=31):
    model = Translator(2, 2, 32, 4, vocabulary, vocabulary, 64, 0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    loss_function = torch.nn.CrossEntropyLoss(ignore_index=1)
    for step in range(steps):
        source = torch.randint(0, vocabulary, (length, batch))
        target = torch.cat([source[:1], source.flip(0)])
        entered, expected = target[:-1], target[1:]
        later = torch.triu(torch.ones(length, length), diagonal=1).bool()
        mask = torch.zeros(length, length).type(torch.bool)
        padding = (source == 1).transpose(0, 1)
        logits = model(source, entered, mask, later, padding, (entered == 1).transpose(0, 1), padding)
        optimizer.zero_grad()
        loss = loss_function(logits.reshape(-1, vocabulary), expected.reshape(-1))
        loss.backward()
        optimizer.step()
        print("loss", loss.item())

main()
"""


def test_model_of_language_translation(tmp_path):
    """Its main program downloads its data through torchtext; the model is trained by a loop of our own."""

    def prepare(place: Path) -> None:
        (place / "reverse.py").write_text(TRANSLATION)

    both("examples/language_translation", tmp_path, ["reverse.py"], prepare).check(1e-5, steps=6)


SMALL = (
    "--device=cpu --eval_interval=10 --eval_iters=2 --log_interval=1 --block_size=32 --batch_size=4 --n_layer=2 --n_head=2 --n_embd=32"
    " --max_iters=20 --lr_decay_iters=20 --warmup_iters=2 --dropout=0.1 --gradient_accumulation_steps=2"
)


def test_nanogpt(tmp_path):
    needs("tiktoken")
    options = f"train.py config/train_shakespeare_char.py --compile=False {SMALL}"
    done = both("nanoGPT", tmp_path, options, data.characters)
    done.check(1e-5, steps=42)
    resumed = both("nanoGPT", tmp_path, f"{options} --init_from=resume --max_iters=25")
    resumed.check(1e-5, steps=12)
    shutil.copy(
        done.theirs.directory / "out-shakespeare-char/ckpt.pt", done.ours.directory / "out-shakespeare-char/ckpt.pt"
    )
    sampling = "sample.py --out_dir=out-shakespeare-char --device=cpu --num_samples=2 --max_new_tokens=60"
    sampled = both("nanoGPT", tmp_path, sampling)
    assert sampled.ours.output == sampled.theirs.output


def test_nanogpt_with_compile(tmp_path):
    """torch.compile is asked for; the losses are those of the plain run."""
    needs("tiktoken")
    options = f"train.py config/train_shakespeare_char.py {SMALL} --max_iters=3"
    place = tmp_path / "nanoGPT"
    shutil.copytree(sources("nanoGPT"), place, ignore=shutil.ignore_patterns("*.ipynb", "assets"))
    data.characters(place)
    plain = run("flambeau", place, f"{options} --compile=False")
    compiled = run("flambeau", place, f"{options} --compile=True")
    assert compiled.losses == plain.losses and len(plain.losses) == 8


def _project(name: str):
    def prepare(place: Path) -> None:
        shutil.copy(place / "projects" / name / f"{name}.py", place)  # beside the package it imports
        (place / "input.txt").write_text(data.prose() + "O God, O God!")

    return prepare


def test_mingpt_adder(tmp_path):
    options = [
        "adder.py",
        "--trainer.max_iters=21",
        "--trainer.num_workers=0",
        "--trainer.batch_size=8",
        "--data.ndigit=1",
    ]
    both("minGPT", tmp_path, options, _project("adder")).check(1e-5, steps=21)


def test_mingpt_chargpt(tmp_path):
    options = [
        "chargpt.py",
        "--trainer.max_iters=4",
        "--trainer.num_workers=0",
        "--trainer.batch_size=8",
        "--data.block_size=32",
    ]
    both("minGPT", tmp_path, [*options, "--model.model_type=gpt-nano"], _project("chargpt")).check(1e-5, steps=4)
