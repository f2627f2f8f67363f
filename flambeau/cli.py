"""The `flambeau` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from . import commands
from .compat.as_torch import launch
from .compat.as_torch.activation import activate, activation_file, deactivate
from .core import naming
from .installed import show_all
from .kernels import cache
from .serve import bench, quick
from .torch_version import OWN_VERSION
from .utils import im2rec


def _info(options: argparse.Namespace) -> int:
    print(show_all())
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
    """Run `flambeau activate` or `flambeau deactivate`."""
    try:
        print("\n".join(_activated() if options.command == "activate" else _deactivated()))
    except OSError as problem:
        print(
            f"{problem.filename} cannot be changed ({problem.strerror}): use a virtual environment (python -m venv), or run programs"
            " with python -m flambeau",
            file=sys.stderr,
        )
        return 1
    return 0


def _activated() -> list[str]:
    """Install Flambeau as torch in this environment; return messages for the user."""
    path = activate()
    own, others = commands.install_names()
    text = [f"import torch gives Flambeau in {sys.prefix} from now on ({path}); flambeau deactivate undoes it"]
    if own:
        text.append(f"commands: {', '.join(file.name for file in own)} (in {own[0].parent})")
    text += [f"{file} belongs to another package and stays; use: flambeau {file.name}" for file in others]
    return text


def _deactivated() -> list[str]:
    """Undo `flambeau activate` in this environment; return messages for the user."""
    commands_removed = commands.remove_names()
    path = deactivate()
    if path is None and not commands_removed:
        return [f"Flambeau was not activated in {sys.prefix} (there is no {activation_file()})"]
    removed = [str(file) for file in (path, *commands_removed) if file is not None]
    return [f"import torch is no longer Flambeau in {sys.prefix} (removed {', '.join(removed)})"]


def _demo(options: argparse.Namespace) -> int:
    demo = naming.above("demo")  # only this command needs it
    try:
        demo.main(options.epochs, options.output, options.checkpoint, options.resume)
    except demo.DemoError as problem:
        print(f"flambeau demo: {problem}", file=sys.stderr)
        return 1
    return 0


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, not {text!r}")
    return int(text)


def _add_serving(parts: Any) -> None:
    served = parts.add_parser("serve", help="serve models over HTTP: flambeau serve resnet18.pt")
    quick.add_arguments(served)
    loaded = parts.add_parser("bench-serve", help="ask a server as fast as it answers, and draw the latencies")
    bench.add_arguments(loaded)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="flambeau", description="Flambeau: deep learning with PyTorch's interface.")
    parser.add_argument("--version", action="version", version=f"flambeau {OWN_VERSION}")
    parts = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND")
    info = parts.add_parser("info", help="versions, GPUs, CPU features, threads, extras, caches")
    info.set_defaults(run=_info)
    cached = parts.add_parser("cache", help="compiled kernels kept on disk")
    cached.add_argument("action", choices=["show", "clear"])
    cached.set_defaults(run=_cache)
    parts.add_parser("run", help="run a program written for PyTorch: flambeau run script.py arguments...")
    for name, text in (("activate", "make"), ("deactivate", "stop making")):
        switch = parts.add_parser(name, help=f"{text} `import torch` give Flambeau in this Python environment")
        switch.set_defaults(run=_activate)
    demo = parts.add_parser("demo", help="train a convolutional network on the shipped digits")
    demo.add_argument("--epochs", type=_at_least_one, default=15)
    demo.add_argument("--output", default="digits.png", help="where to draw curves and predictions")
    demo.add_argument("--checkpoint", default="digits.pt", help="written after each epoch")
    demo.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    demo.set_defaults(run=_demo)
    _add_serving(parts)
    records = parts.add_parser("im2rec", help="lists of images, and RecordIO files of the images in a list")
    im2rec.add_arguments(records)
    records.set_defaults(run=im2rec.run)
    for name, (_, _, text) in commands.OTHERS.items():
        parts.add_parser(name, help=text)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments[:1] == ["run"]:  # what follows belongs to the program, options too
        launch.run(arguments[1:])
        return 0
    if arguments and arguments[0] in commands.OTHERS:
        return commands.run(arguments[0], arguments[1:])
    parser = build_parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
