"""PyTorch's operator and module databases on a GPU: every sample is computed there, and compared with PyTorch.

    python -m tests.cuda                                  forward, float32
    python -m tests.cuda --grad --dtypes bfloat16         other dtypes, gradients
    python -m tests.cuda --modules                        nn.Module's database
    python -m tests.cuda --judge PATH/opinfo_check.py     where the judge is, if not in ../shared/tools

All other options are the judge's own (see its --help); tensors are moved to the device on the way in, and back on the way out."""

from __future__ import annotations

import importlib.util
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


def main() -> int:
    arguments, path, where = sys.argv[1:], None, "cuda"
    for name in ("--judge", "--device"):
        if name in arguments:
            at = arguments.index(name)
            value = arguments.pop(at + 1)
            arguments.pop(at)
            path, where = (Path(value), where) if name == "--judge" else (path, value)
    found = path or next((p for p in _PLACES if p.exists()), None)
    if found is None:
        print("the judge, opinfo_check.py, is not here: name it with --judge", file=sys.stderr)
        return 2
    sys.argv = [str(found), "--mem-gb", "0", *arguments]
    prepare_torch()
    judge = load_judge(found)
    onto(judge, where)
    return judge.main()


def prepare_torch() -> None:
    """PyTorch computes on the CPU here. It must not start the driver: the judge's workers are forked, and a driver that was started
    before cannot be used in them."""
    if importlib.util.find_spec("expecttest") is None:  # PyTorch's test helpers import it; the databases do not use it
        sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase)  # type: ignore[assignment]
    import torch

    torch.cuda.is_available = lambda: False
    torch.cuda.device_count = lambda: 0
    from torch.testing._internal.opinfo.core import OpInfo

    if not hasattr(OpInfo, "has_nondeterministic_output"):  # it came with PyTorch 2.13
        OpInfo.has_nondeterministic_output = False


if __name__ == "__main__":
    sys.exit(main())
