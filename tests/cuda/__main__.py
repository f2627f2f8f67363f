"""PyTorch's operator and module databases on a GPU: every sample is computed there, and compared with PyTorch.

    python -m tests.cuda                                  forward, float32
    python -m tests.cuda --grad --dtypes bfloat16         other dtypes, gradients
    python -m tests.cuda --modules                        nn.Module's database
    python -m tests.cuda --judge PATH/opinfo_check.py     where the judge is, if not in ../shared/tools

All other options are the judge's own (see its --help); tensors are moved to the device on the way in, and back on the way out."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import types
import unittest
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_PLACES = (Path(__file__).with_name("opinfo_check.py"), _ROOT.parent / "shared/tools/opinfo_check.py")


def load_judge(path: Path) -> Any:
    """The judge as a module; it reads the command line itself."""
    spec = importlib.util.spec_from_file_location("opinfo_check", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["opinfo_check"] = module
    spec.loader.exec_module(module)
    return module


def onto(judge: Any, where: str) -> None:
    """Make the judge compute the package under test on a device."""
    target, bridge = judge.Target, judge.Bridge
    start, from_np, to_np, conv = target.__init__, target.from_np, target.to_np, bridge.conv

    def started(self: Any, package: str) -> None:
        start(self, package)
        if self.mod is not judge.torch:
            self.mod.set_default_device(where)
            self.mod.backends.cuda.matmul.allow_tf32 = self.mod.backends.cudnn.allow_tf32 = False

    def moved_there(self: Any, array: Any, dtype_name: str) -> Any:
        made = from_np(self, array, dtype_name)
        return made if self.mod is judge.torch else made.to(where)

    def moved_back(self: Any, t: Any, dtype_name: Any = None) -> Any:
        return to_np(self, t if self.mod is judge.torch else t.detach().cpu(), dtype_name)

    def converted(self: Any, x: Any) -> Any:
        if self.T.mod is not judge.torch:
            if x == "cpu" if isinstance(x, str) else isinstance(x, judge.torch.device) and x.type == "cpu":
                return where
            if isinstance(x, judge.torch.Generator):
                return self.T.resolve("Generator")(where).manual_seed(x.initial_seed())
        return conv(self, x)

    target.__init__, target.from_np, target.to_np, bridge.conv = started, moved_there, moved_back, converted


def in_processes(judge: Any, arguments: list[str]) -> None:
    """Let the judge's workers be programs of their own: a driver that a process has started cannot be used in its forks, and
    PyTorch's databases start it."""

    class Program(judge.Worker):
        def __init__(self, opt: Any, tasks: Any, log: str, others: Any = ()):
            self.progress = judge.Progress()
            asked, self.w = os.pipe()
            self.r, told = os.pipe()
            command = [sys.executable, "-W", "ignore", "-m", "tests.cuda", *arguments, "--worker", f"{asked},{told}"]
            self.process = subprocess.Popen(command, pass_fds=(asked, told), cwd=_ROOT)
            self.pid = self.process.pid
            os.close(asked)
            os.close(told)
            self.buf, self.task, self.since, self.count = b"", None, 0, 0

    judge.Worker = Program


def main() -> int:
    arguments = sys.argv[1:]
    own = {"--judge": "", "--device": "cuda", "--worker": ""}
    given = list(arguments)
    for name in own:
        if name in given:
            at = given.index(name)
            own[name] = given.pop(at + 1)
            given.pop(at)
    found = Path(own["--judge"]) if own["--judge"] else next((p for p in _PLACES if p.exists()), None)
    if found is None:
        print("the judge, opinfo_check.py, is not here: name it with --judge", file=sys.stderr)
        return 2
    sys.argv = [str(found), "--mem-gb", "0", "--recycle", "1000000", *given]
    prepare_torch()
    judge = load_judge(found)
    onto(judge, own["--device"])
    if own["--worker"]:
        asked, told = map(int, own["--worker"].split(","))
        judge.run_tasks = lambda opt, tasks, log, _: judge.worker_main(opt, tasks, asked, told, judge.Progress(), log)
    else:
        in_processes(judge, arguments)
    return judge.main()


def prepare_torch() -> None:
    """What the judge needs of PyTorch, which computes on the CPU here."""
    if importlib.util.find_spec("expecttest") is None:  # PyTorch's test helpers import it; the databases do not use it
        sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase)  # type: ignore[assignment]
    from torch.testing._internal.opinfo.core import OpInfo

    if not hasattr(OpInfo, "has_nondeterministic_output"):  # it came with PyTorch 2.13
        OpInfo.has_nondeterministic_output = False


if __name__ == "__main__":
    sys.exit(main())
