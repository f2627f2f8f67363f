"""`flambeau serve resnet18.pt`: serves a file of weights, a serialized model or a known model name, packed into an archive."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flambeau

from ..core import naming
from ..core.private_folders import Scratch, state_folder
from . import archiver
from .errors import ServeError
from .settings import ConfigurationError, Settings, read_properties

if TYPE_CHECKING:
    from .models import Model
    from .server import Server

_MODEL_FILE = '''from torchvision import models


class Served:
    """Makes {name} when it is called."""

    def __new__(cls):
        return models.get_model({name!r}, weights=None{options})
'''


def _is_torchscript(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as file:
        return any("/code/" in name for name in file.namelist())


def _state_dict(path: Path) -> dict[str, Any]:
    """Return the weights in a file, plain or as `state_dict` or `model` of a checkpoint."""
    if path.suffix == ".safetensors":
        return dict(flambeau.safetensors.load_file(str(path)))
    content = flambeau.load(path, map_location="cpu")
    for key in ("state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(v, flambeau.Tensor) for v in content.values()):
        raise ConfigurationError(f"{path} holds no weights: a dictionary of tensors is expected")
    return {name.removeprefix("module."): value for name, value in content.items()}


def _architecture(path: Path, wanted: str | None) -> str:
    known = naming.above("vision.models").list_models()
    if wanted is not None:
        if wanted not in known:
            raise ConfigurationError(f"--arch {wanted}: not one of {', '.join(known)}")
        return wanted
    stem = re.sub(r"\W", "_", path.stem.lower())
    fitting = [name for name in known if stem == name or stem.startswith(f"{name}_")]
    if not fitting:
        raise ConfigurationError(
            f"the model of the weights in {path.name} cannot be inferred from its name: pass --arch, one of {', '.join(known)}"
        )
    return max(fitting, key=len)


def _classes(weights: dict[str, Any]) -> int:
    """Return the number of classes of the last layer, by its bias; 1000 without one."""
    last = [value for name, value in weights.items() if name.endswith("bias") and value.dim() == 1]
    return int(last[-1].shape[0]) if last else 1000


def _vision_model(name: str, weights: dict[str, Any], work: Path) -> dict[str, Any]:
    classes = _classes(weights)
    model_file = work / "served_model.py"
    model_file.write_text(_MODEL_FILE.format(name=name, options="" if classes == 1000 else f", num_classes={classes}"))
    flambeau.save(weights, work / "weights.pt")
    return {"model_file": str(model_file), "serialized_file": str(work / "weights.pt"), "handler": "image_classifier"}


def _from_name(name: str, work: Path) -> dict[str, Any]:
    models = naming.above("vision.models")
    if name not in models.list_models():
        raise ConfigurationError(f"{name} is neither a file nor one of the models {', '.join(models.list_models())}")
    return _vision_model(name, models.get_model(name, weights="DEFAULT").state_dict(), work)


def package(source: str, store: Path, options: argparse.Namespace) -> tuple[str, str]:
    """Add a model to the store; return the file name of its archive and the model's name."""
    path = Path(source)
    name = options.name or re.sub(
        r"[^\w.-]", "_", path.name.removesuffix(".mar") if path.suffix == ".mar" else path.stem
    )
    if path.suffix == ".mar" or path.is_dir():
        target = store / path.name
        if path.is_dir():
            shutil.copytree(path, target)
        else:
            shutil.copy(path, target)
        return path.name, name
    with tempfile.TemporaryDirectory(prefix="flambeau-quick-") as work:
        if not path.exists():
            parts = _from_name(source, Path(work))
        elif path.suffix == ".py":
            parts = {"handler": source}
        elif path.suffix in (".pt2", ".onnx", ".so") or _is_torchscript(path):
            parts = {"serialized_file": source, "handler": "tensor_handler"}
        else:
            parts = _vision_model(_architecture(path, options.arch), _state_dict(path), Path(work))
        if options.handler:
            parts["handler"] = options.handler
        if options.labels:
            labels = Path(work) / "index_to_name.json"
            labels.write_text(_labels(Path(options.labels)))
            parts["extra_files"] = str(labels)
        made = archiver.package_model(
            name, version="1.0", export_path=str(store), force=True, archive_format="zip-store", **parts
        )
        return made.name, name


def _labels(path: Path) -> str:
    """Return the names of classes as JSON, from a JSON file or from a text with one name per line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return text
    return json.dumps({str(i): line.strip() for i, line in enumerate(text.splitlines()) if line.strip()})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models", nargs="*", help="files (.pt .pth .safetensors .pt2 .onnx .so .mar .py) or names such as resnet18"
    )
    parser.add_argument("--name", help="the model's name (its file's)")
    parser.add_argument("--arch", help="the model a file of weights belongs to (told from the file's name)")
    parser.add_argument("--handler", help="a built-in handler's name, or a Python file")
    parser.add_argument("--labels", help="names of the classes: index_to_name.json, or a line for each")
    parser.add_argument("--workers", type=int, default=1, help="processes for each model (1)")
    parser.add_argument("--batch-size", type=int, default=1, help="how many requests go together at most (1)")
    parser.add_argument(
        "--max-batch-delay", type=int, default=10, help="how long a request waits for others, in ms (10)"
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument(
        "--port", type=int, default=8080, help="of inference; management is the next, metrics the one after"
    )
    parser.add_argument("--config", help="a config.properties file")
    parser.add_argument("--model-store", help="serve all archives of this folder, too")
    parser.add_argument("--token-auth", action="store_true", help="ask clients for the keys in key_file.json")
    parser.add_argument(
        "--single-process", action="store_true", help="run handlers in threads of the server: for small machines"
    )
    parser.add_argument("--verbose", action="store_true", help="show the log while running")
    parser.set_defaults(run=run)


def _settings(options: argparse.Namespace, store: Path) -> Settings:
    values = read_properties(Path(options.config).read_text(encoding="utf-8")) if options.config else {}
    host, port = options.host, options.port
    for i, kind in enumerate(("inference", "management", "metrics")):
        values.setdefault(
            f"{kind}_address", f"http://{host if kind == 'inference' else '127.0.0.1'}:{port + i if port else 0}"
        )
    values.setdefault("grpc_inference_port", "7070" if port == 8080 else "-1")
    values["model_store"] = str(store)
    values.setdefault("default_workers_per_model", str(options.workers))
    values.setdefault("metrics_mode", "prometheus")
    values["show_examples"] = "true"
    if not options.token_auth:
        values.setdefault("disable_token_authorization", "true")
    if options.single_process:
        values["single_process"] = "true"
    return Settings(values, snapshots=False)


def _choose_logs() -> None:
    """Write log files to the user's private state directory, unless LOG_LOCATION is set."""
    if "LOG_LOCATION" not in os.environ:
        os.environ["LOG_LOCATION"] = str(state_folder("serve"))
    os.environ.setdefault("METRICS_LOCATION", os.environ["LOG_LOCATION"])


def run(options: argparse.Namespace) -> int:
    """Run the command `flambeau serve` with parsed options; return its exit code."""
    if options.workers < 1:
        print(f"flambeau serve: --workers is at least 1, got {options.workers}", file=sys.stderr)
        return 2
    if not options.models and not options.model_store:
        print("flambeau serve: say which model, for example: flambeau serve resnet18.pt", file=sys.stderr)
        return 2
    with Scratch("store") as store:
        try:
            _choose_logs()
            packed = [package(source, store, options) for source in options.models]
            if options.model_store:
                for file in sorted(Path(options.model_store).glob("*.mar")):
                    (store / file.name).symlink_to(file.resolve())
                    packed.append((file.name, file.stem))
            settings = _settings(options, store)
        except (ConfigurationError, archiver.ArchiverError, OSError, RuntimeError) as e:
            print(f"flambeau serve: {e}", file=sys.stderr)
            return 1
        return _serve(settings, packed, options)


def _example_options(model: Model) -> str:
    """Return the data options of the printed curl command: an example that the model's handler has answered, if it has one."""
    kind, body = json.loads(model.example) if model.example else ("application/json", "[1, 2, 3]")
    return f"-H 'Content-Type: {kind}' -d {shlex.quote(body)}"


def _serve(settings: Settings, packed: list[tuple[str, str]], options: argparse.Namespace) -> int:
    try:
        registry, server_room = naming.above("serve.registry"), naming.above("serve.server")
    except ImportError as e:
        print(f"flambeau serve needs the package {e.name}: pip install flambeau[serve]", file=sys.stderr)
        return 1

    async def load(server: Server) -> None:
        address = server.addresses["inference"]
        for archive, name in packed:
            asked = registry.Registration(
                archive, name, batch_size=options.batch_size, max_batch_delay=options.max_batch_delay,
                initial_workers=options.workers,
            )  # fmt: skip
            _, words = await server.registry.register(asked)
            model = server.registry.get(name)
            server.say(f"{words}: {model.archive.handler}")
            server.say(f"  try it:  curl {address}/predictions/{name} {_example_options(model)}")
        server.say(f"  look at: {server.addresses['management']}/   logs: {settings.log_folder}")

    try:
        server_room.run(settings, load, console=options.verbose)
    except ServeError as e:
        print(f"flambeau serve: {e.message}", file=sys.stderr)
        return 1
    except (ConfigurationError, OSError) as e:
        print(f"flambeau serve: {e}", file=sys.stderr)
        return 1
    return 0
