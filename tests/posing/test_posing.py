"""Programs that import torch, run by `python -m flambeau`: nothing here needs PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import flambeau

ROOT = str(Path(flambeau.__file__).parents[1])


def run(*arguments: str, cwd: Path, expect: int = 0, launcher: tuple[str, ...] = ("-m", "flambeau")) -> tuple[str, str]:
    environment = {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *launcher, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == expect, done.stderr
    return done.stdout, done.stderr


def script(directory: Path, text: str, name: str = "program.py") -> str:
    (directory / name).write_text(textwrap.dedent(text))
    return name


def test_torch_names_are_the_same_modules(tmp_path):
    script(tmp_path, "import torch.nn as nn\nclass Net(nn.Module): ...\n", "helper_of_program.py")
    out, _ = run(
        script(
            tmp_path,
            """
            import sys
            import torch
            import torch.nn.functional as F
            import torch.optim.lr_scheduler
            from torch import Tensor, nn
            from torch.utils.data import DataLoader
            import flambeau
            import helper_of_program                       # found beside the script
            assert torch is flambeau and F is flambeau.nn.functional and nn is flambeau.nn
            assert Tensor is flambeau.Tensor and DataLoader is flambeau.utils.data.DataLoader
            assert issubclass(helper_of_program.Net, flambeau.nn.Module)
            assert torch.optim.lr_scheduler is sys.modules["flambeau.optim.lr_scheduler"]
            assert torch.special is sys.modules["torch.special"]            # also when not imported by name
            assert torch.nn.__spec__.name == "flambeau.nn" and torch.__name__ == "torch"
            assert torch.__version__.startswith("2.13.0+") and torch.__version__ >= (2, 1) and torch.__version__ < "3"
            assert tuple(int(p) for p in torch.__version__.split("+")[0].split(".")) == (2, 13, 0)
            assert not torch.cuda.is_available() and torch.version.cuda is None
            print(torch.ones(2).sum())
            """,
        ),
        cwd=tmp_path,
    )
    assert out == "tensor(2.)\n"


def test_the_program_sees_what_it_sees_under_plain_python(tmp_path):
    (tmp_path / "folder").mkdir()
    name = script(
        tmp_path / "folder",
        """
        import sys
        main = sys.modules["__main__"]
        print(sys.argv, __name__, __file__, __spec__, __package__, sys.path[0], main.__dict__ is globals())
        print(sorted(k for k in globals() if k.startswith("__")))
        """,
    )
    arguments = [f"folder/{name}", "-m", "--flag", "x y"]
    assert run(*arguments, cwd=tmp_path) == run(*arguments, cwd=tmp_path, launcher=())


@pytest.mark.parametrize(
    "body",
    ["def f():\n    1 / 0\nf()\n", "try:\n    {}['a']\nexcept KeyError:\n    raise ValueError('b')\n", "x = (\n"],
    ids=["error", "chained", "syntax"],
)
def test_tracebacks_are_the_programs_own(tmp_path, body):
    name = script(tmp_path, body)
    ours, plain = (run(name, cwd=tmp_path, expect=1, launcher=how) for how in (("-m", "flambeau"), ()))
    assert ours == plain


def test_exit_codes(tmp_path):
    assert run("-c", "import sys; print(sys.argv); sys.exit(7)", "a", cwd=tmp_path, expect=7)[0] == "['-c', 'a']\n"
    assert "can't open file" in run("missing.py", cwd=tmp_path, expect=2)[1]
    assert "usage" in run(cwd=tmp_path, expect=2)[1]
    assert "usage" in run("--help", cwd=tmp_path)[0]
    assert "Unknown option" in run("--fast", cwd=tmp_path, expect=2)[1]


def test_modules_and_the_command(tmp_path):
    name = script(tmp_path, "import sys, torch\nprint(sys.argv[1:], __name__, __spec__.name, torch.__version__[:4])")
    expected = "['--a'] __main__ program 2.13\n"
    assert run("-m", name[:-3], "--a", cwd=tmp_path)[0] == expected
    assert run("run", "-m", name[:-3], "--a", cwd=tmp_path, launcher=("-m", "flambeau.cli"))[0] == expected


MISSING = """
import torch, torch.nn.functional as F

def message(statement):
    try:
        exec(statement)
    except (AttributeError, ImportError) as problem:
        return f"{type(problem).__name__}: {problem}"

print(message("torch.no_such_thing"))
print(message("F.no_such_thing"))
print(message("torch.utils.no_such_thing"))
print(message("torch.backends.no_such_thing"))
print(message("torch.linalg.no_such_thing"))
print(message("import torch.no_such_thing.deeper"))
print(message("from torch.nn import no_such_thing"))
print(message("import torchvision.no_such_thing"))
print(hasattr(torch, "no_such_thing"))
"""


def test_what_is_missing_is_named(tmp_path):
    lines = run("-c", MISSING, cwd=tmp_path)[0].splitlines()
    names = ["torch", "torch.nn.functional", "torch.utils", "torch.backends", "torch.linalg"]
    for line, module in zip(lines, names):
        assert line.startswith(f"AttributeError: {module}.no_such_thing is not in Flambeau yet")
    assert lines[5].startswith("ModuleNotFoundError: torch.no_such_thing is not in Flambeau yet")
    assert lines[6].startswith("ModuleNotFoundError: torch.nn.no_such_thing is not in Flambeau yet")
    assert lines[7].startswith("ModuleNotFoundError: torchvision") and lines[8] == "False"


def test_names_without_posing_are_flambeaus():
    with pytest.raises(AttributeError, match="module 'flambeau' has no attribute 'no_such_thing'"):
        flambeau.no_such_thing
    assert flambeau.__version__[:1] == "0"


def test_the_real_torch_must_not_be_loaded_yet(tmp_path):
    script(tmp_path, "", "torch.py")  # stands for the real one
    _, err = run("-c", "import torch, flambeau; flambeau.install_as_torch()", cwd=tmp_path, expect=1, launcher=())
    assert "RuntimeError: install_as_torch() must come before the first `import torch`" in err


def test_installing_twice_is_once(tmp_path):
    code = """
    import sys, flambeau
    before = len(sys.meta_path)
    flambeau.install_as_torch(); flambeau.install_as_torch()
    import torch
    assert torch is flambeau and len(sys.meta_path) == before + 6
    """
    run("-c", textwrap.dedent(code), cwd=tmp_path, launcher=())


WORKERS = """
import sys
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        import torch.nn.functional as F
        return F.relu(torch.tensor(float(i)))

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.count = torch.nn.Parameter(torch.zeros(1))

def train(rank, model, queue):
    with torch.no_grad():
        model.count += 1
    queue.put((rank, torch.__version__))

if __name__ == "__main__":
    method = sys.argv[1]
    loader = DataLoader(Numbers(), batch_size=2, num_workers=1, multiprocessing_context=method)
    assert [batch.tolist() for batch in loader] == [[0.0, 1.0], [2.0, 3.0]]
    context = mp.get_context(method)
    queue, model = context.Queue(), Net()
    model.share_memory()
    worker = context.Process(target=train, args=(0, model, queue))
    worker.start()
    assert queue.get(timeout=60) == (0, torch.__version__)
    worker.join()
    assert worker.exitcode == 0 and model.count.item() == 1
    print("done")
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_worker_processes_pose_too(tmp_path, method):
    assert run(script(tmp_path, WORKERS), method, cwd=tmp_path)[0] == "done\n"


def test_workers_of_a_program_run_as_a_module(tmp_path):
    script(tmp_path, WORKERS)
    assert run("-m", "program", "spawn", cwd=tmp_path)[0] == "done\n"


def test_pickles_and_checkpoints_with_torch_names(tmp_path):
    code = """
    import pickle, torch
    from torch.serialization import safe_globals

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

    net = Net()
    x = torch.ones(1, 2)
    again = pickle.loads(pickle.dumps(net))
    torch.save(net, "net.pt")
    torch.save(torch.nn.Linear(2, 2), "linear.pt")
    torch.save({"version": torch.__version__}, "version.pt")
    assert torch.load("version.pt", weights_only=False)["version"] >= "2.13"
    loaded = torch.load("net.pt", weights_only=False)
    for other in (again, loaded):
        assert type(other) is Net and torch.equal(other.layer(x), net.layer(x))
    with safe_globals([torch.nn.Linear, set]):
        assert type(torch.load("linear.pt")) is torch.nn.Linear
    # what PyTorch itself writes into plain pickles
    assert pickle.loads(b"ctorch.nn.modules.linear\\nLinear\\n.") is torch.nn.Linear
    assert pickle.loads(b"ctorch._utils\\n_rebuild_tensor_v2\\n.") is torch._utils._rebuild_tensor_v2
    """
    run(script(tmp_path, code), cwd=tmp_path)
    torch = pytest.importorskip("torch", reason="reads with the real PyTorch what the program above wrote")
    assert type(torch.load(tmp_path / "linear.pt", weights_only=False)) is torch.nn.Linear
    found = torch.load(tmp_path / "version.pt", weights_only=False)["version"]
    assert found.startswith("2.13.0+flambeau") and found > (2, 12)


def test_plain_pickles_of_pytorch(tmp_path):
    torch = pytest.importorskip("torch", reason="writes pickles with the real PyTorch")
    import pickle

    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    with (tmp_path / "real.pkl").open("wb") as file:
        pickle.dump({"model": model, "x": torch.arange(6).reshape(2, 3).T, "half": torch.ones(2).bfloat16()}, file)
    code = """
    import pickle, torch
    found = pickle.load(open("real.pkl", "rb"))
    print(found["x"].tolist(), found["x"].stride(), found["half"], found["model"][0].weight.tolist())
    """
    out, _ = run(script(tmp_path, code), cwd=tmp_path)
    assert out == f"[[0, 3], [1, 4], [2, 5]] (1, 3) tensor([1., 1.], dtype=torch.bfloat16) {model[0].weight.tolist()}\n"


NAMED = """
import importlib.metadata, importlib.util, io, pickle
import torch, torchvision
print(type(torch.ones(1)), type(torch.float32), type(torch.nn.Linear(1, 1)), torch.nn.Parameter, torch.optim.Adam)
print(torchvision.models.ResNet, torchvision.transforms.Compose, torch.distributions.Normal, torch.optim.lr_scheduler.StepLR)
print(importlib.util.find_spec("torch.no_such_thing"), importlib.util.find_spec("torchvision.no_such_thing"))
print(importlib.util.find_spec("torch.nn") is not None, importlib.util.find_spec("torchvision") is not None)
print(importlib.metadata.version("torch").partition("+")[0], importlib.metadata.version("torchvision").partition("+")[0])
print(b"torch.nn.modules.activation" in pickle.dumps(torch.nn.ReLU()), pickle.loads(pickle.dumps(torch.nn.ReLU())))
print(torch.distributions.Normal(torch.zeros(1), 1.0).expand([2]))
file = io.BytesIO()
torch.save([torchvision.models.squeezenet1_1(num_classes=2), torchvision.transforms.CenterCrop(3)], file)
file.seek(0)
print([type(part) for part in torch.load(file, weights_only=False)])
"""


def test_classes_say_that_they_are_pytorchs(tmp_path):
    assert run("-c", NAMED, cwd=tmp_path)[0].splitlines() == [
        "<class 'torch.Tensor'> <class 'torch.dtype'> <class 'torch.nn.modules.linear.Linear'>"
        " <class 'torch.nn.parameter.Parameter'> <class 'torch.optim.adam.Adam'>",
        "<class 'torchvision.models.resnet.ResNet'> <class 'torchvision.transforms.transforms.Compose'>"
        " <class 'torch.distributions.normal.Normal'> <class 'torch.optim.lr_scheduler.StepLR'>",
        "None None",
        "True True",
        "2.13.0 0.28.0",
        "True ReLU()",
        "Normal(loc: torch.Size([2]), scale: torch.Size([2]))",
        "[<class 'torchvision.models.squeezenet.SqueezeNet'>, <class 'torchvision.transforms.transforms.CenterCrop'>]",
    ]
