"""The `flambeau` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from . import __version__, launch
from .activation import activate, activation_file, deactivate
from .config import show
from .kernels import cache
from .serve import bench, quick
from .utils import im2rec


def _info(options: argparse.Namespace) -> int:
    print(show())
    return 0


def _cache(options: argparse.Namespace) -> int:
    if options.action == "clear":
        before = cache.info()
        cache.clear()
        print(f"removed {before['files']} kernels, {before['bytes'] / 1e6:.1f} MB, from {before['path']}")
    else:
        print(cache.summary())
    return 0


def _activate(options: argparse.Namespace) -> int:
    """Both commands: in this environment, torch is Flambeau from now on, or no longer."""
    path = activation_file()
    try:
        found = activate() if options.command == "activate" else deactivate()
    except OSError as problem:
        print(
            f"{path} cannot be changed ({problem.strerror}): use a virtual environment (python -m venv), or run programs with"
            " python -m flambeau",
            file=sys.stderr,
        )
        return 1
    if options.command == "activate":
        print(f"import torch gives Flambeau in {sys.prefix} from now on ({found}); flambeau deactivate undoes it")
    elif found is not None:
        print(f"import torch is no longer Flambeau in {sys.prefix} (removed {found})")
    else:
        print(f"Flambeau was not activated in {sys.prefix} (there is no {path})")
    return 0


def _demo(options: argparse.Namespace) -> int:
    from .demo import main as run_demo  # noqa: PLC0415  only this command needs it

    run_demo(options.epochs, options.output, options.checkpoint, options.resume)
    return 0


def _add_serving(commands: Any) -> None:
    served = commands.add_parser("serve", help="serve models over HTTP: flambeau serve resnet18.pt")
    quick.add_arguments(served)
    loaded = commands.add_parser("bench-serve", help="ask a server as fast as it answers, and draw the latencies")
    bench.add_arguments(loaded)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="flambeau", description="Flambeau: deep learning with PyTorch's interface.")
    parser.add_argument("--version", action="version", version=f"flambeau {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    info = commands.add_parser("info", help="versions, CPU features, threads, libraries, cache")
    info.set_defaults(run=_info)
    cached = commands.add_parser("cache", help="compiled kernels kept on disk")
    cached.add_argument("action", choices=["show", "clear"])
    cached.set_defaults(run=_cache)
    commands.add_parser("run", help="run a program written for PyTorch: flambeau run script.py arguments...")
    for name, text in (("activate", "make"), ("deactivate", "stop making")):
        switch = commands.add_parser(name, help=f"{text} `import torch` give Flambeau in this Python environment")
        switch.set_defaults(run=_activate)
    demo = commands.add_parser("demo", help="train a convolutional network on the shipped digits")
    demo.add_argument("--epochs", type=int, default=15)
    demo.add_argument("--output", default="digits.png", help="where to draw curves and predictions")
    demo.add_argument("--checkpoint", default="digits.pt", help="written after each epoch")
    demo.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    demo.set_defaults(run=_demo)
    _add_serving(commands)
    records = commands.add_parser("im2rec", help="lists of images, and RecordIO files of the images in a list")
    im2rec.add_arguments(records)
    records.set_defaults(run=im2rec.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments[:1] == ["run"]:  # what follows belongs to the program, options too
        launch.run(arguments[1:])
        return 0
    options = build_parser().parse_args(arguments)
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
