"""Commands of PyTorch, TorchServe and Horovod: each is a sub-command of `flambeau`, and `flambeau activate` installs their names.

Installing Flambeau installs no command but `flambeau`, so that it never replaces another package's.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from .core import naming

# name -> (module, function that takes the arguments, help)
OTHERS = {
    "torchrun": ("distributed.run", "main", "start the ranks of a program, and restart them after failures"),
    "torchserve": ("serve.cli", "torchserve", "start and stop a server with TorchServe's options"),
    "torch-model-archiver": ("serve.archiver", "model_archiver", "make a model archive (.mar)"),
    "torch-workflow-archiver": ("serve.archiver", "workflow_archiver", "make a workflow archive (.war)"),
    "horovodrun": ("horovod.runner.launch", "main", "start the ranks of a Horovod program"),
}
_MARK = "# Written by `flambeau activate`; `flambeau deactivate` removes it."


def run(name: str, arguments: Sequence[str]) -> int:
    """Run the command `name` of `OTHERS` and return its exit code. Its module is imported only now."""
    module, function, _ = OTHERS[name]
    return naming.attribute(naming.PACKAGE, module, function)(arguments) or 0


def _script(name: str) -> str:
    # The shell starts this environment's Python on the same file: a first line cannot hold a path with spaces.
    return f"""\
#!/bin/sh
'''exec' "{sys.executable}" "$0" "$@"
' '''
{_MARK}
import sys
from {__package__}.cli import main
sys.exit(main(["{name}", *sys.argv[1:]]))
"""


def install_names() -> tuple[list[Path], list[Path]]:
    """Install each name of `OTHERS` in this environment unless a file of that name exists. Returns the files of Flambeau's commands, and
    the existing files of others."""
    own: list[Path] = []
    others: list[Path] = []
    for name in OTHERS:
        path = Path(sysconfig.get_path("scripts"), name)
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(_script(name))
            path.chmod(0o755)
        except FileExistsError:
            pass
        (own if _is_own(path) else others).append(path)
    return own, others


def remove_names() -> list[Path]:
    """Remove the commands that `install_names` has written, and nothing else. Returns their files."""
    removed = [path for name in OTHERS if _is_own(path := Path(sysconfig.get_path("scripts"), name))]
    for path in removed:
        path.unlink()
    return removed


def _is_own(path: Path) -> bool:
    return path.is_file() and _MARK.encode() in path.read_bytes()
