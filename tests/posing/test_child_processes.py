"""Programs that a program starts, and whole environments: torch is Flambeau there, too."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import textwrap
import venv
from pathlib import Path

import pytest

import flambeau

ROOT = str(Path(flambeau.__file__).parents[1])


def python(*arguments: str, cwd: Path, executable: str = sys.executable, path: str = ROOT, expect: int = 0) -> str:
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    if not path:
        del environment["PYTHONPATH"]
    done = subprocess.run(
        [executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == expect, done.stderr
    return done.stdout


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(textwrap.dedent(text))
    return name


CHILD = """
import sys
assert not any(name.partition(".")[0] in ("flambeau", "numpy") for name in sys.modules), "a start costs nothing"
import torch, torchvision, flambeau
import torch.nn.functional as F
assert torch is flambeau and torchvision is flambeau.vision and F is flambeau.nn.functional
print(sys.argv[1:], torch.__version__.partition("+")[0])
"""
LAUNCHER = """
import os, subprocess, sys
subprocess.run([sys.executable, "child.py", "one"], check=True)
subprocess.run([sys.executable, "child.py", "two"], check=True, env={**os.environ, "RANK": "1"})
subprocess.run([sys.executable, "child.py", "three"], check=True, env={"PYTHONPATH": os.pathsep.join(sys.path)})
again = "import subprocess, sys; subprocess.run([sys.executable, 'child.py', 'four'], check=True)"
subprocess.run([sys.executable, "-c", again], check=True)
"""
FOUR = "".join(f"['{word}'] 2.13.0\n" for word in ("one", "two", "three", "four"))


def test_programs_started_by_a_program(tmp_path):
    write(tmp_path, "child.py", CHILD)
    assert python("-m", "flambeau", write(tmp_path, "start.py", LAUNCHER), cwd=tmp_path) == FOUR


def test_programs_that_find_flambeau_nowhere_else(tmp_path):
    """The package was imported from the working directory, which is not on the children's module path."""
    write(tmp_path, "child.py", CHILD)
    (tmp_path / "flambeau").symlink_to(Path(ROOT, "flambeau"))
    write(
        tmp_path,
        "start.py",
        "import subprocess, sys\nsubprocess.run([sys.executable, 'child.py'], cwd='folder', check=True)",
    )
    (tmp_path / "folder").mkdir()
    (tmp_path / "child.py").rename(tmp_path / "folder" / "child.py")
    assert python("-m", "flambeau", "start.py", cwd=tmp_path, path="") == "[] 2.13.0\n"


def test_questions_about_torch_do_not_import_it(tmp_path):
    code = """
    import importlib.metadata, importlib.util, sys
    assert importlib.util.find_spec("torch") and importlib.util.find_spec("torchvision")
    assert "flambeau" not in sys.modules
    print(importlib.metadata.version("torch").partition("+")[0], importlib.metadata.version("torchvision").partition("+")[0])
    """
    write(tmp_path, "child.py", code)
    start = "import subprocess, sys; subprocess.run([sys.executable, 'child.py'], check=True)"
    assert python("-m", "flambeau", "-c", start, cwd=tmp_path) == "2.13.0 0.28.0\n"


def test_an_environments_own_sitecustomize_follows(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    write(theirs, "sitecustomize.py", "import sys\nsys.customised = True\nsys.path.append('/added')\n")
    code = "import sys, sitecustomize, torch; print(sys.customised, sys.path[-1], sitecustomize.__file__, torch.nn.__spec__.name)"
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}], check=True)"
    out = python("-m", "flambeau", "-c", start, cwd=tmp_path, path=os.pathsep.join([ROOT, str(theirs)]))
    assert out == f"True /added {theirs / 'sitecustomize.py'} flambeau.nn\n"


def test_an_error_in_it_is_shown_as_usual(tmp_path):
    write(tmp_path, "sitecustomize.py", "import no_such_module\n")
    start = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', 'import torch; print(torch.ones(1))']).returncode)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, str(tmp_path)])}
    done = subprocess.run(
        [sys.executable, "-m", "flambeau", "-c", start], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "tensor([1.])\n" and "No module named 'no_such_module'" in done.stderr


def test_starting_twice_exports_once(tmp_path):
    code = "import os, sys; print(os.environ['PYTHONPATH'].count('startup'), sum('startup' in entry for entry in sys.path))"
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-m', 'flambeau', '-c', {code!r}], check=True)"
    assert python("-m", "flambeau", "-c", start, cwd=tmp_path) == "1 1\n"


@pytest.fixture
def environment(tmp_path: Path) -> str:
    """The Python of a fresh virtual environment that sees the packages installed here, and this Flambeau."""
    folder = tmp_path / "environment with spaces"
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "here.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    return str(folder / "bin" / "python")


def test_an_environment_is_activated_and_deactivated(tmp_path, environment):
    write(tmp_path, "child.py", CHILD)

    def command(name: str) -> str:
        return python("-m", "flambeau.cli", name, cwd=tmp_path, executable=environment, path="")

    pth = next((tmp_path / "environment with spaces").glob("lib/python*/site-packages")) / "flambeau-as-torch.pth"
    assert str(pth) in command("activate") and pth.is_file()
    assert python("child.py", "plain", cwd=tmp_path, executable=environment, path="") == "['plain'] 2.13.0\n"
    assert python("-m", "flambeau", "child.py", cwd=tmp_path, executable=environment, path="", expect=1) == ""
    command("activate")  # twice is once
    quiet = "import sys; print(any('startup' in entry for entry in sys.path))"
    assert python("-c", quiet, cwd=tmp_path, executable=environment, path="") == "False\n"
    assert "no longer" in command("deactivate") and not pth.exists()
    assert "was not activated" in command("deactivate")
    unlike = "import sys; assert not [f for f in sys.meta_path if type(f).__name__ == 'TorchLater']"
    python("-c", unlike, cwd=tmp_path, executable=environment, path="")


NAMES = ("torchrun", "torchserve", "torch-model-archiver", "torch-workflow-archiver", "horovodrun")


def test_an_activated_environment_has_the_commands_that_nobody_else_installed(tmp_path, environment):
    def command(name: str) -> str:
        return python("-m", "flambeau.cli", name, cwd=tmp_path, executable=environment, path="")

    scripts = Path(environment).parent
    (scripts / "horovodrun").write_text("#!/bin/sh\necho the real one\n")
    (scripts / "torchserve").symlink_to(tmp_path / "gone")  # a link counts, wherever it leads
    said = command("activate")
    assert f"{scripts / 'horovodrun'} belongs to another package" in said and "flambeau torchserve" in said
    program = write(tmp_path, "program.py", "import os, torch; print(torch.__name__, os.environ['RANK'])")
    done = subprocess.run(
        [scripts / "torchrun", "--standalone", "--nproc-per-node", "2", program],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, sorted(done.stdout.split("\n"))) == (0, ["", "torch 0", "torch 1"]), done.stderr
    assert sum((scripts / name).exists() for name in NAMES) == 4
    command("activate")
    said = command("deactivate")
    assert str(scripts / "torchrun") in said
    assert [name for name in NAMES if os.path.lexists(scripts / name)] == ["torchserve", "horovodrun"]
    assert (scripts / "horovodrun").read_text() == "#!/bin/sh\necho the real one\n"


def test_installing_installs_no_command_but_flambeau():
    project = Path(ROOT, "pyproject.toml")
    if not project.exists():
        pytest.skip("the sources are not here")
    section = project.read_text().partition("[project.scripts]\n")[2].partition("\n[")[0]
    assert [line.partition(" ")[0] for line in section.split("\n") if line.strip()] == ["flambeau"]


@pytest.mark.parametrize("name", NAMES)
def test_commands_of_others_are_sub_commands(tmp_path, name):
    assert f"usage: {name} " in python("-m", "flambeau.cli", name, "--help", cwd=tmp_path)


def test_an_activated_environment_outlives_the_package(tmp_path, environment):
    python("-m", "flambeau.cli", "activate", cwd=tmp_path, executable=environment, path="")
    pth = next((tmp_path / "environment with spaces").glob("lib/python*/site-packages")) / "flambeau-as-torch.pth"
    pth.write_text(pth.read_text().replace(ROOT, "/no/such/folder"))
    done = subprocess.run([environment, "-c", "print(1)"], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_an_environment_that_cannot_be_written_to(tmp_path, monkeypatch, capsys):
    from flambeau import cli
    from flambeau.compat.as_torch import activation

    monkeypatch.setattr(activation.sysconfig, "get_path", lambda name: str(tmp_path / "missing"))
    assert cli.main(["activate"]) == 1
    assert "virtual environment" in capsys.readouterr().err


def test_the_command_says_its_version(tmp_path):
    assert python("-m", "flambeau.cli", "--version", cwd=tmp_path) == f"flambeau {flambeau.__version__}\n"


def test_a_module_of_pytorchs_is_run_by_its_name() -> None:
    """`python -m flambeau -m torch.distributed.run` and packages with a `__main__`."""
    for module in ("torch.distributed.run", "torch.utils.bottleneck"):
        done = subprocess.run(
            [sys.executable, "-m", "flambeau", "-m", module, "-h"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "usage" in done.stdout
